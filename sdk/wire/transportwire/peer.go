package transportwire

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
)

// origin is what brings peers: a listener or a dial, in one process.
type origin struct {
	listener uint64 // its number; 0: a dial
	h        transport.Handler
	lim      transport.Limits // of Send
	split    command.Limits
	unsent   *atomic.Int64 // of all peers together
	moves    *peer         // it brings this one, from another process, to where into counts it
	into     *origin
	// Under link.mu.
	peers  int
	dialed *peer
}

func newOrigin(h transport.Handler, lim transport.Limits, unsent *atomic.Int64) *origin {
	lim = lim.WithDefaults()
	return &origin{h: h, lim: lim, split: command.Limits{Frame: lim.Frame, Header: lim.Header}, unsent: unsent}
}

// seat is a peer's place in a process.
type seat struct {
	l   *link
	num uint64 // the plugin's number
	o   *origin
}

// peer is the host's end of a peer that the plugin has. It implements
// [transport.Peer].
type peer struct {
	o *origin // its first one, for its limits
	// at is where it is sent to; nil while it moves to another process. It is
	// changed with the lock of the outbox there is, so that order is kept.
	at atomic.Pointer[seat]
	opened

	s       transport.Session
	waiting atomic.Int64 // bytes sent and not yet on the data socket
	shut    atomic.Bool

	mu    sync.Mutex
	cause error // why it is closed, the first one
	tell  bool  // the next Send returns cause
	busy  bool  // the session is being called
	lost  bool  // the process is gone; who is busy tells the session
	home  *seat // the last one; counts it
	held  [][]byte
	tried bool // to move it

	// The job under way, of whoever made it busy.
	from   *seat
	job    data.Kind
	body   *[]byte
	frames []command.Frame
	run    func() // p.work, made once
}

var _ transport.Peer = (*peer)(nil)

func newPeer(s *seat, o *origin, what opened) *peer {
	p := &peer{o: o, opened: what, home: s}
	p.at.Store(s)
	p.run = p.work
	return p
}

// ID implements [transport.Peer].
func (p *peer) ID() string { return p.id }

// Remote implements [transport.Peer].
func (p *peer) Remote() netip.AddrPort { return p.remote }

// Local implements [transport.Peer].
func (p *peer) Local() netip.AddrPort { return p.local }

// Identity implements [transport.Peer].
func (p *peer) Identity() transport.Identity { return p.who }

func (p *peer) unsent(n int) {
	p.waiting.Add(int64(n))
	p.o.unsent.Add(int64(n))
}

// Send implements [transport.Peer].
func (p *peer) Send(out ...command.Frame) error {
	if p.shut.Load() {
		return p.refusal()
	}
	n := 0
	for i := range out {
		n += out[i].Len()
	}
	if n == 0 {
		return nil
	}
	p.unsent(n)
	// What is sent now does not count: only the process knows what the peer's own
	// connection takes of it.
	if w := p.waiting.Load() - int64(n); w > int64(p.o.lim.PeerBytes) {
		return p.slow(n, fmt.Errorf("%w: %d bytes wait for its process, limit %d", transport.ErrSlow, w, p.o.lim.PeerBytes))
	}
	if w := p.o.unsent.Load() - int64(n); w > p.o.lim.TotalBytes {
		return p.slow(n, fmt.Errorf("%w: %d bytes wait for the process for all peers together, limit %d", transport.ErrSlow, w, p.o.lim.TotalBytes))
	}
	if n > data.MaxFrame {
		return p.slow(n, fmt.Errorf("%w: %d bytes at once, at most %d cross to the process of a transport", transport.ErrSlow, n, data.MaxFrame))
	}
	for {
		if s := p.at.Load(); s != nil {
			if s.l.out.send(p, s, out, n) {
				return nil
			}
		} else if p.hold(out) {
			return nil
		}
	}
}

// hold keeps what is sent while the peer moves; false when it does not any more.
func (p *peer) hold(out []command.Frame) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at.Load() != nil {
		return false
	}
	var b []byte
	for i := range out {
		b = out[i].Append(b)
	}
	p.held = append(p.held, b)
	return true
}

func (p *peer) slow(n int, err error) error {
	p.unsent(-n)
	if !p.close(err) {
		return transport.ErrClosed
	}
	return err
}

