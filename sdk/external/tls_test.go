package external_test

import (
	"crypto/tls"
	"encoding/json"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/plugins/transport/remoting"
	"github.com/hardpointmq/hardpoint/sdk/external"
)

// TestTransportWithTLS: a transport in a process of its own reads the keys that its
// configuration names, with the password in it. When its process is replaced, its TLS
// connections end and the next ones are served by the new process.
func TestTransportWithTLS(t *testing.T) {
	keys := filepath.Join("..", "..", "internal", "tlsfiles", "testdata")
	absolute, err := filepath.Abs(keys)
	require.NoError(t, err)
	raw, err := json.Marshal(map[string]any{ // as core/config hands it on
		"tlsMode": remoting.TLSEnforcing, "tlsCertFile": filepath.Join(absolute, "cert.pem"), "tlsKeyFile": filepath.Join(absolute, "aes-256-cbc.pem"),
		"tlsKeyPassword": "secret", "dialTLS": true,
	})
	require.NoError(t, err)
	var up external.Replacer
	tr := startLogged(t, external.Transport(remoting.Name, command(t, "serve"), external.Options{Linger: -1, Replacer: &up}), nil, raw)
	e, ln := serveEcho(t, tr, "127.0.0.1:0")
	c := client{address: ln.Address()}
	defer c.close()
	connect := func() {
		t.Helper()
		c.conn, err = tls.DialWithDialer(&net.Dialer{Timeout: patience}, "tcp", c.address, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}) //nolint:gosec // the certificate is a fixture
		require.NoError(t, err)
		require.NoError(t, c.ask(100))
		require.True(t, (<-e.opened).Identity().TLS)
	}
	connect()
	plain := client{address: ln.Address()}
	require.Error(t, plain.ask(10), "it takes TLS only")
	require.Empty(t, e.opened)

	dialled := newEcho()
	own, err := tr.Capabilities().Dialer.Dial(t.Context(), ln.Address(), transport.Limits{}, nil, dialled)
	require.NoError(t, err)
	require.True(t, own.Identity().TLS)
	require.NoError(t, own.Close())
	require.Error(t, <-dialled.closed)
	require.True(t, (<-e.opened).Identity().TLS)
	require.Error(t, <-e.closed)

	require.NoError(t, up.Replace(t.Context(), command(t, "serve")))
	require.Eventually(t, func() bool { return len(e.closed) == 1 }, patience, time.Millisecond, "the connection with TLS does not end")
	c.close()
	connect()
}
