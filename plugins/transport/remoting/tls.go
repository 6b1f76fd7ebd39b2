package remoting

import (
	"container/list"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"sync"
	"time"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/internal/tlsfiles"
)

const (
	// handshakeRecord is the first byte of a TLS connection. As that of a frame it
	// would announce one of 369 MB.
	handshakeRecord = 0x16
	// handshakeTime is how long a handshake may take.
	handshakeTime = 10 * time.Second
	// maxHandshakes is how many handshakes of a listener may be under way before those
	// end that do not go on: the oldest, when they began handshakeGrace ago. An honest
	// one takes a round trip or two, and its turn when all clients come at once.
	maxHandshakes  = 512
	handshakeGrace = 2 * time.Second
	// crowd is how many times as many there may be for all that: one more ends the
	// oldest.
	crowd = 8
	// soonExpired is how long before its end a certificate is warned of.
	soonExpired = 14 * 24 * time.Hour
)

var (
	errPlain   = errors.New("a plain connection is refused where TLS is required (tls.server.mode=enforcing)")
	errCrowded = fmt.Errorf("%w: the TLS handshake was the oldest of too many that were under way", transport.ErrLimit)
	// errUpgraded ends a peer whose connection goes on as another peer with TLS.
	errUpgraded = errors.New("the connection goes on with TLS")
	// errFirst ends the wait for the first byte.
	errFirst = errors.New("the first byte is there")
)

// secrets are a transport's own TLS configurations.
type secrets struct {
	mu     sync.Mutex
	server *tlsfiles.Keeper // nil: listeners are plain unless Listen.TLS says otherwise
	client *tlsfiles.Keeper // nil: plain
	stop   chan struct{}    // ends the watchers; nil: none
	done   sync.WaitGroup
}

// startTLS reads the files of the configuration. A certificate of own making without
// any waits for the first listener.
func (t *Transport) startTLS() error {
	s := &t.secrets
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	if t.cfg.serves() && (t.cfg.TLSCertFile != "" || t.cfg.TLSClientCAFile != "") {
		if s.server, err = tlsfiles.NewServer(t.cfg.server()); err != nil {
			return fmt.Errorf("transport %s, TLS of listeners: %w", t.set.Name, err)
		}
	}
	if t.cfg.DialTLS {
		if s.client, err = tlsfiles.NewClient(t.cfg.client()); err != nil {
			return fmt.Errorf("transport %s, TLS of dialled connections: %w", t.set.Name, err)
		}
	}
	s.stop = make(chan struct{})
	for of, k := range s.keepers() {
		t.tellAge(of, k)
		s.done.Go(func() { k.Watch(s.stop, t.set.Clock, func(err error) { t.reloaded(of, k, err) }) })
	}
	return nil
}

// keepers are those there are, by what their files are of. The caller holds mu.
func (s *secrets) keepers() map[string]*tlsfiles.Keeper {
	all := map[string]*tlsfiles.Keeper{"listeners": s.server, "dialled connections": s.client}
	maps.DeleteFunc(all, func(_ string, k *tlsfiles.Keeper) bool { return k == nil })
	return all
}

// Reload implements [transport.Reloader].
func (t *Transport) Reload() {
	t.secrets.mu.Lock()
	all := t.secrets.keepers()
	t.secrets.mu.Unlock()
	for of, k := range all {
		if len(k.Files()) == 0 {
			continue
		}
		if changed, err := k.Reload(t.set.Clock.Now()); changed || err != nil {
			t.reloaded(of, k, err)
			continue
		}
		t.log.Info("the TLS files were read and hold what counts already", slog.String("of", of), slog.Any("files", k.Files()), slog.Time("expires", k.NotAfter()))
	}
}

func (t *Transport) stopTLS() {
	s := &t.secrets
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop != nil {
		close(s.stop)
		s.done.Wait()
	}
	s.stop, s.server, s.client = nil, nil, nil
}

