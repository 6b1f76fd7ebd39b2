package inproc

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/transport"
)

const (
	// window is how many bytes are cut into frames at once, and delivered
	// before a Settle although more have come.
	window = 256 << 10
	// keepBuffer is the largest buffer, keepFrames the largest list of frames
	// that an end keeps while it has nothing to do.
	keepBuffer = 256 << 10
	keepFrames = 1024
)

// budget counts what the peers of a listener have sent and nobody took yet.
type budget struct {
	lim  transport.Limits
	used atomic.Int64
}

// end is one end of a connection. It implements [transport.Peer].
type end struct {
	t      *Transport
	h      transport.Handler
	s      transport.Session
	other  *end
	budget *budget // of what this end sends
	gone   func()  // called after Closed

	id            string
	local, remote netip.AddrPort
	discard       atomic.Bool
	closed        atomic.Bool // for the sender; cause says why

	mu    sync.Mutex
	ready sync.Cond
	in    []byte // sent by other, not taken yet
	eof   bool   // other is closed
	cause error  // why this end is closed

	// The goroutine's.
	taken  []byte
	frames []command.Frame
}

// ID implements [transport.Peer].
func (e *end) ID() string { return e.id }

// Remote implements [transport.Peer].
func (e *end) Remote() netip.AddrPort { return e.remote }

// Local implements [transport.Peer].
func (e *end) Local() netip.AddrPort { return e.local }

// Identity implements [transport.Peer].
func (e *end) Identity() transport.Identity { return transport.Identity{} }

// Send implements [transport.Peer].
func (e *end) Send(out ...command.Frame) error {
	if e.closed.Load() {
		return transport.ErrClosed
	}
	n := 0
	for i := range out {
		n += out[i].Len()
	}
	if n == 0 {
		return nil
	}
	err := e.push(out, n)
	if errors.Is(err, transport.ErrSlow) {
		e.t.slow.Add(1)
		e.close(err)
	}
	if err == nil {
		e.t.bytesSent.Add(uint64(n))
		e.t.framesSent.Add(uint64(len(out)))
	}
	return err
}

func (e *end) push(out []command.Frame, n int) error {
	to, lim := e.other, &e.budget.lim
	to.mu.Lock()
	defer to.mu.Unlock()
	if to.eof || to.cause != nil {
		return transport.ErrClosed
	}
	if len(to.in) > 0 && len(to.in)+n > lim.PeerBytes {
		return fmt.Errorf("%w: %d bytes wait for it and %d more came, limit %d", transport.ErrSlow, len(to.in), n, lim.PeerBytes)
	}
	if e.budget.used.Add(int64(n)) > lim.TotalBytes {
		e.budget.used.Add(-int64(n))
		return fmt.Errorf("%w: what waits for all peers together has reached %d bytes", transport.ErrSlow, lim.TotalBytes)
	}
	for i := range out {
		to.in = out[i].Append(to.in)
	}
	to.ready.Signal()
	return nil
}

// Close implements [transport.Peer]. The other end still gets what was sent
// before.
func (e *end) Close() error {
	e.close(transport.ErrClosed)
	return nil
}

func (e *end) close(cause error) {
	e.closed.Store(true)
	e.mu.Lock()
	if e.cause == nil {
		e.cause = cause
	}
	e.ready.Signal()
	e.mu.Unlock()
	o := e.other
	o.mu.Lock()
	o.eof = true
	o.ready.Signal()
	o.mu.Unlock()
}

// run delivers what arrives until an end is closed.
func (e *end) run() {
	err := e.deliver()
	e.close(err)
	e.mu.Lock()
	cause := e.cause
	e.other.budget.used.Add(-int64(len(e.in)))
	e.in, e.taken = nil, nil
	e.mu.Unlock()
	if errors.Is(cause, transport.ErrLimit) || errors.Is(cause, command.ErrHeader) {
		e.t.limit.Add(1)
	}
	e.s.Closed(cause)
	e.gone()
}

func (e *end) deliver() error {
	for {
		if err := e.take(); err != nil {
			return err
		}
		rest := e.taken
		for len(rest) > 0 && !e.discard.Load() && !e.closed.Load() {
			used, err := e.cut(rest)
			if err != nil {
				return err
			}
			rest = rest[used:]
		}
	}
}

// take waits for bytes and exchanges the buffers.
func (e *end) take() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	spare := e.taken[:0]
	if cap(spare) > keepBuffer && len(e.in) == 0 {
		spare = nil
	}
	for len(e.in) == 0 && !e.eof && e.cause == nil {
		e.ready.Wait()
	}
	switch {
	case e.cause != nil:
		return e.cause
	case len(e.in) == 0:
		return io.EOF
	}
	e.other.budget.used.Add(-int64(len(e.in)))
	e.taken, e.in = e.in, spare
	return nil
}

// cut hands the next frames of b to the session and returns their length.
func (e *end) cut(b []byte) (int, error) {
	lim := command.Limits{Frame: e.budget.lim.Frame, Header: e.budget.lim.Header}
	piece := b[:min(len(b), window)]
	frames, used, want, err := command.Split(piece, e.frames[:0], lim)
	if err == nil && used == 0 && want <= len(b) && want > len(piece) {
		frames, used, want, err = command.Split(b[:want], frames, lim)
	}
	if len(frames) > 0 {
		e.s.Arrived(frames)
		e.h.Settle()
	}
	clear(frames) // they must not keep the buffer
	if e.frames = frames[:0]; cap(frames) > keepFrames {
		e.frames = nil
	}
	switch {
	case errors.Is(err, command.ErrFrameTooLarge):
		return used, fmt.Errorf("%w: %w", transport.ErrLimit, err)
	case err == nil && used == 0:
		return 0, fmt.Errorf("%w: %d bytes were sent that are no whole frame, which would have %d", command.ErrHeader, len(b), want)
	}
	return used, err
}
