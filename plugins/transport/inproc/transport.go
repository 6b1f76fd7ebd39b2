package inproc

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"sync"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/transport"
)

// Name selects this transport in a configuration.
const Name = "inproc"

// Config has no fields.
type Config struct{}

// NewDefaultConfig returns the defaults.
func NewDefaultConfig() Config { return Config{} }

// NewFactory declares the plugin.
func NewFactory() transport.Factory {
	return transport.NewFactory(Name, func(Config) plugin.Description {
		return plugin.Description{Version: "1", Facets: []string{transport.FacetDialer}}
	}, NewDefaultConfig, New)
}

// Transport connects peers of this process by the names of its listeners. It
// implements [transport.Transport] and [transport.Dialer].
type Transport struct {
	set plugin.Settings
	id  string // begins the ids of the peers

	// Instruments.
	opened, refused, slow, limit plugin.Counter
	framesSent, bytesSent        plugin.Counter

	wg sync.WaitGroup // of dialled ends

	mu        sync.Mutex
	running   bool
	seq       int64
	listeners map[string]*listener
	dialled   map[*end]struct{}
}

// New makes a transport.
func New(_ context.Context, p transport.Params, _ Config) (*Transport, error) {
	set := p.WithDefaults()
	if set.Name == "" {
		set.Name = Name
	}
	var salt [4]byte
	_, _ = rand.Read(salt[:]) // never fails
	t := &Transport{
		set:       set,
		id:        set.Name + "-" + hex.EncodeToString(salt[:]) + "-",
		listeners: map[string]*listener{},
		dialled:   map[*end]struct{}{},
	}
	count := func(name, help string) plugin.Counter {
		return set.Meter.Counter(name, help, plugin.Label{Name: "transport", Value: set.Name})
	}
	t.opened = count("transport_connections_total", "Connections that were opened.")
	t.refused = count("transport_connections_refused_total", "Connections refused because there were too many.")
	t.slow = count("transport_slow_closes_total", "Peers closed because they did not read what they were sent.")
	t.limit = count("transport_limit_closes_total", "Peers closed because of a malformed frame or a limit.")
	t.bytesSent = count("transport_sent_bytes_total", "Bytes accepted for peers.")
	t.framesSent = count("transport_sent_frames_total", "Frames, or encoded runs of them, accepted for peers.")
	return t, nil
}

// Start implements [plugin.Component].
func (t *Transport) Start(context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running = true
	return nil
}

// Shutdown implements [plugin.Component].
func (t *Transport) Shutdown(ctx context.Context) error {
	t.mu.Lock()
	t.running = false
	var lns []*listener
	for _, l := range t.listeners {
		lns = append(lns, l)
	}
	for e := range t.dialled {
		e.close(transport.ErrClosed)
	}
	t.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, l := range lns {
			_ = l.Close()
		}
		t.wg.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("transport %s: sessions are still busy at shutdown: %w", t.set.Name, context.Cause(ctx))
	}
}

// Capabilities implements [transport.Transport].
func (t *Transport) Capabilities() transport.Capabilities {
	return transport.Capabilities{Dialer: t}
}

var errTLS = errors.New("nothing leaves the process, there is no TLS: leave it out")

