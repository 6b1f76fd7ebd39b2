// Package memfs is a file system in memory that can lose power.
//
// A program that leaves nothing behind gives it to what wants to write files. A crash test writes through a store on
// it, calls [FS.Crash] at any moment, opens a store on the file system that this returns, and checks that everything
// acknowledged before is there.
package memfs

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hardpointmq/hardpoint/core/vfs"
)

// Keep says what happens in a crash to that which was not synced.
type Keep int

const (
	KeepNone   Keep = iota // all of it is lost: the worst case that a store must bear
	KeepRandom             // any subset of 4 KiB pages, sizes and name changes survives, chosen by the seed
	KeepAll                // all of it survives, as after kill -9: the process dies, the page cache does not
)

// ErrCrashed is what every operation on a crashed file system and its files returns.
var ErrCrashed = errors.New("memfs: file system has crashed")

// page is the unit in which unsynced bytes survive.
const page = 4 << 10

// total is the size of the disk that Usage reports, in bytes. Nothing is ever refused; see Faults.SetFree of package vfstest.
const total = 1 << 40

// FS is a file system in memory that keeps what was synced apart from what was only done. Its root directory exists,
// everything else has to be created, and synced into its parent, see [vfs.EnsureDir]. Volume names are ignored and
// relative names start at the root.
//
// Beyond the contract of [vfs.FS] it guarantees no more than the weakest disk: see the package comment of vfs. Name
// changes in one directory become durable in order; a rename is one change in both its directories.
//
// A file that is mapped may grow to twice the size it had when it was mapped (1 MiB more if that is more); growing
// further fails. Files cost about twice their size of memory, and a sync compares the bytes that may have changed: use
// small segments.
type FS struct {
	mu      sync.Mutex // guards names: entries of all directories, pending, locked. Taken before node.mu.
	root    *node
	pending []change // name changes not yet durable, oldest first
	locked  map[*node]struct{}
	rng     *rand.Rand
	now     atomic.Pointer[func() time.Time]
	crashed atomic.Bool
}

var _ vfs.FS = (*FS)(nil)

// node is a directory or a file. Names refer to nodes, so that open files outlive their names.
type node struct {
	entries map[string]*node // directories: what is seen; nil for files
	durable map[string]*node // directories: what a crash leaves
	content content          // files
}

func (n *node) isDir() bool { return n.entries != nil }

// change is a set of entries that take effect together; a nil node removes the name.
type change []struct {
	dir  *node
	name string
	node *node
}

// New returns an empty file system. The seed decides what [KeepRandom] keeps.
func New(seed uint64) *FS {
	c := &FS{
		root:   newDir(),
		locked: map[*node]struct{}{},
		rng:    rand.New(rand.NewPCG(seed, 0x6861726470)),
	}
	c.SetClock(time.Now)
	return c
}

// SetClock sets the source of modification times, time.Now at first.
func (c *FS) SetClock(now func() time.Time) { c.now.Store(&now) }

func (c *FS) clock() time.Time { return (*c.now.Load())() }

func newDir() *node {
	return &node{entries: map[string]*node{}, durable: map[string]*node{}}
}

// Crash cuts the power: c, its files and its mappings are dead from now on, and the returned file system is what the
// next start finds. It may be called again on the dead file system; with KeepRandom each call is another outcome.
func (c *FS) Crash(keep Keep) *FS {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.crashed.Store(true)

	after := New(c.rng.Uint64())
	after.now.Store(c.now.Load())
	names := map[*node]map[string]*node{} // of each directory after the crash
	view := func(dir *node) map[string]*node {
		if names[dir] == nil {
			names[dir] = maps.Clone(dir.durable)
		}
		return names[dir]
	}
	lost := map[*node]bool{} // directories of which a change was lost: later ones cannot survive
	for _, ch := range c.pending {
		survives := keep == KeepAll || keep == KeepRandom && c.rng.IntN(4) > 0
		for _, e := range ch {
			survives = survives && !lost[e.dir]
		}
		for _, e := range ch {
			switch {
			case !survives:
				lost[e.dir] = true
			case e.node == nil:
				delete(view(e.dir), e.name)
			default:
				view(e.dir)[e.name] = e.node
			}
		}
	}
	var build func(old *node) *node
	build = func(old *node) *node {
		if !old.isDir() {
			n := &node{}
			old.content.afterCrash(&n.content, keep, c.rng)
			return n
		}
		n := newDir()
		entries := view(old)
		for _, name := range slices.Sorted(maps.Keys(entries)) { // sorted: the seed decides, not the map
			n.entries[name] = build(entries[name])
		}
		n.durable = maps.Clone(n.entries)
		return n
	}
	after.root = build(c.root)
	return after
}

