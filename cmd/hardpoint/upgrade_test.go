//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/internal/bench"
	"github.com/hardpointmq/hardpoint/internal/hosttest"
)

// TestHangupReplacesPrograms sends messages before and after the program of the
// transport is replaced; what cannot be one leaves the old one.
func TestHangupReplacesPrograms(t *testing.T) {
	self, err := exec.LookPath("hardpoint")
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "c.yaml")
	configure := func(path, more string) {
		text := fmt.Sprintf("storage: memory\nplugins:\n  transport:\n    remoting:\n      path: %s\n      args: [plugin, serve, transport, remoting]\n%s", path, more)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	configure(self, "")
	s := standalone(t, t.TempDir(), "--config", file)
	before := hosttest.Children(t, s.cmd.Process.Pid)
	require.Len(t, before, 1)
	hangup := func(says string) {
		t.Helper()
		n := strings.Count(s.text(), says)
		require.NoError(t, s.cmd.Process.Signal(syscall.SIGHUP))
		require.Eventually(t, func() bool { return strings.Count(s.text(), says) > n }, patience, 10*time.Millisecond, "%s: %s", says, s.text())
	}

	produce := func() {
		t.Helper()
		var sent bench.Result
		tool(t, &sent, "bench", "produce", "--namesrv", s.addr("namesrv"), "--topic", "T", "--count", "100")
		require.EqualValues(t, 100, sent.Messages)
	}
	produce()
	hangup("the program of a plugin is replaced")
	// Connections end with the old process, that to the name server, too.
	require.Eventually(t, func() bool { return strings.Count(s.text(), `"broker registered"`) > 1 }, patience, 10*time.Millisecond, "%s", s.text())
	produce()
	require.Eventually(t, func() bool {
		now := hosttest.Children(t, s.cmd.Process.Pid)
		return len(now) == 1 && now[0] != before[0]
	}, patience, 10*time.Millisecond)

	configure(self+".gone", "")
	hangup("the program of a plugin is not replaced, the old one goes on")
	configure(self, "      checksum: 12\n")
	hangup("the configuration has faults")
	verify(t, s, 200)
	require.Equal(t, exitOK, s.signal(t, syscall.SIGTERM), s.text())
}
