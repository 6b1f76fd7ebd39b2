package pebble

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hardpointmq/hardpoint/core/storage"
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
	if err := d.noteWAL(name); err != nil {
		d.fail("note the newest log", name, err)
	}
	w := &walFile{File: f, fs: d, name: name}
	d.mu.Lock()
	d.open[w] = struct{}{}
	d.mu.Unlock()
	return w, nil
}

// newestWAL is the file that names the newest write-ahead log: Pebble does not miss
// one that is gone, and what was in it would be lost without a word.
const newestWAL = "hardpoint.wal"

// noteWAL writes the name of a new log, which is durable before.
func (d *deferFS) noteWAL(name string) error {
	if d.lock == "" || d.failed() != nil {
		return nil
	}
	dir := d.PathDir(name)
	note := d.PathJoin(dir, newestWAL)
	parent, err := d.OpenDir(dir)
	if err != nil {
		return err
	}
	err = parent.Sync()
	if err == nil {
		var f vfs.File
		if f, err = d.FS.Create(note+".tmp", vfs.WriteCategoryUnspecified); err == nil {
			_, err = f.Write([]byte(d.PathBase(name) + "\n"))
			err = errors.Join(err, f.Sync(), f.Close())
		}
	}
	switch {
	case isNoSpace(err): // no name is better than that of a log which will be removed
		if err = d.Remove(note); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	case err == nil:
		err = d.Rename(note+".tmp", note)
	}
	if err == nil {
		err = parent.Sync()
	}
	return errors.Join(err, parent.Close())
}

// manifestMarker begins the name of the empty file that says which MANIFEST counts.
const manifestMarker = "marker.manifest."

// checkMarker refuses a directory that has data and no marker: Pebble would begin a new
// database there, and delete the tables of the old one. An empty file is soon lost when
// a directory is copied.
func (d *deferFS) checkMarker(dir string) error {
	names, err := d.List(dir)
	if err != nil {
		return err
	}
	data, newest := false, ""
	for _, name := range names {
		switch {
		case strings.HasPrefix(name, manifestMarker):
			return nil
		case strings.HasPrefix(name, "MANIFEST-"):
			if len(name) > len(newest) || len(name) == len(newest) && name > newest { // numbers have six digits, or more
				newest = name
			}
		case strings.HasSuffix(name, ".sst"), strings.HasSuffix(name, ".log"), name == newestWAL: // a new database has none before its marker
			data = true
		}
	}
	if !data {
		return nil
	}
	reason := "the file that says which MANIFEST counts is missing, and so is every MANIFEST; restore the directory from a backup"
	if newest != "" {
		reason = "the file that says which MANIFEST counts is missing, an empty one; restore it. If " + newest +
			" is the newest that there was, create an empty file " + manifestMarker + "000001." + newest
	}
	return &storage.CorruptError{File: d.PathJoin(dir, manifestMarker+"*"), Reason: reason}
}

// checkWAL refuses a directory whose newest log is missing.
func (d *deferFS) checkWAL(dir string) error {
	note := d.PathJoin(dir, newestWAL)
	f, err := d.Open(note)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a new directory
	}
	if err != nil {
		return err
	}
	b, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	name := d.PathJoin(dir, strings.TrimSpace(string(b)))
	if _, err := d.Stat(name); errors.Is(err, fs.ErrNotExist) {
		return &storage.CorruptError{File: name, Reason: "the newest write-ahead log is missing, and with it what was written last; restore it. To go on without it, for good, remove " + note, Err: err}
	} else if err != nil {
		return err
	}
	return nil
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
