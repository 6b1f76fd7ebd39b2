package transportwire

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/transportwire/transportpb"
)

// listener outlives the process that serves it. It implements
// [transport.Listener].
type listener struct {
	t       *remote
	num     uint64
	address string // the real one once it serves
	lim     transport.Limits
	h       transport.Handler

	// Under t.mu. moved: it has to serve in another link; away: it serves in none.
	moved, away bool

	// Of moving, which asks the process, and of what follows. Who ends the listener waits
	// for it, proxy.LastMoment at most: otherwise it might serve in a process that nobody
	// closes it in.
	mu      sync.Mutex
	at, was place // where it serves, and where it did before
	ending  bool  // closed or drained: it serves nowhere any more
}

// place is a listener in one process.
type place struct {
	*link
	o *origin
}

var _ transport.Listener = (*listener)(nil)

// Address implements [transport.Listener].
func (ln *listener) Address() string { return ln.address }

// serve listens in l; it gives the real address. A ticket is that of the socket
// that l was given for it.
func (ln *listener) serve(ctx context.Context, l *link, ticket uint64) (string, error) {
	o := newOrigin(ln.h, ln.lim, new(atomic.Int64))
	o.listener = ln.num
	if ln.at.o != nil && ticket != 0 {
		o.unsent = ln.at.o.unsent // its peers come, too
	}
	l.add(ln.num, o)
	r, err := l.call.Serve(ctx, &transportpb.ServeRequest{Instance: l.id, Listener: ln.num, Address: ln.address, Limits: toLimits(ln.lim), Ticket: ticket})
	if err = l.failed(ctx, wire.FromRPC(ctx, err, r.GetFailure())); err != nil {
		l.drop(ln.num)
		if ctx.Err() != nil { // it may serve, for nobody
			go func() { _ = l.closeListener(ln.num) }()
		}
		if r.GetFailure() == nil { // otherwise the plugin has named the address
			err = fmt.Errorf("transport %s cannot serve %q: %w", ln.t.h.name, ln.address, err)
		}
		return "", err
	}
	ln.was, ln.at = ln.at, place{l, o}
	return r.GetAddress(), nil
}

// move makes it serve in l, unless it has been closed. A ticket is that of
// the socket that l was given.
func (ln *listener) move(ctx context.Context, l *link, ticket uint64) error {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if !ln.ending {
		if _, err := ln.serve(ctx, l, ticket); err != nil {
			return err
		}
	}
	ln.t.mu.Lock()
	defer ln.t.mu.Unlock()
	ln.moved, ln.away = false, false
	return nil
}

// end makes it serve nowhere any more, and gives where it does.
func (ln *listener) end() (places []place) {
	t := ln.t
	ln.mu.Lock()
	ln.ending = true
	for _, p := range []place{ln.was, ln.at} {
		if p.link != nil {
			places = append(places, p)
		}
	}
	ln.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, one := range t.listeners {
		if one == ln {
			t.listeners = append(t.listeners[:i], t.listeners[i+1:]...)
			break
		}
	}
	return places
}

// Drain implements [transport.Listener]. Peers of a process that is gone are
// closed.
func (ln *listener) Drain(ctx context.Context) (err error) {
	for _, p := range ln.end() {
		r, rpc := p.call.Drain(ctx, &transportpb.DrainRequest{Instance: p.id, Listener: ln.num, Mark: p.mark()})
		one := wire.FromRPC(ctx, rpc, r.GetFailure())
		if one == nil || errors.Is(one, plugin.ErrUnavailable) {
			if one = p.wait(ctx, p.o); one != nil {
				one = fmt.Errorf("draining %s: sessions of its peers are still busy: %w", ln.address, one)
			}
		}
		err = errors.Join(err, one)
	}
	return err
}

// Close implements [transport.Listener].
func (ln *listener) Close() (err error) {
	for _, p := range ln.end() {
		err = errors.Join(err, p.closeListener(ln.num))
		_ = p.wait(context.Background(), p.o) // as long as their sessions take
		p.drop(ln.num)
	}
	return err
}

// closeListener closes one in the process, if it is there.
func (l *link) closeListener(num uint64) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-l.over:
			cancel()
		case <-ctx.Done():
		}
	}()
	r, err := l.call.CloseListener(ctx, &transportpb.CloseListenerRequest{Instance: l.id, Listener: num, Mark: l.mark()})
	err = wire.FromRPC(ctx, err, r.GetFailure())
	if ctx.Err() != nil || errors.Is(err, plugin.ErrUnavailable) || errors.Is(err, transport.ErrNotRunning) {
		return nil // the process is gone, or the instance is
	}
	return err
}
