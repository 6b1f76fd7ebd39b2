package remoting

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hardpointmq/hardpoint/core/transport"
)

// maxVector is the most pieces that the system takes in one write.
const maxVector = 1024

// socket is the connection of a peer that a loop reads. Its descriptor is not in
// Go's poller, which would wake up for everything that comes. It stays open
// until [peer.finish] closes it, so that a step needs no lock.
type socket struct {
	l  *loop
	fd int
	// turn says who may step the peer.
	turn atomic.Uint32
	// ending is set when the other end, or we, have closed: it is read until
	// the end is there.
	ending atomic.Bool
	// behind says that there is a backlog. It is set before the last attempt to
	// write, so that the news that there is room again is not missed.
	behind atomic.Bool

	reads int // of this round, beyond the first; the role's
	got   int // bytes of the last step; of who has the turn

	// Under the peer's wmu.
	closed bool
	iov    []unix.Iovec
}

// Values of socket.turn.
const (
	free uint32 = iota
	taken
	missed // taken, and there was news meanwhile
)

// take gets the turn, or leaves word for who has it.
func (s *socket) take() bool {
	return s.turn.CompareAndSwap(free, taken) || !s.turn.CompareAndSwap(taken, missed) && s.turn.CompareAndSwap(free, taken)
}

// leave gives the turn back; false when there was news.
func (s *socket) leave() bool {
	if s.turn.CompareAndSwap(taken, free) {
		return true
	}
	s.turn.Store(taken)
	return false
}

// adopt makes the connection a socket of a loop; false where it stays a stream.
func (p *peer) adopt() bool {
	t := p.g.t
	tc, ok := p.conn.(*net.TCPConn)
	if !ok || len(t.loops) == 0 {
		return false
	}
	rc, err := tc.SyscallConn()
	if err != nil {
		return false
	}
	fd := -1
	if rc.Control(func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) }) != nil || err != nil {
		return false
	}
	p.wmu.Lock()
	defer p.wmu.Unlock()
	if p.cause != nil {
		_ = unix.Close(fd)
		return false
	}
	p.sock = &socket{l: t.loops[uint64(t.adopted.Add(1))%uint64(len(t.loops))], fd: fd}
	_ = p.conn.Close() // the duplicate keeps the connection
	p.conn, p.stream = nil, nil
	return true
}

// watch begins to read.
func (s *socket) watch(p *peer) { s.l.add(p) }

// step reads once. more: it is to be stepped again soon. Only who has the turn.
func (p *peer) step() (more, arrived bool, err error) {
	if p.giving.Load() != nil {
		return false, false, errGiven
	}
	if p.hello.awaited {
		more, err = p.peek()
		return more, false, err
	}
	space := p.in.space()
	if space == nil {
		return false, false, errReadBytes
	}
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(p.sock.fd), uintptr(unsafe.Pointer(unsafe.SliceData(space))), uintptr(len(space)))
	p.sock.got = int(n)
	switch {
	case errno == 0 && n > 0:
		full := int(n) == len(space)
		if arrived, err = p.took(int(n)); err == nil && !full {
			p.in.park()
		}
		return full || p.sock.ending.Load(), arrived, err
	case errno == 0:
		return false, false, io.EOF
	case errno == unix.EINTR:
		return true, false, nil
	case errno == unix.EAGAIN:
		p.in.park()
		return false, false, nil
	default:
		return false, false, fmt.Errorf("reading from the peer: %w", errno)
	}
}

// peek looks at the first byte and leaves it there. Errors: errFirst when there is
// one, io.EOF.
func (p *peer) peek() (again bool, err error) {
	var b [1]byte
	switch n, _, err := unix.Recvfrom(p.sock.fd, b[:], unix.MSG_PEEK); {
	case err == nil && n == 1:
		p.hello.first = b[0]
		return false, errFirst
	case err == nil:
		return false, io.EOF
	case errors.Is(err, unix.EINTR):
		return true, nil
	case errors.Is(err, unix.EAGAIN):
		return false, nil
	default:
		return false, fmt.Errorf("reading from the peer: %w", err)
	}
}

// carryOn steps the peer outside of its loop until nothing is ready.
func (p *peer) carryOn(more, arrived bool, err error) {
	for {
		if arrived {
			p.h.Settle()
		}
		if err != nil {
			p.finish(err)
			return
		}
		if !more && p.sock.leave() {
			return
		}
		more, arrived, err = p.step()
	}
}

