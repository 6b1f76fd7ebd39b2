package vfstest

import (
	"fmt"

	"github.com/hardpointmq/hardpoint/core/vfs"
)

type faultFile struct {
	vfs.File // Name and Fd
	fs       *Faults
}

func (f *faultFile) call(op Op, off, n int64) Call {
	return Call{Op: op, Name: f.Name(), Off: off, N: n}
}

func (f *faultFile) ReadAt(p []byte, off int64) (n int, err error) {
	err = f.fs.do(f.call(OpRead, off, int64(len(p))), func() error {
		n, err = f.File.ReadAt(p, off)
		return err
	})
	return n, err
}

func (f *faultFile) WriteAt(p []byte, off int64) (int, error) {
	rule, err := f.fs.before(f.call(OpWrite, off, int64(len(p))))
	if err != nil {
		return 0, err
	}
	if rule == nil {
		return f.write(p, off)
	}
	part := p[:min(max(rule.Short, 0), len(p))]
	if rule.After {
		part = p
	}
	n := 0
	if len(part) > 0 {
		if n, err = f.write(part, off); err != nil {
			return n, err
		}
	}
	return n, pathError("write", f.Name(), rule.Err)
}

// write writes what the disk has room for.
func (f *faultFile) write(p []byte, off int64) (int, error) {
	if !f.fs.limited() || len(p) == 0 || off < 0 {
		return f.File.WriteAt(p, off)
	}
	length, err := f.File.Size()
	if err != nil {
		return 0, err
	}
	end := off + int64(len(p))
	room := f.fs.charge(f.Name(), length, end, true)
	if room >= end {
		return f.File.WriteAt(p, off)
	}
	n := 0
	if room > off {
		if n, err = f.File.WriteAt(p[:room-off], off); err != nil {
			return n, err
		}
	}
	return n, pathError("write", f.Name(), vfs.ErrNoSpace)
}

func (f *faultFile) Close() error {
	return f.fs.do(f.call(OpClose, 0, 0), f.File.Close)
}

func (f *faultFile) Size() (size int64, err error) {
	err = f.fs.do(f.call(OpSize, 0, 0), func() error {
		size, err = f.File.Size()
		return err
	})
	return size, err
}

func (f *faultFile) Truncate(size int64) error {
	return f.fs.do(f.call(OpTruncate, 0, size), func() error {
		length, err := f.File.Size()
		if err != nil {
			return err
		}
		if err := f.File.Truncate(size); err != nil {
			return err
		}
		f.fs.spaceTruncated(f.Name(), length, size)
		return nil
	})
}

func (f *faultFile) Reserve(off, size int64) error {
	return f.fs.do(f.call(OpReserve, off, size), func() error {
		length, err := f.File.Size()
		if err != nil {
			return err
		}
		if end := off + size; off >= 0 && size > 0 && f.fs.charge(f.Name(), length, end, false) < end {
			return pathError("reserve", f.Name(), fmt.Errorf("%w: %d bytes wanted, %d free", vfs.ErrNoSpace, size, f.fs.Free()))
		}
		return f.File.Reserve(off, size)
	})
}

func (f *faultFile) Sync() error { return f.fs.do(f.call(OpSync, 0, 0), f.File.Sync) }

func (f *faultFile) SyncData() error { return f.fs.do(f.call(OpSyncData, 0, 0), f.File.SyncData) }

func (f *faultFile) ZeroRange(off, size int64) error {
	return f.fs.do(f.call(OpZero, off, size), func() error { return f.File.ZeroRange(off, size) })
}

func (f *faultFile) Map(off, size int64, writable bool) (m vfs.Mapping, err error) {
	err = f.fs.do(f.call(OpMap, off, size), func() error {
		m, err = f.File.Map(off, size, writable)
		return err
	})
	if err != nil {
		if m != nil {
			_ = m.Close() // the injected error is what the caller must see
		}
		return nil, err
	}
	return &faultMapping{Mapping: m, file: f}, nil
}

type faultMapping struct {
	vfs.Mapping // Bytes
	file        *faultFile
}

func (m *faultMapping) do(op Op, off, n int64, run func() error) error {
	return m.file.fs.do(m.file.call(op, off, n), run)
}

func (m *faultMapping) Sync(off, n int64) error {
	return m.do(OpMapSync, off, n, func() error { return m.Mapping.Sync(off, n) })
}

func (m *faultMapping) Advise(off, n int64, a vfs.Advice) error {
	return m.do(OpAdvise, off, n, func() error { return m.Mapping.Advise(off, n, a) })
}

func (m *faultMapping) Resident(off, n int64) (resident int64, err error) {
	err = m.do(OpResident, off, n, func() error {
		resident, err = m.Mapping.Resident(off, n)
		return err
	})
	return resident, err
}

func (m *faultMapping) Lock(off, n int64) error {
	return m.do(OpMemLock, off, n, func() error { return m.Mapping.Lock(off, n) })
}

func (m *faultMapping) Unlock(off, n int64) error {
	return m.do(OpMemLock, off, n, func() error { return m.Mapping.Unlock(off, n) })
}

func (m *faultMapping) Close() error { return m.do(OpUnmap, 0, 0, m.Mapping.Close) }
