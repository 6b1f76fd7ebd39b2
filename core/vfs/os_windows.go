package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/windows"
)

// SyncDir implements [FS]: NTFS and ReFS journal names, and there is no call that waits for it.
func (OS) SyncDir(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "syncdir", Path: dir, Err: fmt.Errorf("%w: not a directory", fs.ErrInvalid)}
	}
	return err
}

func allocatedBytes(fs.FileInfo) int64 { return -1 }

// Usage implements [FS].
func (OS) Usage(dir string) (Usage, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return Usage{}, err
	}
	if _, err := os.Stat(path); err != nil {
		return Usage{}, err
	}
	p, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return Usage{}, &fs.PathError{Op: "usage", Path: dir, Err: err}
	}
	var u Usage
	if err := windows.GetDiskFreeSpaceEx(p, &u.Available, &u.Total, &u.Free); err != nil {
		return Usage{}, &fs.PathError{Op: "usage", Path: dir, Err: err}
	}
	root, err := windows.UTF16PtrFromString(filepath.VolumeName(path) + `\`)
	if err != nil {
		return Usage{}, &fs.PathError{Op: "usage", Path: dir, Err: err}
	}
	var name [windows.MAX_PATH + 1]uint16
	// Some network drives do not tell; the sizes are good without.
	if windows.GetVolumeInformation(root, nil, 0, nil, nil, nil, &name[0], uint32(len(name))) == nil {
		u.Type = windows.UTF16ToString(name[:])
		u.CopyOnWrite = u.Type == "ReFS" // it moves data when integrity streams are on
	}
	return u, nil
}

// Lock implements [FS]. LockFileEx excludes other handles of the same process too, so no table is needed. The system
// does not tell who holds the lock.
func (OS) Lock(name string) (File, error) {
	f, err := openOS(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	err = f.control(func(fd uintptr) error {
		err := windows.LockFileEx(windows.Handle(fd), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, new(windows.Overlapped))
		if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
			return fmt.Errorf("%w: %w", ErrLocked, err)
		}
		return err
	})
	if err != nil {
		err = f.fail("lock", err)
		_ = f.Close() // the first error tells what is wrong
		return nil, err
	}
	return f, nil
}

// SyncData has no call of its own.
func (f *osFile) SyncData() error { return f.Sync() }

// reserve extends the file, for which NTFS allocates the clusters unless the file is sparse or compressed.
func (f *osFile) reserve(off, size int64) error {
	if err := f.extend(off + size); err != nil {
		return err
	}
	var info windows.ByHandleFileInformation
	var fsName [windows.MAX_PATH + 1]uint16
	err := f.control(func(fd uintptr) error {
		if err := windows.GetFileInformationByHandle(windows.Handle(fd), &info); err != nil {
			return err
		}
		return windows.GetVolumeInformationByHandle(windows.Handle(fd), nil, 0, nil, nil, nil, &fsName[0], uint32(len(fsName)))
	})
	if err != nil {
		return err
	}
	if name := windows.UTF16ToString(fsName[:]); name == "ReFS" {
		return fmt.Errorf("%w on %s, which may not overwrite in place", ErrReserveUnsupported, name)
	}
	if info.FileAttributes&(windows.FILE_ATTRIBUTE_SPARSE_FILE|windows.FILE_ATTRIBUTE_COMPRESSED) != 0 {
		return fmt.Errorf("%w for a sparse or compressed file", ErrReserveUnsupported)
	}
	return nil
}

func (f *osFile) zeroRange(off, size int64) error { return f.writeZeros(off, size) }

// mapGranularity is what offsets of views must be a multiple of; it has been 64 KiB on every Windows.
const mapGranularity = 64 << 10

type osMapping struct {
	addr     uintptr // 0 after Close
	data     []byte
	writable bool
	handle   windows.Handle // own handle of the file, for FlushFileBuffers
	closed   atomic.Bool
	name     string
}

var _ Mapping = (*osMapping)(nil)

func (f *osFile) mapRange(off, size int64, writable bool) (Mapping, error) {
	pad := off % mapGranularity
	if size > int64(^uint(0)>>1)-pad {
		return nil, fmt.Errorf("%w: %d bytes do not fit the address space", fs.ErrInvalid, size)
	}
	m := &osMapping{writable: writable, name: f.f.Name()}
	prot, access := uint32(windows.PAGE_READONLY), uint32(windows.FILE_MAP_READ)
	if writable {
		prot, access = windows.PAGE_READWRITE, windows.FILE_MAP_READ|windows.FILE_MAP_WRITE
	}
	err := f.control(func(fd uintptr) error {
		section, err := windows.CreateFileMapping(windows.Handle(fd), nil, prot, uint32((off+size)>>32), uint32(off+size), nil)
		if err != nil {
			return err
		}
		defer windows.CloseHandle(section) //nolint:errcheck // the view keeps the section
		self := windows.CurrentProcess()
		if err := windows.DuplicateHandle(self, windows.Handle(fd), self, &m.handle, 0, false, windows.DUPLICATE_SAME_ACCESS); err != nil {
			return err
		}
		start := off - pad
		m.addr, err = windows.MapViewOfFile(section, access, uint32(start>>32), uint32(start), uintptr(size+pad))
		if err != nil {
			_ = windows.CloseHandle(m.handle) // only a second name of the file
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	// The address is outside the Go heap; the detour tells vet that it is not a pointer in disguise.
	base := *(*unsafe.Pointer)(unsafe.Pointer(&m.addr))
	m.data = unsafe.Slice((*byte)(base), int(size+pad))[pad:]
	return m, nil
}

func (m *osMapping) Bytes() []byte { return m.data }

func (m *osMapping) Sync(off, n int64) error {
	w, err := m.window("flush", off, n)
	if err != nil || n == 0 {
		return err
	}
	// FlushViewOfFile hands the pages to the file system, FlushFileBuffers waits until the device has them.
	if err = windows.FlushViewOfFile(addrOf(w), uintptr(len(w))); err == nil && m.writable {
		err = windows.FlushFileBuffers(m.handle)
	}
	return m.fail("flush", err)
}

func (m *osMapping) Advise(off, n int64, a Advice) error {
	w, err := m.window("advise", off, n)
	if err != nil || n == 0 {
		return err
	}
	switch a {
	case AdvicePopulateRead:
		touch(w, false)
	case AdvicePopulateWrite:
		if !m.writable {
			return m.fail("populate", fmt.Errorf("%w: mapping is read-only", fs.ErrInvalid))
		}
		touch(w, true)
	}
	return nil
}

func (m *osMapping) Resident(off, n int64) (int64, error) {
	if _, err := m.window("resident", off, n); err != nil {
		return 0, err
	}
	return 0, errors.ErrUnsupported
}

func (m *osMapping) Lock(off, n int64) error {
	w, err := m.window("lock", off, n)
	if err != nil || n == 0 {
		return err
	}
	return m.fail("lock", windows.VirtualLock(addrOf(w), uintptr(len(w))))
}

func (m *osMapping) Unlock(off, n int64) error {
	w, err := m.window("unlock", off, n)
	if err != nil || n == 0 {
		return err
	}
	return m.fail("unlock", windows.VirtualUnlock(addrOf(w), uintptr(len(w))))
}

func (m *osMapping) Close() error {
	if m.closed.Swap(true) {
		return m.fail("unmap", fs.ErrClosed)
	}
	m.data = nil
	err := windows.UnmapViewOfFile(m.addr)
	if closeErr := windows.CloseHandle(m.handle); err == nil {
		err = closeErr
	}
	return m.fail("unmap", err)
}

// window returns [off, off+n) widened to the start of its first page.
func (m *osMapping) window(op string, off, n int64) ([]byte, error) {
	if m.closed.Load() {
		return nil, m.fail(op, fs.ErrClosed)
	}
	if off < 0 || n < 0 || off > int64(len(m.data)) || n > int64(len(m.data))-off {
		return nil, m.fail(op, fmt.Errorf("%w: range at %d of %d bytes in a mapping of %d", fs.ErrInvalid, off, n, len(m.data)))
	}
	all := m.mem()
	start := int(off) + len(all) - len(m.data)
	return all[start-start%pageSize : start+int(n)], nil
}

// mem returns the view from its start, which is before data when the wanted offset was not aligned.
func (m *osMapping) mem() []byte {
	base := *(*unsafe.Pointer)(unsafe.Pointer(&m.addr))
	pad := uintptr(unsafe.Pointer(unsafe.SliceData(m.data))) - m.addr
	return unsafe.Slice((*byte)(base), int(pad)+len(m.data))
}

func addrOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

func (m *osMapping) fail(op string, err error) error {
	if err == nil {
		return nil
	}
	return withSentinel(&fs.PathError{Op: op, Path: m.name, Err: err})
}
