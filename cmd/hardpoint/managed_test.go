//go:build unix

package main

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestServiceManager: a service manager is told when the process is ready and when it
// stops, and its reload ends no process that has nothing to load anew. Whoever asks
// the process itself gets the same answer.
func TestServiceManager(t *testing.T) {
	dir, err := os.MkdirTemp("", "hp") // the name of a socket has few bytes
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "n"), Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = socket.Close() })
	told := func() string {
		require.NoError(t, socket.SetReadDeadline(time.Now().Add(patience)))
		state := make([]byte, 4096)
		n, err := socket.Read(state)
		require.NoError(t, err)
		return string(state[:n])
	}
	t.Setenv("NOTIFY_SOCKET", filepath.Join(dir, "n"))
	t.Setenv("HARDPOINT_CONFIG", "")

	s := standalone(t, t.TempDir(), "--storage", "memory", "--dev")
	require.Equal(t, "READY=1", told())

	health := func(args ...string) (code int, out string) {
		var both bytes.Buffer
		code = run(t.Context(), append([]string{"health", "--admin-listen", s.addr("admin")}, args...), nil, &both, &both)
		return code, both.String()
	}
	for _, args := range [][]string{nil, {"--live"}} {
		code, out := health(args...)
		require.Equal(t, exitOK, code, out)
	}

	require.NoError(t, s.cmd.Process.Signal(syscall.SIGHUP)) // is taken before the next, which has a higher number
	require.Equal(t, exitOK, s.signal(t, syscall.SIGTERM))
	require.Equal(t, "STOPPING=1", told())
	code, out := health()
	require.Equal(t, exitFailure, code)
	require.Contains(t, out, "is the process running")
}
