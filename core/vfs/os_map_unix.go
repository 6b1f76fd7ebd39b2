//go:build linux || darwin

package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

type osMapping struct {
	mem      []byte // as mapped: starts at a page boundary at or before the wanted offset
	data     []byte // what Bytes returns: the end of mem
	writable bool
	closed   atomic.Bool
	flush    flusher // what msync leaves undone on this system
	name     string
}

var _ Mapping = (*osMapping)(nil)

func (f *osFile) mapRange(off, size int64, writable bool) (Mapping, error) {
	pad := off % int64(pageSize)
	if size > int64(^uint(0)>>1)-pad {
		return nil, fmt.Errorf("%w: %d bytes do not fit the address space", fs.ErrInvalid, size)
	}
	m := &osMapping{writable: writable, name: f.f.Name()}
	prot := unix.PROT_READ
	if writable {
		prot |= unix.PROT_WRITE
	}
	err := f.control(func(fd uintptr) (err error) {
		if m.flush, err = newFlusher(fd, writable); err != nil {
			return err
		}
		if m.mem, err = unix.Mmap(int(fd), off-pad, int(size+pad), prot, unix.MAP_SHARED); err != nil {
			m.flush.close()
			if errors.Is(err, unix.ENODEV) {
				err = fmt.Errorf("%w by this file system: %w", ErrMapUnsupported, err)
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	m.data = m.mem[pad:]
	return m, nil
}

func (m *osMapping) Bytes() []byte { return m.data }

func (m *osMapping) Sync(off, n int64) error {
	w, err := m.window("msync", off, n)
	if err != nil || n == 0 {
		return err
	}
	if err = retry(func() error { return unix.Msync(w, unix.MS_SYNC) }); err == nil {
		err = m.flush.flush()
	}
	return m.fail("msync", err)
}

func (m *osMapping) Advise(off, n int64, a Advice) error {
	w, err := m.window("madvise", off, n)
	if err != nil || n == 0 {
		return err
	}
	var code int
	switch a {
	case AdviceNormal:
		code = unix.MADV_NORMAL
	case AdviceRandom:
		code = unix.MADV_RANDOM
	case AdviceSequential:
		code = unix.MADV_SEQUENTIAL
	case AdviceWillNeed:
		code = unix.MADV_WILLNEED
	case AdviceDontNeed:
		code = unix.MADV_DONTNEED
	case AdvicePopulateRead:
		return m.fail("populate", populate(w, false))
	case AdvicePopulateWrite:
		if !m.writable {
			return m.fail("populate", fmt.Errorf("%w: mapping is read-only", fs.ErrInvalid))
		}
		return m.fail("populate", populate(w, true))
	default:
		return nil
	}
	return m.fail("madvise", retry(func() error { return unix.Madvise(w, code) }))
}

func (m *osMapping) Resident(off, n int64) (int64, error) {
	w, err := m.window("mincore", off, n)
	if err != nil || n == 0 {
		return 0, err
	}
	// A vector on the stack: the read path asks before each cold read.
	var vec [1024]byte
	var resident int64
	start := off + int64(len(m.mem)-len(m.data)) // of the wanted range in m.mem
	end := start + n
	page := start - start%int64(pageSize)
	for len(w) > 0 {
		part := w[:min(len(w), len(vec)*pageSize)]
		if err := mincore(part, &vec); err != nil {
			return 0, m.fail("mincore", err)
		}
		for i := range (len(part) + pageSize - 1) / pageSize {
			if vec[i]&1 != 0 {
				resident += min(page+int64(pageSize), end) - max(page, start)
			}
			page += int64(pageSize)
		}
		w = w[len(part):]
	}
	return resident, nil
}

func mincore(b []byte, vec *[1024]byte) error {
	for {
		_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(unsafe.Pointer(vec)))
		switch errno {
		case 0:
			return nil
		case unix.EINTR, unix.EAGAIN:
		default:
			return errno
		}
	}
}

func (m *osMapping) Lock(off, n int64) error {
	w, err := m.window("mlock", off, n)
	if err != nil || n == 0 {
		return err
	}
	return m.fail("mlock", unix.Mlock(w))
}

func (m *osMapping) Unlock(off, n int64) error {
	w, err := m.window("munlock", off, n)
	if err != nil || n == 0 {
		return err
	}
	return m.fail("munlock", unix.Munlock(w))
}

func (m *osMapping) Close() error {
	if m.closed.Swap(true) {
		return m.fail("munmap", fs.ErrClosed)
	}
	mem := m.mem
	m.mem, m.data = nil, nil
	m.flush.close()
	return m.fail("munmap", unix.Munmap(mem))
}

// window returns the mapped pages that hold [off, off+n).
func (m *osMapping) window(op string, off, n int64) ([]byte, error) {
	if m.closed.Load() {
		return nil, m.fail(op, fs.ErrClosed)
	}
	if off < 0 || n < 0 || off > int64(len(m.data)) || n > int64(len(m.data))-off {
		return nil, m.fail(op, fmt.Errorf("%w: range at %d of %d bytes in a mapping of %d", fs.ErrInvalid, off, n, len(m.data)))
	}
	start := int(off) + len(m.mem) - len(m.data)
	return m.mem[start-start%pageSize : start+int(n)], nil
}

func (m *osMapping) fail(op string, err error) error {
	if err == nil {
		return nil
	}
	return withSentinel(&fs.PathError{Op: op, Path: m.name, Err: err})
}
