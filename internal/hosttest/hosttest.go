// Package hosttest is what tests need of the machine they run on besides the Go
// toolchain: a program, a small file system, the children of a process. It is
// the only way for a test to be left out because of the machine, so that one
// left out is never taken for one that passed.
//
// At a desk such a test is skipped. Where every test has to run (Strict; the
// gates and CI say so), what can be installed must be there: the test fails.
// What the kernel or the host refuses cannot be installed: the test is skipped
// there too, and told to the run (SkippedEnv), which prints it at its end.
package hosttest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

const (
	// StrictEnv, not empty, makes Missing fail.
	StrictEnv = "HARDPOINT_TEST_STRICT"
	// SkippedEnv names a file to which Refused appends a line for each test.
	SkippedEnv = "HARDPOINT_TEST_SKIPPED"
)

// AnyDisk is the environment of a broker that neither refuses nor deletes messages
// because of how full the disk of the machine is, nor because of the hour: tests of
// other things pass on every machine, at any time.
func AnyDisk() []string {
	return []string{"HARDPOINT_DISK_SPACE_WARNING_LEVEL_RATIO=99", "HARDPOINT_CLEAN_FILE_FORCIBLY_ENABLE=false", "HARDPOINT_FILE_RESERVED_TIME=87600"}
}

// Strict tells whether this run has to have everything that can be installed.
func Strict() bool { return os.Getenv(StrictEnv) != "" || os.Getenv("CI") == "true" }

// Missing ends a test for which something is not installed.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if Strict() {
		t.Fatalf("%s: install it, this run may leave out no test (%s)", fmt.Sprintf(format, args...), StrictEnv)
		return
	}
	t.Skipf(format, args...)
}

// Refused ends a test for which the host withholds something that no
// installation brings: a right, an address, a file system.
func Refused(t testing.TB, format string, args ...any) {
	t.Helper()
	why := fmt.Sprintf(format, args...)
	if name := os.Getenv(SkippedEnv); name != "" {
		// One write of a short line: packages are tested at the same time.
		f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = f.WriteString(t.Name() + ": " + strings.ReplaceAll(why, "\n", " ") + "\n")
			_ = f.Close()
		}
		if err != nil {
			t.Fatalf("%s names a file that cannot be written: %v", SkippedEnv, err)
		}
	}
	t.Skip(why)
}

// QuickEnds has the processes that tests start end at once; TestMain calls it. Those
// built with the race detector sleep for a second otherwise.
func QuickEnds() error {
	const race = "GORACE"
	return os.Setenv(race, strings.TrimSpace(os.Getenv(race)+" atexit_sleep_ms=0"))
}

// Program is the path of a program that the test runs.
func Program(t testing.TB, name, why string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Missing(t, "no %s, %s", name, why)
	}
	return path
}

// Children are the ids of the processes that pid started and nobody has waited
// for yet.
func Children(t testing.TB, pid int) []int {
	t.Helper()
	if runtime.GOOS == "linux" {
		return procChildren(t, pid)
	}
	out, err := exec.Command(Program(t, "pgrep", "which tells the children of a process"), "-P", strconv.Itoa(pid)).Output()
	if err != nil && len(out) > 0 {
		t.Fatal(err)
	}
	return ids(t, strings.Fields(string(out)))
}

// procChildren looks through the process table: not every kernel is built with
// the list of children, and not every machine has pgrep.
func procChildren(t testing.TB, pid int) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var out []int
	for _, e := range entries {
		child, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it has ended
		}
		// pid (name) state ppid: the name may hold anything.
		_, rest, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
		if f := strings.Fields(rest); len(f) > 1 && f[1] == strconv.Itoa(pid) {
			out = append(out, child)
		}
	}
	return out
}

// Running tells whether a process, of which this one need not be the parent, has
// not ended: one that ended and waits to be collected has.
func Running(pid int) bool {
	if runtime.GOOS == "linux" {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err == nil && !bytes.Contains(stat, []byte(") Z "))
	}
	p, err := os.FindProcess(pid)
	return err == nil && p.Signal(syscall.Signal(0)) == nil
}

func ids(t testing.TB, words []string) []int {
	t.Helper()
	var out []int
	for _, w := range words {
		id, err := strconv.Atoi(w)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, id)
	}
	return out
}
