//go:build unix

package main

import (
	"bufio"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/internal/bench"
	"github.com/hardpointmq/hardpoint/internal/hosttest"
)

// rounds are 10, and 100 where the long form of tests is asked for.
func rounds() int {
	if os.Getenv("HARDPOINT_TEST_LONG") != "" {
		return 100
	}
	return 10
}

// shortTemp is a temporary directory of the broker's own, so that what it leaves
// there is seen. It is short, because sockets are in it.
func shortTemp(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "t")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	t.Setenv("TMPDIR", dir)
	return dir
}

// sockets are those below a directory.
func sockets(t *testing.T, dir string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type()&fs.ModeSocket != 0 {
			out = append(out, path)
		}
		return nil
	})
	require.NoError(t, err)
	return out
}

// withPlugins is a broker whose store, allocator, transport and replicator are
// processes. That of the allocator runs when a group asks for its queues.
func withPlugins() []string {
	return []string{
		"--storage", "pebble", "--storage-process",
		"--set", "plugins.allocate.averagely.process=true",
		"--set", "plugins.transport.remoting.process=true",
		"--set", "plugins.replication.solo.process=true",
	}
}

// allPlugins are the processes of a broker withPlugins when all of them run.
func allPlugins(t *testing.T, s *server) (pids []int) {
	t.Helper()
	require.Eventually(t, func() bool {
		pids = hosttest.Children(t, s.cmd.Process.Pid)
		return len(pids) == 4
	}, patience, 10*time.Millisecond, "%s", s.text())
	return pids
}

// member is a client of a consumer group that lets the broker share the queues.
type member struct {
	t      *testing.T
	conn   net.Conn
	id     string
	opaque int32
}

// join connects a member and waits until an allocator has given it so many queues.
func join(t *testing.T, s *server, id string, queues int) *member {
	t.Helper()
	m := connect(t, s, id)
	m.call(command.ReqHeartBeat, m.heartbeat())
	m.await(queues)
	return m
}

func connect(t *testing.T, s *server, id string) *member {
	t.Helper()
	return connectTo(t, s.addr("broker"), id)
}

func connectTo(t *testing.T, addr, id string) *member {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &member{t: t, conn: conn, id: id}
}

func (m *member) heartbeat() command.HeartbeatData {
	return command.HeartbeatData{ClientID: m.id, ConsumerDataSet: []command.ConsumerData{{
		GroupName: "G", ConsumeType: command.ConsumePassively, MessageModel: command.Clustering, ConsumeFromWhere: command.ConsumeFromLastOffset,
		SubscriptionDataSet: []command.SubscriptionData{{Topic: "T", SubString: "*", SubVersion: 1}},
	}}}
}

func (m *member) query() command.QueryAssignmentBody {
	return command.QueryAssignmentBody{ClientID: m.id, ConsumerGroup: "G", MessageModel: command.Clustering, StrategyName: "AVG", Topic: "T"}
}

// await asks for its queues until it has so many: an allocator that takes long is
// asked again by the broker.
func (m *member) await(queues int) {
	m.t.Helper()
	require.Eventually(m.t, func() bool {
		var out command.QueryAssignmentResponse
		require.NoError(m.t, command.DecodeBody(m.call(command.ReqQueryAssignment, m.query()), &out))
		return len(out.Assignments) == queues
	}, patience, 10*time.Millisecond, "%s does not get %d queues", m.id, queues)
}

// ask sends a request with v as the body, bytes as they are.
func (m *member) ask(code int32, v any) {
	m.t.Helper()
	body, raw := v.([]byte)
	if !raw {
		var err error
		body, err = command.EncodeBody(v)
		require.NoError(m.t, err)
	}
	m.opaque++
	w := command.Begin(nil, command.JSON, code, m.opaque, 0)
	require.NoError(m.t, m.conn.SetDeadline(time.Now().Add(patience)))
	_, err := m.conn.Write(append(w.End(len(body)), body...))
	require.NoError(m.t, err)
}

// call sends one and waits for the answer.
func (m *member) call(code int32, v any) []byte {
	m.t.Helper()
	m.ask(code, v)
	var in []byte
	var frames []command.Frame
	for {
		var used int
		var err error
		frames, used, _, err = command.Split(in, frames[:0], command.Limits{})
		require.NoError(m.t, err)
		in = in[used:]
		for i := range frames {
			var h command.Header
			require.NoError(m.t, h.Decode(&frames[i]))
			if h.IsResponse() && h.Opaque == m.opaque {
				require.Equal(m.t, command.RespSuccess, h.Code, "%s", h.Remark())
				return frames[i].Body
			}
		}
		b := make([]byte, 64<<10)
		n, err := m.conn.Read(b)
		require.NoError(m.t, err)
		in = append(in, b[:n]...)
	}
}

