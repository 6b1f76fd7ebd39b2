package vfs

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Usage implements [FS].
func (OS) Usage(dir string) (Usage, error) {
	var st unix.Statfs_t
	if err := retry(func() error { return unix.Statfs(dir, &st) }); err != nil {
		return Usage{}, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	unit := uint64(st.Bsize)
	return Usage{
		Total:     st.Blocks * unit,
		Free:      st.Bfree * unit,
		Available: st.Bavail * unit,
		Type:      unix.ByteSliceToString(st.Fstypename[:]),
		// APFS overwrites file data in place unless a clone or a snapshot shares it, so it does not count.
		CopyOnWrite: unix.ByteSliceToString(st.Fstypename[:]) == "zfs",
	}, nil
}

// SyncData has no call of its own; os.File.Sync is F_FULLFSYNC here, which also empties the cache of the drive.
func (f *osFile) SyncData() error { return f.Sync() }

func (f *osFile) reserve(off, size int64) error {
	info, err := f.f.Stat()
	if err != nil {
		return err
	}
	length, end := info.Size(), off+size
	if off < length { // F_PREALLOCATE works at the end only; holes before it are filled by hand
		if err := f.reserveByWriting(off, min(length, end)-off); err != nil {
			return err
		}
	}
	if end <= length {
		return nil
	}
	store := unix.Fstore_t{Flags: unix.F_ALLOCATEALL, Posmode: unix.F_PEOFPOSMODE, Length: end - length}
	err = f.control(func(fd uintptr) error {
		return retry(func() error { return unix.FcntlFstore(fd, unix.F_PREALLOCATE, &store) })
	})
	switch err { //nolint:errorlint // raw errno of a system call
	case nil:
		return f.extend(end)
	case unix.ENOTSUP, unix.EOPNOTSUPP, unix.EINVAL:
		return f.reserveByWriting(off, size)
	default:
		return err
	}
}

// zeroRange writes, because F_PUNCHHOLE would give the blocks back.
func (f *osFile) zeroRange(off, size int64) error { return f.writeZeros(off, size) }

func populate(w []byte, write bool) error {
	touch(w, write)
	return nil
}

// flusher holds an own descriptor: msync leaves the data in the cache of the drive, and the file may be closed by then.
type flusher struct{ fd int }

func newFlusher(fd uintptr, writable bool) (flusher, error) {
	if !writable {
		return flusher{-1}, nil
	}
	dup, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
	return flusher{dup}, err
}

func (f flusher) flush() error {
	if f.fd < 0 {
		return nil
	}
	return retry(func() error {
		_, err := unix.FcntlInt(uintptr(f.fd), unix.F_FULLFSYNC, 0)
		if errors.Is(err, unix.ENOTSUP) { // some network file systems; os.File.Sync does the same
			err = unix.Fsync(f.fd)
		}
		return err
	})
}

func (f flusher) close() {
	if f.fd >= 0 {
		_ = unix.Close(f.fd) // only a second name of the file, nothing is written by closing it
	}
}
