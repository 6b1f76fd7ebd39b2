package remoting

import "golang.org/x/sys/unix"

// vector is stateless here: system calls go through libSystem.
type vector struct{}

// write is one writev.
func (*vector) write(fd uintptr, parts [][]byte) (int, error) {
	return unix.Writev(int(fd), parts)
}
