package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDoctorOfLimits: what doctor says of a running broker's disk, open files and memory
// maps is what the system says of them.
func TestDoctorOfLimits(t *testing.T) {
	dir := t.TempDir()
	// The machine's disk may be rather full.
	s := standalone(t, dir, "--storage", "commitlog", "--set", "diskSpaceWarningLevelRatio=99", "--set", "diskSpaceCleanForciblyRatio=98")
	produce(t, s, 10) // the log has a file
	pid := s.cmd.Process.Pid

	var out, errs bytes.Buffer
	code := run(t.Context(), []string{"doctor", "--namesrv", s.addr("namesrv")}, nil, &out, &errs)
	require.Contains(t, []int{exitOK, exitWarned}, code, "%s%s", &out, &errs)
	line := func(format string) []int64 {
		f := regexp.MustCompile(`(?m)^ok +` + format + `$`).FindStringSubmatch(out.String())
		require.NotNil(t, f, "%s in\n%s", format, &out)
		var numbers []int64
		for _, text := range f[1:] {
			n, err := strconv.ParseInt(text, 10, 64)
			require.NoError(t, err)
			numbers = append(numbers, n)
		}
		return numbers
	}

	var fs syscall.Statfs_t
	require.NoError(t, syscall.Statfs(dir, &fs))
	used := fs.Blocks - fs.Bfree
	require.InDelta(t, 100*float64(used)/float64(used+fs.Bavail), float64(line(`disk +\S+ +(\d+)% used; a disk of [0-9.]+ [KMGT]iB`)[0]), 3, "others use it, too")
	line(`forecast +\S+ +the disk does not fill, or that is not known yet`)

	files := line(`open files +\S+ +(\d+) of at most (\d+)`)
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	require.NoError(t, err)
	f := regexp.MustCompile(`(?m)^Max open files +(\d+|unlimited)`).FindStringSubmatch(string(limits))
	require.NotNil(t, f)
	if f[1] != "unlimited" {
		require.Equal(t, f[1], strconv.FormatInt(files[1], 10))
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	require.NoError(t, err)
	near(t, len(open), files[0])

	maps := line(`memory maps +\S+ +(\d+) of at most (\d+)`)
	most, err := os.ReadFile("/proc/sys/vm/max_map_count")
	require.NoError(t, err)
	require.Equal(t, strings.TrimSpace(string(most)), strconv.FormatInt(maps[1], 10))
	mapped, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	require.NoError(t, err)
	near(t, bytes.Count(mapped, []byte("\n")), maps[0])
}

// near compares two looks at what changes while a broker runs: connections end, the
// runtime maps memory.
func near(t *testing.T, want int, got int64) {
	t.Helper()
	require.Positive(t, got)
	require.LessOrEqual(t, math.Abs(float64(want)-float64(got)), max(16, float64(want)/2), "%d, and the system says %d", got, want)
}