// parts returns the parts of a name below the root.
func parts(name string) []string {
	name = filepath.ToSlash(name[len(filepath.VolumeName(name)):])
	name = strings.Trim(path.Clean("/"+name), "/")
	if name == "" {
		return nil
	}
	return strings.Split(name, "/")
}

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// find returns the node of a path; nil, nil when only the last part is missing. c.mu is held.
func (c *FS) find(p []string) (*node, error) {
	n := c.root
	for i, part := range p {
		if !n.isDir() {
			return nil, fmt.Errorf("%w: %s is not a directory", fs.ErrInvalid, strings.Join(p[:i], "/"))
		}
		child := n.entries[part]
		if child == nil {
			if i == len(p)-1 {
				return nil, nil
			}
			return nil, fs.ErrNotExist
		}
		n = child
	}
	return n, nil
}

// parent returns the directory of a name and its last part. c.mu is held.
func (c *FS) parent(name string) (dir *node, base string, err error) {
	p := parts(name)
	if len(p) == 0 {
		return nil, "", fmt.Errorf("%w: the root directory", fs.ErrInvalid)
	}
	dir, err = c.find(p[:len(p)-1])
	switch {
	case err != nil:
	case dir == nil:
		err = fs.ErrNotExist
	case !dir.isDir():
		err = fmt.Errorf("%w: %s is not a directory", fs.ErrInvalid, filepath.Dir(name))
	}
	return dir, p[len(p)-1], err
}

// lookup returns an existing node. c.mu is held.
func (c *FS) lookup(name string) (*node, error) {
	n, err := c.find(parts(name))
	if err == nil && n == nil {
		err = fs.ErrNotExist
	}
	return n, err
}

// apply makes a change visible and remembers that it is not durable. c.mu is held.
func (c *FS) apply(ch change) {
	for _, e := range ch {
		if e.node == nil {
			delete(e.dir.entries, e.name)
		} else {
			e.dir.entries[e.name] = e.node
		}
	}
	c.pending = append(c.pending, ch)
}

// locking runs do with the names locked, unless the file system crashed.
func (c *FS) locking(op, name string, do func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.crashed.Load() {
		return pathError(op, name, ErrCrashed)
	}
	if err := do(); err != nil {
		return pathError(op, name, err)
	}
	return nil
}

