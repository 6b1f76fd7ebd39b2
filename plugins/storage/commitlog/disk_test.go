package commitlog

import (
	"io/fs"
	"sync/atomic"

	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
)

// disk is a file system that can lose its power: calls go to what the last
// crash left; files opened before are dead.
type disk struct{ cur atomic.Pointer[memfs.FS] }

func newDisk(seed uint64) *disk {
	d := &disk{}
	d.cur.Store(memfs.New(seed))
	return d
}

func (d *disk) crash(keep memfs.Keep) { d.cur.Store(d.cur.Load().Crash(keep)) }

func (d *disk) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	return d.cur.Load().OpenFile(name, flag, perm)
}
func (d *disk) Remove(name string) error             { return d.cur.Load().Remove(name) }
func (d *disk) RemoveAll(name string) error          { return d.cur.Load().RemoveAll(name) }
func (d *disk) Rename(oldName, newName string) error { return d.cur.Load().Rename(oldName, newName) }
func (d *disk) MkdirAll(dir string) error            { return d.cur.Load().MkdirAll(dir) }
func (d *disk) List(dir string) ([]string, error)    { return d.cur.Load().List(dir) }
func (d *disk) Stat(name string) (vfs.Info, error)   { return d.cur.Load().Stat(name) }
func (d *disk) SyncDir(dir string) error             { return d.cur.Load().SyncDir(dir) }
func (d *disk) Usage(dir string) (vfs.Usage, error)  { return d.cur.Load().Usage(dir) }
func (d *disk) Lock(name string) (vfs.File, error)   { return d.cur.Load().Lock(name) }
