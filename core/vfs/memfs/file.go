package memfs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hardpointmq/hardpoint/core/vfs"
)

// content is the data of a file, twice.
type content struct {
	mu      sync.RWMutex
	data    []byte // what is seen; mappings share its memory, so it must not move while there are any
	durable []byte // what a crash leaves
	mtime   time.Time
	dirty   span                  // of data: all bytes that may differ from durable lie in here
	maps    map[*mapping]struct{} // live
}

// span is a range of bytes, [lo, hi); empty when lo >= hi.
type span struct{ lo, hi int64 }

func (s span) hull(t span) span {
	switch {
	case s.lo >= s.hi:
		return t
	case t.lo >= t.hi:
		return s
	}
	return span{min(s.lo, t.lo), max(s.hi, t.hi)}
}

func (c *content) stat() (int64, time.Time) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return int64(len(c.data)), c.mtime
}

// resize sets the length of data; new bytes are zero. c.mu is held.
func (c *content) resize(size int64) error {
	old := int64(len(c.data))
	switch {
	case size <= int64(cap(c.data)):
		c.data = c.data[:size]
		if size > old {
			clear(c.data[old:]) // a shrink left bytes there
		}
	case len(c.maps) > 0:
		return fmt.Errorf("cannot grow the mapped file from %d to %d bytes, it has room for %d", old, size, cap(c.data))
	default:
		c.move(size, max(size, min(2*old, old+1<<20)))
	}
	c.dirty = c.dirty.hull(span{min(old, size), max(old, size)})
	return nil
}

// move gives data new memory. Fresh memory is zero, and costs nothing before it is used.
func (c *content) move(size, room int64) {
	data := make([]byte, size, room)
	copy(data, c.data)
	c.data = data
}

// sync copies what differs in the pages of s to durable, and makes the durable length at least the end of s.
//
// The race detector must not see it, see diskCopy.
//
//go:norace
func (c *content) sync(s span) {
	s.hi = min(s.hi, int64(len(c.data)))
	if s.lo >= s.hi {
		return
	}
	c.growDurable(s.hi)
	for lo := s.lo - s.lo%page; lo < s.hi; lo += page {
		hi := min(lo+page, int64(len(c.data)), int64(len(c.durable)))
		diskCopy(c.durable[lo:hi], c.data[lo:hi])
	}
}

// diskCopy copies as a disk does: at any moment, also while other bytes of the same page are being written through a
// mapping, which is legal and leaves a torn page, as on a real disk. Hence the race detector must not see it; the builtin
// copy and bytes.Equal report to it even here. Equal words are left alone: most are, and memory never used costs nothing.
//
//go:norace
func diskCopy(to, from []byte) {
	to = to[:len(from)]
	for ; len(from) >= 8; to, from = to[8:], from[8:] {
		if word := binary.NativeEndian.Uint64(from); word != binary.NativeEndian.Uint64(to) {
			binary.NativeEndian.PutUint64(to, word)
		}
	}
	for ; len(from) > 0; to, from = to[1:], from[1:] {
		to[0] = from[0]
	}
}

func (c *content) growDurable(size int64) {
	old := int64(len(c.durable))
	if size <= old {
		return
	}
	if size <= int64(cap(c.durable)) {
		c.durable = c.durable[:size]
		clear(c.durable[old:])
		return
	}
	durable := make([]byte, size, max(size, int64(cap(c.data))))
	copy(durable, c.durable)
	c.durable = durable
}

// syncAll makes everything durable. c.mu is held.
func (c *content) syncAll() {
	if len(c.durable) > len(c.data) {
		c.durable = c.durable[:len(c.data)]
	}
	c.growDurable(int64(len(c.data)))
	c.sync(c.dirty)
	c.dirty = span{}
	for m := range c.maps {
		if m.writable { // it can be written at any moment, unseen
			c.dirty = c.dirty.hull(m.span())
		}
	}
}

