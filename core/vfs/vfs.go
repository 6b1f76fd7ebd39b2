package vfs

import (
	"io"
	"io/fs"
	"math/bits"
	"time"
)

// NoFd is what [File.Fd] returns when there is no file descriptor behind the file.
const NoFd = ^uintptr(0)

// FS is a file system. Names are paths of the operating system; directories are separated as package path/filepath
// does it. All methods may block on the disk and are safe for concurrent use.
//
// Errors satisfy errors.Is with fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, fs.ErrClosed, [ErrNoSpace],
// [ErrLocked], [ErrMapUnsupported] and [ErrReserveUnsupported] where these apply, and name the file.
type FS interface {
	// OpenFile opens a regular file. flag holds the os.O_ constants; O_APPEND is refused with fs.ErrInvalid because
	// positioned writes and append mode exclude each other. perm applies to a file that is created, before umask.
	// A created name is durable only after SyncDir.
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)

	// Remove deletes a file or an empty directory; fs.ErrNotExist when there is none. Open files and mappings of it
	// keep working (not on Windows, where removing an open file fails).
	Remove(name string) error

	// RemoveAll deletes name and everything below it. A missing name is no error.
	RemoveAll(name string) error

	// Rename moves oldName to newName, replacing a file that has that name, in one atomic step.
	Rename(oldName, newName string) error

	// MkdirAll creates dir and its missing parents with mode 0755. An existing directory is no error. The new names
	// are not durable; see [EnsureDir].
	MkdirAll(dir string) error

	// List returns the names (without path) of everything in dir, sorted ascending byte by byte.
	List(dir string) ([]string, error)

	// Stat describes name, following symbolic links.
	Stat(name string) (Info, error)

	// SyncDir makes all creations, renames and removals of names in dir durable. On Windows there is no such call:
	// NTFS journals names by itself and SyncDir only checks that dir exists.
	SyncDir(dir string) error

	// Usage describes the file system that holds dir, which must exist.
	Usage(dir string) (Usage, error)

	// Lock creates name if it is missing and takes an exclusive lock on it without waiting; [ErrLocked] with the
	// holder's process id (where the system tells it) when anybody, in this process or another, has it. Close of the
	// returned file, or the end of the process, releases it. Write to the locked file only through the returned
	// File, and do not open the name a second time: POSIX drops a record lock as soon as its process closes any
	// descriptor of that file.
	//
	// The lock is the one a Java broker takes: fcntl F_SETLK on the byte range [0,1) (LockFileEx on Windows).
	Lock(name string) (File, error)
}

// Info describes a file or directory.
type Info struct {
	Name      string    // last path element
	Size      int64     // length in bytes
	Allocated int64     // bytes of disk really allocated; -1 where the system does not tell
	ModTime   time.Time // last change of the content
	IsDir     bool
}

// Usage is the state of a file system, in bytes.
type Usage struct {
	Total     uint64 // size of the file system
	Free      uint64 // not allocated, including what is kept for root
	Available uint64 // not allocated and usable without root rights

	// CopyOnWrite tells that the file system never overwrites in place (btrfs, zfs, bcachefs), so
	// that reserved space does not protect a mapped write from a full disk: stores write by WriteAt there. It is
	// found by the type of the file system; one hidden below an overlay (containers) is not seen.
	CopyOnWrite bool
	Type        string // name of the file system, or its magic number in hex, for messages; empty when unknown
}

// Used returns the allocated bytes.
func (u Usage) Used() uint64 { return u.Total - min(u.Free, u.Total) }

// UsedPercent returns the used share as df prints it: used/(used+available), rounded up to a whole percent, 0..100.
// Rounding up means that "more than 85" starts at 85.01 %, as the disk limits of a RocketMQ broker are defined.
func (u Usage) UsedPercent() int {
	used := u.Used()
	all := used + u.Available
	if all == 0 {
		return 0
	}
	hi, lo := bits.Mul64(used, 100) // used <= all, so the quotient is at most 100 and Div64 cannot overflow
	q, r := bits.Div64(hi, lo, all)
	if r != 0 {
		q++
	}
	return int(q)
}

