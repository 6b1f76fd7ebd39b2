//go:build unix

package main

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
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
	"github.com/hardpointmq/hardpoint/internal/tlstest"
	"github.com/hardpointmq/hardpoint/plugins/storage/memory"
)

// hangup has the server replace its programs, and waits for what it says of it.
func (s *server) hangup(t *testing.T, says string) {
	t.Helper()
	n := strings.Count(s.text(), says)
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGHUP))
	require.Eventually(t, func() bool { return strings.Count(s.text(), says) > n }, patience, 10*time.Millisecond, "%s: %s", says, s.text())
}

// replaces is hangup until the program is replaced: on a busy machine one that dies soon
// may do so before it is checked.
func (s *server) replaces(t *testing.T) {
	t.Helper()
	const says = "the program of a plugin is replaced"
	n := strings.Count(s.text(), says)
	for range 10 {
		s.hangup(t, "the program of a plugin is ")
		if strings.Count(s.text(), says) > n {
			return
		}
	}
	t.Fatalf("the program is never replaced: %s", s.text())
}

// oneChildBut waits until the one child is another one.
func (s *server) oneChildBut(t *testing.T, old int) (pid int) {
	t.Helper()
	require.Eventually(t, func() bool {
		now := hosttest.Children(t, s.cmd.Process.Pid)
		if len(now) == 1 {
			pid = now[0]
		}
		return len(now) == 1 && pid != old
	}, patience, 10*time.Millisecond)
	return pid
}

// more sends 100 messages, each of which must be acknowledged.
func (s *server) more(t *testing.T) {
	t.Helper()
	var sent bench.Result
	tool(t, &sent, "bench", "produce", "--namesrv", s.addr("namesrv"), "--topic", "T", "--count", "100")
	require.EqualValues(t, 100, sent.Messages)
}

// TestHangupReplacesPrograms sends messages before and after the program of the
// transport is replaced; what cannot be one leaves the old one, and is named.
func TestHangupReplacesPrograms(t *testing.T) {
	self, err := exec.LookPath("hardpoint")
	require.NoError(t, err)
	other, err := exec.LookPath(pickyProgram)
	require.NoError(t, err)
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken")
	require.NoError(t, os.WriteFile(broken, []byte("#!/bin/sh\necho half of it was copied >&2\nexit 3\n"), 0o700))
	file := filepath.Join(dir, "c.yaml")
	configure := func(path, args, more string) {
		text := fmt.Sprintf("storage: memory\nplugins:\n  transport:\n    remoting:\n      path: %s\n      args: [%s]\n%s", path, args, more)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	const args = "plugin, serve, transport, remoting"
	configure(self, args, "")
	s := standalone(t, t.TempDir(), "--config", file)
	first := s.oneChildBut(t, 0)
	s.more(t)
	s.hangup(t, "the program of a plugin is replaced")
	second := s.oneChildBut(t, first)
	s.more(t)

	const refused = "the program of a plugin is not replaced, the old one goes on"
	for what, fault := range map[string]struct {
		path, args, why string
	}{
		"it is not there":             {self + ".gone", args, "no such file"},
		"it ends at once":             {broken, "", "half of it was copied"},
		"it is another plugin":        {self, "plugin, serve, transport, inproc", "inproc"},
		"it refuses what is in use":   {other, "", "this version needs one"},
		"it is no plugin of the kind": {self, "plugin, serve, allocate, circle", "remoting"},
	} {
		configure(fault.path, fault.args, "")
		n := len(s.text())
		s.hangup(t, refused)
		require.Contains(t, s.text()[n:], fault.why, what)
		require.Contains(t, s.text()[n:], "c.yaml", what)
	}
	configure(self, args, "      checksum: 12\n")
	s.hangup(t, "the configuration has faults")
	require.Equal(t, second, s.oneChildBut(t, 0), "the process from before goes on")
	s.more(t)
	verify(t, s, 300)
	require.Equal(t, exitOK, s.signal(t, syscall.SIGTERM), s.text())
}

// TestHangupReplacesOwnProcesses: plugins of the program itself that run as
// processes are replaced by what is in the program's file then.
func TestHangupReplacesOwnProcesses(t *testing.T) {
	self, err := exec.LookPath("hardpoint")
	require.NoError(t, err)
	program, err := os.ReadFile(self)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "hardpoint")
	install := func(content []byte) {
		require.NoError(t, os.WriteFile(file+".new", content, 0o700))
		require.NoError(t, os.Rename(file+".new", file))
	}
	install(program)
	s := standaloneOf(t, file, t.TempDir(), "--storage", "memory", "--set", "plugins.transport.remoting.process=true", "--set", "plugins.allocate.circle.process=true")
	first := s.oneChildBut(t, 0)
	s.more(t)
	install(program)
	s.hangup(t, `"the program of a plugin is replaced","plugin":"transport.remoting"`)
	require.Contains(t, s.text(), `"the program of a plugin is replaced","plugin":"allocate.circle"`)
	s.more(t)
	require.Eventually(t, func() bool { return !hosttest.Running(first) }, patience, 10*time.Millisecond)
	require.NotContains(t, s.text(), `"broker removed"`, "its connection to the name server goes on")

	install([]byte("#!/bin/sh\necho half of it was copied >&2\nexit 3\n"))
	s.hangup(t, `"the program of a plugin is not replaced, the old one goes on","plugin":"transport.remoting"`)
	require.Contains(t, s.text(), "half of it was copied")
	s.more(t)
	verify(t, s, 300)
	require.Equal(t, exitOK, s.signal(t, syscall.SIGTERM), s.text())
}

