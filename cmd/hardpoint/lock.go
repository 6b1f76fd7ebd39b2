package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"go.uber.org/fx"

	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/core/wiring"
)

// dirLock keeps two processes from one data directory, whatever store is in it:
// the engine's own files lie there, too. A name server and a broker may share a
// directory, two brokers may not.
type dirLock struct {
	fs   vfs.FS
	dir  string
	role string
	log  *slog.Logger
	file vfs.File
}

func lockDir(n *node) fx.Option {
	return fx.Module("data_directory", fx.Invoke(func(life *wiring.Lifecycle) {
		lock := func(m config.Mode, dir string) {
			if n.Mode&m != 0 {
				life.Add("data directory", &dirLock{fs: vfs.OS{}, dir: dir, role: m.String(), log: n.log}, 1)
			}
		}
		for _, g := range n.groups {
			lock(config.Broker, g.Config.Node.Data)
		}
		lock(config.Namesrv, n.Config.Node.Data)
	}))
}

// Start implements plugin.Component.
func (l *dirLock) Start(ctx context.Context) error {
	if err := vfs.EnsureDir(l.fs, l.dir); err != nil {
		return err
	}
	name := filepath.Join(l.dir, l.role+".lock")
	f, err := storage.WaitLock(ctx, plugin.Settings{Logger: l.log}, name, func() (vfs.File, error) { return l.fs.Lock(name) })
	if errors.Is(err, vfs.ErrLocked) {
		return fmt.Errorf("%s (--data) is in use by another %s: %w", l.dir, l.role, err)
	}
	l.file = f
	return err
}

// Shutdown implements plugin.Component.
func (l *dirLock) Shutdown(context.Context) error {
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}
