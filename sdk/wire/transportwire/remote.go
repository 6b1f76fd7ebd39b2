package transportwire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/proxy"
	"github.com/hardpointmq/hardpoint/sdk/wire/transportwire/transportpb"
)

// remote is the host's proxy of a transport in a plugin process.
type remote struct {
	h      *host
	set    plugin.Settings
	raw    plugin.Raw
	facets []string

	life   *proxy.Life
	ctx    context.Context // ends with the transport
	cancel context.CancelFunc
	keeper sync.WaitGroup

	last  atomic.Uint64 // number of a listener or dial
	dials struct {
		sync.Mutex
		unsent map[transport.Limits]*atomic.Int64
	}

	mu        sync.Mutex
	cur       *link // nil while there is no process
	cause     error // why
	listeners []*listener
}

var (
	_ transport.Transport = (*remote)(nil)
	_ transport.Dialer    = (*remote)(nil)
	_ transport.Health    = (*remote)(nil)
)

func newRemote(h *host, p transport.Params, raw plugin.Raw, facets []string) *remote {
	t := &remote{h: h, set: p.Settings, raw: raw, facets: facets, life: proxy.NewLife(fmt.Sprintf("transport plugin %q", h.name))}
	t.dials.unsent = map[transport.Limits]*atomic.Int64{}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// Capabilities implements [transport.Transport].
func (t *remote) Capabilities() (c transport.Capabilities) {
	c.Health = t
	if slices.Contains(t.facets, transport.FacetDialer) {
		c.Dialer = t
	}
	return c
}

// Start implements [plugin.Component].
func (t *remote) Start(ctx context.Context) error {
	return t.life.Start(ctx, func(ctx context.Context, run func()) error {
		l, err := t.connect(ctx)
		if err != nil {
			return err
		}
		t.mu.Lock()
		t.cur = l
		t.mu.Unlock()
		run()
		t.keeper.Go(func() { t.keep(l) })
		return nil
	})
}

// Shutdown implements [plugin.Component]. When ctx ends first, the transport
// still shuts down, and a second Shutdown waits for it.
func (t *remote) Shutdown(ctx context.Context) error {
	return t.life.Shutdown(ctx, func() error { return t.shutdown(ctx) })
}

func (t *remote) shutdown(ctx context.Context) error {
	t.cancel()
	t.keeper.Wait()
	t.mu.Lock()
	l := t.cur
	t.cur, t.cause, t.listeners = nil, transport.ErrNotRunning, nil
	t.mu.Unlock()
	if l == nil {
		return nil
	}
	return t.stop(ctx, l)
}

// stop ends an instance in an orderly way, for as long as ctx and a last moment
// allow.
func (t *remote) stop(ctx context.Context, l *link) error {
	l.ending.Store(true)
	call, done := proxy.WithLastMoment(ctx, t.set.Clock, proxy.StopLimit(l.proc))
	defer done()
	var err error
	select {
	case <-l.over:
	default:
		r, rpc := l.call.Shutdown(call, &transportpb.ShutdownRequest{Instance: l.id, Mark: l.mark()})
		err = proxy.NotWaited(call, l.proc, t.set.Logger, t.h.name, wire.FromRPC(call, rpc, r.GetFailure()))
	}
	l.cut()
	l.join()
	return err
}

var errTLS = errors.New("a tls.Config does not cross to the process of a transport; give none, and name certificate and key files in the plugin's own configuration (plugins.transport.NAME)")

// current is the link for a call, or why there is none.
func (t *remote) current() (*link, error) {
	if !t.life.Running() {
		return nil, transport.ErrNotRunning
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cur == nil {
		return nil, t.cause
	}
	return t.cur, nil
}

// Serve implements [transport.Transport].
func (t *remote) Serve(ctx context.Context, l transport.Listen, s transport.Services) (transport.Listener, error) {
	fail := func(err error) error {
		return fmt.Errorf("transport %s cannot serve %q: %w", t.h.name, l.Address, err)
	}
	switch {
	case s.Frames == nil:
		return nil, fail(errors.New("in a process of its own it moves frames: Services.Frames must be set"))
	case l.TLS != nil:
		return nil, fail(errTLS)
	}
	link, err := t.current()
	if err != nil {
		return nil, fail(err)
	}
	ln := &listener{t: t, num: t.last.Add(1), address: l.Address, lim: l.Limits, h: s.Frames}
	if ln.address, err = ln.serve(ctx, link, 0); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.life.Running() {
		return nil, fail(transport.ErrNotRunning) // the link ends, and the listener with it
	}
	if t.cur != link {
		go func() { _ = link.closeListener(ln.num) }()
		return nil, fail(fmt.Errorf("%w: its process ended or was replaced meanwhile; try again", plugin.ErrUnavailable))
	}
	t.listeners = append(t.listeners, ln)
	return ln, nil
}

// Serving implements [transport.Health].
func (t *remote) Serving() error {
	if !t.life.Running() {
		return transport.ErrNotRunning
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, ln := range t.listeners {
		switch {
		case !ln.away:
		case t.cur == nil:
			err := fmt.Errorf("transport %s does not serve %s: %w", t.h.name, ln.address, t.cause)
			if !errors.Is(err, plugin.ErrUnavailable) {
				err = fmt.Errorf("%w: %w", plugin.ErrUnavailable, err)
			}
			return err
		default:
			return fmt.Errorf("%w: the process of transport %s runs again and does not serve %s yet", plugin.ErrUnavailable, t.h.name, ln.address)
		}
	}
	return nil
}

// Dial implements [transport.Dialer].
func (t *remote) Dial(ctx context.Context, address string, lim transport.Limits, conf *tls.Config, h transport.Handler) (transport.Peer, error) {
	fail := func(err error) error {
		return fmt.Errorf("transport %s cannot connect to %q: %w", t.h.name, address, err)
	}
	if conf != nil {
		return nil, fail(errTLS)
	}
	l, err := t.current()
	if err != nil {
		return nil, fail(err)
	}
	num, o := t.last.Add(1), newOrigin(h, lim, t.dialBudget(lim))
	l.add(num, o)
	r, err := l.call.Dial(ctx, &transportpb.DialRequest{Instance: l.id, Dial: num, Address: address, Limits: toLimits(lim)})
	l.drop(num)
	err = l.failed(ctx, wire.FromRPC(ctx, err, r.GetFailure()))
	l.mu.Lock()
	p := o.dialed
	l.mu.Unlock()
	if err == nil && p == nil {
		err = fmt.Errorf("%w: the plugin connected, but opened no peer; this is a fault of the plugin", plugin.ErrUnavailable)
	}
	if err != nil {
		if p != nil {
			_ = p.Close()
		}
		if r.GetFailure() != nil { // has the address
			return nil, err
		}
		return nil, fail(err)
	}
	// Opened has returned, the plugin waited for it; what it wrote is seen by who
	// takes the lock that it was followed by.
	p.mu.Lock()
	defer p.mu.Unlock()
	return p, nil
}

// dialBudget counts for all dialled peers with the same limits.
func (t *remote) dialBudget(lim transport.Limits) *atomic.Int64 {
	lim = lim.WithDefaults()
	t.dials.Lock()
	defer t.dials.Unlock()
	b := t.dials.unsent[lim]
	if b == nil {
		b = new(atomic.Int64)
		t.dials.unsent[lim] = b
	}
	return b
}

const (
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 10 * time.Second
)

// sleep is proxy.Pause until the transport ends.
func (t *remote) sleep(d time.Duration, over, retired <-chan struct{}) bool {
	return proxy.Pause(t.ctx, t.set.Clock, d, over, retired)
}

// keep has a process there for as long as the transport lives.
func (t *remote) keep(l *link) {
	wait, since := time.Duration(0), t.set.Clock.Now()
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-l.over:
			// The launcher has waits of its own between processes that die; this one is
			// for those that live and are of no use.
			if t.set.Clock.Now().Sub(since) > lastBackoff {
				wait = 0
			}
			if l, wait = t.restart(l, wait); l == nil {
				return
			}
			since = t.set.Clock.Now()
		case <-l.proc.Retired():
			l = t.replace(l)
		}
	}
}

// longer is the wait after one that was in vain.
func longer(wait time.Duration) time.Duration { return min(max(2*wait, firstBackoff), lastBackoff) }

// restart follows the end of a process; the link is nil when the transport ended.
func (t *remote) restart(old *link, wait time.Duration) (*link, time.Duration) {
	t.mu.Lock()
	t.cur, t.cause = nil, old.why
	for _, ln := range t.listeners {
		ln.away = true
	}
	t.mu.Unlock()
	t.set.Logger.Error("the process of a transport is gone: its peers are closed, it is started again", "plugin", t.h.name, "error", old.why)
	old.cut()
	t.keeper.Go(old.join) // a session may be busy for long
	for {
		if wait > 0 && !t.sleep(wait, nil, nil) {
			return nil, 0
		}
		wait = longer(wait)
		l, err := t.connect(t.ctx)
		if err == nil {
			t.set.Logger.Info("the process of a transport runs again", "plugin", t.h.name)
			t.adopt(l)
			t.serveAgain(l)
			return l, wait
		}
		if t.ctx.Err() != nil {
			return nil, 0
		}
		t.mu.Lock()
		t.cause = err
		t.mu.Unlock()
		t.set.Logger.Warn("the process of a transport does not start", "plugin", t.h.name, "retry_in", wait, "error", err)
	}
}

// adopt makes l the link of new calls. Listeners that are there have to be moved.
func (t *remote) adopt(l *link) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cur, t.cause = l, nil
	for _, ln := range t.listeners {
		ln.moved = true
	}
}

