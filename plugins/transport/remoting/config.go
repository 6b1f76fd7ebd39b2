package remoting

import (
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/internal/tlsfiles"
)

// Name selects this transport in a configuration.
const Name = "remoting"

// The words of Config.TLSMode and Config.TLSClientAuth.
const (
	TLSDisabled   = "disabled"   // no TLS
	TLSPermissive = "permissive" // TLS and plain connections
	TLSEnforcing  = "enforcing"  // TLS only

	ClientAuthNone     = "none"     // clients are not asked for a certificate
	ClientAuthOptional = "optional" // asked, and served without one, too
	ClientAuthRequire  = "require"  // served only with one
)

// Config is about TLS; what else there is to set is in [transport.Listen] and
// [transport.Limits], which hold for every transport. The fields carry RocketMQ's
// keys, named in brackets, to the transport, also into a process of its own. Files
// that are replaced count for new connections, see [tlsfiles.Keeper.Check].
type Config struct {
	// TLSMode is what listeners take (tls.server.mode). Zero: disabled.
	TLSMode string `json:"tlsMode"`
	// TLSTestMode serves with a certificate of its own making when none is named
	// (tls.test.mode.enable). Without it and without a certificate nobody can use
	// TLS, and enforcing is refused.
	TLSTestMode bool `json:"tlsTestMode"`
	// TLSCertFile and TLSKeyFile are the listeners' certificate
	// (tls.server.certPath, tls.server.keyPath).
	TLSCertFile    string        `json:"tlsCertFile"`
	TLSKeyFile     string        `json:"tlsKeyFile"`
	TLSKeyPassword plugin.Secret `json:"tlsKeyPassword"` // (tls.server.keyPassword)
	// TLSClientAuth says whether clients show a certificate
	// (tls.server.need.client.auth). Zero: none.
	TLSClientAuth string `json:"tlsClientAuth"`
	// TLSVerifyClients says that such a certificate must be signed by one in
	// TLSClientCAFile, or one that the system trusts (tls.server.authClient,
	// tls.server.trustCertPath). Else any will do, and it names nobody.
	TLSVerifyClients bool   `json:"tlsVerifyClients"`
	TLSClientCAFile  string `json:"tlsClientCAFile"`

	// DialTLS dials with TLS (tls.enable).
	DialTLS bool `json:"dialTLS"`
	// DialCertFile and DialKeyFile are the certificate that is shown; empty: none
	// (tls.client.certPath, tls.client.keyPath).
	DialCertFile    string        `json:"dialCertFile"`
	DialKeyFile     string        `json:"dialKeyFile"`
	DialKeyPassword plugin.Secret `json:"dialKeyPassword"` // (tls.client.keyPassword)
	// DialVerify says that the server's certificate must be signed by one in
	// DialCAFile, or one that the system trusts (tls.client.authServer,
	// tls.client.trustCertPath), with DialVerifyName for the name or address that is
	// dialled (tls.client.verifyName, which RocketMQ does not have).
	DialVerify     bool   `json:"dialVerify"`
	DialCAFile     string `json:"dialCAFile"`
	DialVerifyName bool   `json:"dialVerifyName"`
}

// NewDefaultConfig returns RocketMQ's defaults: plain connections and, with a
// certificate that proves nothing, TLS.
func NewDefaultConfig() Config {
	return Config{TLSMode: TLSPermissive, TLSTestMode: true, TLSClientAuth: ClientAuthNone, DialVerifyName: true}
}

// Validate implements plugin.Validator.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch c.TLSMode {
	case "", TLSDisabled, TLSPermissive, TLSEnforcing:
	default:
		bad("tlsMode is %q; it must be %s, %s or %s", c.TLSMode, TLSDisabled, TLSPermissive, TLSEnforcing)
	}
	if _, ok := clientAuth[c.TLSClientAuth]; !ok {
		bad("tlsClientAuth is %q; it must be %s, %s or %s", c.TLSClientAuth, ClientAuthNone, ClientAuthOptional, ClientAuthRequire)
	}
	if (c.TLSCertFile == "") != (c.TLSKeyFile == "") {
		bad("a certificate needs its key: tlsCertFile is %q and tlsKeyFile is %q; name both or none", c.TLSCertFile, c.TLSKeyFile)
	}
	if c.TLSMode == TLSEnforcing && !c.serves() {
		bad("tlsMode is %s and there is no certificate: name tlsCertFile and tlsKeyFile, or let tlsTestMode make one that proves nothing", TLSEnforcing)
	}
	if c.TLSVerifyClients && (c.TLSClientAuth == "" || c.TLSClientAuth == ClientAuthNone) {
		bad("tlsVerifyClients verifies what nobody is asked for: tlsClientAuth must be %s or %s", ClientAuthOptional, ClientAuthRequire)
	}
	if (c.DialCertFile == "") != (c.DialKeyFile == "") {
		bad("a certificate needs its key: dialCertFile is %q and dialKeyFile is %q; name both or none", c.DialCertFile, c.DialKeyFile)
	}
	return errors.Join(errs...)
}

var clientAuth = map[string]tls.ClientAuthType{
	"": tls.NoClientCert, ClientAuthNone: tls.NoClientCert, ClientAuthOptional: tls.RequestClientCert, ClientAuthRequire: tls.RequireAnyClientCert,
}

// serves is whether listeners take TLS.
func (c Config) serves() bool {
	return c.TLSMode != "" && c.TLSMode != TLSDisabled && (c.TLSCertFile != "" || c.TLSTestMode)
}

func (c Config) server() tlsfiles.Server {
	return tlsfiles.Server{
		CertFile: c.TLSCertFile, KeyFile: c.TLSKeyFile, KeyPassword: c.TLSKeyPassword.Reveal(),
		ClientAuth: clientAuth[c.TLSClientAuth], VerifyClients: c.TLSVerifyClients, ClientCAFile: c.TLSClientCAFile,
	}
}

func (c Config) client() tlsfiles.Client {
	return tlsfiles.Client{
		CertFile: c.DialCertFile, KeyFile: c.DialKeyFile, KeyPassword: c.DialKeyPassword.Reveal(),
		VerifyServer: c.DialVerify, CAFile: c.DialCAFile, AnyName: !c.DialVerifyName,
	}
}

// NewFactory declares the plugin.
func NewFactory() transport.Factory {
	return transport.NewFactory(Name, func(Config) plugin.Description {
		return plugin.Description{Version: "1", Facets: (&Transport{}).Capabilities().Facets()}
	}, NewDefaultConfig, New)
}
