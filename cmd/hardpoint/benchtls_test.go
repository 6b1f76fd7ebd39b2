//go:build unix

package main

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/internal/bench"
	"github.com/hardpointmq/hardpoint/internal/tlstest"
	"github.com/hardpointmq/hardpoint/sdk/embedded"
)

// TestBenchWithTLS: loads, and what is asked beside them, reach servers that take TLS
// only, and do not believe just any.
func TestBenchWithTLS(t *testing.T) {
	a := tlstest.New(t)
	server := a.Issue(t, "server", nil)
	b := embedded.Start(t, embedded.With("tls.server.mode", "enforcing"), embedded.With("tls.server.certPath", server.Cert), embedded.With("tls.server.keyPath", server.Key))
	at := []string{"--namesrv", b.NamesrvAddress(), "--topic", "T", "--count", "20", "--connections", "1", "--tls-ca", a.CAFile}
	for _, words := range [][]string{
		append([]string{"bench", "produce", "--create-topic"}, at...),
		append([]string{"bench", "produce", "--rate", "1000"}, at...),
		append([]string{"bench", "consume", "--depth", "4"}, at...),
		append([]string{"bench", "e2e"}, at...),
	} {
		var res bench.Result
		tool(t, &res, words...)
		require.GreaterOrEqual(t, res.Messages, int64(20), words)
		require.Empty(t, res.Errors, words)
	}
	var many bench.TopicsResult
	tool(t, &many, "bench", "topics", "--broker", b.Address(), "--namesrv", b.NamesrvAddress(), "--topics", "2", "--create", "--tls-insecure")
	require.EqualValues(t, 2, many.Create.Messages)

	for flags, want := range map[string]string{
		"--broker " + b.Address():                                   "connection to " + b.Address(),
		"--broker " + b.Address() + " --tls":                        "TLS handshake with " + b.Address(),
		"--namesrv " + b.NamesrvAddress() + " --tls":                "certificate signed by unknown authority",
		"--broker " + b.Address() + " --tls-ca /does/not/exist.pem": "/does/not/exist.pem does not exist",
	} {
		var stderr bytes.Buffer
		args := append([]string{"bench", "produce", "--count", "1"}, strings.Fields(flags)...)
		require.Equal(t, exitFailure, run(t.Context(), args, nil, io.Discard, &stderr))
		require.Contains(t, stderr.String(), want)
	}
}
