package remoting

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// vector is a reused list for writev; unix.Writev would make one at each call.
type vector struct{ iov []unix.Iovec }

// write is one writev.
func (v *vector) write(fd uintptr, parts [][]byte) (int, error) {
	iov := v.iov[:0]
	for _, part := range parts {
		e := unix.Iovec{Base: unsafe.SliceData(part)}
		e.SetLen(len(part))
		iov = append(iov, e)
	}
	n, _, errno := unix.Syscall(unix.SYS_WRITEV, fd, uintptr(unsafe.Pointer(unsafe.SliceData(iov))), uintptr(len(iov)))
	clear(iov) // what is lent must not be kept
	if v.iov = iov[:0]; cap(iov) > keepParts {
		v.iov = nil
	}
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
