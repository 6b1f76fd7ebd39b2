package vfstest

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
	dirty   span                       // of data: all bytes that may differ from durable lie in here
	maps    map[*crashMapping]struct{} // live
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
	for lo := s.lo - s.lo%crashPage; lo < s.hi; lo += crashPage {
		hi := min(lo+crashPage, int64(len(c.data)), int64(len(c.durable)))
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
		for lo := c.dirty.lo - c.dirty.lo%crashPage; lo < hi; lo += crashPage {
			if keep == KeepAll || rng.IntN(2) > 0 {
				end := min(lo+crashPage, hi)
				diskCopy(to.data[lo:end], c.data[lo:end])
			}
		}
	}
	to.durable = bytes.Clone(to.data)
}

type crashFile struct {
	fs     *Crash
	node   *node
	name   string
	flag   int
	locked bool
	closed atomic.Bool
}

var _ vfs.File = (*crashFile)(nil)

func (f *crashFile) writable() bool { return f.flag&(os.O_WRONLY|os.O_RDWR) != 0 }

func (f *crashFile) readable() bool { return f.flag&os.O_WRONLY == 0 }

// alive is called with content.mu held, so that an operation is either before the crash or after it.
func (f *crashFile) alive() error {
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

func (f *crashFile) ReadAt(p []byte, off int64) (int, error) {
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

func (f *crashFile) WriteAt(p []byte, off int64) (int, error) {
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

func (f *crashFile) mayWrite(off, size int64) error {
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
func (f *crashFile) locking(op string, off, size int64, do func(c *content) error) error {
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

func (f *crashFile) Close() error {
	if f.closed.Swap(true) {
		return pathError("close", f.name, fs.ErrClosed)
	}
	if f.locked {
		f.fs.unlock(f.node)
	}
	return nil
}

func (f *crashFile) Name() string { return f.name }

func (f *crashFile) Fd() uintptr { return vfs.NoFd }

func (f *crashFile) Size() (int64, error) {
	size, _ := f.node.content.stat()
	if err := f.alive(); err != nil {
		return 0, pathError("stat", f.name, err)
	}
	return size, nil
}

func (f *crashFile) Truncate(size int64) error {
	return f.locking("truncate", 0, size, func(c *content) error {
		c.mtime = f.fs.clock()
		return c.resize(size)
	})
}

func (f *crashFile) Reserve(off, size int64) error {
	return f.locking("reserve", off, size, func(c *content) error {
		if size == 0 || off+size <= int64(len(c.data)) {
			return nil
		}
		return c.resize(off + size)
	})
}

func (f *crashFile) ZeroRange(off, size int64) error {
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

func (f *crashFile) Sync() error { return f.sync("fsync") }

func (f *crashFile) SyncData() error { return f.sync("fdatasync") }

// sync works on a file that is open for reading only too, as fsync does.
func (f *crashFile) sync(op string) error {
	c := &f.node.content
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := f.alive(); err != nil {
		return pathError(op, f.name, err)
	}
	c.syncAll()
	return nil
}

func (f *crashFile) Map(off, size int64, writable bool) (vfs.Mapping, error) {
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
		c.maps = map[*crashMapping]struct{}{}
	}
	m := &crashMapping{fs: f.fs, content: c, data: c.data[off : off+size : off+size], off: off, size: size, writable: writable, name: f.name}
	c.maps[m] = struct{}{}
	if writable {
		c.dirty = c.dirty.hull(m.span())
	}
	return m, nil
}

type crashMapping struct {
	fs        *Crash
	content   *content
	data      []byte // nil after Close
	off, size int64
	writable  bool
	name      string
}

var _ vfs.Mapping = (*crashMapping)(nil)

func (m *crashMapping) span() span { return span{m.off, m.off + m.size} }

func (m *crashMapping) Bytes() []byte { return m.data }

func (m *crashMapping) check(op string, off, n int64) error {
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

func (m *crashMapping) Sync(off, n int64) error {
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

func (m *crashMapping) Advise(off, n int64, a vfs.Advice) error {
	if err := m.check("madvise", off, n); err != nil {
		return err
	}
	if a == vfs.AdvicePopulateWrite && !m.writable && n > 0 {
		return pathError("populate", m.name, fmt.Errorf("%w: mapping is read-only", fs.ErrInvalid))
	}
	return nil
}

func (m *crashMapping) Resident(off, n int64) (int64, error) {
	if err := m.check("mincore", off, n); err != nil {
		return 0, err
	}
	return n, nil
}

func (m *crashMapping) Lock(off, n int64) error { return m.check("mlock", off, n) }

func (m *crashMapping) Unlock(off, n int64) error { return m.check("munlock", off, n) }

func (m *crashMapping) Close() error {
	m.content.mu.Lock()
	defer m.content.mu.Unlock()
	if err := m.check("munmap", 0, 0); err != nil && !errors.Is(err, ErrCrashed) {
		return err
	}
	m.data = nil
	delete(m.content.maps, m) // what was written through it stays in content.dirty
	return nil
}
