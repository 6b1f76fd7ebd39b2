package external

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// orphans are children that this process got because it is pid 1, as in a
// container: what a plugin started and left behind comes to it when it ends.
type orphans struct {
	mu   sync.Mutex
	seen map[int]struct{} // had ended at the last look
}

var adopted orphans

// adopt collects orphans that have ended. Nothing is done unless this is pid 1.
func adopt() {
	if os.Getpid() == 1 {
		adopted.collect()
	}
}

// collect takes those that had ended at the look before, too: whoever started a
// child of his own has waited for it since.
func (o *orphans) collect() {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.seen
	o.seen = map[int]struct{}{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		// pid (name) state ppid: the name may hold anything.
		f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(f) < 2 || f[0] != "Z" || f[1] != strconv.Itoa(os.Getpid()) {
			continue
		}
		if _, twice := before[pid]; twice {
			_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		} else {
			o.seen[pid] = struct{}{}
		}
	}
}

// residentBytes is the memory of a process.
func residentBytes(pid int) float64 {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	f := strings.Fields(string(b))
	if err != nil || len(f) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(f[1], 10, 64)
	if err != nil {
		return 0
	}
	return float64(pages) * float64(os.Getpagesize())
}
