package config

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/hardpointmq/hardpoint/core/plugin"
)

// TLS is what listeners and the process's own connections say of TLS. It goes to the
// transport remoting, which reads the files.
type TLS struct {
	Mode           string        `koanf:"tls/server/mode"`
	TestMode       bool          `koanf:"tls/test/mode/enable"`
	ConfigFile     string        `koanf:"tls/config/file"`
	ServerCert     string        `koanf:"tls/server/certPath"`
	ServerKey      string        `koanf:"tls/server/keyPath"`
	ServerPassword plugin.Secret `koanf:"tls/server/keyPassword"`
	NeedClientAuth string        `koanf:"tls/server/need/client/auth"`
	AuthClient     bool          `koanf:"tls/server/authClient"`
	ServerTrust    string        `koanf:"tls/server/trustCertPath"`
	Enable         bool          `koanf:"tls/enable"`
	ClientCert     string        `koanf:"tls/client/certPath"`
	ClientKey      string        `koanf:"tls/client/keyPath"`
	ClientPassword plugin.Secret `koanf:"tls/client/keyPassword"`
	AuthServer     bool          `koanf:"tls/client/authServer"`
	ClientTrust    string        `koanf:"tls/client/trustCertPath"`
	VerifyName     bool          `koanf:"tls/client/verifyName"`
}

// The words of tls.server.mode.
const (
	TLSDisabled   = "disabled"
	TLSPermissive = "permissive"
	TLSEnforcing  = "enforcing"
)

const (
	keyTLSMode   = "tls.server.mode"
	keyTLSFile   = "tls.config.file"
	keyTLSEnable = "tls.enable"
	keyTLSTest   = "tls.test.mode.enable"
	keyTLSCert   = "tls.server.certPath"
)

func tlsKeys() []Key {
	const g = GroupTLS
	own := []string{"transport.remoting"}
	return []Key{
		{Name: keyTLSMode, Field: "tlsMode", Group: g, Type: Enum, Words: []string{TLSDisabled, TLSPermissive, TLSEnforcing}, Default: TLSPermissive, Applies: Standalone, Plugins: own, Desc: "What the ports of broker and name server take: plain connections, those and TLS, or TLS alone. One port for both: the first byte tells."},
		{Name: keyTLSTest, Field: "tlsTestMode", Group: g, Type: Bool, Default: "true", Applies: Standalone, Plugins: own, Desc: "Without a certificate, serves with one of its own making, which proves nothing to clients; false: without a certificate there is no TLS. Counts only while tls.server.certPath is empty."},
		{Name: keyTLSFile, Group: g, Type: Path, Empty: true, Applies: Standalone, Desc: "File with more of these keys, in RocketMQ's form (tls.properties). Read once, at the start; what it says counts as if it were written where this key is. RocketMQ reads /etc/rocketmq/tls.properties by itself; here it must be named."},
		{Name: keyTLSCert, Field: "tlsCertFile", Group: g, Type: Path, Empty: true, Applies: Standalone, Plugins: own, Desc: "Certificate of the ports, PEM, with those of authorities below the root after it. Replaced files count for new connections within five seconds, as all files named here."},
		{Name: "tls.server.keyPath", Field: "tlsKeyFile", Group: g, Type: Path, Empty: true, Applies: Standalone, Plugins: own, Desc: "Its private key, PEM."},
		{Name: "tls.server.keyPassword", Field: "tlsKeyPassword", Group: g, Type: Text, Empty: true, Secret: true, Applies: Standalone, Plugins: own, Desc: "Password of that key when it is encrypted (PKCS #8 with PBES2 and AES)."},
		{Name: "tls.server.need.client.auth", Field: "tlsClientAuth", Group: g, Type: Enum, Words: []string{"none", "optional", "require"}, Default: "none", Applies: Standalone, Plugins: own, Desc: "Whether clients may or must show a certificate."},
		{Name: "tls.server.authClient", Field: "tlsVerifyClients", Group: g, Type: Bool, Default: "false", Applies: Standalone, Plugins: own, Desc: "Verifies certificates of clients; false: any certificate will do. Needs tls.server.need.client.auth."},
		{Name: "tls.server.trustCertPath", Field: "tlsClientCAFile", Group: g, Type: Path, Empty: true, Applies: Standalone, Plugins: own, Desc: "Certificates that those of clients must be signed by, PEM. Empty: what the system trusts."},
		{Name: keyTLSEnable, Field: "dialTLS", Group: g, Type: Bool, Default: "false", Applies: Standalone, Plugins: own, Desc: "The broker connects to name servers and other brokers with TLS. As with RocketMQ the default is true when tls.server.mode is enforcing."},
		{Name: "useTLS", Group: g, Type: Bool, Default: "false", Applies: Standalone, Sets: keyTLSEnable, Desc: "Another name of RocketMQ's for tls.enable."},
		{Name: "tls.client.certPath", Field: "dialCertFile", Group: g, Type: Path, Empty: true, Applies: Standalone, Plugins: own, Desc: "Certificate that the broker shows to name servers and other brokers, PEM."},
		{Name: "tls.client.keyPath", Field: "dialKeyFile", Group: g, Type: Path, Empty: true, Applies: Standalone, Plugins: own, Desc: "Its private key, PEM."},
		{Name: "tls.client.keyPassword", Field: "dialKeyPassword", Group: g, Type: Text, Empty: true, Secret: true, Applies: Standalone, Plugins: own, Desc: "Password of that key when it is encrypted."},
		{Name: "tls.client.authServer", Field: "dialVerify", Group: g, Type: Bool, Default: "false", Applies: Standalone, Plugins: own, Desc: "Verifies the certificates of name servers and other brokers; false: whoever answers is believed."},
		{Name: "tls.client.trustCertPath", Field: "dialCAFile", Group: g, Type: Path, Empty: true, Applies: Standalone, Plugins: own, Desc: "Certificates that theirs must be signed by, PEM. Empty: what the system trusts."},
		{Name: "tls.client.verifyName", Field: "dialVerifyName", Group: g, Type: Bool, Default: "true", Applies: Standalone, Plugins: own, Desc: "With tls.client.authServer: a certificate must be for the host name or IP address that is dialled. RocketMQ's clients never ask that; false is for certificates without names."},
	}
}

