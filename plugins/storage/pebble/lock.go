package pebble

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hardpointmq/hardpoint/core/plugin"
	hpvfs "github.com/hardpointmq/hardpoint/core/vfs"
)

// A process that was killed holds its locks until the system has taken it down,
// which takes a while when it had much memory. Its successor waits that long.
const (
	lockWait = 5 * time.Second
	lockStep = 50 * time.Millisecond
)

// osFS is the operating system's file system with the lock of core/vfs, which
// knows who holds it. To Pebble's own lock it is the same lock.
type osFS struct{ vfs.FS }

// Lock implements vfs.FS.
func (osFS) Lock(name string) (io.Closer, error) { return hpvfs.OS{}.Lock(name) }

// Unwrap implements vfs.FS.
func (o osFS) Unwrap() vfs.FS { return o.FS }

// lockFS waits for a lock that somebody holds; Pebble asks for one, when it opens.
type lockFS struct {
	vfs.FS
	lock func(name string) (io.Closer, error)
}

// Lock implements vfs.FS.
func (l *lockFS) Lock(name string) (io.Closer, error) { return l.lock(name) }

// Unwrap implements vfs.FS.
func (l *lockFS) Unwrap() vfs.FS { return l.FS }

// waitLock takes a lock of fs, waiting up to lockWait for it. The error of a lock
// that is still held matches core/vfs.ErrLocked.
func waitLock(ctx context.Context, fs vfs.FS, name string, clock plugin.Clock, log *slog.Logger) (io.Closer, error) {
	for waited := time.Duration(0); ; waited += lockStep {
		l, err := fs.Lock(name)
		if !isLocked(err) {
			return l, err
		}
		err = fmt.Errorf("another process holds the lock %s: %w", name, withLocked(err))
		if waited >= lockWait {
			return nil, fmt.Errorf("%w; waited %v for it to end: stop it, or give this store a directory of its own", err, lockWait)
		}
		if waited == 0 {
			log.Warn("somebody holds the lock of the store, perhaps a process that is just ending; waiting for it", "most", lockWait, "error", err)
		}
		timer := clock.NewTimer(lockStep)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("%w (%w)", ctx.Err(), err)
		}
	}
}

func isLocked(err error) bool {
	// EAGAIN is what file systems of Pebble's say.
	return errors.Is(err, hpvfs.ErrLocked) || errors.Is(err, syscall.EAGAIN)
}

func withLocked(err error) error {
	if errors.Is(err, hpvfs.ErrLocked) {
		return err
	}
	return fmt.Errorf("%w: %w", hpvfs.ErrLocked, err)
}
