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

// counts are what a process holds. files and maps are told on Linux only. How many
// files a log has depends on what is in it, so they are not counted while they are
// there: what is opened twice or mapped twice counts, and what has been deleted.
type counts struct {
	goroutines, files, maps int
	heap                    int64
}

func (c counts) String() string {
	return fmt.Sprintf("%d goroutines, %d files and %d mapped ones beside those of the log, %.1f MiB of heap", c.goroutines, c.files, c.maps, float64(c.heap)/(1<<20))
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
	data, _ := filepath.EvalSymlinks(n.Data)
	c.files, c.maps = openFiles(n.Pid(), data), mappings(n.Pid(), data)
	return c, err
}

// openFiles counts the descriptors of a process, less one for each file in data that is
// there.
func openFiles(pid int, data string) int {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	fds, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	there := map[string]bool{}
	for _, fd := range fds {
		path, err := os.Readlink(filepath.Join(dir, fd.Name()))
		if err == nil && strings.HasPrefix(path, data) && exists(path) {
			there[path] = true
		}
	}
	return len(fds) - len(there)
}

// mappings counts the mappings of files in data, less one for each file that is there.
func mappings(pid int, data string) int {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0
	}
	n, there := 0, map[string]bool{}
	// How the line would begin that goes on with the mapping above: the kernel splits one
	// where the advice differs.
	var next struct {
		path     string
		from, at uint64
	}
	for line := range strings.Lines(string(maps)) {
		i := strings.Index(line, data)
		if i < 0 {
			continue
		}
		path := strings.TrimSpace(line[i:]) // "path (deleted)" is no file
		var from, to, at uint64
		var perm string
		if _, err := fmt.Sscanf(line, "%x-%x %s %x", &from, &to, &perm, &at); err != nil || path != next.path || from != next.from || at != next.at {
			n++
		}
		next.path, next.from, next.at = path, to, at+to-from
		if exists(path) {
			there[path] = true
		}
	}
	return n - len(there)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// within tells whether c is not more than base, but for what a broker at rest may hold
// more one time than another: a segment that a reader keeps, buffers in pools.
func (c counts) within(base counts) bool {
	return c.goroutines <= base.goroutines+4 && c.files <= base.files+6 && c.maps <= base.maps+2 && c.heap <= base.heap+base.heap/4+8<<20
}

// rest is how long a broker is looked at whether it still gives something up: the pool
// of combined batches shrinks in two steps of ten seconds.
const rest = 25 * time.Second

// settled waits until the counts are within those of base, or do not fall any more when
// there is none.
func settled(t *testing.T, n *harness.Node, base *counts) counts {
	t.Helper()
	var now, least counts
	var since time.Time // when least was seen
	var err error
	ok := harness.Poll(90*time.Second, func() bool {
		if now, err = count(n); err != nil {
			return false
		}
		if base != nil {
			return now.within(*base)
		}
		if since.IsZero() || now.goroutines < least.goroutines || now.files < least.files || now.maps < least.maps || now.heap < least.heap-1<<20 {
			least, since = now, time.Now()
		}
		return time.Since(since) >= rest
	})
	if !ok {
		stacks, _ := n.AdminWithin(time.Minute, "/debug/pprof/goroutine?debug=1")
		t.Fatalf("the broker holds %v (%v); before it was %v\n%s", now, err, base, stacks)
	}
	return now
}
