//go:build unix

package main

import (
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/internal/bench"
	"github.com/hardpointmq/hardpoint/internal/hosttest"
	"github.com/hardpointmq/hardpoint/plugins/storage/memory"
)

// pair is a name server and two brokers with a topic T.
func pair(t *testing.T, drain string) (a, b *server) {
	t.Helper()
	names := launch(t, "namesrv", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--admin-listen", "off")
	require.NotNil(t, names.ready, names.text())
	start := func(name string) *server {
		s := launch(t, "broker", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--admin-listen", "127.0.0.1:0", "--storage", memory.Name,
			"--namesrv-addr", names.addr("namesrv"), "--set", "brokerName="+name, "--set", "drainTimeout="+drain)
		require.NotNil(t, s.ready, s.text())
		s.says(t, "registered with name server")
		produce(t, s, 10)
		return s
	}
	return start("broker-a"), start("broker-b")
}

// produce has the topic T made at a broker, and messages sent to it.
func produce(t *testing.T, s *server, n int64) {
	t.Helper()
	var r bench.Result
	tool(t, &r, "bench", "produce", "--broker", s.addr("broker"), "--topic", "T", "--create-topic", "--count", "10", "--connections", "1", "--depth", "1")
	require.Equal(t, n, r.Messages)
	require.Empty(t, r.Errors)
}

// says waits for a text in the log.
func (s *server) says(t *testing.T, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(s.text(), text) }, patience, time.Millisecond, "%q is not in: %s", text, s.text())
}

// TestDrain: a broker that gets SIGTERM goes on serving, not ready, until the time is
// over or another signal comes; then it stops in order.
func TestDrain(t *testing.T) {
	t.Run("whole", func(t *testing.T) {
		a, b := pair(t, "1s")
		require.Equal(t, exitOK, a.signal(t, syscall.SIGTERM), a.text())
		require.Contains(t, a.text(), `"msg":"drained"`)
		require.Contains(t, a.text(), `"msg":"stopped"`)
		// Nobody is left to whom the other one could lead.
		require.Equal(t, exitOK, b.signal(t, syscall.SIGTERM), b.text())
		require.Contains(t, b.text(), "stopping without a drain")
	})
	for name, second := range map[string]os.Signal{"second SIGTERM": syscall.SIGTERM, "SIGINT after SIGTERM": os.Interrupt} {
		t.Run(name, func(t *testing.T) {
			a, _ := pair(t, "1h")
			require.NoError(t, a.cmd.Process.Signal(syscall.SIGTERM))
			a.says(t, `"msg":"draining: producers are led to other brokers`)
			produce(t, a, 10)
			code, text := fetch(t, "http://"+a.addr("admin")+"/readyz")
			require.Equal(t, http.StatusServiceUnavailable, code)
			require.Contains(t, text, "it is draining and stops in ")
			_, text = fetch(t, "http://"+a.addr("admin")+"/metrics")
			require.Regexp(t, `hardpoint_broker_drain_left_seconds(\{[^}]*\})? 3[0-9.e+]+\n`, text)
			require.Equal(t, exitOK, a.signal(t, second), a.text())
			require.Contains(t, a.text(), "the drain is cut short")
			require.Contains(t, a.text(), `"msg":"stopped"`)
		})
	}
	t.Run("SIGINT", func(t *testing.T) {
		a, _ := pair(t, "1h")
		require.Equal(t, exitOK, a.signal(t, os.Interrupt), a.text())
		require.Contains(t, a.text(), "stopping without a drain")
		require.NotContains(t, a.text(), "producers are led")
	})
}

// TestThirdSignal ends a process whose stop hangs.
func TestThirdSignal(t *testing.T) {
	tmp := shortTemp(t)
	program, err := exec.LookPath(stubbornProgram)
	require.NoError(t, err)
	s := standalone(t, t.TempDir(), "--storage", memory.Name, "--set", "plugins.storage.memory.path="+program, "--set", "pluginStopTimeout=1h")
	pids := hosttest.Children(t, s.cmd.Process.Pid)
	for i := range 2 {
		require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
		s.says(t, []string{"a second signal skips the drain", "another signal stops at once"}[i])
	}
	require.Equal(t, exitFailure, s.signal(t, syscall.SIGTERM), s.text())
	require.Contains(t, s.text(), "the next start recovers")
	noneLeft(t, pids, tmp)
}
