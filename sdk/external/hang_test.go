//go:build unix

package external_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/internal/hosttest"
	"github.com/hardpointmq/hardpoint/plugins/storage/memory"
	"github.com/hardpointmq/hardpoint/sdk/external"
)

// impatient asks often.
func impatient(m plugin.Meter) external.Options {
	return external.Options{Linger: -1, Health: 20 * time.Millisecond, HealthLimit: healthLimit, Meter: m}
}

// TestStopped: a plugin that hangs is killed, and the next one starts.
func TestStopped(t *testing.T) {
	var m recorded
	var log buffer
	failed := make(chan error, 1)
	f := external.Storage(memory.Name, command(t, "serve"), impatient(&m))
	p := params(t.TempDir(), storage.Events{Failed: func(err error) { failed <- err }})
	p.Logger = log.logger()
	s := started(t, f, p)
	require.Equal(t, "running", m.state("memory"))
	pids := children(t)
	require.Len(t, pids, 1)
	hosttest.Stop(t, pids[0])
	err := s.Capabilities().Reopener.Gone(t.Context())
	require.ErrorIs(t, err, plugin.ErrUnavailable)
	require.ErrorContains(t, err, "did not answer for ")
	require.ErrorContains(t, err, "signal: killed, by this host")
	require.ErrorIs(t, heard(t, failed), storage.ErrFailed, "the next process has nothing of the memory of this one")
	require.NoError(t, s.Shutdown(t.Context()))
	require.Empty(t, children(t))
	require.Contains(t, log.String(), "a plugin does not answer; it is asked once more")
	require.EqualValues(t, 1, m.count("plugin_process_deaths_total{plugin=memory}"))

	s = running(t, f, storage.Events{})
	require.NoError(t, s.Sync(t.Context(), 0))
	// Build and Start are a process each, the first time, because nothing lingers.
	require.Greater(t, m.count("plugin_process_starts_total{plugin=memory}"), uint64(1))
	require.NoError(t, s.Shutdown(t.Context()))
	require.Equal(t, "idle", m.state("memory"))
	call := "{plugin=memory,kind=storage,method=Open}"
	require.EqualValues(t, 3, m.count("plugin_calls_total"+call))
	require.EqualValues(t, 3, m.count("plugin_call_seconds"+call))
	require.Zero(t, m.count("plugin_call_errors_total"+call))
}

// TestSilent: a plugin that answers health calls and nothing else is killed, and the
// next one starts.
func TestSilent(t *testing.T) {
	var m recorded
	o := impatient(&m)
	o.CallTimeout = healthLimit
	s := running(t, external.Storage("swallowing", command(t, "serve"), o), storage.Events{})
	pids := children(t)
	require.Len(t, pids, 1)
	err := s.Sync(context.WithoutCancel(t.Context()), 0)
	require.ErrorIs(t, err, plugin.ErrUnavailable)
	require.ErrorContains(t, err, "did not answer Sync for 2s, though it answers health calls")
	again := s.Capabilities().Reopener
	require.ErrorContains(t, again.Gone(t.Context()), "was killed by its host, because a plugin is silent on its data socket: it did not answer Sync")
	require.NoError(t, again.Reopened(t.Context()))
	require.NotEqual(t, pids, children(t))
	require.EqualValues(t, 1, m.count("plugin_process_deaths_total{plugin=swallowing}"))
	require.NoError(t, s.Offsets(t.Context(), nil, &storage.OffsetAnswers{}))
}

// TestFallsIll: a plugin that answers no health call any more is killed, although
// all else works.
func TestFallsIll(t *testing.T) {
	f := external.Storage(memory.Name, command(t, "falls_ill"), external.Options{Linger: time.Hour, Health: 20 * time.Millisecond, HealthLimit: healthLimit})
	s := started(t, f, params(t.TempDir(), storage.Events{}))
	require.ErrorContains(t, s.Capabilities().Reopener.Gone(t.Context()), "did not answer for ")
	require.NoError(t, s.Shutdown(t.Context()))
	require.Empty(t, children(t))
}

// TestEndOfOneThatHangs: it is asked to end, and does not.
func TestEndOfOneThatHangs(t *testing.T) {
	f := external.Storage(memory.Name, command(t, "serve"), impatient(nil))
	s := running(t, f, storage.Events{})
	pids := children(t)
	require.Len(t, pids, 1)
	hosttest.Stop(t, pids[0])
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		require.ErrorIs(t, err, plugin.ErrUnavailable)
	}
	require.Empty(t, children(t))
}

// TestHostStopped: a host that was suspended, alone or with its plugin, does not
// take that for a plugin that hangs.
func TestHostStopped(t *testing.T) {
	cmd := exec.Command(command(t, "").Path)
	cmd.Env = append(os.Environ(), roleEnv+"=watcher")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { // one that is stopped does not end with its input
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	lines := bufio.NewScanner(out)
	next := func() string {
		require.True(t, lines.Scan())
		return lines.Text()
	}
	require.Equal(t, "ready <nil>", next())
	pids := hosttest.Children(t, cmd.Process.Pid)
	require.Len(t, pids, 1)
	for _, all := range [][]int{{cmd.Process.Pid}, {pids[0], cmd.Process.Pid}} {
		for _, pid := range all {
			hosttest.Stop(t, pid)
		}
		<-time.After(5 * healthLimit / 2) // more than both health calls may take
		for _, pid := range all {
			require.NoError(t, syscall.Kill(pid, syscall.SIGCONT))
		}
		for range 3 {
			_, err := fmt.Fprintln(in)
			require.NoError(t, err)
			require.Equal(t, "synced <nil>", next())
		}
		require.Equal(t, pids, hosttest.Children(t, cmd.Process.Pid))
	}
	require.NoError(t, in.Close())
	require.NoError(t, cmd.Wait())
}

// TestNoFile: what has a name and is no file is refused. Reading a pipe that nobody
// writes to would never end.
func TestNoFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(path, 0o700))
	for _, checksum := range []string{"", strings.Repeat("ab", 32)} {
		f := external.Storage(memory.Name, external.Command{Path: path, Checksum: checksum}, external.Options{})
		_, err := f.Describe(t.Context(), nil)
		require.ErrorIs(t, err, plugin.ErrUnavailable)
		require.ErrorContains(t, err, "pipe is no file, its mode is prwx------")
	}
}
