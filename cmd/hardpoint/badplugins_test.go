//go:build unix

package main

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/internal/bench"
	"github.com/hardpointmq/hardpoint/plugins/storage/memory"
)

// TestBadPlugins (BC-40) has the programs of testdata/bad checked, and a broker
// started with each as its store, beside good plugins. It starts, or says in words
// why not and leaves nothing behind.
func TestBadPlugins(t *testing.T) {
	names, err := filepath.Glob("testdata/bad/*.says")
	require.NoError(t, err)
	require.NotEmpty(t, names)
	for _, name := range names {
		says, err := os.ReadFile(name)
		require.NoError(t, err)
		name = strings.TrimSuffix(name, ".says")
		want := strings.Split(strings.TrimSpace(string(says)), "\n")
		var good, slow bool
		switch want[0] {
		case "good":
			good, want = true, want[1:]
		case "slow":
			slow, want = true, want[1:]
		}
		t.Run(filepath.Base(name), func(t *testing.T) {
			tmp, path := shortTemp(t), executable(t, name)
			checkBad(t, path, good, want)
			if slow && os.Getenv("HARDPOINT_TEST_LONG") == "" {
				return // a broker gives it half a minute
			}
			startWithBad(t, path, tmp, good, want)
		})
	}
}

// executable copies a program, whose mode no version control keeps. One that is no
// text is in the folder as hexadecimal digits.
func executable(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		text, err = os.ReadFile(name + ".hex")
		require.NoError(t, err)
		text, err = hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	}
	require.NoError(t, err)
	mode := os.FileMode(0o700)
	if filepath.Base(name) == "mode" {
		mode = 0o600
	}
	path := filepath.Join(t.TempDir(), filepath.Base(name))
	require.NoError(t, os.WriteFile(path, text, mode))
	return path
}

// checkBad has it checked.
func checkBad(t *testing.T, path string, good bool, want []string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	limit := patience
	if strings.Contains(strings.Join(want, ""), "nothing came of the handshake") {
		limit = time.Second
	}
	check := func() int {
		stdout.Reset()
		stderr.Reset()
		return run(t.Context(), []string{"plugin", "check", "--timeout", limit.String(), path}, nil, &stdout, &stderr)
	}
	code := check()
	for limit < patience && !strings.Contains(unquoted(stdout.String()), want[len(want)-1]) { // a busy machine: it did not come that far
		limit *= 2
		code = check()
	}
	if good {
		require.Equal(t, exitOK, code, "%s%s", &stdout, &stderr)
		return
	}
	require.Equal(t, exitFailure, code, "%s%s", &stdout, &stderr)
	for _, w := range want {
		require.Contains(t, unquoted(stdout.String()), w)
	}
}

// startWithBad starts a broker with it.
func startWithBad(t *testing.T, path, tmp string, good bool, want []string) {
	t.Helper()
	dir := t.TempDir()
	args := []string{
		"standalone", "--data", dir, "--listen", "127.0.0.1:0", "--namesrv-listen", "127.0.0.1:0", "--admin-listen", "off", "--storage", memory.Name,
		"--set", "plugins.storage.memory.path=" + path,
		"--set", "plugins.transport.remoting.process=true", "--set", "plugins.replication.solo.process=true",
	}
	s := launch(t, args...)
	if good {
		require.NotNil(t, s.ready, "%s", s.text())
		var r bench.Result
		tool(t, &r, "bench", "produce", "--namesrv", s.addr("namesrv"), "--topic", "T", "--count", "20", "--size", "100")
		require.EqualValues(t, 20, r.Messages)
		require.Equal(t, exitOK, s.signal(t, syscall.SIGTERM), s.text())
	} else {
		require.Nil(t, s.ready)
		require.Equal(t, exitFailure, s.exit(t), "the command line was right, the program is not: %s", s.text())
		want = append(want, path)
	}
	for _, w := range want {
		require.Contains(t, unquoted(s.text()), w)
	}
	require.Empty(t, sockets(t, tmp))
	if runtime.GOOS == "linux" {
		require.Eventually(t, func() bool { return len(started(t, tmp)) == 0 }, patience, 5*time.Millisecond, "processes are left behind")
	}
	if !good {
		s = standalone(t, dir, "--storage", memory.Name)
		require.Equal(t, exitOK, s.signal(t, syscall.SIGTERM), "what the failed start left is in nobody's way: %s", s.text())
	}
}

// unquoted undoes the quotes of JSON and of lists.
func unquoted(s string) string {
	return strings.NewReplacer(`\\n`, "\n", `\n`, "\n", `\\"`, `"`, `\"`, `"`).Replace(s)
}

// started are the processes that were given a temporary directory, in which no other
// test's plugins are.
func started(t *testing.T, tmp string) (pids []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(t, err)
	for _, name := range all {
		env, err := os.ReadFile(name)
		if err == nil && bytes.Contains(env, []byte("TMPDIR="+tmp+"\x00")) {
			pids = append(pids, name)
		}
	}
	return pids
}

// TestStarted: what TestBadPlugins looks with sees processes.
func TestStarted(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // as there
	}
	tmp := shortTemp(t)
	cmd := exec.Command("sleep", "1000")
	require.NoError(t, cmd.Start())
	require.Len(t, started(t, tmp), 1)
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	require.Empty(t, started(t, tmp))
}
