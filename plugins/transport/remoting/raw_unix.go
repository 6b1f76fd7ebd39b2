//go:build linux || darwin

package remoting

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"github.com/hardpointmq/hardpoint/core/transport"
)

// rawIO reads and writes a TCP socket without waiting. The zero value, for TLS,
// does neither.
type rawIO struct {
	p  *peer
	rc syscall.RawConn

	onRead  func(fd uintptr) bool // made once, as a closure costs an allocation
	n       int
	full    bool
	readErr error

	onWrite  func(fd uintptr) bool
	vec      vector
	parts    [][]byte
	writeErr error
}

func (r *rawIO) init(p *peer) {
	c, ok := p.conn.(*net.TCPConn)
	if !ok {
		return
	}
	rc, err := c.SyscallConn()
	if err != nil {
		return
	}
	r.p, r.rc = p, rc
	r.onRead, r.onWrite = r.tryRead, r.tryWrite
}

// read returns n == 0 without an error when nothing is ready and a Settle is
// due; else it waits. full says that more is probably ready.
func (p *peer) read() (n int, full bool, err error) {
	r := &p.raw
	if r.rc == nil {
		return p.readStream()
	}
	if err := r.rc.Read(r.onRead); err != nil {
		return 0, false, err
	}
	return r.n, r.full, r.readErr
}

func (r *rawIO) tryRead(fd uintptr) bool {
	p := r.p
	r.n, r.full, r.readErr = 0, false, nil
	space := p.in.space()
	if space == nil {
		r.readErr = errReadBytes
		return true
	}
	for {
		n, err := syscall.Read(int(fd), space)
		switch {
		case err == nil && n > 0:
			r.n, r.full = n, n == len(space)
		case err == nil:
			r.readErr = io.EOF
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN):
			if p.arrived {
				return true
			}
			p.in.park()
			return false
		default:
			r.readErr = fmt.Errorf("reading from the peer: %w", err)
		}
		return true
	}
}

// maxVector is the most pieces that the system takes in one write.
const maxVector = 1024

// write writes as much of parts as the socket takes at once and returns the
// rest.
func (r *rawIO) write(parts [][]byte) (rest [][]byte, err error) {
	if r.rc == nil || len(parts) == 0 {
		return parts, nil
	}
	r.parts, r.writeErr = parts, nil
	err = r.rc.Write(r.onWrite)
	rest, r.parts = r.parts, nil
	if err == nil {
		err = r.writeErr
	}
	if err != nil {
		r.p.failLocked(fmt.Errorf("writing to the peer: %w", err))
		return nil, fmt.Errorf("%w: %w", transport.ErrClosed, err)
	}
	return rest, nil
}

func (r *rawIO) tryWrite(fd uintptr) bool {
	for len(r.parts) > 0 {
		n, err := r.vec.write(fd, r.parts[:min(len(r.parts), maxVector)])
		switch {
		case err == nil:
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN):
			return true
		default:
			r.writeErr = err
			return true
		}
		for len(r.parts) > 0 && n >= len(r.parts[0]) {
			n -= len(r.parts[0])
			r.parts = r.parts[1:]
		}
		if n > 0 { // a piece was cut: the socket is full
			r.parts[0] = r.parts[0][n:]
			return true
		}
	}
	return true
}
