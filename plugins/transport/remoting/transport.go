package remoting

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/transport"
)

var (
	_ transport.Transport = (*Transport)(nil)
	_ transport.Dialer    = (*Transport)(nil)
	_ transport.Mover     = (*Transport)(nil)
	_ transport.Reloader  = (*Transport)(nil)
	_ transport.Listener  = (*listener)(nil)
	_ transport.Peer      = (*peer)(nil)
)

// Transport is RocketMQ's protocol over TCP. It implements
// [transport.Transport] and [transport.Dialer].
type Transport struct {
	set     plugin.Settings
	cfg     Config
	secrets secrets
	log     *slog.Logger
	metrics metrics
	pools   pools
	id      string       // begins the ids of the peers
	seq     atomic.Int64 // ends them
	streams bool         // tests: take the way of systems without loops
	apart   bool         // the loops give each ready peer a goroutine of its own
	loops   []*loop      // read plain connections; none on some systems
	adopted atomic.Int64 // deals peers out to the loops

	handshakeTime, handshakeGrace, linger time.Duration // tests change them
	maxHandshakes                         int

	mu      sync.Mutex
	running bool
	groups  map[*group]struct{}         // listeners' and dials
	dials   map[transport.Limits]*group // dialled peers share budgets by their limits
}

// New makes a transport; nothing is opened.
func New(_ context.Context, p transport.Params, cfg Config) (*Transport, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	set := p.WithDefaults()
	if set.Name == "" {
		set.Name = Name
	}
	var salt [4]byte
	_, _ = rand.Read(salt[:]) // never fails
	t := &Transport{
		set:    set,
		cfg:    cfg,
		log:    set.Logger,
		apart:  p.Distant,
		id:     set.Name + "-" + hex.EncodeToString(salt[:]) + "-",
		groups: map[*group]struct{}{},
		dials:  map[transport.Limits]*group{},

		handshakeTime: handshakeTime, handshakeGrace: handshakeGrace, maxHandshakes: maxHandshakes, linger: linger,
	}
	t.metrics.init(set.Meter, set.Name)
	return t, nil
}

// Start implements [plugin.Component].
func (t *Transport) Start(context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.startTLS(); err != nil {
		return err
	}
	if !t.streams && len(t.loops) == 0 {
		var err error
		if t.loops, err = startLoops(t.apart); err != nil {
			t.stopTLS()
			return fmt.Errorf("transport %s: %w", t.set.Name, err)
		}
	}
	t.running = true
	t.metrics.open()
	return nil
}

