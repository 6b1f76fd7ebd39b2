package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/hardpointmq/hardpoint/internal/suggest"
)

// Type is the kind of value that a key takes.
type Type uint8

// The types of values. The Go type in brackets is what lies in [Config].
const (
	Bool      Type = iota // true or false, in any case [bool]
	Int                   // a whole number [int or int64]
	Size                  // bytes, plain or with a unit: 65536, 64KiB, 1GiB [int64]
	Duration              // plain in the key's unit, or 500ms, 2s, 10m, 3h, 2d [time.Duration]
	Text                  // any text [string]
	Enum                  // one of a few words, in any case [string]
	Path                  // a file or directory; blanks inside are kept [string]
	Address               // host:port, :port or [ip6]:port [string]
	Addresses             // addresses separated by semicolons, or a list [[]string]
	Delays                // steps such as "1s 5s 10m", separated by blanks [string]
	Float                 // a decimal number [float64]
	Listeners             // TRANSPORT://ADDRESS separated by semicolons, or a list [[]string]
)

// String is the type's name in the reference page.
func (t Type) String() string {
	names := [...]string{"bool", "int", "size", "duration", "text", "enum", "path", "address", "addresses", "delays", "float", "listeners"}
	if int(t) < len(names) {
		return names[t]
	}
	return fmt.Sprintf("Type(%d)", uint8(t))
}

// Mode is what the process runs as. It decides which keys have an effect.
type Mode uint8

// The modes; they are bits, so that a key can apply to several.
const (
	Broker     Mode = 1 << iota // a broker alone
	Namesrv                     // a name server alone
	Standalone = Broker | Namesrv
)

// String is the name of the mode's subcommand.
func (m Mode) String() string {
	switch m {
	case Broker:
		return "broker"
	case Namesrv:
		return "namesrv"
	case Standalone:
		return "standalone"
	default:
		return fmt.Sprintf("Mode(%d)", uint8(m))
	}
}

// Status says what happens to a key that is set.
type Status uint8

// The statuses.
const (
	Honoured Status = iota // has its effect
	Ignored                // accepted, with a warning that it has no effect and why
	Refused                // an error with the reason, unless the value is harmless
)

// String is the status's name in the reference page.
func (s Status) String() string {
	switch s {
	case Honoured:
		return "honoured"
	case Ignored:
		return "no effect"
	default:
		return "refused"
	}
}

// Key describes one configuration key. Keys are immutable.
type Key struct {
	Name    string   // RocketMQ's spelling where it has the key
	Aliases []string // other accepted spellings; using one is a warning
	Group   Group    // section of the reference page and of Config
	Type    Type
	Unit    string   // unit of a plain number: "ms", "s", "h", "%"; empty: none or bytes
	Default string   // as text; for keys that are not honoured, what RocketMQ has
	Min     int64    // least value of Int, Size and Duration, in Unit
	Max     int64    // greatest value; Min == Max == 0: not limited
	Words   []string // what an Enum, or an Int, may be; marks of an Address
	Desc    string
	Applies Mode
	Status  Status
	Reason  string // why it is ignored or refused
	// Harmless lists the values that a refused key may have; they are accepted
	// in silence because they ask for nothing. An empty value always is.
	Harmless []string
	// Refuses gives, for a key that is otherwise accepted, values that are
	// known but cannot be served, with the reason.
	Refuses    map[string]string
	Reloadable bool     // may change while the process runs
	Secret     bool     // never shown
	Empty      bool     // an empty value is legal
	Plugins    []string // KIND.NAME of the plugins that get the key in their own configuration
	Field      string   // its name there; empty: Name
	Flag       string   // command line flag, without dashes
	Sets       string   // this is RocketMQ's way to set a part of that key
}

// Env is the name of the environment variable of the key.
func (k Key) Env() string { return envPrefix + envName(k.Name) }

// AllowedText says in words which values the key takes.
func (k Key) AllowedText() string {
	switch k.Type {
	case Bool:
		return "true or false"
	case Enum:
		return orList(k.Words)
	case Int:
		if len(k.Words) > 0 {
			return orList(k.Words)
		}
		return "a whole number" + k.rangeText()
	case Float:
		return "a decimal number"
	case Size:
		return "a size" + k.rangeText() + ", plain bytes or with a unit as in 64KiB, 4MiB, 1GiB"
	case Duration:
		return "a duration" + k.rangeText() + ", plain " + unitName(k.Unit) + " or with a unit as in 500ms, 2s, 10m, 3h, 2d"
	case Path:
		return "a path"
	case Address:
		if slices.Contains(k.Words, wordOff) {
			return "HOST:PORT, :PORT, [IPV6]:PORT, or off"
		}
		if slices.Contains(k.Words, wordHost) {
			return "HOST or HOST:PORT, IPv6 as [IPV6] or [IPV6]:PORT"
		}
		return "HOST:PORT, :PORT or [IPV6]:PORT with a port from 0 to 65535"
	case Addresses:
		return "HOST:PORT addresses separated by semicolons"
	case Listeners:
		return "TRANSPORT://ADDRESS separated by semicolons, with the name of a transport plugin and an address of its kind, as in remoting://:10931"
	case Delays:
		return "up to 64 steps separated by blanks, each a number with s, m, h or d, as in 1s 5s 10m 2h"
	default:
		return "a text"
	}
}

const (
	wordOff  = "off"  // in Words of an Address: may be switched off
	wordHost = "host" // in Words of an Address: the port may be missing
)

// field is the key's name in the configuration of a plugin.
func (k Key) field() string { return cmp.Or(k.Field, k.Name) }

func (k Key) limited() bool { return k.Min != 0 || k.Max != 0 }

