package transporttest

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/transport"
)

// Peer is a double of [transport.Peer] that keeps what it is sent. It is safe
// for concurrent use.
type Peer struct {
	// Who is returned by Identity; set it before use.
	Who transport.Identity

	id            string
	remote, local netip.AddrPort
	done          chan struct{}

	mu      sync.Mutex
	frames  []command.Frame
	sends   int
	refusal error
	changed chan struct{} // closed and renewed at each Send
	closed  bool
}

// peerSeq makes ids unique, which is all that doubles share.
var peerSeq atomic.Int64

// NewPeer makes a peer. remote may be the zero value: then it is 192.0.2.1 with
// a port of its own.
func NewPeer(remote netip.AddrPort) *Peer {
	n := peerSeq.Add(1)
	if !remote.IsValid() {
		remote = netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, 1}), uint16(1024+n%60000))
	}
	return &Peer{
		id:      fmt.Sprintf("transporttest-%d", n),
		remote:  remote,
		local:   netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, 2}), 10911),
		done:    make(chan struct{}),
		changed: make(chan struct{}),
	}
}

// ID implements [transport.Peer].
func (p *Peer) ID() string { return p.id }

// Remote implements [transport.Peer].
func (p *Peer) Remote() netip.AddrPort { return p.remote }

// Local implements [transport.Peer].
func (p *Peer) Local() netip.AddrPort { return p.local }

// Identity implements [transport.Peer].
func (p *Peer) Identity() transport.Identity { return p.Who }

// Send implements [transport.Peer]: it copies the frames and keeps them as a
// receiver would see them, cut by [command.Split]. Bytes that are no whole
// frames are an error of the caller and come back as such.
func (p *Peer) Send(out ...command.Frame) error {
	var wire []byte
	for i := range out {
		wire = out[i].Append(wire)
	}
	got, used, want, err := command.Split(wire, nil, command.DefaultLimits())
	if err == nil && used != len(wire) {
		err = fmt.Errorf("transporttest: %d bytes are sent after the last whole frame, the frame there wants %d", len(wire)-used, want)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return transport.ErrClosed
	case p.refusal != nil:
		err := p.refusal
		p.close()
		return err
	case err != nil:
		return err
	}
	p.sends++
	p.frames = append(p.frames, got...)
	close(p.changed)
	p.changed = make(chan struct{})
	return nil
}

// Close implements [transport.Peer].
func (p *Peer) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.close()
	return nil
}

func (p *Peer) close() {
	if !p.closed {
		p.closed = true
		close(p.done)
		close(p.changed)
	}
}

// Refuse makes the next Send fail with err and close the peer, as a real peer
// does with [transport.ErrSlow].
func (p *Peer) Refuse(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusal = err
}

// Done is closed when the peer is.
func (p *Peer) Done() <-chan struct{} { return p.done }

// Sends counts the calls of Send that succeeded.
func (p *Peer) Sends() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sends
}

// Take returns the frames that were sent since the last Take. They belong to
// the caller.
func (p *Peer) Take() []command.Frame {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.frames
	p.frames = nil
	return f
}

// Wait waits until at least n frames are there and takes all of them. It ends
// with ErrClosed when the peer is closed before, with ctx's error when ctx ends.
func (p *Peer) Wait(ctx context.Context, n int) ([]command.Frame, error) {
	for {
		p.mu.Lock()
		have, closed, changed := len(p.frames), p.closed, p.changed
		p.mu.Unlock()
		if have >= n {
			return p.Take(), nil
		}
		if closed {
			return nil, fmt.Errorf("waiting for %d frames, %d are there: %w", n, have, transport.ErrClosed)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for %d frames, %d are there: %w", n, have, context.Cause(ctx))
		}
	}
}

// Link plays a transport's reader for one [Peer]: what is fed to it arrives at
// the session that the handler made.
type Link struct {
	Peer    *Peer
	Session transport.Session

	mu     sync.Mutex
	h      transport.Handler
	rest   []byte
	closed bool
}

// Open connects p to h. p may be nil: then a new one is made.
func Open(h transport.Handler, p *Peer) *Link {
	if p == nil {
		p = NewPeer(netip.AddrPort{})
	}
	return &Link{Peer: p, Session: h.Opened(p), h: h}
}

// Feed delivers wire bytes as one read does: Arrived with the whole frames, if
// there are any, then Settle. Bytes of an incomplete frame wait for the next
// Feed. The lent bytes are overwritten when Arrived has returned, so that who
// keeps them is found out. An error of [command.Split] closes the link.
func (l *Link) Feed(wire ...[]byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return transport.ErrClosed
	}
	buf := append(bytes.Clone(l.rest), bytes.Join(wire, nil)...)
	frames, used, _, err := command.Split(buf, nil, command.DefaultLimits())
	l.rest = bytes.Clone(buf[used:])
	if len(frames) > 0 {
		l.Session.Arrived(frames)
		for i := range buf {
			buf[i] = 0xDD
		}
		clear(frames)
		l.h.Settle()
	}
	if err != nil {
		l.end(err)
	}
	return err
}

// FeedFrames is Feed for frames that are not encoded yet.
func (l *Link) FeedFrames(out ...command.Frame) error {
	var wire []byte
	for i := range out {
		wire = out[i].Append(wire)
	}
	return l.Feed(wire)
}

// Close closes the peer and tells the session why. Only the first call counts.
func (l *Link) Close(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end(err)
}

func (l *Link) end(err error) {
	if !l.closed {
		l.closed = true
		_ = l.Peer.Close()
		l.Session.Closed(err)
	}
}