// Shutdown implements [plugin.Component]: it closes all listeners and peers and
// waits until the sessions know.
func (t *Transport) Shutdown(ctx context.Context) error {
	t.mu.Lock()
	t.running = false
	var all []*group
	for g := range t.groups {
		all = append(all, g)
	}
	t.mu.Unlock()
	for _, g := range all {
		g.close()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, g := range all {
			g.wg.Wait()
		}
		t.mu.Lock()
		loops := t.loops
		t.loops = nil
		t.mu.Unlock()
		stopLoops(loops)
		t.stopTLS()
		t.metrics.close()
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
	c := transport.Capabilities{Dialer: t, Reloader: t}
	if canMove {
		c.Mover = t
	}
	return c
}

// Serve implements [transport.Transport].
func (t *Transport) Serve(ctx context.Context, l transport.Listen, s transport.Services) (transport.Listener, error) {
	if err := checkHandler(s.Frames); err != nil {
		return nil, fmt.Errorf("transport %s moves frames, and cannot serve %q: Services.Frames %w", t.set.Name, l.Address, err)
	}
	if err := t.check(); err != nil {
		return nil, err
	}
	// Idle connections are Limits.Idle's business, so no probes.
	lc := net.ListenConfig{KeepAlive: -1}
	nl, err := lc.Listen(ctx, "tcp", l.Address)
	if err != nil {
		return nil, fmt.Errorf("transport %s cannot listen on %q: %w; %s", t.set.Name, l.Address, err, listenHint(err))
	}
	return t.serve(nl, l, s)
}

// serve accepts at nl, of which it takes possession.
func (t *Transport) serve(nl net.Listener, l transport.Listen, s transport.Services) (transport.Listener, error) {
	ln := &listener{g: t.newGroup(l.Limits, l.TLS), nl: nl, h: s.Frames, drop: func() {}, ended: make(chan struct{})}
	ln.g.onClose = func() { _ = nl.Close() }
	ln.g.enforce = t.cfg.TLSMode == TLSEnforcing
	if l.TLS == nil {
		own, err := t.serverKeeper()
		if err != nil {
			_ = nl.Close()
			return nil, err
		}
		if own != nil {
			ln.g.tls = own.ServerConfig()
			ln.watchExpiry(own)
			ln.g.onClose = func() {
				_ = nl.Close()
				ln.drop()
			}
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.running { // shut down meanwhile
		ln.g.onClose()
		return nil, t.notRunning()
	}
	t.groups[ln.g] = struct{}{}
	ln.g.wg.Add(1)
	go ln.accept()
	ln.g.startJanitor()
	return ln, nil
}

// checkHandler holds a handler against what the contract says of it: the loops keep those
// that they owe a Settle, each once.
func checkHandler(h transport.Handler) error {
	if h == nil {
		return errors.New("must be set")
	}
	if !reflect.ValueOf(h).Comparable() {
		return fmt.Errorf("is a %T, and values of that type cannot be compared; give a pointer to it", h)
	}
	return nil
}

func listenHint(err error) string {
	var addr *net.AddrError
	switch {
	case errors.As(err, &addr):
		return `the address must be "host:port"`
	case errors.Is(err, syscall.EADDRINUSE):
		return "another process has that port: stop it or listen on another one"
	case errors.Is(err, syscall.EACCES):
		return "ports below 1024 need a privilege: listen on a higher one"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "no interface of this machine has that address"
	}
	return "check that the address is right and that nobody else has the port"
}

// Dial implements [transport.Dialer].
func (t *Transport) Dial(ctx context.Context, address string, lim transport.Limits, conf *tls.Config, h transport.Handler) (transport.Peer, error) {
	if err := checkHandler(h); err != nil {
		return nil, fmt.Errorf("transport %s cannot connect to %q: the handler %w", t.set.Name, address, err)
	}
	if err := t.check(); err != nil {
		return nil, err
	}
	d := net.Dialer{KeepAlive: -1}
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("transport %s cannot connect to %q: %w", t.set.Name, address, err)
	}
	var tc *tls.Conn
	if conf == nil {
		conf = t.dialTLS()
	}
	if conf != nil {
		if conf.ServerName == "" && !conf.InsecureSkipVerify {
			conf = conf.Clone()
			conf.ServerName, _, _ = net.SplitHostPort(address)
		}
		tc = tls.Client(c, conf)
		if err := tc.HandshakeContext(ctx); err != nil {
			_ = c.Close()
			return nil, fmt.Errorf("transport %s: TLS handshake with %q: %w", t.set.Name, address, err)
		}
	}
	g := t.dialGroup(lim)
	if g == nil {
		_ = c.Close()
		return nil, t.notRunning()
	}
	p := t.newPeer(g, h, c)
	if !g.add(p) {
		_ = c.Close()
		return nil, t.notRunning()
	}
	p.open(tc)
	p.begin()
	return p, nil
}

func (t *Transport) check() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.running {
		return t.notRunning()
	}
	return nil
}

func (t *Transport) notRunning() error {
	return fmt.Errorf("transport %s: %w", t.set.Name, transport.ErrNotRunning)
}

// dialGroup returns the group of dialled peers with these limits.
func (t *Transport) dialGroup(lim transport.Limits) *group {
	lim = lim.WithDefaults()
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.running {
		return nil
	}
	g := t.dials[lim]
	if g == nil {
		g = t.newGroup(lim, nil)
		t.dials[lim] = g
		t.groups[g] = struct{}{}
		g.startJanitor()
	}
	return g
}

func (t *Transport) nextID() string {
	return t.id + strconv.FormatInt(t.seq.Add(1), 10)
}