// toMove are the listeners that still have to be.
func (t *remote) toMove() (all []*listener) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, ln := range t.listeners {
		if ln.moved {
			all = append(all, ln)
		}
	}
	return all
}

// serveAgain makes all listeners serve in l. It returns when they do, when l is
// of no use any more or replaced, or when the transport ended.
func (t *remote) serveAgain(l *link) {
	for wait := time.Millisecond; ; wait = min(2*wait, lastBackoff) {
		for _, ln := range t.toMove() {
			ctx, cancel := context.WithTimeout(t.ctx, proxy.LastMoment)
			err := ln.move(ctx, l, 0)
			cancel()
			if err != nil && wait > firstBackoff && t.ctx.Err() == nil {
				t.set.Logger.Warn("a listener cannot serve its address again", "plugin", t.h.name, "address", ln.address, "retry_in", wait, "error", err)
			}
		}
		if len(t.toMove()) == 0 || !t.sleep(wait, l.over, l.proc.Retired()) {
			return
		}
	}
}

// lastAnswers is how long a process that is replaced may send answers to peers that
// did not move.
const lastAnswers = 250 * time.Millisecond

// replace moves to the process that took the place of l's. It returns the link to
// go on with.
func (t *remote) replace(old *link) *link {
	var l *link
	for wait := firstBackoff; l == nil; wait = longer(wait) {
		var err error
		if l, err = t.connect(t.ctx); err != nil {
			t.set.Logger.Warn("the new process of a transport cannot be used; the old one goes on", "plugin", t.h.name, "retry_in", wait, "error", err)
			if !t.sleep(wait, old.over, nil) {
				return old
			}
		}
	}
	t.adopt(l)
	t.handOver(old, l)
	ctx, cancel := context.WithCancel(t.ctx)
	var drains sync.WaitGroup
	for _, ln := range t.toMove() {
		drains.Go(func() {
			_, _ = old.call.Drain(ctx, &transportpb.DrainRequest{Instance: old.id, Listener: ln.num, Mark: old.mark()})
		})
	}
	t.serveAgain(l)
	if old.count() > 0 {
		_ = t.sleep(lastAnswers, old.over, nil)
	}
	cancel()
	drains.Wait()
	ctx, cancel = context.WithTimeout(context.WithoutCancel(t.ctx), proxy.LastTime(old.proc))
	defer cancel()
	if err := t.stop(ctx, old); err != nil {
		t.set.Logger.Warn("the old process of a transport did not stop as it should", "plugin", t.h.name, "error", err)
	}
	t.set.Logger.Info("the process of a transport is replaced", "plugin", t.h.name)
	return l
}
