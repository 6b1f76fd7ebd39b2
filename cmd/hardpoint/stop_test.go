//go:build unix

package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/internal/bench"
	"github.com/hardpointmq/hardpoint/internal/hosttest"
	"github.com/hardpointmq/hardpoint/plugins/storage/memory"
	"github.com/hardpointmq/hardpoint/plugins/storage/pebble"
)

// newcomer has the broker write down a group that it did not know, and then ask for its
// queues. It does not wait for answers.
func newcomer(t *testing.T, s *server) {
	t.Helper()
	m := connect(t, s, "new")
	m.ask(command.ReqHeartBeat, m.heartbeat())
	m.ask(command.ReqQueryAssignment, m.query())
}

// givenUp is said of a process that does not run: by the health calls, or on a busy
// machine by whoever waits for it.
const givenUp = "did not answer for |pluginStopTimeout is the limit"

// bounded is said of a process that answers health calls, and nothing else.
const bounded = "pluginStopTimeout is the limit"

// stops are what is wrong with the plugins of a broker when it has to stop.
var stops = map[string]struct {
	args []string
	// spoil makes it so; pids are the processes of plugins before.
	spoil func(t *testing.T, s *server, pids []int)
	says  []string // in the log of the stop: regular expressions
}{
	"store away": {
		[]string{"--storage-process", "--set", "pluginBackoffFirst=1h", "--set", "pluginBackoffMost=1h"},
		func(t *testing.T, s *server, pids []int) {
			require.NoError(t, syscall.Kill(pids[0], syscall.SIGKILL))
			require.Eventually(t, func() bool { return strings.Contains(s.text(), "the store is away") }, patience, time.Millisecond)
		}, nil,
	},
	"store stopped":      {[]string{"--storage-process"}, stopThem, []string{givenUp}},
	"store silent":       {[]string{"--set", "plugins.storage.pebble.path=PROGRAM"}, hushThem, []string{bounded}},
	"allocator silent":   {[]string{"--set", "plugins.allocate.averagely.path=PROGRAM"}, hushAllocator, []string{"did not shut down within [0-9.]+s; " + bounded, `"plugin":"averagely"`}},
	"transport stopped":  {[]string{"--set", "plugins.transport.remoting.process=true"}, stopThem, []string{givenUp}},
	"replicator silent":  {[]string{"--set", "plugins.replication.solo.path=PROGRAM"}, hushThem, []string{bounded}},
	"replicator stopped": {[]string{"--set", "plugins.replication.solo.process=true"}, stopThem, []string{givenUp}},
}

func stopThem(t *testing.T, _ *server, pids []int) {
	t.Helper()
	require.NotEmpty(t, pids)
	for _, pid := range pids {
		hosttest.Stop(t, pid)
	}
}

func hushThem(t *testing.T, s *server, _ []int) {
	t.Helper()
	require.NoError(t, os.WriteFile(hush(), nil, 0o600))
	newcomer(t, s)
}

// hushAllocator returns when the one that never answers is about to be asked.
func hushAllocator(t *testing.T, s *server, pids []int) {
	t.Helper()
	hushThem(t, s, pids)
	require.Eventually(t, func() bool {
		_, text := fetch(t, "http://"+s.addr("admin")+"/metrics")
		return strings.Contains(text, `hardpoint_plugin_calls_total{kind="allocate",method="Open",plugin="averagely"} 1`)
	}, patience, 10*time.Millisecond)
}

// TestStopWithBadPlugins: a broker with a plugin that does not answer any more stops in
// seconds, in order, and the next one starts at once.
func TestStopWithBadPlugins(t *testing.T) {
	for name, c := range stops {
		t.Run(name, func(t *testing.T) {
			limit := time.Second
			text := stopWith(t, limit, c.args, c.spoil)
			for limit < patience && !saysAll(text, c.says) { // a busy machine: a health call took longer than it may
				limit *= 2
				text = stopWith(t, limit, c.args, c.spoil)
			}
			for _, w := range c.says {
				require.Regexp(t, w, text)
			}
		})
	}
}

func saysAll(text string, says []string) bool {
	for _, w := range says {
		if !regexp.MustCompile(w).MatchString(text) {
			return false
		}
	}
	return true
}

// stopWith spoils the plugins of a broker, stops it and starts the next one; it returns
// what the first one said. Whoever waits for the plugin longer than limit, which is
// pluginStopTimeout, waits too long for this test.
func stopWith(t *testing.T, limit time.Duration, extra []string, spoil func(*testing.T, *server, []int)) string {
	t.Helper()
	dir, tmp := t.TempDir(), shortTemp(t)
	program, err := exec.LookPath(mutingProgram)
	require.NoError(t, err)
	args := []string{"--storage", pebble.Name, "--set", "pluginStopTimeout=" + limit.String(), "--set", "pluginCallTimeout=0"}
	for _, a := range extra {
		args = append(args, strings.Replace(a, "PROGRAM", program, 1))
	}
	s := standalone(t, dir, args...)
	var r bench.Result
	tool(t, &r, "bench", "produce", "--namesrv", s.addr("namesrv"), "--topic", "T", "--count", "20", "--size", "100")
	require.EqualValues(t, 20, r.Messages)
	pids := hosttest.Children(t, s.cmd.Process.Pid)
	spoil(t, s, pids)
	pids = append(pids, hosttest.Children(t, s.cmd.Process.Pid)...)
	require.NotEmpty(t, pids)
	require.Equal(t, exitOK, s.signal(t, syscall.SIGTERM), s.text())
	text := s.text()
	noneLeft(t, pids, tmp)
	_ = os.Remove(hush())
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	require.Empty(t, left)

	s = standalone(t, dir, "--storage", pebble.Name)
	verify(t, s, 20)
	require.Equal(t, exitOK, s.signal(t, syscall.SIGTERM), s.text())
	return text
}

// TestStopThatMayLose: what does not survive the process of a store is said to be lost.
func TestStopThatMayLose(t *testing.T) {
	tmp := shortTemp(t)
	s := standalone(t, t.TempDir(), "--storage", memory.Name, "--storage-process", "--set", "pluginStopTimeout=1s")
	pids := hosttest.Children(t, s.cmd.Process.Pid)
	stopThem(t, s, pids)
	require.Equal(t, exitFailure, s.signal(t, syscall.SIGTERM), s.text())
	require.Contains(t, s.text(), "what was acknowledged may be lost")
	require.Regexp(t, givenUp, s.text())
	noneLeft(t, pids, tmp)
}