// afterCrash fills to with what a crash leaves.
//
//go:norace
func (c *content) afterCrash(to *content, keep Keep, rng *rand.Rand) {
	c.mu.Lock()
	defer c.mu.Unlock()
	size := len(c.durable)
	if keep == KeepAll || keep == KeepRandom && rng.IntN(2) > 0 {
		size = len(c.data)
	}
	to.mtime = c.mtime
	to.data = make([]byte, size)
	copy(to.data, c.durable)
	if keep != KeepNone {
		hi := min(c.dirty.hi, int64(size), int64(len(c.data)))
		for lo := c.dirty.lo - c.dirty.lo%page; lo < hi; lo += page {
			if keep == KeepAll || rng.IntN(2) > 0 {
				end := min(lo+page, hi)
				diskCopy(to.data[lo:end], c.data[lo:end])
			}
		}
	}
	to.durable = bytes.Clone(to.data)
}

type file struct {
	fs     *FS
	node   *node
	name   string
	flag   int
	locked bool
	closed atomic.Bool
}

var _ vfs.File = (*file)(nil)

func (f *file) writable() bool { return f.flag&(os.O_WRONLY|os.O_RDWR) != 0 }

func (f *file) readable() bool { return f.flag&os.O_WRONLY == 0 }

// alive is called with content.mu held, so that an operation is either before the crash or after it.
func (f *file) alive() error {
	if f.closed.Load() {
		return fs.ErrClosed
	}
	if f.fs.crashed.Load() {
		return ErrCrashed
	}
	return nil
}

var (
	errReadOnly  = fmt.Errorf("%w: file is not open for writing", fs.ErrPermission)
	errWriteOnly = fmt.Errorf("%w: file is not open for reading", fs.ErrPermission)
)

