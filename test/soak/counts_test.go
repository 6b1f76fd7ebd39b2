package soak

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hardpointmq/hardpoint/test/harness"
)

// counts are what a process holds. files and maps are told on Linux only.
type counts struct {
	goroutines, files, maps int
	heap                    int64
}

func (c counts) String() string {
	return fmt.Sprintf("%d goroutines, %d files, %d mapped files, %.1f MiB of heap", c.goroutines, c.files, c.maps, float64(c.heap)/(1<<20))
}

// count asks a node for its counts after a garbage collection.
func count(n *harness.Node) (c counts, err error) {
	for range 2 { // what finalizers and pools hold goes with the second one
		if _, err := n.AdminWithin(time.Minute, "/debug/pprof/heap?gc=1"); err != nil {
			return c, err
		}
	}
	text, err := n.AdminWithin(time.Minute, "/metrics")
	if err != nil {
		return c, err
	}
	metric := func(name string) int64 {
		_, rest, _ := strings.Cut(text, "\n"+name+" ")
		line, _, _ := strings.Cut(rest, "\n")
		v, failed := strconv.ParseFloat(line, 64)
		if failed != nil {
			err = fmt.Errorf("metric %s: %w", name, failed)
		}
		return int64(v)
	}
	c.goroutines, c.heap = int(metric("go_goroutines")), metric("go_memstats_heap_alloc_bytes")
	if fds, failed := os.ReadDir(fmt.Sprintf("/proc/%d/fd", n.Pid())); failed == nil {
		c.files = len(fds)
	}
	data, _ := filepath.EvalSymlinks(n.Data)
	if maps, failed := os.ReadFile(fmt.Sprintf("/proc/%d/maps", n.Pid())); failed == nil {
		c.maps = strings.Count(string(maps), data)
	}
	return c, err
}

// within tells whether c is not more than base, but for what a broker at rest may hold
// more one time than another: a segment that is kept or not, buffers in pools.
func (c counts) within(base counts) bool {
	return c.goroutines <= base.goroutines+4 && c.files <= base.files+8 && c.maps <= base.maps+8 && c.heap <= base.heap+base.heap/4+8<<20+batches
}

// batches is what the pool of combined batches holds when all of them were under way
// once: 16 of 2.6 MiB each, kept for as long as the broker runs.
const batches = 42 << 20

// settled waits until the counts are within those of base, or do not change any more
// when there is none.
func settled(t *testing.T, n *harness.Node, base *counts) counts {
	t.Helper()
	var now, last counts
	var err error
	same := 0
	ok := harness.Poll(90*time.Second, func() bool {
		if now, err = count(n); err != nil {
			return false
		}
		if base != nil {
			return now.within(*base)
		}
		if now.within(last) && last.within(now) { // a request of ours more or less
			same++
		} else {
			same = 0
		}
		last = now
		return same >= 3
	})
	if !ok {
		stacks, _ := n.AdminWithin(time.Minute, "/debug/pprof/goroutine?debug=1")
		t.Fatalf("the broker holds %v (%v); before it was %v\n%s", now, err, base, stacks)
	}
	return now
}
