package transportwire

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/transportwire/transportpb"
)

const (
	// moveTime bounds moving all peers, peerTime each of them: one that does not
	// read what it was sent would hold up the end of the old process.
	moveTime, peerTime = 20 * time.Second, 3 * time.Second
	// movesAtOnce is how many peers are on their way at the same time.
	movesAtOnce = 256
)

// count is how many peers the process has.
func (l *link) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.peers)
}

// untried are the peers that nobody has tried to move. One that has moved may still be
// among those of l for a moment.
func (l *link) untried() (all []*peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.peers {
		p.mu.Lock()
		if p.home.l == l && !p.tried && p.cause == nil {
			p.tried = true
			all = append(all, p)
		}
		p.mu.Unlock()
	}
	return all
}

// handOver moves listeners and peers from a process to the one that replaces it,
// when both can. What did not move is as it was.
func (t *remote) handOver(old, l *link) {
	if !old.moves || !l.moves {
		return
	}
	ctx, cancel := context.WithTimeout(t.ctx, moveTime)
	defer cancel()
	if err := t.introduce(ctx, old, l); err != nil {
		t.set.Logger.Warn("the process of a transport cannot hand over its connections; they are closed", "plugin", t.h.name, "error", err)
		return
	}
	for _, ln := range t.toMove() {
		if err := ln.handOver(ctx, old, l); err != nil {
			t.set.Logger.Warn("a listener did not move to the new process of a transport", "plugin", t.h.name, "address", ln.address, "error", err)
		}
	}
	var wg sync.WaitGroup
	var sum moves
	slots := make(chan struct{}, movesAtOnce)
	for peers := old.untried(); len(peers) > 0 && ctx.Err() == nil; peers = old.untried() {
		for _, p := range peers {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				sum.note(t.move(ctx, p, old, l))
			})
		}
		wg.Wait()
	}
	for range old.untried() {
		sum.note(context.Cause(ctx))
	}
	if sum.failed > 0 {
		t.set.Logger.Warn("connections did not move to the new process of a transport; they are closed, and their clients connect again",
			"plugin", t.h.name, "moved", sum.moved, "closed", sum.failed, "first_error", sum.first)
	}
}

// moves counts what became of peers that were to move.
type moves struct {
	mu            sync.Mutex
	moved, failed int
	first         error
}

// note counts one; a peer that was closed before it could move does not count.
func (m *moves) note(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err == nil:
		m.moved++
	case !errors.Is(err, transport.ErrClosed):
		if m.failed++; m.first == nil {
			m.first = err
		}
	}
}

// errListenerStays: the peers of a listener go where it goes.
var errListenerStays = errors.New("the listener that it came through did not move")

// introduce connects the two processes.
func (t *remote) introduce(ctx context.Context, old, l *link) error {
	dir, remove, err := wire.SocketDir()
	if err != nil {
		return err
	}
	defer remove()
	r, err := l.call.Receive(ctx, &transportpb.ReceiveRequest{Instance: l.id, SocketDir: dir})
	if err = l.failed(ctx, wire.FromRPC(ctx, err, r.GetFailure())); err != nil {
		return err
	}
	h, err := old.call.HandOver(ctx, &transportpb.HandOverRequest{Instance: old.id, Socket: r.GetSocket(), Nonce: r.GetNonce()})
	return old.failed(ctx, wire.FromRPC(ctx, err, h.GetFailure()))
}

// handOver moves the listening socket. When it fails, the address has to be served
// anew.
func (ln *listener) handOver(ctx context.Context, old, l *link) error {
	ticket := ln.t.last.Add(1)
	r, err := old.call.GiveListener(ctx, &transportpb.GiveListenerRequest{Instance: old.id, Listener: ln.num, Ticket: ticket})
	if err = old.failed(ctx, wire.FromRPC(ctx, err, r.GetFailure())); err != nil {
		return err
	}
	return ln.move(ctx, l, ticket)
}

// move moves a peer. Its session does not notice: what it sends meanwhile waits.
// ErrClosed: the peer had been closed.
func (t *remote) move(ctx context.Context, p *peer, old, l *link) error {
	ctx, cancel := context.WithTimeout(ctx, peerTime)
	defer cancel()
	p.mu.Lock()
	from := p.home
	p.mu.Unlock()
	into := l.originFor(from.o)
	if into == nil {
		return errListenerStays
	}
	ticket, taken := t.last.Add(1), t.last.Add(1)
	l.add(taken, &origin{moves: p, into: into})
	defer l.drop(taken)
	g, err := old.call.GivePeer(ctx, &transportpb.GivePeerRequest{Instance: old.id, Peer: from.num, Ticket: ticket, Mark: old.out.unseat(p, &old.marks)})
	if err = wire.FromRPC(ctx, err, g.GetFailure()); err != nil {
		p.stay(from) // or it is closed, which the old process says
		return err
	}
	r, err := l.call.TakePeer(ctx, &transportpb.TakePeerRequest{
		Instance: l.id, Ticket: ticket, Listener: into.listener, Limits: toLimits(into.lim), Taken: taken, Read: g.GetRead(),
	})
	if err = wire.FromRPC(ctx, err, r.GetFailure()); err != nil {
		p.lose(old, err) // nobody has the connection; not if it is there after all
	}
	return err
}

// originFor is where the peers of o belong in l.
func (l *link) originFor(o *origin) *origin {
	if o.listener == 0 {
		return newOrigin(o.h, o.lim, o.unsent)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.origins[o.listener]
}

// stay goes on at s, from where it was to move.
func (p *peer) stay(s *seat) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.home == s && !p.lost {
		s.l.out.seat(p, s)
	}
}
