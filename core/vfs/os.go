package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// OS is the file system of the operating system. The zero value is ready.
type OS struct{}

var (
	_ FS   = OS{}
	_ File = (*osFile)(nil)
)

// OpenFile implements [FS].
func (OS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := openOS(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func openOS(name string, flag int, perm fs.FileMode) (*osFile, error) {
	if flag&os.O_APPEND != 0 {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fmt.Errorf("%w: O_APPEND excludes positioned writes", fs.ErrInvalid)}
	}
	f, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return nil, withSentinel(err)
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = &fs.PathError{Op: "open", Path: name, Err: fmt.Errorf("%w: is a directory", fs.ErrInvalid)}
	}
	var conn syscall.RawConn
	if err == nil {
		conn, err = f.SyscallConn()
	}
	if err != nil {
		_ = f.Close() // the first error tells what is wrong
		return nil, err
	}
	return &osFile{f: f, conn: conn}, nil
}

// Remove implements [FS].
func (OS) Remove(name string) error { return os.Remove(name) }

// RemoveAll implements [FS].
func (OS) RemoveAll(name string) error { return os.RemoveAll(name) }

// Rename implements [FS].
func (OS) Rename(oldName, newName string) error { return withSentinel(os.Rename(oldName, newName)) }

// MkdirAll implements [FS].
func (OS) MkdirAll(dir string) error { return withSentinel(os.MkdirAll(dir, 0o755)) }

// List implements [FS].
func (OS) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// Stat implements [FS].
func (OS) Stat(name string) (Info, error) {
	info, err := os.Stat(name)
	if err != nil {
		return Info{}, err
	}
	return Info{
		Name:      filepath.Base(name),
		Size:      info.Size(),
		Allocated: allocatedBytes(info),
		ModTime:   info.ModTime(),
		IsDir:     info.IsDir(),
	}, nil
}

// osFile goes through os.File and not through a bare descriptor: os.File continues interrupted and partial transfers,
// and it counts users, so that a concurrent Close cannot make a write land in another file that got the same number.
type osFile struct {
	f    *os.File
	conn syscall.RawConn // made once, because SyscallConn allocates
}

func (f *osFile) ReadAt(p []byte, off int64) (int, error) { return f.f.ReadAt(p, off) }

func (f *osFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.f.WriteAt(p, off)
	if err != nil {
		return n, f.writeError(err)
	}
	return n, nil
}

// writeError is apart from WriteAt to keep that one small. os.File reports a write without progress as an unexpected
// end of file, which would be taken for a short read.
func (f *osFile) writeError(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return &fs.PathError{Op: "write", Path: f.f.Name(), Err: io.ErrShortWrite}
	}
	return withSentinel(err)
}

func (f *osFile) Close() error { return f.f.Close() }

func (f *osFile) Name() string { return f.f.Name() }

func (f *osFile) Size() (int64, error) {
	info, err := f.f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f *osFile) Truncate(size int64) error { return withSentinel(f.f.Truncate(size)) }

func (f *osFile) Sync() error { return withSentinel(f.f.Sync()) }

func (f *osFile) Fd() uintptr { return f.f.Fd() }

func (f *osFile) Reserve(off, size int64) error {
	if err := checkRange(off, size); err != nil {
		return f.fail("reserve", err)
	}
	if size == 0 {
		return nil
	}
	return f.fail("reserve", f.reserve(off, size))
}

func (f *osFile) ZeroRange(off, size int64) error {
	if err := checkRange(off, size); err != nil {
		return f.fail("zero", err)
	}
	length, err := f.Size()
	if err != nil {
		return err
	}
	size = min(size, length-off) // the part beyond the end is none of our business
	if size <= 0 {
		return nil
	}
	return f.fail("zero", f.zeroRange(off, size))
}

func (f *osFile) Map(off, size int64, writable bool) (Mapping, error) {
	if err := checkRange(off, size); err != nil {
		return nil, f.fail("map", err)
	}
	length, err := f.Size()
	if err != nil {
		return nil, err
	}
	// Checked here because the kernel would accept it and kill the process at the first access.
	if size == 0 || off+size > length {
		return nil, f.fail("map", fmt.Errorf("%w: range [%d,%d) is empty or leaves the file of %d bytes", fs.ErrInvalid, off, off+size, length))
	}
	m, err := f.mapRange(off, size, writable)
	if err != nil {
		return nil, f.fail("map", err)
	}
	return m, nil
}

// control runs do with the descriptor, which stays open meanwhile. The error of do comes first.
func (f *osFile) control(do func(fd uintptr) error) error {
	var err error
	if ctlErr := f.conn.Control(func(fd uintptr) { err = do(fd) }); ctlErr != nil {
		// The only reason not to run do, and unlike the methods of os.File it does not say so in a way errors.Is knows.
		return fmt.Errorf("%w (%w)", fs.ErrClosed, ctlErr)
	}
	return err
}

// fail names operation and file, and adds the sentinel. A nil error stays nil.
func (f *osFile) fail(op string, err error) error {
	if err == nil {
		return nil
	}
	if _, named := err.(*fs.PathError); named { //nolint:errorlint // only the outermost error matters
		return withSentinel(err)
	}
	return withSentinel(&fs.PathError{Op: op, Path: f.f.Name(), Err: err})
}

// extend makes the file at least size bytes long.
func (f *osFile) extend(size int64) error {
	length, err := f.Size()
	if err != nil || length >= size {
		return err
	}
	return f.f.Truncate(size)
}

const zeroChunk = 64 << 10

// writeZeros writes zeros over [off, off+size).
func (f *osFile) writeZeros(off, size int64) error {
	zeros := make([]byte, min(size, zeroChunk))
	for size > 0 {
		n := min(size, int64(len(zeros)))
		if _, err := f.WriteAt(zeros[:n], off); err != nil {
			return err
		}
		off, size = off+n, size-n
	}
	return nil
}

// reserveByWriting fills the holes of [off, off+size) by writing what is read there, and zeros beyond the end. It is
// the slow way for file systems without a call, and not safe against concurrent writers of the range.
func (f *osFile) reserveByWriting(off, size int64) error {
	info, err := f.f.Stat()
	if err != nil {
		return err
	}
	length, end := info.Size(), off+size
	if off < length && allocatedBytes(info) < length { // something is not allocated
		chunk := make([]byte, zeroChunk)
		for pos := off; pos < min(length, end); {
			n, err := f.f.ReadAt(chunk[:min(zeroChunk, min(length, end)-pos)], pos)
			if n == 0 && err != nil {
				return err
			}
			if _, err := f.WriteAt(chunk[:n], pos); err != nil {
				return err
			}
			pos += int64(n)
		}
	}
	if end <= length {
		return nil
	}
	start := max(off, length)
	return f.writeZeros(start, end-start)
}

// checkRange refuses negative offsets and sizes, and a sum that overflows.
func checkRange(off, size int64) error {
	if off < 0 || size < 0 || off+size < 0 {
		return fmt.Errorf("%w: range at %d of %d bytes", fs.ErrInvalid, off, size)
	}
	return nil
}