// loadTLSFile reads the file of tls.config.file: its keys count in the layer in which
// it was named.
func (l *loader) loadTLSFile() {
	src, named := l.origin[keyTLSFile]
	path := l.getText(keyTLSFile)
	if !named || path == "" {
		return
	}
	text, err := os.ReadFile(path)
	if err != nil {
		l.fail(&Error{Kind: ErrFile, Key: keyTLSFile, Value: path, Source: src, Reason: err.Error()})
		return
	}
	entries, errs := readEntries(FormatProperties, text, Source{Kind: FromFile, Name: path})
	l.errs = append(l.errs, errs...)
	before := maps.Clone(l.origin)
	l.seen = map[string]Source{}
	for _, e := range entries {
		k, known := l.table.lookup(strings.TrimSpace(e.name))
		if known && (k.Group != GroupTLS || k.Name == keyTLSFile) {
			l.fail(&Error{Kind: ErrRefused, Key: k.Name, Source: e.src, Reason: "the file of " + keyTLSFile + " holds keys of TLS only"})
			continue
		}
		var old any
		if known {
			old = l.get(k.Name)
		}
		_, v, ok := l.one(e)
		if !ok {
			continue
		}
		switch earlier, twice := before[k.Name]; {
		case twice && earlier.Kind > src.Kind: // said above
			l.restore(k.Name, before)
		case twice && earlier.Kind == src.Kind && old != v:
			l.fail(&Error{Kind: ErrConflict, Key: k.Name, Source: e.src, Earlier: earlier, Reason: fmt.Sprintf("%s says something else; remove one", earlier)})
		default:
			l.merge(map[string]any{k.path(): v})
		}
	}
}

// deriveTLS sets what follows from other keys.
func (l *loader) deriveTLS() {
	l.whole(keyTLSEnable, "useTLS")
	if _, said := l.origin[keyTLSEnable]; !said && l.getText(keyTLSMode) == TLSEnforcing {
		l.set(keyTLSEnable, true, l.origin[keyTLSMode])
	}
}

// checkTLS refuses what would not do what it says. That a file exists is seen when
// it is read.
func (l *loader) checkTLS(c *Config, refuse func(kind error, key, format string, args ...any)) {
	t := &c.TLS
	if _, said := l.origin[keyTLSTest]; said && t.TestMode && t.ServerCert != "" {
		refuse(ErrConflict, keyTLSTest, "a certificate is named (%s), which RocketMQ would not use then; remove one", keyTLSCert)
	}
	if _, said := l.origin[keyTLSMode]; said && t.Mode == TLSPermissive && !t.TestMode && t.ServerCert == "" {
		l.warn(keyTLSMode, l.origin[keyTLSMode], "without a certificate (%s) nobody can use TLS", keyTLSCert)
	}
	if !t.Enable && (t.AuthServer || t.ClientCert != "") {
		l.warn(keyTLSEnable, l.origin[keyTLSEnable], "is false: the other keys of tls.client have no effect")
	}
}

// asksForTLS tells whether a value of a key of TLS must not be lost in silence.
func (k Key) asksForTLS(v any) bool {
	return k.Group == GroupTLS && k.format(v) != "" && k.format(v) != k.Default && v != TLSDisabled
}

func notForTransports(names []string) string {
	return "it goes to the transport remoting, and in use is " + strings.Join(slices.Sorted(slices.Values(names)), ", ") + ", whose TLS is a matter of its own configuration (plugins.transport.NAME)"
}
