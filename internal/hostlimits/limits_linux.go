package hostlimits

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

func (l *Limits) read() {
	if d, err := os.Open("/proc/self/fd"); err == nil {
		if names, err := d.Readdirnames(-1); err == nil {
			l.OpenFiles = int64(len(names)) - 1 // one is the list itself
		}
		_ = d.Close()
	}
	var r syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r) == nil {
		l.OpenFilesMax = int64(min(r.Cur, 1<<62))
	}
	if maps, err := os.ReadFile("/proc/self/maps"); err == nil {
		l.MemoryMaps = int64(bytes.Count(maps, []byte{'\n'}))
	}
	if most, err := os.ReadFile("/proc/sys/vm/max_map_count"); err == nil {
		if n, err := strconv.ParseInt(string(bytes.TrimSpace(most)), 10, 64); err == nil {
			l.MemoryMapsMax = n
		}
	}
}
