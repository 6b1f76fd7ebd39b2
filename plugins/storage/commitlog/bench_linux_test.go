package commitlog

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// threadCPU is what the calling thread has used.
func threadCPU() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(unix.RUSAGE_THREAD, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