func noneLeft(t *testing.T, pids []int, tmp string) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, pid := range pids {
			if hosttest.Running(pid) {
				return false
			}
		}
		return true
	}, patience, 5*time.Millisecond, "plugins %v live on without their broker", pids)
	require.Empty(t, sockets(t, tmp), "sockets are left behind")
}

// TestHostKilled kills the broker, with plugins of every kind at work: they end with
// it, no socket is left, and the next start opens the store at once.
func TestHostKilled(t *testing.T) {
	dir, tmp := t.TempDir(), shortTemp(t)
	sent := 0
	for range rounds() {
		s := standalone(t, dir, withPlugins()...)
		require.NotContains(t, s.text(), "somebody holds the lock")
		var r bench.Result
		tool(t, &r, "bench", "produce", "--namesrv", s.addr("namesrv"), "--topic", "T", "--count", "20", "--size", "100")
		require.EqualValues(t, 20, r.Messages)
		sent += 20
		verify(t, s, sent)
		// A group of two, for which the allocator works; in the rounds after the
		// first it begins with what the broker remembers.
		anna := join(t, s, "anna", 4)
		join(t, s, "ben", 2)
		anna.await(2)
		pids := allPlugins(t, s)
		require.Equal(t, -1, s.signal(t, syscall.SIGKILL))
		noneLeft(t, pids, tmp)
	}
	s := standalone(t, dir, withPlugins()...)
	verify(t, s, sent)
	require.Equal(t, exitOK, s.signal(t, syscall.SIGTERM), s.text())
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	require.Empty(t, left, "the last one cleaned up")
}

// endWithTest ends a process that the test left when it failed.
func endWithTest(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
}

// TestHostKilledWhileItStarts leaves what is half made; the next start removes it.
func TestHostKilledWhileItStarts(t *testing.T) {
	dir, tmp := t.TempDir(), shortTemp(t)
	for n := range rounds() {
		cmd := exec.Command("hardpoint", append([]string{"standalone", "--data", dir, "--listen", "127.0.0.1:0", "--namesrv-listen", "127.0.0.1:0", "--admin-listen", "off"}, withPlugins()...)...)
		cmd.Stderr = os.Stderr
		require.NoError(t, cmd.Start())
		endWithTest(t, cmd)
		var pids []int
		require.Eventually(t, func() bool {
			pids = hosttest.Children(t, cmd.Process.Pid)
			return len(pids) > 0
		}, patience, time.Duration(n%5+1)*time.Millisecond)
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
		require.Eventually(t, func() bool {
			for _, pid := range pids {
				if hosttest.Running(pid) {
					return false
				}
			}
			return true
		}, patience, 5*time.Millisecond)
	}
	s := standalone(t, dir, withPlugins()...)
	require.Empty(t, sockets(t, tmp), "what dead brokers left is removed")
	require.Equal(t, exitOK, s.signal(t, syscall.SIGTERM), s.text())
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestHostStopped: a broker that was stopped for a while goes on with its plugins.
func TestHostStopped(t *testing.T) {
	pause := 3 * time.Second
	if os.Getenv("HARDPOINT_TEST_LONG") != "" {
		pause = time.Minute // longer than any limit of the supervision
	}
	dir := t.TempDir()
	s := standalone(t, dir, withPlugins()...)
	pids := hosttest.Children(t, s.cmd.Process.Pid)
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGSTOP))
	<-time.After(pause)
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGCONT))
	var r bench.Result
	tool(t, &r, "bench", "produce", "--namesrv", s.addr("namesrv"), "--topic", "T", "--count", "20", "--size", "100")
	require.EqualValues(t, 20, r.Messages)
	verify(t, s, 20)
	// One that was only asked what it is has ended meanwhile.
	require.Subset(t, pids, hosttest.Children(t, s.cmd.Process.Pid), "no plugin was started anew")
	require.NotContains(t, s.text(), "died")
	require.Equal(t, exitOK, s.signal(t, syscall.SIGTERM), s.text())
}

