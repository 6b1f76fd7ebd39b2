//go:build unix

package hosttest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Stop stops a process and returns when all of its threads are stopped: SIGSTOP takes
// hold of one after the other, and on a busy machine the process answers meanwhile.
// Whoever stopped it sends SIGCONT.
func Stop(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatalf("stopping process %d: %v", pid, err)
	}
	for deadline := time.Now().Add(time.Minute); !stopped(t, pid); {
		if time.Now().After(deadline) {
			t.Fatalf("process %d is not stopped a minute after SIGSTOP", pid)
		}
		<-time.After(time.Millisecond)
	}
}

func stopped(t testing.TB, pid int) bool {
	t.Helper()
	if runtime.GOOS != "linux" {
		out, err := exec.Command(Program(t, "ps", "which tells the state of a process"), "-o", "state=", "-p", strconv.Itoa(pid)).Output()
		return err == nil && strings.HasPrefix(strings.TrimSpace(string(out)), "T")
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("process %d has no threads: %v", pid, err)
	}
	for _, name := range threads {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue // the thread has ended
		}
		// pid (name) state: the name may hold anything.
		if !strings.HasPrefix(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " T") {
			return false
		}
	}
	return true
}
