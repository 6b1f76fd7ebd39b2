//go:build unix

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/internal/bench"
	"github.com/hardpointmq/hardpoint/internal/hosttest"
)

// patience is how long a test waits for another process on a busy machine.
const patience = 3 * time.Minute

// server is a hardpoint process.
type server struct {
	cmd   *exec.Cmd
	ready map[string]any // the log line that says so
	done  chan struct{}  // standard error is read to its end

	mu  sync.Mutex
	log bytes.Buffer
}

func (s *server) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

func (s *server) addr(key string) string { return s.ready[key].(string) }

// launch starts a process and waits until it is ready or ends.
func launch(t *testing.T, args ...string) *server {
	t.Helper()
	return launchOf(t, "hardpoint", args...)
}

// launchOf is launch with a file of the program.
func launchOf(t *testing.T, program string, args ...string) *server {
	t.Helper()
	s := &server{done: make(chan struct{})}
	s.cmd = exec.Command(program, append(args, "--log-format", "json")...)
	s.cmd.Dir = t.TempDir()
	stderr, err := s.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, s.cmd.Start())
	ready := make(chan map[string]any, 1)
	go func() {
		defer close(s.done)
		for in := bufio.NewScanner(stderr); in.Scan(); {
			s.mu.Lock()
			s.log.Write(append(in.Bytes(), '\n'))
			s.mu.Unlock()
			var line map[string]any
			if json.Unmarshal(in.Bytes(), &line) == nil && line["took_ms"] != nil {
				ready <- line
			}
		}
	}()
	t.Cleanup(func() {
		if s.cmd.ProcessState == nil {
			_ = s.cmd.Process.Kill()
			s.exit(t)
		}
		if t.Failed() {
			t.Logf("log of %v:\n%s", args, s.text())
		}
	})
	select {
	case s.ready = <-ready:
	case <-s.done:
	case <-time.After(patience):
		t.Fatalf("not ready after %v: %s", patience, s.text())
	}
	return s
}

// exit waits for the end and returns the exit code, -1 after a signal.
func (s *server) exit(t *testing.T) int {
	t.Helper()
	select {
	case <-s.done:
	case <-time.After(patience):
		t.Fatalf("still running after %v: %s", patience, s.text())
	}
	_ = s.cmd.Wait()
	return s.cmd.ProcessState.ExitCode()
}

func (s *server) signal(t *testing.T, sig os.Signal) int {
	t.Helper()
	require.NoError(t, s.cmd.Process.Signal(sig))
	return s.exit(t)
}

func standalone(t *testing.T, dir string, args ...string) *server {
	t.Helper()
	return standaloneOf(t, "hardpoint", dir, args...)
}

func standaloneOf(t *testing.T, program, dir string, args ...string) *server {
	t.Helper()
	s := launchOf(t, program, append([]string{"standalone", "--data", dir, "--listen", "127.0.0.1:0", "--namesrv-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}, args...)...)
	require.NotNil(t, s.ready, "%s", s.text())
	return s
}

func fetch(t *testing.T, url string) (int, string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

// tool runs a command of this program in this process and decodes its JSON.
func tool(t *testing.T, into any, args ...string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), append(args, "--output", "json"), nil, &stdout, &stderr)
	require.Equal(t, exitOK, code, "%v: %s%s", args, stderr.String(), stdout.String())
	require.NoError(t, json.Unmarshal(stdout.Bytes(), into))
}

// forms are the three stores behind the one contract, some as a process.
var forms = map[string]struct {
	args      []string
	survives  bool
	processes bool
}{
	"commitlog":         {[]string{"--storage", "commitlog"}, true, false},
	"pebble":            {[]string{"--storage", "pebble"}, true, false},
	"pebble as process": {[]string{"--storage", "pebble", "--storage-process"}, true, true},
	"memory":            {[]string{"--storage", "memory"}, false, false},
	"memory, all as processes": {[]string{"--storage", "memory", "--storage-process", "--set", "plugins.transport.remoting.process=true",
		"--set", "plugins.replication.solo.process=true"}, false, true},
}

// TestStandalone starts, fills, verifies, kills, restarts and stops the real
// program.
func TestStandalone(t *testing.T) {
	const first, second = 500, 300
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := standalone(t, dir, form.args...)
			code, text := fetch(t, "http://"+s.addr("admin")+"/readyz")
			require.Equal(t, http.StatusOK, code, text)
			code, text = fetch(t, "http://"+s.addr("admin")+"/metrics")
			require.Equal(t, http.StatusOK, code)
			require.Contains(t, text, "process_resident_memory_bytes")

			var sent bench.Result
			tool(t, &sent, "bench", "produce", "--namesrv", s.addr("namesrv"), "--topic", "T", "--count", "500", "--connections", "2", "--depth", "8", "--size", "100")
			require.EqualValues(t, first, sent.Messages)
			require.Empty(t, sent.Errors)
			verify(t, s, first)

			// Twice on one directory is refused, and does no harm.
			other := launch(t, append([]string{"standalone", "--data", dir, "--listen", "127.0.0.1:0", "--namesrv-listen", "127.0.0.1:0", "--admin-listen", "off"}, form.args...)...)
			require.Nil(t, other.ready)
			require.Equal(t, exitFailure, other.exit(t))
			require.Contains(t, other.text(), "is in use by another broker")
			verify(t, s, first)

			require.Equal(t, -1, s.signal(t, syscall.SIGKILL))
			s = standalone(t, dir, form.args...)
			kept := 0
			if form.survives {
				kept = first
				verify(t, s, kept)
			}
			tool(t, &sent, "bench", "produce", "--namesrv", s.addr("namesrv"), "--topic", "T", "--count", "300", "--header", "rocketmq", "--create-topic")
			require.EqualValues(t, second, sent.Messages)
			verify(t, s, kept+second)
			require.Equal(t, exitOK, s.signal(t, syscall.SIGTERM), s.text())
			require.Contains(t, s.text(), `"msg":"stopped"`)

			s = standalone(t, dir, form.args...)
			if form.survives {
				verify(t, s, kept+second)
			}
			require.Equal(t, exitOK, s.signal(t, os.Interrupt), s.text())
		})
	}
}

