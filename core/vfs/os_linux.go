package vfs

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// zfsMagic is not in the kernel headers because the file system is not in the kernel.
const zfsMagic = 0x2fc12fc1

// fsTypes names the file systems that brokers are found on, for messages.
var fsTypes = map[uint32]string{
	unix.EXT4_SUPER_MAGIC:      "ext4",
	unix.XFS_SUPER_MAGIC:       "xfs",
	unix.BTRFS_SUPER_MAGIC:     "btrfs",
	unix.TMPFS_MAGIC:           "tmpfs",
	unix.OVERLAYFS_SUPER_MAGIC: "overlay",
	unix.NFS_SUPER_MAGIC:       "nfs",
	unix.F2FS_SUPER_MAGIC:      "f2fs",
	unix.BCACHEFS_SUPER_MAGIC:  "bcachefs",
	unix.FUSE_SUPER_MAGIC:      "fuse",
	zfsMagic:                   "zfs",
}

func fsType(st *unix.Statfs_t) (name string, copyOnWrite bool) {
	magic := uint32(st.Type) // the magic number has 32 bits, whatever the field has
	switch magic {
	case unix.BTRFS_SUPER_MAGIC, unix.BCACHEFS_SUPER_MAGIC, zfsMagic:
		copyOnWrite = true
	}
	name, known := fsTypes[magic]
	if !known {
		name = fmt.Sprintf("0x%x", magic)
	}
	return name, copyOnWrite
}

// Usage implements [FS].
func (OS) Usage(dir string) (Usage, error) {
	var st unix.Statfs_t
	if err := retry(func() error { return unix.Statfs(dir, &st) }); err != nil {
		return Usage{}, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	unit := uint64(st.Frsize) // blocks are counted in fragments
	if unit == 0 {
		unit = uint64(st.Bsize)
	}
	u := Usage{Total: st.Blocks * unit, Free: st.Bfree * unit, Available: st.Bavail * unit}
	u.Type, u.CopyOnWrite = fsType(&st)
	return u, nil
}

func (f *osFile) SyncData() error {
	return f.fail("fdatasync", f.control(func(fd uintptr) error {
		return retry(func() error { return unix.Fdatasync(int(fd)) })
	}))
}

func (f *osFile) reserve(off, size int64) error {
	var st unix.Statfs_t
	err := f.control(func(fd uintptr) error {
		return retry(func() error { return unix.Fstatfs(int(fd), &st) })
	})
	if err != nil {
		return err
	}
	if name, copyOnWrite := fsType(&st); copyOnWrite {
		if err := f.extend(off + size); err != nil {
			return err
		}
		return fmt.Errorf("%w on %s, which does not overwrite in place", ErrReserveUnsupported, name)
	}
	err = f.fallocate(0, off, size)
	if errors.Is(err, errors.ErrUnsupported) { // EOPNOTSUPP, ENOSYS
		return f.reserveByWriting(off, size)
	}
	return err
}

// zeroRange keeps the blocks, unlike punching a hole: the range is about to be written again, perhaps through a mapping.
func (f *osFile) zeroRange(off, size int64) error {
	err := f.fallocate(unix.FALLOC_FL_ZERO_RANGE|unix.FALLOC_FL_KEEP_SIZE, off, size)
	if errors.Is(err, errors.ErrUnsupported) {
		return f.writeZeros(off, size)
	}
	return err
}

func (f *osFile) fallocate(mode uint32, off, size int64) error {
	return f.control(func(fd uintptr) error {
		return retry(func() error { return unix.Fallocate(int(fd), mode, off, size) })
	})
}

// populate reports an unwritable page (full disk, file cut short) as an error where the kernel is 5.14 or newer; touching
// pages in older ones would be killed by SIGBUS.
func populate(w []byte, write bool) error {
	advice := unix.MADV_POPULATE_READ
	if write {
		advice = unix.MADV_POPULATE_WRITE
	}
	for {
		err := unix.Madvise(w, advice)
		switch {
		case errors.Is(err, unix.EINVAL): // older kernel
			touch(w, write)
			return nil
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
		default:
			return err
		}
	}
}

// flusher has nothing to do: msync with MS_SYNC runs the fsync of the file system for the range.
type flusher struct{}

func newFlusher(uintptr, bool) (flusher, error) { return flusher{}, nil }
func (flusher) flush() error                    { return nil }
func (flusher) close()                          {}
