//go:build linux || darwin

package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// allocatedBytes returns what the file occupies; st_blocks counts units of 512 bytes on every system.
func allocatedBytes(info fs.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * 512
	}
	return -1
}

// fileID identifies a file whatever its name is.
type fileID struct{ dev, ino uint64 }

func idOf(info fs.FileInfo) (id fileID, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fileID{}, false
	}
	return fileID{uint64(st.Dev), st.Ino}, true // the device is signed on darwin, and only compared
}

// locks is the state of the process and not of an OS value, because so are POSIX record locks: they belong to the
// process, never exclude a second locker inside it, and are dropped when the process closes any descriptor of the file.
// Hence a locked file must be recognised before it is opened a second time, by whichever OS value.
var locks = struct {
	sync.Mutex
	held map[fileID]struct{}
}{held: map[fileID]struct{}{}}

// Lock implements [FS].
func (OS) Lock(name string) (File, error) {
	locks.Lock()
	defer locks.Unlock()
	if info, err := os.Stat(name); err == nil {
		if id, ok := idOf(info); ok {
			if _, held := locks.held[id]; held {
				return nil, &fs.PathError{Op: "lock", Path: name, Err: fmt.Errorf("%w by this process (pid %d)", ErrLocked, os.Getpid())}
			}
		}
	}
	f, err := openOS(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	var id fileID
	info, err := f.f.Stat()
	if err == nil {
		id, _ = idOf(info)
		err = f.control(setLock)
	}
	if err != nil {
		err = f.fail("lock", err)
		_ = f.Close() // the first error tells what is wrong
		return nil, err
	}
	locks.held[id] = struct{}{}
	return &lockedFile{osFile: f, id: id}, nil
}

// setLock takes the lock that java.nio.channels.FileChannel.tryLock(0, 1, false) takes.
func setLock(fd uintptr) error {
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: 0, Start: 0, Len: 1}
	err := retry(func() error { return unix.FcntlFlock(fd, unix.F_SETLK, &lock) })
	if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES) {
		return err
	}
	holder := unix.Flock_t{Type: unix.F_WRLCK, Whence: 0, Start: 0, Len: 1}
	getErr := retry(func() error { return unix.FcntlFlock(fd, unix.F_GETLK, &holder) })
	if getErr != nil || holder.Type == unix.F_UNLCK || holder.Pid <= 0 { // gone meanwhile, or outside our pid namespace
		return fmt.Errorf("%w by another process", ErrLocked)
	}
	return fmt.Errorf("%w by process %d", ErrLocked, holder.Pid)
}

type lockedFile struct {
	*osFile
	id fileID
}

func (f *lockedFile) Close() error {
	locks.Lock()
	defer locks.Unlock()
	err := f.osFile.Close()
	if !errors.Is(err, fs.ErrClosed) { // a second Close must not release the lock of somebody else
		delete(locks.held, f.id)
	}
	return err
}

// retry repeats a call that a signal interrupted; the runtime sends itself signals to preempt goroutines.
func retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR { //nolint:errorlint // raw errno of a system call
			return err
		}
	}
}
