package main

import (
	"crypto/tls"
	"errors"

	"github.com/spf13/cobra"

	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/internal/tlsfiles"
	"github.com/hardpointmq/hardpoint/plugins/transport/remoting"
)

// tlsFlags say how a command connects to servers. Each of the files means TLS.
type tlsFlags struct {
	on, insecure  bool
	ca, cert, key string
}

func (t *tlsFlags) register(c *cobra.Command) {
	f := c.Flags()
	f.BoolVar(&t.on, "tls", false, "connect with TLS; certificates are verified with what the system trusts unless --tls-ca names others")
	f.StringVar(&t.ca, "tls-ca", "", "`file` (PEM) with the certificates that those of servers must be signed by; means --tls")
	f.StringVar(&t.cert, "tls-cert", "", "`file` (PEM) with the certificate to show; means --tls")
	f.StringVar(&t.key, "tls-key", "", "`file` (PEM) with its key")
	f.BoolVar(&t.insecure, "tls-insecure", false, "connect with TLS and believe whoever answers, as for a server in its test mode")
	c.MarkFlagsRequiredTogether("tls-cert", "tls-key")
	c.MarkFlagsMutuallyExclusive("tls-insecure", "tls-ca")
}

// client is the configuration of connections that a command makes without a transport;
// nil: plain ones.
func (t *tlsFlags) client() (*tls.Config, error) {
	if !t.config().DialTLS {
		return nil, nil
	}
	k, err := tlsfiles.NewClient(tlsfiles.Client{CertFile: t.cert, KeyFile: t.key, VerifyServer: !t.insecure, CAFile: t.ca})
	if err != nil {
		return nil, err
	}
	return k.Config(), nil
}

// whyTLS is what to do about a connection that ends as one does between a side that speaks
// TLS and one that does not, or whose certificates do not fit; empty for all others.
func whyTLS(err error) string {
	var bad *tls.CertificateVerificationError
	switch {
	case errors.As(err, &bad):
		return "name the certificates that it is signed by (--tls-ca), and the server by a name that its own one has; --tls-insecure believes whoever answers"
	case errors.Is(err, transport.ErrClosed):
		return "the connection was closed before an answer. A server that takes TLS alone does that (say --tls or --tls-ca), as one does that ends"
	}
	return ""
}

// config is that of the transport of the command, which dials only.
func (t *tlsFlags) config() remoting.Config {
	return remoting.Config{
		DialTLS:      t.on || t.insecure || t.ca != "" || t.cert != "",
		DialCertFile: t.cert, DialKeyFile: t.key,
		DialVerify: !t.insecure, DialCAFile: t.ca, DialVerifyName: true,
	}
}