// serverKeeper is what listeners show, nil for plain ones.
func (t *Transport) serverKeeper() (*tlsfiles.Keeper, error) {
	if !t.cfg.serves() {
		return nil, nil
	}
	s := &t.secrets
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil {
		var err error
		if s.server, err = tlsfiles.NewServer(t.cfg.server()); err != nil {
			return nil, fmt.Errorf("transport %s: %w", t.set.Name, err)
		}
	}
	return s.server, nil
}

// dialTLS is what a dialled connection shows when its caller does not say: nil for
// plain.
func (t *Transport) dialTLS() *tls.Config {
	s := &t.secrets
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil {
		return nil
	}
	return s.client.Config()
}

// reloaded is told of new files.
func (t *Transport) reloaded(of string, k *tlsfiles.Keeper, err error) {
	if err != nil {
		t.metrics.reloadsFailed.Add(1)
		t.log.Error("the new TLS files cannot be used; the old ones still count", slog.String("of", of), slog.Any("files", k.Files()),
			slog.Time("old_expires", k.NotAfter()), slog.Any("error", err))
		return
	}
	t.metrics.reloads.Add(1)
	t.log.Info("new TLS files count for new connections", slog.String("of", of), slog.Any("files", k.Files()), slog.Time("expires", k.NotAfter()))
	t.tellAge(of, k)
}

// tellAge warns of a certificate whose time is up. It is used all the same: who does
// not look at it, as RocketMQ's clients do unless told to, is served.
func (t *Transport) tellAge(of string, k *tlsfiles.Keeper) {
	now := t.set.Clock.Now()
	if err := k.Valid(now); err != nil {
		t.log.Error("clients that verify will refuse it; replace it", slog.String("of", of), slog.Any("files", k.Files()), slog.Any("error", err))
		return
	}
	if end := k.NotAfter(); !end.IsZero() && end.Sub(now) < soonExpired {
		t.log.Warn("a TLS certificate expires soon; replace its files", slog.String("of", of), slog.Any("files", k.Files()), slog.Time("expires", end))
	}
}

// watchExpiry shows until when the certificate of a listener is valid.
func (l *listener) watchExpiry(k *tlsfiles.Keeper) {
	t := l.g.t
	l.drop = t.set.Meter.Gauge("transport_tls_certificate_expiry_seconds", "Unix time at which the certificate that a listener shows expires.",
		func() float64 { return float64(k.NotAfter().Unix()) }, t.metrics.label, plugin.Label{Name: "listener", Value: l.Address()})
}

// handshakes bounds those of a group that are under way.
type handshakes struct {
	mu  sync.Mutex
	all list.List // of shake, oldest first
}

type shake struct {
	p     *peer
	began time.Time
}

// begin counts p, and returns who must end for it.
func (h *handshakes) begin(p *peer) (e *list.Element, out []*peer) {
	t := p.g.t
	now := t.set.Clock.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	for n := h.all.Len(); n >= t.maxHandshakes; n-- {
		oldest := h.all.Front()
		s, _ := oldest.Value.(shake)
		if n < crowd*t.maxHandshakes && now.Sub(s.began) < t.handshakeGrace {
			break
		}
		h.all.Remove(oldest)
		out = append(out, s.p)
	}
	return h.all.PushBack(shake{p, now}), out
}

func (h *handshakes) end(e *list.Element) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all.Remove(e) // nothing when it was removed as the oldest
}

// handshake makes an accepted connection whose first bytes are prefix one with TLS,
// and serves it. The calling goroutine is the connection's from here on.
func (p *peer) handshake(prefix []byte) {
	g, t := p.g, p.g.t
	e, out := g.shakes.begin(p)
	for _, q := range out {
		q.fail(errCrowded)
	}
	_ = p.conn.SetDeadline(time.Now().Add(t.handshakeTime))
	tc := tls.Server(&prefixConn{Conn: p.conn, prefix: prefix}, g.tls)
	err := tc.Handshake()
	_ = p.conn.SetDeadline(time.Time{})
	g.shakes.end(e)
	switch {
	case p.discard.Load():
		p.endUnopened(transport.ErrClosed, nil, "")
		return
	case err != nil:
		t.metrics.handshakesFailed.Add(1)
		p.endUnopened(fmt.Errorf("TLS handshake: %w", err), &g.failed, "TLS handshakes failed; this is the last of them")
		return
	}
	t.metrics.handshakes.Add(1)
	p.open(tc)
	p.run()
}