// TestHostWithoutStderr: whoever reads the broker's log goes away. It may end of
// that, as any program does, but not leave its plugins behind.
func TestHostWithoutStderr(t *testing.T) {
	dir, tmp := t.TempDir(), shortTemp(t)
	cmd := exec.Command("hardpoint", append([]string{"standalone", "--data", dir, "--listen", "127.0.0.1:0", "--namesrv-listen", "127.0.0.1:0", "--admin-listen", "off"}, withPlugins()...)...)
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	endWithTest(t, cmd)
	in := bufio.NewScanner(stderr)
	for in.Scan() && !strings.Contains(in.Text(), `"msg":"ready in `) {
	}
	pids := hosttest.Children(t, cmd.Process.Pid)
	require.NotEmpty(t, pids)
	require.NoError(t, stderr.Close())
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	_ = cmd.Wait()
	noneLeft(t, pids, tmp)
	s := standalone(t, dir, withPlugins()...)
	require.Equal(t, exitOK, s.signal(t, syscall.SIGTERM), s.text())
}

// TestHostAsPid1 runs the broker as the first process of a container: its end takes
// everything with it, and what a plugin leaves behind is collected by it.
func TestHostAsPid1(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // containers are Linux's
	}
	unshare := hosttest.Program(t, "unshare", "which makes the first process of a container")
	if out, err := exec.Command(unshare, "-Urpf", "--mount-proc", "true").CombinedOutput(); err != nil {
		hosttest.Refused(t, "no process namespace of our own: %v: %s", err, strings.TrimSpace(string(out)))
	}
	dir := t.TempDir()
	script := filepath.Join(t.TempDir(), "plugin.sh")
	self, err := exec.LookPath("hardpoint")
	require.NoError(t, err)
	// The plugin starts a process, whose parent ends: it becomes the broker's.
	require.NoError(t, os.WriteFile(script, []byte(fmt.Sprintf("#!/bin/sh\n(sleep 0.2 </dev/null >/dev/null 2>&1 &)\nexec %q plugin serve storage pebble\n", self)), 0o700))
	args := []string{
		"-Urpf", "--mount-proc", "--kill-child", "hardpoint", "standalone", "--data", dir, "--listen", "127.0.0.1:0", "--namesrv-listen", "127.0.0.1:0",
		"--admin-listen", "off", "--storage", "pebble", "--set", "plugins.storage.pebble.path=" + script, "--log-format", "json",
	}
	cmd := exec.Command(unshare, args...)
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	endWithTest(t, cmd)
	ready := false
	in := bufio.NewScanner(stderr)
	var log strings.Builder
	for !ready && in.Scan() {
		log.WriteString(in.Text() + "\n")
		ready = strings.Contains(in.Text(), `"msg":"ready in `)
	}
	require.True(t, ready, log.String())
	hosts := hosttest.Children(t, cmd.Process.Pid)
	require.Len(t, hosts, 1)
	require.Contains(t, log.String(), `"pid":1,`)
	plugins := hosttest.Children(t, hosts[0])
	require.NotEmpty(t, plugins)
	require.Eventually(t, func() bool { return !zombies(t, hosts[0]) }, patience, 50*time.Millisecond, "nobody collects what a plugin left behind")
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	noneLeft(t, append(plugins, hosts...), dir)
}

// zombies tells whether a process has children that ended.
func zombies(t *testing.T, parent int) bool {
	t.Helper()
	for _, pid := range hosttest.Children(t, parent) {
		if !hosttest.Running(pid) {
			return true
		}
	}
	return false
}

// TestMetricsOfPlugins: /metrics tells of the processes, of the calls, and what they
// count themselves.
func TestMetricsOfPlugins(t *testing.T) {
	s := standalone(t, t.TempDir(), withPlugins()...)
	code, text := fetch(t, "http://"+s.addr("admin")+"/metrics")
	require.Equal(t, http.StatusOK, code)
	for _, want := range []string{
		`hardpoint_plugin_process_starts_total{plugin="pebble"} 1`, `hardpoint_plugin_process_deaths_total{plugin="pebble"} 0`,
		`hardpoint_plugin_process_state{plugin="pebble",state="running"} 1`, `hardpoint_plugin_process_state{plugin="remoting",state="running"} 1`,
		`hardpoint_plugin_calls_total{kind="storage",method="Open",plugin="pebble"} 1`, `hardpoint_plugin_metrics_left_out{plugin="pebble"} 0`,
		`hardpoint_transport_connections_total{plugin="remoting",transport="remoting"} `,
	} {
		require.Contains(t, text, want)
	}
	for _, pid := range hosttest.Children(t, s.cmd.Process.Pid) {
		hosttest.Stop(t, pid)
		defer syscall.Kill(pid, syscall.SIGCONT) //nolint:errcheck // it may have been killed
	}
	code, text = fetch(t, "http://"+s.addr("admin")+"/metrics")
	require.Equal(t, http.StatusOK, code)
	require.NotContains(t, text, "hardpoint_transport_connections_total", "processes that are stopped are not waited for")
	require.Contains(t, text, `hardpoint_plugin_process_state{plugin="pebble",state="`)
}
