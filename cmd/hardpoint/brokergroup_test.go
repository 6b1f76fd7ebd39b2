//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/internal/bench"
	"github.com/hardpointmq/hardpoint/internal/hosttest"
)

// groupFile writes the configuration of a broker group and returns its path.
func groupFile(t *testing.T, dir, name, more string) string {
	t.Helper()
	path := filepath.Join(dir, name+".yaml")
	text := fmt.Sprintf("brokerName: %s\ndata: %s\nlisten: 127.0.0.1:0\n%s", name, filepath.Join(dir, name), more)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// brokers are the addresses of the broker groups by name, as the newest start logged
// them.
func (s *server) brokers(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for line := range strings.Lines(s.text()) {
		var l struct{ Msg, Name, Broker string }
		if json.Unmarshal([]byte(line), &l) == nil && l.Msg == "broker group serves" {
			out[l.Name] = l.Broker
		}
	}
	return out
}

// TestSeveralGroups: two broker groups and a name server in one process. What happens
// to the store of one does not concern the other.
func TestSeveralGroups(t *testing.T) {
	dir := t.TempDir()
	a := groupFile(t, dir, "a", "adminListen: 127.0.0.1:0\n")
	b := groupFile(t, dir, "b", "storage: pebble\nstorageProcess: true\npluginBackoffFirst: 1h\npluginBackoffMost: 1h\n")
	start := func() (*server, map[string]string) {
		s := launch(t, "standalone", "--config", a, "--config", b, "--namesrv-listen", "127.0.0.1:0")
		require.NotNil(t, s.ready, s.text())
		at := s.brokers(t)
		require.Len(t, at, 2, s.text())
		return s, at
	}
	produce := func(s *server, broker string, n int) {
		var sent bench.Result
		tool(t, &sent, "bench", "produce", "--broker", broker, "--topic", "T", "--count", "50")
		require.EqualValues(t, n, sent.Messages)
	}
	stored := func(broker string) uint64 {
		var got bench.Result
		tool(t, &got, "bench", "consume", "--broker", broker, "--topic", "T", "--verify")
		return uint64(got.Verified.Messages)
	}
	s, at := start()
	produce(s, at["a"], 50)
	produce(s, at["b"], 50)
	code, text := fetch(t, "http://"+s.addr("admin")+"/readyz")
	require.Equal(t, http.StatusOK, code, text)
	code, text = fetch(t, "http://"+s.addr("admin")+"/metrics")
	require.Equal(t, http.StatusOK, code)
	for _, want := range []string{
		`hardpoint_messages_in_total{broker="a"} 50`, `hardpoint_messages_in_total{broker="b"} 50`, `hardpoint_nameserver_topics{broker=""}`,
		`hardpoint_plugin_process_starts_total{broker="b",plugin="pebble"} `,
		`hardpoint_flush_seconds_count{broker="a"} `, `hardpoint_flush_seconds_count{broker="b"} `, // each has a replicator
	} {
		if !strings.Contains(text, want) { // not all of it in the message
			t.Errorf("/metrics has no %s", want)
		}
	}

	// A request to one changes that one.
	connectTo(t, at["b"], "admin").call(command.ReqUpdateBrokerConfig, []byte("brokerPermission=4\n"))
	for name, want := range map[string]string{"a": "brokerPermission=6\n", "b": "brokerPermission=4\n"} {
		require.Contains(t, string(connectTo(t, at[name], "admin").call(command.ReqGetBrokerConfig, []byte(nil))), want, name)
	}

	// Both are killed, and come again with all.
	require.Equal(t, -1, s.signal(t, syscall.SIGKILL))
	s, at = start()
	require.EqualValues(t, 50, stored(at["a"]))
	require.EqualValues(t, 50, stored(at["b"]))

	// The store of one is away; the other goes on.
	child := s.oneChildBut(t, 0)
	require.NoError(t, syscall.Kill(child, syscall.SIGKILL))
	require.Eventually(t, func() bool {
		code, text = fetch(t, "http://"+s.addr("admin")+"/readyz")
		return code == http.StatusServiceUnavailable
	}, patience, 10*time.Millisecond)
	require.Contains(t, text, "broker b: ")
	require.NotContains(t, text, "broker a")
	produce(s, at["a"], 50)
	require.EqualValues(t, 100, stored(at["a"]))
	require.Equal(t, exitOK, s.signal(t, syscall.SIGTERM), s.text())
	require.Empty(t, hosttest.Children(t, s.cmd.Process.Pid))
}

// TestGroupThatDoesNotStart: nothing half up, and the name of the one.
func TestGroupThatDoesNotStart(t *testing.T) {
	dir := t.TempDir()
	a := groupFile(t, dir, "a", "adminListen: off\nstorage: memory\n")
	b := groupFile(t, dir, "b", "storage: memory\nmoreListeners: remoting://192.0.2.1:1\n")
	s := launch(t, "broker", "--config", a, "--config", b, "--namesrv-addr", "127.0.0.1:1")
	require.Nil(t, s.ready)
	require.Equal(t, exitFailure, s.exit(t))
	require.Contains(t, s.text(), "brokers a, b did not start: broker b: moreListeners remoting://192.0.2.1:1")
	require.NotContains(t, s.text(), "broker a: ")

	c := groupFile(t, dir, "c", "storage: tape\n")
	s = launch(t, "broker", "--config", a, "--config", c)
	require.Equal(t, exitFailure, s.exit(t))
	require.Contains(t, s.text(), `c.yaml:4: unknown plugin: there is no storage plugin "tape"`, "that is seen before anything opens")
}

// TestHangupReplacesProgramsOfGroups: each has plugin processes of its own.
func TestHangupReplacesProgramsOfGroups(t *testing.T) {
	dir := t.TempDir()
	const own = "storage: memory\nplugins:\n  transport:\n    remoting:\n      process: true\n"
	a, b := groupFile(t, dir, "a", "adminListen: off\n"+own), groupFile(t, dir, "b", own)
	s := launch(t, "broker", "--config", a, "--config", b, "--namesrv-addr", "127.0.0.1:1")
	require.NotNil(t, s.ready, s.text())
	before := hosttest.Children(t, s.cmd.Process.Pid)
	require.Len(t, before, 2)
	s.hangup(t, `"the program of a plugin is replaced","broker_group":"b"`)
	require.Contains(t, s.text(), `"the program of a plugin is replaced","broker_group":"a"`)
	require.Eventually(t, func() bool { return !hosttest.Running(before[0]) && !hosttest.Running(before[1]) }, patience, 10*time.Millisecond)
	for _, addr := range s.brokers(t) {
		var sent bench.Result
		tool(t, &sent, "bench", "produce", "--broker", addr, "--topic", "T", "--count", "20")
		require.EqualValues(t, 20, sent.Messages)
	}
	require.Equal(t, exitOK, s.signal(t, syscall.SIGTERM), s.text())
}
