package storage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/vfs"
)

// A process that was killed holds its locks until the system has taken it down,
// which takes a while when it had much memory. Its successor waits that long.
const (
	lockWait = 5 * time.Second
	lockStep = 50 * time.Millisecond
)

// WaitLock takes the lock of a directory with the given function, which does not
// wait, and tries again for up to 5 s, or until ctx ends, while it says
// [vfs.ErrLocked]. name is the lock's file, for messages. The settings give clock
// and logger. The error of a lock that is still held matches vfs.ErrLocked; any
// other is returned at once.
func WaitLock[L any](ctx context.Context, s plugin.Settings, name string, lock func() (L, error)) (L, error) {
	s = s.WithDefaults()
	var none L
	for waited := time.Duration(0); ; waited += lockStep {
		l, err := lock()
		if !errors.Is(err, vfs.ErrLocked) {
			return l, err
		}
		err = fmt.Errorf("another process holds the lock %s: %w", name, err)
		if waited >= lockWait {
			return none, fmt.Errorf("%w; waited %v for it to end: stop it, or use another directory", err, lockWait)
		}
		if waited == 0 {
			s.Logger.Warn("somebody holds the lock of the directory, perhaps a process that is just ending; waiting for it", "most", lockWait, "error", err)
		}
		timer := s.Clock.NewTimer(lockStep)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return none, fmt.Errorf("%w (%w)", ctx.Err(), err)
		}
	}
}
