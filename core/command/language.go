package command

// Language is the sender's implementation language (RocketMQ's LanguageCode).
type Language uint8

// The languages RocketMQ numbers.
const (
	LanguageJava   Language = 0
	LanguageCPP    Language = 1
	LanguageDotnet Language = 2
	LanguagePython Language = 3
	LanguageDelphi Language = 4
	LanguageErlang Language = 5
	LanguageRuby   Language = 6
	LanguageOther  Language = 7
	LanguageHTTP   Language = 8
	LanguageGo     Language = 9
	LanguagePHP    Language = 10
	LanguageOMS    Language = 11
	LanguageRust   Language = 12
	LanguageNodeJS Language = 13
	// LanguageUnknown stands for a name or number RocketMQ does not know (Java reads null).
	LanguageUnknown Language = 0xff
)

var languageNames = [...]string{
	"JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY",
	"OTHER", "HTTP", "GO", "PHP", "OMS", "RUST", "NODE_JS",
}

// String is the name used in JSON; "OTHER" for LanguageUnknown, since admin tools
// fail on a missing language.
func (l Language) String() string {
	if int(l) < len(languageNames) {
		return languageNames[l]
	}
	return languageNames[LanguageOther]
}

func languageByName(name []byte) Language {
	for i, n := range languageNames {
		if n == string(name) {
			return Language(i)
		}
	}
	return LanguageUnknown
}

func languageByOrdinal(n int64) Language {
	if n >= 0 && n < int64(len(languageNames)) {
		return Language(n)
	}
	return LanguageUnknown
}

// Version ordinals of RocketMQ (MQVersion) that change behaviour.
const (
	// Version is what every frame of ours reports: V5_3_3. Java clients allow SQL
	// filters only when the broker's version is real, so it is never 0.
	Version int32 = 479
	// VersionName is what RocketMQ calls that.
	VersionName = "V5_3_3"

	Version3011 int32 = 37  // V3_0_11: REGISTER_BROKER carries RegisterBrokerBody
	Version349  int32 = 121 // V3_4_9: maxReconsumeTimes of the header counts
	Version493  int32 = 399 // V4_9_3: up to here the ACL hook signs without _UNIQUE_KEY_QUERY
	Version494  int32 = 401 // V4_9_4: strict JSON in route answers
	Version500  int32 = 413 // V5_0_0: compressed registration carries queue mappings
	Version531  int32 = 475 // V5_3_1: clients above understand GO_AWAY
)