func (k Key) rangeText() string {
	if !k.limited() {
		return ""
	}
	switch k.Type {
	case Size:
		return fmt.Sprintf(" from %s to %s", formatSize(k.Min), formatSize(k.Max))
	case Duration:
		return fmt.Sprintf(" from %s to %s", formatDuration(k.Min, k.Unit), formatDuration(k.Max, k.Unit))
	default:
		return fmt.Sprintf(" from %d to %d", k.Min, k.Max) + unitSuffix(k.Unit)
	}
}

func unitSuffix(u string) string {
	if u == "" {
		return ""
	}
	return " " + u
}

func unitName(u string) string {
	switch u {
	case "s":
		return "seconds"
	case "h":
		return "hours"
	case "min":
		return "minutes"
	default:
		return "milliseconds"
	}
}

func orList(words []string) string {
	switch len(words) {
	case 0:
		return ""
	case 1:
		return words[0]
	default:
		return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
	}
}

// path is where koanf keeps the key's value: honoured keys by group, so that
// each group unmarshals into its struct, the others aside.
func (k Key) path() string {
	if k.Sets != "" {
		return "derived." + k.Name
	}
	if k.Status == Honoured {
		return string(k.Group) + "." + strings.ReplaceAll(k.Name, ".", "/")
	}
	return "ignored." + k.Name
}

// Group is a section of the configuration.
type Group string

// The groups; their order is that of the reference page.
const (
	GroupNode      Group = "node"
	GroupNetwork   Group = "network"
	GroupBroker    Group = "broker"
	GroupTopics    Group = "topics"
	GroupConsume   Group = "consume"
	GroupStore     Group = "store"
	GroupRetention Group = "retention"
	GroupNamesrv   Group = "namesrv"
	GroupTLS       Group = "tls"
	GroupProcess   Group = "pluginProcess"
	GroupMetrics   Group = "metrics"
)

var groups = []Group{GroupNode, GroupNetwork, GroupBroker, GroupTopics, GroupConsume, GroupStore, GroupRetention, GroupTLS, GroupMetrics, GroupProcess, GroupNamesrv}

// table is the key table with its lookup by any spelling.
type table struct {
	keys   []Key
	byName map[string]int // names and aliases
	byEnv  map[string]int // environment names without the prefix
}

// keyTable builds the table once; it is never written afterwards.
var keyTable = sync.OnceValue(func() *table {
	t := &table{byName: map[string]int{}, byEnv: map[string]int{}}
	for _, part := range [][]Key{nodeKeys(), networkKeys(), brokerKeys(), topicKeys(), consumeKeys(), storeKeys(), retentionKeys(), tlsKeys(), metricsKeys(), processKeys(), namesrvKeys(),
		ignoredBrokerKeys(), ignoredConsumeKeys(), ignoredStoreKeys(), ignoredNetworkKeys(), refusedKeys()} {
		t.keys = append(t.keys, part...)
	}
	for i, k := range t.keys {
		for _, n := range append([]string{k.Name}, k.Aliases...) {
			if _, twice := t.byName[n]; twice {
				panic("config: invariant broken: key " + n + " is in the table twice")
			}
			t.byName[n] = i
			if _, twice := t.byEnv[envName(n)]; twice {
				panic("config: invariant broken: two keys share the environment name " + envName(n))
			}
			t.byEnv[envName(n)] = i
		}
	}
	return t
})

// Keys returns a copy of the key table, by group and within a group in the
// order of the reference page.
func Keys() []Key { return slices.Clone(keyTable().keys) }

// Explain returns the description of the key with this name or alias, or whose
// environment variable this is. Otherwise the error matches [ErrUnknownKey]
// and names the nearest key.
func Explain(name string) (Key, error) {
	name = strings.TrimSpace(name)
	t := keyTable()
	if i, ok := t.byName[name]; ok {
		return t.keys[i], nil
	}
	if env, ok := strings.CutPrefix(name, envPrefix); ok {
		if i, ok := t.byEnv[env]; ok {
			return t.keys[i], nil
		}
	}
	return Key{}, &Error{Kind: ErrUnknownKey, Key: name, Nearest: t.nearest(name)}
}

func (t *table) lookup(name string) (Key, bool) {
	i, ok := t.byName[name]
	if !ok {
		return Key{}, false
	}
	return t.keys[i], true
}

// nearest returns the known spelling closest to name, empty when none is close.
func (t *table) nearest(name string) string {
	return suggest.Nearest(name, maps.Keys(t.byName))
}

// nearestEnv is nearest for a variable's name without the prefix.
func (t *table) nearestEnv(name string) string {
	n := suggest.Nearest(name, maps.Keys(t.byEnv))
	if n == "" {
		return ""
	}
	return envPrefix + n
}

const envPrefix = "HARDPOINT_"

// envName writes a camelCase key in capitals with underscores between the
// words: brokerIP1 is BROKER_IP1, enableDLegerCommitLog ENABLE_D_LEGER_COMMIT_LOG.
// A dot becomes two underscores.
func envName(key string) string {
	var b strings.Builder
	r := []rune(key)
	for i, c := range r {
		if c == '.' {
			b.WriteString("__")
			continue
		}
		if i > 0 && unicode.IsUpper(c) && r[i-1] != '.' {
			endsWord := unicode.IsLower(r[i-1]) || unicode.IsDigit(r[i-1])
			beginsWord := unicode.IsUpper(r[i-1]) && i+1 < len(r) && unicode.IsLower(r[i+1])
			if endsWord || beginsWord {
				b.WriteByte('_')
			}
		}
		b.WriteRune(unicode.ToUpper(c))
	}
	return b.String()
}