func verify(t *testing.T, s *server, want int) {
	t.Helper()
	var got bench.Result
	tool(t, &got, "bench", "consume", "--namesrv", s.addr("namesrv"), "--topic", "T", "--verify")
	require.NotNil(t, got.Verified)
	require.EqualValues(t, want, got.Verified.Messages)
}

func TestNameServerAndBrokerApart(t *testing.T) {
	names := launch(t, "namesrv", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--admin-listen", "off")
	require.NotNil(t, names.ready, names.text())
	b := launch(t, "broker", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--admin-listen", "off", "--namesrv-addr", names.addr("namesrv"), "--storage", "memory")
	require.NotNil(t, b.ready, b.text())
	require.Eventually(t, func() bool { return strings.Contains(names.text(), "broker registered") }, patience, 10*time.Millisecond)
	var sent bench.Result
	tool(t, &sent, "bench", "produce", "--namesrv", names.addr("namesrv"), "--count", "10")
	require.EqualValues(t, 10, sent.Messages)
	require.Equal(t, exitOK, b.signal(t, syscall.SIGTERM), b.text())
	require.Equal(t, exitOK, names.signal(t, syscall.SIGTERM), names.text())
	require.Contains(t, names.text(), "it unregistered")
}

// TestStoreProcessThatDies: the broker goes on with another one.
func TestStoreProcessThatDies(t *testing.T) {
	s := standalone(t, t.TempDir(), "--storage", "pebble", "--storage-process")
	produce := func() {
		var sent bench.Result
		tool(t, &sent, "bench", "produce", "--namesrv", s.addr("namesrv"), "--topic", "T", "--count", "50")
		require.EqualValues(t, 50, sent.Messages)
	}
	produce()
	children := hosttest.Children(t, s.cmd.Process.Pid)
	require.NotEmpty(t, children)
	for _, pid := range children {
		p, err := os.FindProcess(pid)
		require.NoError(t, err)
		require.NoError(t, p.Kill())
	}
	require.Eventually(t, func() bool { return strings.Contains(s.text(), "this broker takes writes again") }, patience, 10*time.Millisecond)
	code, text := fetch(t, "http://"+s.addr("admin")+"/readyz")
	require.Equal(t, http.StatusOK, code, text)
	produce()
	verify(t, s, 100)
	require.Contains(t, s.text(), "signal: killed")
	require.Equal(t, exitOK, s.signal(t, syscall.SIGTERM), s.text())
}

// TestBenchOfWhatIsRefused: a run of which nothing succeeded failed.
func TestBenchOfWhatIsRefused(t *testing.T) {
	s := standalone(t, t.TempDir(), "--storage", "memory", "--set", "autoCreateTopicEnable=false")
	for _, form := range []string{"text", "json"} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), []string{"bench", "produce", "--broker", s.addr("broker"), "--topic", "Nobody", "--count", "20", "--output", form}, nil, &stdout, &stderr)
		require.Equal(t, exitFailure, code, stdout.String())
		require.Contains(t, stdout.String(), "TOPIC_NOT_EXIST", "the result is shown all the same")
		require.Contains(t, stderr.String(), "nothing was measured, all ")
		require.Contains(t, stderr.String(), "TOPIC_NOT_EXIST (17)")
	}
}