// Serve implements [transport.Transport].
func (t *Transport) Serve(_ context.Context, l transport.Listen, s transport.Services) (transport.Listener, error) {
	fail := func(err error) error {
		return fmt.Errorf("transport %s cannot serve %q: %w", t.set.Name, l.Address, err)
	}
	switch {
	case s.Frames == nil:
		return nil, fail(errors.New("it moves frames: Services.Frames must be set"))
	case l.TLS != nil:
		return nil, fail(errTLS)
	case l.Address == "":
		return nil, fail(errors.New("a listener needs a name"))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.running {
		return nil, fail(transport.ErrNotRunning)
	}
	if t.listeners[l.Address] != nil {
		return nil, fail(errors.New("there is a listener with that name: close it or take another name"))
	}
	ln := &listener{
		t: t, name: l.Address, h: s.Frames,
		budget:  budget{lim: l.Limits.WithDefaults()},
		ends:    map[*end]struct{}{},
		drained: make(chan struct{}),
	}
	t.listeners[l.Address] = ln
	return ln, nil
}

// Dial implements [transport.Dialer].
func (t *Transport) Dial(ctx context.Context, address string, lim transport.Limits, conf *tls.Config, h transport.Handler) (transport.Peer, error) {
	fail := func(err error) error {
		return fmt.Errorf("transport %s cannot connect to %q: %w", t.set.Name, address, err)
	}
	if ctx.Err() != nil {
		return nil, fail(context.Cause(ctx))
	}
	if conf != nil {
		return nil, fail(errTLS)
	}
	t.mu.Lock()
	if !t.running {
		t.mu.Unlock()
		return nil, fail(transport.ErrNotRunning)
	}
	ln := t.listeners[address]
	if ln == nil {
		t.mu.Unlock()
		return nil, fail(errors.New("there is no listener with that name in this instance of the transport"))
	}
	client := t.newEnd(h, &budget{lim: lim.WithDefaults()})
	server := t.newEnd(ln.h, &ln.budget)
	client.other, server.other = server, client
	client.local, client.remote = server.remote, server.local
	if err := ln.add(server); err != nil {
		t.mu.Unlock()
		return nil, fail(err)
	}
	server.gone = func() { ln.remove(server) }
	t.dialled[client] = struct{}{}
	t.wg.Add(1)
	client.gone = func() {
		t.mu.Lock()
		delete(t.dialled, client)
		t.mu.Unlock()
		t.wg.Done()
	}
	t.mu.Unlock()
	t.opened.Add(1)
	client.s = h.Opened(client)
	go client.run()
	go func() {
		server.s = server.h.Opened(server)
		server.run()
	}()
	return client, nil
}

// newEnd makes one end of a connection. Call it with t.mu held.
func (t *Transport) newEnd(h transport.Handler, b *budget) *end {
	t.seq++
	local := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	e := &end{
		t: t, h: h, budget: b,
		id:     t.id + strconv.FormatInt(t.seq, 10),
		local:  netip.AddrPortFrom(local, 0),
		remote: netip.AddrPortFrom(local, uint16(1+t.seq%65535)),
	}
	e.ready.L = &e.mu
	return e
}

// listener implements [transport.Listener].
type listener struct {
	t      *Transport
	name   string
	h      transport.Handler
	budget budget

	wg      sync.WaitGroup
	drained chan struct{}

	mu               sync.Mutex
	ends             map[*end]struct{}
	draining, closed bool
	empty            bool // drained is closed
}

// Address implements [transport.Listener].
func (l *listener) Address() string { return l.name }

func (l *listener) add(e *end) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.draining {
		return transport.ErrClosed
	}
	if n := l.budget.lim.Connections; len(l.ends) >= n {
		l.t.refused.Add(1)
		return fmt.Errorf("%w: it has %d connections already", transport.ErrLimit, n)
	}
	l.ends[e] = struct{}{}
	l.wg.Add(1)
	return nil
}

func (l *listener) remove(e *end) {
	l.mu.Lock()
	delete(l.ends, e)
	l.checkDrained()
	l.mu.Unlock()
	l.wg.Done()
}

func (l *listener) checkDrained() {
	if l.draining && len(l.ends) == 0 && !l.empty {
		l.empty = true
		close(l.drained)
	}
}

// Drain implements [transport.Listener].
func (l *listener) Drain(ctx context.Context) error {
	l.unlist()
	l.mu.Lock()
	l.draining = true
	for e := range l.ends {
		e.discard.Store(true)
	}
	l.checkDrained()
	l.mu.Unlock()
	select {
	case <-l.drained:
		return nil
	case <-ctx.Done():
		l.mu.Lock()
		defer l.mu.Unlock()
		return fmt.Errorf("draining %s: %d peers are still connected: %w", l.name, len(l.ends), context.Cause(ctx))
	}
}

// Close implements [transport.Listener]. It must not be called by a session,
// for whose Closed it waits.
func (l *listener) Close() error {
	l.unlist()
	l.mu.Lock()
	l.closed = true
	for e := range l.ends {
		e.close(transport.ErrClosed)
	}
	l.mu.Unlock()
	l.wg.Wait()
	return nil
}

func (l *listener) unlist() {
	l.t.mu.Lock()
	defer l.t.mu.Unlock()
	if l.t.listeners[l.name] == l {
		delete(l.t.listeners, l.name)
	}
}
