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
	h      transport.Handler
	lim    transport.Limits // of Send
	split  command.Limits
	unsent *atomic.Int64 // of all peers together
	// Under link.mu.
	peers  int
	dialed *peer
}

func newOrigin(h transport.Handler, lim transport.Limits, unsent *atomic.Int64) *origin {
	lim = lim.WithDefaults()
	return &origin{h: h, lim: lim, split: command.Limits{Frame: lim.Frame, Header: lim.Header}, unsent: unsent}
}

// peer is the host's end of a peer that the plugin has. It implements
// [transport.Peer].
type peer struct {
	l   *link
	o   *origin
	num uint64 // the plugin's number
	opened

	s       transport.Session
	waiting atomic.Int64 // bytes sent and not yet on the data socket
	shut    atomic.Bool

	mu    sync.Mutex
	cause error // why it is closed, the first one
	tell  bool  // the next Send returns cause
	busy  bool  // the session is being called
	lost  bool  // the process is gone; who is busy tells the session

	// The job under way, of whoever made it busy.
	job    data.Kind
	body   *[]byte
	frames []command.Frame
	run    func() // p.work, made once
}

var _ transport.Peer = (*peer)(nil)

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
	p.l.out.send(p, out, n)
	return nil
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
	if first {
		p.l.out.put(kindClose, p.num, nil, true)
	}
	return first
}

// begin takes a job; false when there is one under way, which a plugin must wait
// for.
func (p *peer) begin(k data.Kind, body *[]byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy {
		return false
	}
	p.busy, p.job, p.body = true, k, body
	return true
}

// keepFrames is the longest list of frames that a peer keeps.
const keepFrames = 256

// work calls the session and tells the plugin when it has returned.
func (p *peer) work() {
	settle := false
	switch p.job {
	case kindOpened:
		p.s = p.o.h.Opened(p)
	case kindArrived:
		settle = p.arrived()
	case kindClosed:
		p.ended()
		p.l.out.put(kindTook, p.num, nil, true)
		return
	}
	p.mu.Lock()
	lost := p.lost
	p.busy = lost
	p.mu.Unlock()
	if settle {
		// It goes with the answers that the turn of the log brings.
		p.l.out.put(kindTook, p.num, nil, false)
		// Peers that have come with this one bring their frames first: one turn of
		// the log for all of them.
		runtime.Gosched()
		p.o.h.Settle()
		p.l.out.kick()
	} else {
		p.l.out.put(kindTook, p.num, nil, true)
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
	cause := p.cause
	p.mu.Unlock()
	if p.s != nil {
		p.s.Closed(cause)
	}
	p.l.forget(p)
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

// lose is called once, when the process is gone.
func (p *peer) lose(why error) {
	p.mu.Lock()
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
