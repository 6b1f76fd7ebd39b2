package bench

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

// sleeper waits more precisely than Go's timers, which round up to whole
// milliseconds when the process is idle.
type sleeper struct{}

func newSleeper() sleeper { return sleeper{} }

// longest keeps the end of the context from being noticed late.
const longest = 20 * time.Millisecond

func (sleeper) sleep(_ context.Context, d time.Duration) {
	ts := unix.NsecToTimespec(int64(min(d, longest)))
	_ = unix.Nanosleep(&ts, nil) // woken early by a signal: the caller asks again
}

func (sleeper) stop() {}