// refusal is the error of Send to a closed peer.
func (p *peer) refusal() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tell {
		p.tell = false
		return p.cause
	}
	if p.lost {
		return fmt.Errorf("%w: %w", transport.ErrClosed, p.cause)
	}
	return transport.ErrClosed
}

// Close implements [transport.Peer]. What was sent before goes out first.
func (p *peer) Close() error {
	p.close(transport.ErrClosed)
	return nil
}

// close is true for who closes it.
func (p *peer) close(cause error) bool {
	p.mu.Lock()
	first := p.cause == nil
	if first {
		p.cause = cause
	}
	p.mu.Unlock()
	p.shut.Store(true)
	if s := p.at.Load(); first && s != nil { // where it moves to is told when it is there
		s.l.out.put(kindClose, s.num, nil, true)
	}
	return first
}

// begin takes a job of the process of l; false when there is one under way, which a
// plugin must wait for, or when the process has given the peer away.
func (p *peer) begin(l *link, k data.Kind, body *[]byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy || p.home.l != l {
		return false
	}
	p.busy, p.from, p.job, p.body = true, p.home, k, body
	return true
}

// keepFrames is the longest list of frames that a peer keeps.
const keepFrames = 256

// work calls the session and tells the plugin when it has returned.
func (p *peer) work() {
	settle, l, num := false, p.from.l, p.from.num
	switch p.job {
	case kindOpened:
		p.s = p.o.h.Opened(p)
	case kindArrived:
		settle = p.arrived()
	case kindClosed:
		p.ended()
		l.out.put(kindTook, num, nil, true)
		return
	}
	p.mu.Lock()
	lost := p.lost
	p.busy = lost
	p.mu.Unlock()
	if settle {
		// It goes with the answers that the turn of the log brings.
		l.out.put(kindTook, num, nil, false)
		// Peers that have come with this one bring their frames first: one turn of
		// the log for all of them.
		runtime.Gosched()
		p.o.h.Settle()
		l.out.kick()
	} else {
		l.out.put(kindTook, num, nil, true)
	}
	if lost {
		p.ended()
	}
}

// arrived hands over what one read of the plugin yielded.
func (p *peer) arrived() bool {
	frames, used, _, err := command.Split(*p.body, p.frames[:0], p.o.split)
	if err == nil && used != len(*p.body) {
		err = fmt.Errorf("%w: %d bytes that are no whole frame", data.ErrFrame, len(*p.body)-used)
	}
	if len(frames) > 0 {
		p.s.Arrived(frames)
	}
	data.GiveBuffer(p.body)
	p.body = nil
	clear(frames) // they must not keep the buffer
	if p.frames = frames[:0]; cap(frames) > keepFrames {
		p.frames = nil
	}
	if errors.Is(err, command.ErrFrameTooLarge) {
		err = fmt.Errorf("%w: %w", transport.ErrLimit, err)
	}
	if err != nil {
		p.close(err)
	}
	return len(frames) > 0
}

// ended tells the session that there is no peer any more.
func (p *peer) ended() {
	p.mu.Lock()
	cause, home := p.cause, p.home
	p.mu.Unlock()
	if p.s != nil {
		p.s.Closed(cause)
	}
	home.l.forget(home)
}

// closing reports whether the process of l was told to close it, and has not.
func (p *peer) closing(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cause != nil && !p.busy && p.home.l == l && p.at.Load() != nil
}

// closed notes why the plugin says it is closed.
func (p *peer) closed(why error) {
	p.mu.Lock()
	if p.cause == nil {
		p.cause, p.tell = why, errors.Is(why, transport.ErrSlow)
	}
	p.mu.Unlock()
	p.shut.Store(true)
}

// lose is called when the process of l is gone, or the connection was lost there.
func (p *peer) lose(l *link, why error) {
	p.mu.Lock()
	if p.lost || p.home.l != l {
		p.mu.Unlock()
		return
	}
	if p.cause == nil {
		p.cause = why
	}
	p.lost = true
	mine := !p.busy
	p.busy = true
	p.mu.Unlock()
	p.shut.Store(true)
	if mine {
		go p.ended()
	}
}