// TestHangupReplacesReplication: the new process takes an office of its own, and what
// was sent before and after is there.
func TestHangupReplacesReplication(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	require.NoError(t, os.WriteFile(file, []byte("storage: memory\nflushDiskType: SYNC_FLUSH\nplugins:\n  replication:\n    solo:\n      process: true\n"), 0o600))
	s := standalone(t, t.TempDir(), "--config", file)
	pid := s.oneChildBut(t, 0)
	s.more(t)
	for range 2 {
		s.hangup(t, `"the replication plugin is back"`)
		pid = s.oneChildBut(t, pid)
		s.more(t)
	}
	require.Contains(t, s.text(), `"term":3`)
	require.NotContains(t, s.text(), "the process of the replication plugin is gone")
	verify(t, s, 300)
	require.Equal(t, exitOK, s.signal(t, syscall.SIGTERM), s.text())
}

// TestHangupReadsCertificates: new certificates count as soon as the log has said so,
// for broker and name server, and the processes of nobody who uses them end.
func TestHangupReadsCertificates(t *testing.T) {
	a := tlstest.New(t)
	pair := a.Issue(t, "server", nil)
	s := standalone(t, t.TempDir(), "--storage", memory.Name, "--set", "tls.server.certPath="+pair.Cert, "--set", "tls.server.keyPath="+pair.Key)
	shown := func(key string) *big.Int {
		c, err := tls.Dial("tcp", s.addr(key), &tls.Config{RootCAs: a.Pool(), ServerName: "localhost", MinVersion: tls.VersionTLS12})
		require.NoError(t, err)
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].SerialNumber
	}
	first := shown("broker")
	require.Equal(t, first, shown("namesrv"))
	s.hangup(t, "hold what counts already")
	a.IssueTo(t, pair, "server", nil)
	const taken = "new TLS files count for new connections"
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGHUP))
	require.Eventually(t, func() bool { return strings.Count(s.text(), taken) == 2 }, patience, time.Millisecond, "%s", s.text())
	for _, key := range []string{"broker", "namesrv"} {
		require.NotEqual(t, first, shown(key))
	}
	require.NoError(t, os.Remove(pair.Key))
	s.hangup(t, "the old ones still count")
	require.NotEqual(t, first, shown("broker"))
	require.Equal(t, exitOK, s.signal(t, syscall.SIGTERM))
}