// write writes as much of parts as the socket takes at once and returns the
// rest. wmu is held, as for all that follows.
func (s *socket) write(parts [][]byte) (rest [][]byte, err error) {
	for len(parts) > 0 {
		n, errno := s.writeOnce(parts[:min(len(parts), maxVector)])
		switch errno {
		case 0:
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return parts, nil
		default:
			return nil, errno
		}
		for len(parts) > 0 && n >= len(parts[0]) {
			n -= len(parts[0])
			parts = parts[1:]
		}
		if n > 0 { // a piece was cut: the socket is full
			parts[0] = parts[0][n:]
			return parts, nil
		}
	}
	return nil, nil
}

func (s *socket) writeOnce(parts [][]byte) (int, syscall.Errno) {
	if len(parts) == 1 {
		n, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(s.fd), uintptr(unsafe.Pointer(unsafe.SliceData(parts[0]))), uintptr(len(parts[0])))
		return int(n), errno
	}
	iov := s.iov[:0]
	for _, part := range parts {
		e := unix.Iovec{Base: unsafe.SliceData(part)}
		e.SetLen(len(part))
		iov = append(iov, e)
	}
	n, _, errno := unix.RawSyscall(unix.SYS_WRITEV, uintptr(s.fd), uintptr(unsafe.Pointer(unsafe.SliceData(iov))), uintptr(len(iov)))
	clear(iov) // what is lent must not be kept
	if s.iov = iov[:0]; cap(iov) > keepParts {
		s.iov = nil
	}
	return int(n), errno
}

// goOnWriting is called by the loop when there is room for the backlog.
func (p *peer) goOnWriting() {
	p.wmu.Lock()
	defer p.wmu.Unlock()
	p.drainLocked()
}

// drainLocked writes the backlog as far as the socket takes it, or drops it when
// the peer is closed.
func (p *peer) drainLocked() {
	p.sock.behind.Store(true)
	for p.draining {
		if p.cause != nil && !p.lingering {
			p.out.drop(&p.g.t.pools, &p.g.total)
		}
		if len(p.out.bufs) == 0 {
			p.sock.behind.Store(false)
			p.draining = false
			p.writers.Done()
			return
		}
		buf := p.out.bufs[0]
		one := [1][]byte{buf.b[buf.from:buf.to]}
		rest, err := p.sock.write(one[:])
		if err != nil {
			p.failLocked(fmt.Errorf("writing to the peer: %w", err))
			continue
		}
		left := 0
		if len(rest) > 0 {
			left = len(rest[0])
		}
		wrote := buf.to - buf.from - left
		p.out.bytes -= wrote
		buf.from += wrote
		if left > 0 {
			if wrote > 0 {
				p.written.Add(1)
				continue // until it refuses: only then there will be news
			}
			return
		}
		p.written.Add(1)
		p.g.t.pools.put(p.out.take(), &p.g.total)
	}
}

// lingerSocket lets the backlog be written for a while, and reads no more.
func (p *peer) lingerSocket() {
	p.discard.Store(true)
	_ = unix.Shutdown(p.sock.fd, unix.SHUT_RD) // the loop sees the end
	time.AfterFunc(p.g.t.linger, func() { p.fail(transport.ErrClosed) })
}

// breakOff ends the connection for both sides; the loop sees it.
func (p *peer) breakOff() {
	if !p.sock.closed {
		_ = unix.Shutdown(p.sock.fd, unix.SHUT_RDWR)
	}
	p.drainLocked()
}

// close closes the descriptor.
func (s *socket) close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	s.l.remove(s.fd)
	return unix.Close(s.fd)
}

// detach gives the descriptor away.
func (s *socket) detach() *os.File {
	s.closed = true
	s.l.remove(s.fd)
	// The connection lives on, and would still be told to this loop.
	_ = unix.EpollCtl(s.l.ep, unix.EPOLL_CTL_DEL, s.fd, nil)
	return os.NewFile(uintptr(s.fd), "peer")
}

// giveSocket has a peer that a loop reads stepped, which gives it away.
func (p *peer) giveSocket() {
	if p.sock.take() {
		go p.carryOn(p.step())
	}
}
