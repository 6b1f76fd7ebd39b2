package pebble

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// walCategory is the category with which Pebble opens its write-ahead log.
const walCategory = vfs.DiskWriteCategory("pebble-wal")

// deferFS defers the syncs of write-ahead logs; everything else goes through.
//
// Pebble changes its log in the middle of a commit, and ends the process, or
// panics without its locks, when that fails. So no error of a log reaches it: the
// first one is kept, nothing is written to any log any more, and whoever commits
// or syncs gets the error from here.
type deferFS struct {
	vfs.FS
	lock string // a file that is there while the database is open; "" for none

	mu   sync.Mutex
	open map[*walFile]struct{}
	err  error // the first sync that failed; it is never tried again
}

func newDeferFS(inner vfs.FS, lock string) *deferFS {
	return &deferFS{FS: inner, lock: lock, open: map[*walFile]struct{}{}}
}

// Unwrap implements vfs.FS.
func (d *deferFS) Unwrap() vfs.FS { return d.FS }

// Create implements vfs.FS.
func (d *deferFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.Create(name, category)
	return d.wrap(f, err, name, category)
}

// ReuseForWrite implements vfs.FS.
func (d *deferFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.ReuseForWrite(oldname, newname, category)
	return d.wrap(f, err, newname, category)
}

func (d *deferFS) wrap(f vfs.File, err error, name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if category != walCategory {
		return f, err
	}
	if err != nil {
		d.fail("create", name, err)
		if f, err = vfs.NewMem().Create("dead", category); err != nil {
			return nil, err
		}
	}
	w := &walFile{File: f, fs: d, name: name}
	d.mu.Lock()
	d.open[w] = struct{}{}
	d.mu.Unlock()
	return w, nil
}

// syncWAL makes everything that was written to write-ahead logs durable.
func (d *deferFS) syncWAL() error {
	d.mu.Lock()
	files := make([]*walFile, 0, len(d.open))
	for f := range d.open {
		files = append(files, f)
	}
	d.mu.Unlock()
	if d.lock != "" {
		if _, err := d.FS.Stat(d.lock); err != nil {
			d.fail("look for", d.lock, gone(err))
		}
	}
	for _, f := range files {
		f.sync()
	}
	return d.failed()
}

// gone explains a file that is not there any more.
func gone(err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return fmt.Errorf("it was deleted or moved while the store was open; what was written since may be lost. Stop, put it back if it was moved, and start again: %w", err)
}

func (d *deferFS) failed() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

func (d *deferFS) fail(what, name string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		d.err = fmt.Errorf("%s %s: %w", what, name, err)
	}
}

// walFile is a write-ahead log that is open for writing.
type walFile struct {
	vfs.File
	fs    *deferFS
	name  string
	dirty atomic.Bool

	mu     sync.Mutex // of syncs and Close
	closed bool
}

// Write implements vfs.File: when it returns, the bytes survive the process, or
// the log has failed.
func (f *walFile) Write(p []byte) (int, error) {
	if f.fs.failed() != nil {
		return len(p), nil
	}
	if _, err := f.File.Write(p); err != nil {
		f.fs.fail("write the log", f.name, err)
	}
	f.dirty.Store(true)
	return len(p), nil
}

// Sync implements vfs.File by doing nothing: syncWAL does it later.
func (f *walFile) Sync() error { return nil }

// SyncData implements vfs.File by doing nothing.
func (f *walFile) SyncData() error { return nil }

// SyncTo implements vfs.File by doing nothing.
func (f *walFile) SyncTo(int64) (fullSync bool, err error) { return false, nil }

// sync makes the file durable. A write that comes while it runs leaves the file
// dirty.
func (f *walFile) sync() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.syncLocked()
}

func (f *walFile) syncLocked() {
	if f.closed || f.fs.failed() != nil || !f.dirty.Swap(false) {
		return
	}
	// An open file works on without its name.
	if _, err := f.fs.FS.Stat(f.name); err != nil {
		f.fs.fail("sync the log", f.name, gone(err))
		return
	}
	if err := f.File.SyncData(); err != nil {
		f.fs.fail("sync the log", f.name, err)
	}
}

// Close implements vfs.File. It syncs first: Pebble takes a log that it closed
// for whole. It always succeeds, see deferFS.
func (f *walFile) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.syncLocked()
	f.closed = true
	f.fs.mu.Lock()
	delete(f.fs.open, f)
	f.fs.mu.Unlock()
	if err := f.File.Close(); err != nil {
		f.fs.fail("close the log", f.name, err)
	}
	return nil
}