// TestHangupAtAnyTime: a SIGHUP does not end a broker that has programs, neither
// when it comes while the first one is launched (which sends it here) nor while
// the broker stops.
func TestHangupAtAnyTime(t *testing.T) {
	self, err := exec.LookPath("hardpoint")
	require.NoError(t, err)
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	script := fmt.Sprintf("#!/bin/sh\nif mkdir %s/once 2>/dev/null; then kill -HUP $PPID; fi\nexec %s plugin serve allocate circle\n", dir, self)
	require.NoError(t, os.WriteFile(program, []byte(script), 0o700))
	file := filepath.Join(dir, "c.yaml")
	require.NoError(t, os.WriteFile(file, []byte("storage: memory\nplugins:\n  allocate:\n    circle:\n      path: "+program+"\n"), 0o600))
	s := standalone(t, filepath.Join(dir, "data"), "--config", file)
	require.DirExists(t, filepath.Join(dir, "once"))
	require.Eventually(t, func() bool { return strings.Contains(s.text(), `"the program of a plugin is replaced"`) }, patience, 10*time.Millisecond)

	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	require.Eventually(t, func() bool {
		_ = s.cmd.Process.Signal(syscall.SIGHUP)
		select {
		case <-s.done:
			return true
		default:
			return false
		}
	}, patience, time.Millisecond)
	require.Equal(t, exitOK, s.exit(t), s.text())
}

// TestHangupToOneThatDies: a new version that passes every check and dies again and
// again does not take the broker with it, and the one from before comes back by another
// SIGHUP, whatever the new one was about to do.
func TestHangupToOneThatDies(t *testing.T) {
	self, err := exec.LookPath("hardpoint")
	require.NoError(t, err)
	bad, err := exec.LookPath(dyingProgram)
	require.NoError(t, err)
	for which, breaker := range map[string]int{"transport.remoting": 1000, "replication.solo": 2, "allocate.averagely": 1000} {
		t.Run(which, func(t *testing.T) {
			tmp := shortTemp(t)
			kind, name, _ := strings.Cut(which, ".")
			file := filepath.Join(t.TempDir(), "c.yaml")
			configure := func(path, args string) {
				text := fmt.Sprintf("storage: memory\npluginBackoffFirst: 10ms\npluginBackoffMost: 50ms\npluginBreakerDeaths: %d\npluginBreakerOpen: 1h\nplugins:\n  %s:\n    %s:\n      path: %s\n      args: [%s]\n",
					breaker, kind, name, path, args)
				require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			}
			good := fmt.Sprintf("plugin, serve, %s, %s", kind, name)
			configure(self, good)
			s := standalone(t, t.TempDir(), "--config", file)
			s.more(t)
			configure(bad, "")
			s.replaces(t)
			n := len(s.text())
			if kind == "allocate" {
				newcomer(t, s) // one that nobody asks is not started again
			}
			require.Eventually(t, func() bool { return strings.Count(s.text()[n:], "exit status 3") >= 2 }, patience, 10*time.Millisecond, s.text())
			require.Nil(t, s.cmd.ProcessState)
			configure(self, good)
			s.replaces(t)
			serves := func() bool { // clients find their way back, too
				var r bench.Result
				var out bytes.Buffer
				code := run(t.Context(), []string{"bench", "produce", "--namesrv", s.addr("namesrv"), "--topic", "Probe", "--count", "1", "--output", "json"}, nil, &out, io.Discard)
				return code == exitOK && json.Unmarshal(out.Bytes(), &r) == nil && r.Messages > 0
			}
			require.Eventually(t, serves, patience, 10*time.Millisecond, s.text())
			s.more(t)
			verify(t, s, 200)
			pids := hosttest.Children(t, s.cmd.Process.Pid)
			require.Equal(t, exitOK, s.signal(t, syscall.SIGTERM), s.text())
			noneLeft(t, pids, tmp)
		})
	}
}