// File is an open regular file. Reads and writes are positioned; there is no cursor. All methods are safe for
// concurrent use; overlapping writes may interleave. ReadAt and WriteAt do not allocate unless they fail. After Close
// every method but Close and Name returns fs.ErrClosed; a second Close does too.
type File interface {
	// ReadAt fills p or returns why not: io.EOF when the file ends first.
	io.ReaderAt

	// WriteAt writes all of p or returns an error; interrupted and partial writes are continued, one that makes no
	// progress is io.ErrShortWrite, a full disk [ErrNoSpace]. The count is a lower bound of what was written. Writing
	// beyond the end extends the file, with a hole before off. Writes are visible in mappings at once, and reverse.
	io.WriterAt

	io.Closer

	// Name returns the name that the file was opened with.
	Name() string

	// Size returns the length in bytes.
	Size() (int64, error)

	// Truncate sets the length. Growing makes a hole: see Reserve. Shrinking below a live mapping makes access to the
	// lost pages fatal (SIGBUS), and Windows refuses it.
	Truncate(size int64) error

	// Reserve allocates disk space for [off, off+size) and extends the file to off+size if it is shorter; existing
	// bytes are kept, new ones read as zero. After nil, writes into the range, mapped ones too, cannot run out of
	// space. [ErrNoSpace] when there is not enough (some of it may be allocated then; remove or truncate the file).
	// Where the system has no call for it the range is written, so it must not have concurrent writers.
	//
	// [ErrReserveUnsupported]: the file was extended, but the file system gives no such guarantee (copy-on-write, see
	// Usage.CopyOnWrite). Use WriteAt, which can report a full disk, and map for reading only.
	Reserve(off, size int64) error

	// Sync makes content and length durable (fsync; F_FULLFSYNC on darwin).
	Sync() error

	// SyncData is Sync without the metadata that reading back does not need (fdatasync); Sync where there is none.
	SyncData() error

	// ZeroRange makes [off, off+size) read as zeros, for wiping a torn tail. Space in the range stays reserved; the
	// length does not change, what lies beyond it is ignored.
	ZeroRange(off, size int64) error

	// Map maps [off, off+size), which must lie inside the file; off need not be page aligned. size 0 is fs.ErrInvalid.
	// The mapping outlives Close of the file. writable needs a file opened for reading and writing.
	// [ErrMapUnsupported] where the system cannot: use ReadAt and WriteAt.
	//
	// Writing through a mapping into space that was not reserved is fatal (SIGBUS) when the disk is full.
	Map(off, size int64, writable bool) (Mapping, error)

	// Fd returns the descriptor for sendfile and the like, [NoFd] when there is none. It is valid until Close and the
	// caller must exclude a concurrent Close.
	Fd() uintptr
}

// Mapping is a shared memory mapping of a part of a file. Bytes may be used concurrently with all methods but Close;
// the caller must make sure that nobody touches the bytes during and after Close, which would be fatal.
//
// Offsets are relative to the start of the mapping; a range that leaves it is fs.ErrInvalid. The kernel works on whole
// pages: methods widen a range to page boundaries.
type Mapping interface {
	// Bytes returns the mapped memory: the same slice on each call, nil after Close. Writing to it when the mapping is
	// not writable is fatal.
	Bytes() []byte

	// Sync makes [off, off+n) durable and waits for it (msync MS_SYNC; with the device's cache flush where that is a
	// call of its own). n 0 is a no-op.
	Sync(off, n int64) error

	// Advise tells how the range will be used. Advice that the system does not know is ignored, except for the two
	// Populate values, for which the pages are touched instead.
	Advise(off, n int64, a Advice) error

	// Resident returns how many bytes of [off, off+n) are in memory, so that reading them does not wait for the disk;
	// n when all are. It is a hint: pages come and go. Where the system cannot tell, errors.ErrUnsupported.
	// It does not allocate.
	Resident(off, n int64) (int64, error)

	// Lock keeps the range in memory (mlock). It fails when RLIMIT_MEMLOCK is too small; the mapping works without.
	Lock(off, n int64) error

	// Unlock undoes Lock.
	Unlock(off, n int64) error

	// Close unmaps. It does not sync: written bytes reach the disk when the system likes. A second Close is
	// fs.ErrClosed.
	Close() error
}

// Advice is a hint for [Mapping.Advise].
type Advice int

// Advice values; the names are those of madvise(2).
const (
	AdviceNormal        Advice = iota
	AdviceRandom               // no read-ahead
	AdviceSequential           // more read-ahead
	AdviceWillNeed             // start reading the range in, do not wait
	AdviceDontNeed             // drop the range from this mapping; content is kept
	AdvicePopulateRead         // map all pages, reading them in, and wait
	AdvicePopulateWrite        // map all pages ready for writing, content unchanged, and wait; needs a writable mapping
)