// OpenFile implements [vfs.FS].
func (c *FS) OpenFile(name string, flag int, _ fs.FileMode) (vfs.File, error) {
	var f *file
	err := c.locking("open", name, func() (err error) {
		f, err = c.open(name, flag)
		return err
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (c *FS) open(name string, flag int) (*file, error) {
	if flag&os.O_APPEND != 0 {
		return nil, fmt.Errorf("%w: O_APPEND excludes positioned writes", fs.ErrInvalid)
	}
	dir, base, err := c.parent(name)
	if err != nil {
		return nil, err
	}
	n := dir.entries[base]
	switch {
	case n == nil && flag&os.O_CREATE == 0:
		return nil, fs.ErrNotExist
	case n == nil:
		n = &node{}
		n.content.mtime = c.clock()
		c.apply(change{{dir, base, n}})
	case n.isDir():
		return nil, fmt.Errorf("%w: is a directory", fs.ErrInvalid)
	case flag&os.O_CREATE != 0 && flag&os.O_EXCL != 0:
		return nil, fs.ErrExist
	}
	f := &file{fs: c, node: n, name: name, flag: flag}
	if flag&os.O_TRUNC != 0 && f.writable() {
		if err := f.Truncate(0); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// Remove implements [vfs.FS].
func (c *FS) Remove(name string) error {
	return c.locking("remove", name, func() error {
		dir, base, err := c.parent(name)
		if err != nil {
			return err
		}
		n := dir.entries[base]
		switch {
		case n == nil:
			return fs.ErrNotExist
		case n.isDir() && len(n.entries) > 0:
			return fmt.Errorf("%w: directory is not empty", fs.ErrExist)
		}
		c.apply(change{{dir, base, nil}})
		return nil
	})
}

// RemoveAll implements [vfs.FS].
func (c *FS) RemoveAll(name string) error {
	return c.locking("removeall", name, func() error {
		dir, base, err := c.parent(name)
		if errors.Is(err, fs.ErrNotExist) || err == nil && dir.entries[base] == nil {
			return nil
		}
		if err != nil {
			return err
		}
		c.removeTree(dir, base)
		return nil
	})
}

func (c *FS) removeTree(dir *node, name string) {
	n := dir.entries[name]
	for _, child := range slices.Sorted(maps.Keys(n.entries)) {
		c.removeTree(n, child)
	}
	c.apply(change{{dir, name, nil}})
}

// Rename implements [vfs.FS].
func (c *FS) Rename(oldName, newName string) error {
	return c.locking("rename", oldName, func() error {
		oldDir, oldBase, err := c.parent(oldName)
		if err != nil {
			return err
		}
		newDir, newBase, err := c.parent(newName)
		if err != nil {
			return err
		}
		n, target := oldDir.entries[oldBase], newDir.entries[newBase]
		switch {
		case n == nil:
			return fs.ErrNotExist
		case n == target:
			return nil
		case target != nil && (n.isDir() || target.isDir()):
			return fmt.Errorf("%w: %s", fs.ErrExist, newName)
		case n.isDir() && contains(n, newDir):
			return fmt.Errorf("%w: %s is below %s", fs.ErrInvalid, newName, oldName)
		}
		c.apply(change{{oldDir, oldBase, nil}, {newDir, newBase, n}})
		return nil
	})
}

func contains(tree, n *node) bool {
	if tree == n {
		return true
	}
	for _, child := range tree.entries {
		if contains(child, n) {
			return true
		}
	}
	return false
}

// MkdirAll implements [vfs.FS].
func (c *FS) MkdirAll(dir string) error {
	return c.locking("mkdir", dir, func() error {
		n := c.root
		for _, part := range parts(dir) {
			child := n.entries[part]
			switch {
			case child == nil:
				child = newDir()
				child.content.mtime = c.clock()
				c.apply(change{{n, part, child}})
			case !child.isDir():
				return fmt.Errorf("%s: %w and is not a directory", part, fs.ErrExist)
			}
			n = child
		}
		return nil
	})
}

// List implements [vfs.FS].
func (c *FS) List(dir string) (names []string, err error) {
	err = c.locking("list", dir, func() error {
		n, err := c.directory(dir)
		if err == nil {
			names = slices.Sorted(maps.Keys(n.entries))
		}
		return err
	})
	return names, err
}

func (c *FS) directory(name string) (*node, error) {
	n, err := c.lookup(name)
	if err == nil && !n.isDir() {
		err = fmt.Errorf("%w: not a directory", fs.ErrInvalid)
	}
	return n, err
}

// Stat implements [vfs.FS].
func (c *FS) Stat(name string) (info vfs.Info, err error) {
	err = c.locking("stat", name, func() error {
		n, err := c.lookup(name)
		if err != nil {
			return err
		}
		info = vfs.Info{Name: filepath.Base(name), Allocated: -1, IsDir: n.isDir()}
		info.Size, info.ModTime = n.content.stat()
		return nil
	})
	return info, err
}

// SyncDir implements [vfs.FS]. It makes durable what it has to for order's sake, and nothing else.
func (c *FS) SyncDir(dir string) error {
	return c.locking("syncdir", dir, func() error {
		n, err := c.directory(dir)
		if err != nil {
			return err
		}
		// Backwards: an earlier change of a directory comes along with a later one, which may pull in a second directory.
		dirs := map[*node]bool{n: true}
		chosen := make([]bool, len(c.pending))
		for i := len(c.pending) - 1; i >= 0; i-- {
			for _, e := range c.pending[i] {
				chosen[i] = chosen[i] || dirs[e.dir]
			}
			if chosen[i] {
				for _, e := range c.pending[i] {
					dirs[e.dir] = true
				}
			}
		}
		rest := c.pending[:0]
		for i, ch := range c.pending {
			if !chosen[i] {
				rest = append(rest, ch)
				continue
			}
			for _, e := range ch {
				if e.node == nil {
					delete(e.dir.durable, e.name)
				} else {
					e.dir.durable[e.name] = e.node
				}
			}
		}
		clear(c.pending[len(rest):])
		c.pending = rest
		return nil
	})
}

// Usage implements [vfs.FS]: a disk of 1 TiB on which every file takes its size.
func (c *FS) Usage(dir string) (u vfs.Usage, err error) {
	err = c.locking("usage", dir, func() error {
		if _, err := c.lookup(dir); err != nil {
			return err
		}
		free := max(total-treeSize(c.root), 0)
		u = vfs.Usage{Total: total, Free: uint64(free), Available: uint64(free), Type: "memfs"}
		return nil
	})
	return u, err
}

func treeSize(n *node) (size int64) {
	size, _ = n.content.stat()
	for _, child := range n.entries {
		size += treeSize(child)
	}
	return size
}

// Lock implements [vfs.FS]. A crash releases all locks.
func (c *FS) Lock(name string) (vfs.File, error) {
	var f *file
	err := c.locking("lock", name, func() (err error) {
		if f, err = c.open(name, os.O_RDWR|os.O_CREATE); err != nil {
			return err
		}
		if _, held := c.locked[f.node]; held {
			return fmt.Errorf("%w by this process (pid %d)", vfs.ErrLocked, os.Getpid())
		}
		c.locked[f.node] = struct{}{}
		f.locked = true
		return nil
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (c *FS) unlock(n *node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.locked, n)
}