func (f *file) ReadAt(p []byte, off int64) (int, error) {
	c := &f.node.content
	c.mu.RLock()
	defer c.mu.RUnlock()
	if err := f.alive(); err != nil {
		return 0, pathError("read", f.name, err)
	}
	if !f.readable() {
		return 0, pathError("read", f.name, errWriteOnly)
	}
	if off < 0 {
		return 0, pathError("read", f.name, fs.ErrInvalid)
	}
	if off >= int64(len(c.data)) {
		if len(p) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	n := copy(p, c.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *file) WriteAt(p []byte, off int64) (int, error) {
	c := &f.node.content
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := f.mayWrite(off, int64(len(p))); err != nil {
		return 0, pathError("write", f.name, err)
	}
	if len(p) == 0 {
		return 0, nil
	}
	end := off + int64(len(p))
	if end > int64(len(c.data)) {
		if err := c.resize(end); err != nil {
			return 0, pathError("write", f.name, err)
		}
	}
	copy(c.data[off:], p)
	c.dirty = c.dirty.hull(span{off, end})
	c.mtime = f.fs.clock()
	if f.flag&os.O_SYNC != 0 {
		c.syncAll()
	}
	return len(p), nil
}

func (f *file) mayWrite(off, size int64) error {
	if err := f.alive(); err != nil {
		return err
	}
	if !f.writable() {
		return errReadOnly
	}
	if off < 0 || size < 0 || off+size < 0 {
		return fmt.Errorf("%w: range at %d of %d bytes", fs.ErrInvalid, off, size)
	}
	return nil
}

// locking runs do with the content locked, if [off, off+size) may be written.
func (f *file) locking(op string, off, size int64, do func(c *content) error) error {
	c := &f.node.content
	c.mu.Lock()
	defer c.mu.Unlock()
	err := f.mayWrite(off, size)
	if err == nil {
		err = do(c)
	}
	if err != nil {
		return pathError(op, f.name, err)
	}
	return nil
}

func (f *file) Close() error {
	if f.closed.Swap(true) {
		return pathError("close", f.name, fs.ErrClosed)
	}
	if f.locked {
		f.fs.unlock(f.node)
	}
	return nil
}

func (f *file) Name() string { return f.name }

func (f *file) Fd() uintptr { return vfs.NoFd }

func (f *file) Size() (int64, error) {
	size, _ := f.node.content.stat()
	if err := f.alive(); err != nil {
		return 0, pathError("stat", f.name, err)
	}
	return size, nil
}

func (f *file) Truncate(size int64) error {
	return f.locking("truncate", 0, size, func(c *content) error {
		c.mtime = f.fs.clock()
		return c.resize(size)
	})
}

func (f *file) Reserve(off, size int64) error {
	return f.locking("reserve", off, size, func(c *content) error {
		if size == 0 || off+size <= int64(len(c.data)) {
			return nil
		}
		return c.resize(off + size)
	})
}

func (f *file) ZeroRange(off, size int64) error {
	return f.locking("zero", off, size, func(c *content) error {
		end := min(off+size, int64(len(c.data)))
		if off < end {
			clear(c.data[off:end])
			c.dirty = c.dirty.hull(span{off, end})
			c.mtime = f.fs.clock()
		}
		return nil
	})
}

func (f *file) Sync() error { return f.sync("fsync") }

func (f *file) SyncData() error { return f.sync("fdatasync") }

// sync works on a file that is open for reading only too, as fsync does.
func (f *file) sync(op string) error {
	c := &f.node.content
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := f.alive(); err != nil {
		return pathError(op, f.name, err)
	}
	c.syncAll()
	return nil
}

func (f *file) Map(off, size int64, writable bool) (vfs.Mapping, error) {
	c := &f.node.content
	c.mu.Lock()
	defer c.mu.Unlock()
	err := f.alive()
	switch {
	case err != nil:
	case !f.readable():
		err = errWriteOnly
	case writable && !f.writable():
		err = errReadOnly
	case off < 0 || size <= 0 || size > int64(len(c.data)) || off > int64(len(c.data))-size:
		err = fmt.Errorf("%w: range at %d of %d bytes is empty or leaves the file of %d bytes", fs.ErrInvalid, off, size, len(c.data))
	}
	if err != nil {
		return nil, pathError("map", f.name, err)
	}
	if len(c.maps) == 0 {
		length := int64(len(c.data))
		if room := length + max(min(length, 64<<20), 1<<20); int64(cap(c.data)) < room {
			c.move(length, room) // room to grow while mapped
		}
		c.maps = map[*mapping]struct{}{}
	}
	m := &mapping{fs: f.fs, content: c, data: c.data[off : off+size : off+size], off: off, size: size, writable: writable, name: f.name}
	c.maps[m] = struct{}{}
	if writable {
		c.dirty = c.dirty.hull(m.span())
	}
	return m, nil
}

type mapping struct {
	fs        *FS
	content   *content
	data      []byte // nil after Close
	off, size int64
	writable  bool
	name      string
}

var _ vfs.Mapping = (*mapping)(nil)

func (m *mapping) span() span { return span{m.off, m.off + m.size} }

func (m *mapping) Bytes() []byte { return m.data }

func (m *mapping) check(op string, off, n int64) error {
	var err error
	switch {
	case m.data == nil:
		err = fs.ErrClosed
	case m.fs.crashed.Load():
		err = ErrCrashed
	case off < 0 || n < 0 || off > m.size || n > m.size-off:
		err = fmt.Errorf("%w: range at %d of %d bytes in a mapping of %d", fs.ErrInvalid, off, n, m.size)
	default:
		return nil
	}
	return pathError(op, m.name, err)
}

func (m *mapping) Sync(off, n int64) error {
	m.content.mu.Lock()
	defer m.content.mu.Unlock()
	if err := m.check("msync", off, n); err != nil {
		return err
	}
	if n > 0 {
		m.content.sync(span{m.off + off, m.off + off + n})
	}
	return nil
}

func (m *mapping) Advise(off, n int64, a vfs.Advice) error {
	if err := m.check("madvise", off, n); err != nil {
		return err
	}
	if a == vfs.AdvicePopulateWrite && !m.writable && n > 0 {
		return pathError("populate", m.name, fmt.Errorf("%w: mapping is read-only", fs.ErrInvalid))
	}
	return nil
}

func (m *mapping) Resident(off, n int64) (int64, error) {
	if err := m.check("mincore", off, n); err != nil {
		return 0, err
	}
	return n, nil
}

func (m *mapping) Lock(off, n int64) error { return m.check("mlock", off, n) }

func (m *mapping) Unlock(off, n int64) error { return m.check("munlock", off, n) }

func (m *mapping) Close() error {
	m.content.mu.Lock()
	defer m.content.mu.Unlock()
	if err := m.check("munmap", 0, 0); err != nil && !errors.Is(err, ErrCrashed) {
		return err
	}
	m.data = nil
	delete(m.content.maps, m) // what was written through it stays in content.dirty
	return nil
}
