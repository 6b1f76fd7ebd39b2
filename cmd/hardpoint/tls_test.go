package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/internal/tlstest"
	"github.com/hardpointmq/hardpoint/plugins/transport/remoting"
)

// refuser answers every request with an error of its own.
type refuser struct{ p transport.Peer }

func (refuser) Opened(p transport.Peer) transport.Session { return refuser{p} }
func (refuser) Settle()                                   {}
func (refuser) Closed(error)                              {}
func (r refuser) Arrived(in []command.Frame) {
	var h command.Header
	for i := range in {
		if h.Decode(&in[i]) == nil {
			_ = r.p.Send(command.Frame{Header: command.AppendResponse(nil, command.JSON, command.RespSystemError, h.Opaque, "it was heard", 0)})
		}
	}
}

// TestCommandsWithTLS: commands reach a name server that takes TLS only and wants a
// certificate, when they are told what to show and whom to believe.
func TestCommandsWithTLS(t *testing.T) {
	a := tlstest.New(t)
	server, own := a.Issue(t, "server", nil), a.Issue(t, "operator", nil)
	tr, err := remoting.New(t.Context(), transport.Params{}, remoting.Config{
		TLSMode: remoting.TLSEnforcing, TLSCertFile: server.Cert, TLSKeyFile: server.Key,
		TLSClientAuth: remoting.ClientAuthRequire, TLSVerifyClients: true, TLSClientCAFile: a.CAFile,
	})
	require.NoError(t, err)
	require.NoError(t, tr.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, tr.Shutdown(context.Background())) })
	ln, err := tr.Serve(t.Context(), transport.Listen{Address: "127.0.0.1:0"}, transport.Services{Frames: refuser{}})
	require.NoError(t, err)
	const heard = "it was heard"
	for flags, says := range map[string]string{
		"--tls-ca " + a.CAFile + " --tls-cert " + own.Cert + " --tls-key " + own.Key: heard,
		"--tls-insecure --tls-cert " + own.Cert + " --tls-key " + own.Key:            heard,
		"--tls-ca " + a.CAFile: "no name server answers",
		"--tls --tls-cert " + own.Cert + " --tls-key " + own.Key: "name the certificates that it is signed by (--tls-ca)",
		"": "A server that takes TLS alone does that (say --tls or --tls-ca)",
	} {
		var stderr bytes.Buffer
		args := append([]string{"topic", "list", "--namesrv", ln.Address()}, strings.Fields(flags)...)
		require.Equal(t, exitFailure, run(t.Context(), args, nil, io.Discard, &stderr))
		require.Contains(t, stderr.String(), says, flags)
		require.Equal(t, says == heard, strings.Contains(stderr.String(), heard), "%s: %s", flags, stderr.String())
	}
	var out bytes.Buffer
	require.Equal(t, exitFailure, run(t.Context(), []string{"doctor", "--namesrv", ln.Address()}, nil, &out, io.Discard))
	require.Contains(t, out.String(), "-> the connection was closed before an answer")
	require.Equal(t, exitUsage, run(t.Context(), []string{"topic", "list", "--tls-cert", own.Cert}, nil, io.Discard, io.Discard))
}
