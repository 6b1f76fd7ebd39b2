//go:build unix

package transportwire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
)

// ticketSize is what goes with each file.
const ticketSize = 8

// passFile sends an open file to another process.
func passFile(c *net.UnixConn, ticket uint64, f *os.File) error {
	_, _, err := c.WriteMsgUnix(binary.LittleEndian.AppendUint64(nil, ticket), syscall.UnixRights(int(f.Fd())), nil)
	return err
}

// receiveFile takes one. With errNoRoom its ticket came, and the system closed it.
func receiveFile(c *net.UnixConn) (uint64, *os.File, error) {
	var b [ticketSize]byte
	oob := make([]byte, syscall.CmsgSpace(4))
	n, m, flags, _, err := c.ReadMsgUnix(b[:], oob)
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		return 0, nil, err
	}
	all, err := syscall.ParseSocketControlMessage(oob[:m])
	if err != nil {
		return 0, nil, err
	}
	var f *os.File
	for i := range all {
		fds, err := syscall.ParseUnixRights(&all[i])
		if err != nil {
			return 0, nil, err
		}
		for _, fd := range fds {
			if f != nil {
				_ = f.Close()
			}
			f = os.NewFile(uintptr(fd), "given")
		}
	}
	if f == nil && flags&syscall.MSG_CTRUNC == 0 {
		return 0, nil, errors.New("no file came with a ticket")
	}
	if _, err := io.ReadFull(c, b[n:]); err != nil {
		_ = f.Close()
		return 0, nil, fmt.Errorf("half a ticket: %w", err)
	}
	if f == nil {
		err = errNoRoom
	}
	return binary.LittleEndian.Uint64(b[:]), f, err
}
