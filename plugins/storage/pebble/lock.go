package pebble

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	hpvfs "github.com/hardpointmq/hardpoint/core/vfs"
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

// waitLock takes a lock of fs as [storage.WaitLock] does.
func waitLock(ctx context.Context, fs vfs.FS, name string, clock plugin.Clock, log *slog.Logger) (io.Closer, error) {
	return storage.WaitLock(ctx, plugin.Settings{Clock: clock, Logger: log}, name, func() (io.Closer, error) {
		l, err := fs.Lock(name)
		if errors.Is(err, syscall.EAGAIN) && !errors.Is(err, hpvfs.ErrLocked) { // file systems of Pebble's
			err = fmt.Errorf("%w: %w", hpvfs.ErrLocked, err)
		}
		return l, err
	})
}