// refusePlain ends a plain connection of which nothing was decoded.
func (p *peer) refusePlain() {
	p.g.t.metrics.plainRefused.Add(1)
	p.endUnopened(errPlain, &p.g.plain, "plain connections are closed because tls.server.mode is enforcing; this is the last of them")
}

// endUnopened closes a connection that no session knows of, and says so from time to
// time when line is not empty.
func (p *peer) endUnopened(cause error, often *rarely, line string) {
	p.wmu.Lock()
	p.failLocked(cause)
	cause = p.cause
	if p.sock != nil {
		_ = p.sock.close()
	}
	p.wmu.Unlock()
	t := p.g.t
	if errors.Is(cause, transport.ErrIdle) {
		t.metrics.idle.Add(1)
	}
	if line != "" && !errors.Is(cause, io.EOF) && !errors.Is(cause, net.ErrClosed) && !errors.Is(cause, transport.ErrClosed) {
		if n := often.due(t.set.Clock.Now()); n > 0 {
			t.log.Warn(line, slog.Int("connections", n), slog.String("remote", p.remote.String()), slog.Any("error", cause)) //nolint:sloglint // two lines share this
		}
	}
	p.in.release()
	p.decided()
	p.g.remove(p)
}

// decide is called by the loop's side of an accepted connection when its first byte
// is there. The caller has the turn.
func (p *peer) decide() {
	switch {
	case p.discard.Load(), !p.hello.opening.speaks(p):
		p.endUnopened(transport.ErrClosed, nil, "")
	case p.hello.first == handshakeRecord:
		p.upgrade()
	case p.g.enforce:
		p.refusePlain()
	default:
		p.hello.awaited = false
		p.s = p.h.Opened(p)
		p.decided()
		p.carryOn(p.step())
	}
}

// upgrade takes the connection out of its loop: another peer goes on with it.
func (p *peer) upgrade() {
	p.wmu.Lock()
	if p.cause != nil {
		p.wmu.Unlock()
		p.endUnopened(transport.ErrClosed, nil, "")
		return
	}
	p.cause = errUpgraded
	f := p.sock.detach()
	p.wmu.Unlock()
	c, err := net.FileConn(f)
	_ = f.Close()
	if err != nil {
		p.endUnopened(err, &p.g.failed, "TLS handshakes failed; this is the last of them")
		return
	}
	q := p.g.t.newPeer(p.g, p.h, c)
	if !p.g.replace(p, q) {
		_ = c.Close()
		p.endUnopened(transport.ErrClosed, nil, "")
		return
	}
	p.decided()
	q.handshake(nil)
}

// decideStream reads the first byte where there is no loop that waits for it. The
// janitor closes who takes longer than Limits.Idle.
func (p *peer) decideStream() {
	var first [1]byte
	switch _, err := io.ReadFull(p.conn, first[:]); {
	case err != nil:
		p.endUnopened(err, nil, "")
	case p.discard.Load(), !p.hello.opening.speaks(p):
		p.endUnopened(transport.ErrClosed, nil, "")
	case first[0] == handshakeRecord:
		p.decided()
		p.handshake(first[:])
	case p.g.enforce:
		p.refusePlain()
	default:
		p.in.buf = p.in.pools.get(smallBuffer, p.in.read)
		p.in.buf.b[0] = first[0]
		p.in.have = 1
		p.s = p.h.Opened(p)
		p.decided()
		p.run()
	}
}

// prefixConn gives back bytes that were read to look at them.
type prefixConn struct {
	net.Conn
	prefix []byte
}

func (c *prefixConn) Read(b []byte) (int, error) {
	if len(c.prefix) > 0 {
		n := copy(b, c.prefix)
		c.prefix = c.prefix[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}
