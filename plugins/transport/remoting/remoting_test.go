package remoting_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/core/transport/transporttest"
	"github.com/hardpointmq/hardpoint/internal/tlstest"
	"github.com/hardpointmq/hardpoint/plugins/transport/remoting"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func anyPort(testing.TB) string { return "127.0.0.1:0" }

func TestConformance(t *testing.T) {
	plain := func(ctx context.Context, address string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", address)
	}
	server, client := certificates(t)
	encrypted := func(ctx context.Context, address string) (net.Conn, error) {
		d := tls.Dialer{Config: client}
		return d.DialContext(ctx, "tcp", address)
	}
	both := func(testing.TB) (s, c *tls.Config) { return server, client }
	onlyServer := func(testing.TB) (s, c *tls.Config) { return server, nil }
	disabled := plugin.Raw(`{"tlsMode": "disabled"}`)
	raw, streams, apart := remoting.NewFactory(), remoting.NewStreamFactory(), remoting.NewApartFactory()
	a := tlstest.New(t)
	own, err := json.Marshal(secured(a, a.Issue(t, "server", nil), remoting.TLSEnforcing))
	require.NoError(t, err)
	ownTLS := func(_ context.Context, address string) (net.Conn, error) { return dialTLS(a)(address) }
	var lacks []string
	if runtime.GOOS == "windows" {
		lacks = []string{transport.FacetMover}
	}
	transporttest.Run(t,
		transporttest.Harness{Factory: raw, Form: "plain", Config: disabled, Address: anyPort, Bytes: plain, Lacks: lacks},
		transporttest.Harness{Factory: raw, Form: "permissive", Address: anyPort, Bytes: plain, Lacks: lacks},
		transporttest.Harness{Factory: streams, Form: "stream", Address: anyPort, Bytes: plain, Lacks: lacks},
		transporttest.Harness{Factory: apart, Form: "apart", Address: anyPort, Bytes: plain, Lacks: lacks},
		transporttest.Harness{Factory: raw, Form: "tls", Address: anyPort, Bytes: encrypted, TLS: both, Lacks: lacks},
		transporttest.Harness{Factory: raw, Form: "plain_beside_tls", Address: anyPort, Bytes: plain, TLS: onlyServer, Lacks: lacks},
		transporttest.Harness{Factory: raw, Form: "own_tls", Config: own, Address: anyPort, Bytes: ownTLS, Encrypted: true, Lacks: lacks},
	)
}

// BenchmarkTransport is the shared benchmark; BenchmarkEcho measures the server
// alone.
func BenchmarkTransport(b *testing.B) {
	server, client := certificates(b)
	b.Run("plain", func(b *testing.B) {
		transporttest.Benchmark(b, transporttest.Harness{Factory: remoting.NewFactory(), Address: anyPort})
	})
	b.Run("tls", func(b *testing.B) {
		transporttest.Benchmark(b, transporttest.Harness{
			Factory: remoting.NewFactory(), Address: anyPort,
			TLS: func(testing.TB) (s, c *tls.Config) { return server, client },
		})
	})
}

// certificates makes an authority with a certificate for 127.0.0.1, which is
// the client's, too.
func certificates(t testing.TB) (server, client *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "somebody"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:        true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	pair := []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}
	return &tls.Config{Certificates: pair, ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven, MinVersion: tls.VersionTLS12},
		&tls.Config{Certificates: pair, RootCAs: pool, MinVersion: tls.VersionTLS12}
}

// probe is a handler whose sessions tell what happens to them.
type probe struct {
	echo   bool
	opened chan *probeSession
	gate   chan struct{} // when set, Arrived waits for it,
	inside chan struct{} // and says so here, if somebody listens
}

type probeSession struct {
	h      *probe
	p      transport.Peer
	bytes  chan int // of the frames of each Arrived
	closed chan error
}

func newProbe() *probe { return &probe{opened: make(chan *probeSession, 2000)} }

func (h *probe) Opened(p transport.Peer) transport.Session {
	s := &probeSession{h: h, p: p, bytes: make(chan int, 10_000), closed: make(chan error, 1)}
	h.opened <- s
	return s
}
func (h *probe) Settle() {}
func (s *probeSession) Arrived(in []command.Frame) {
	if s.h.gate != nil {
		select {
		case s.h.inside <- struct{}{}:
		default:
		}
		<-s.h.gate
	}
	if s.h.echo {
		_ = s.p.Send(in...)
	}
	n := 0
	for i := range in {
		n += len(in[i].Raw)
	}
	s.bytes <- n
}
func (s *probeSession) Closed(err error) { s.closed <- err }

func (s *probeSession) takes(t *testing.T, n int) {
	t.Helper()
	for n > 0 {
		select {
		case b := <-s.bytes:
			n -= b
		case err := <-s.closed:
			s.closed <- err
			for more := true; more; { // what came before the end
				select {
				case b := <-s.bytes:
					n -= b
				default:
					more = false
				}
			}
			require.Zero(t, n, "bytes are missing at the end: %v", err)
		}
	}
	require.Zero(t, n)
}

// start makes a running transport without TLS of its own, whose peers are opened when
// they connect.
func start(t testing.TB, set plugin.Settings) *remoting.Transport {
	t.Helper()
	return startWith(t, set, remoting.Config{})
}

func startWith(t testing.TB, set plugin.Settings, cfg remoting.Config) *remoting.Transport {
	t.Helper()
	tr, err := remoting.New(t.Context(), transport.Params{Settings: set}, cfg)
	require.NoError(t, err)
	require.NoError(t, tr.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, tr.Shutdown(context.Background())) })
	return tr
}

func serve(t testing.TB, tr *remoting.Transport, l transport.Listen, h transport.Handler) transport.Listener {
	t.Helper()
	l.Address = "127.0.0.1:0"
	ln, err := tr.Serve(t.Context(), l, transport.Services{Frames: h})
	require.NoError(t, err)
	return ln
}

func frame(n int) command.Frame {
	return command.Frame{Header: command.AppendResponse(nil, command.JSON, 0, 1, "", n), Body: make([]byte, n)}
}

// What Send took before Close is not lost, although the socket had not taken it.
func TestCloseWritesBacklog(t *testing.T) {
	server, client := certificates(t)
	for name, conf := range map[string][2]*tls.Config{"plain": {}, "tls": {server, client}} {
		t.Run(name, func(t *testing.T) {
			tr, err := remoting.New(t.Context(), transport.Params{}, remoting.Config{})
			require.NoError(t, err)
			remoting.Linger(tr, time.Hour) // a reader may be that slow
			require.NoError(t, tr.Start(t.Context()))
			defer func() { require.NoError(t, tr.Shutdown(context.Background())) }()
			srv, cl := newProbe(), newProbe()
			cl.gate = make(chan struct{})
			ln := serve(t, tr, transport.Listen{TLS: conf[0], Limits: transport.Limits{PeerBytes: 64 << 20}}, srv)
			p, err := tr.Dial(t.Context(), ln.Address(), transport.Limits{}, conf[1], cl)
			require.NoError(t, err)
			require.NoError(t, p.Send(frame(1)))
			s, c := <-srv.opened, <-cl.opened
			<-s.bytes
			f := frame(100_000)
			total := 0
			for range 200 { // more than both sockets buffer
				require.NoError(t, s.p.Send(f))
				total += f.Len()
			}
			require.NoError(t, s.p.Close())
			require.ErrorIs(t, s.p.Send(f), transport.ErrClosed)
			close(cl.gate)
			c.takes(t, total)
			require.ErrorIs(t, <-c.closed, io.EOF)
			require.ErrorIs(t, <-s.closed, transport.ErrClosed)
		})
	}
}

// stuck is a handler whose sessions block on their first bytes, and whose Settle
// blocks once, until the test ends; the others echo.
type stuck struct {
	release chan struct{}
	entered chan struct{}
	settle  atomic.Bool // the next Settle blocks
	n       atomic.Int64
}

type stuckSession struct {
	h      *stuck
	p      transport.Peer
	blocks bool
}

func (h *stuck) Opened(p transport.Peer) transport.Session {
	return &stuckSession{h: h, p: p, blocks: h.n.Add(1)%2 == 0}
}

func (h *stuck) Settle() {
	if h.settle.CompareAndSwap(true, false) {
		h.entered <- struct{}{}
		<-h.release
	}
}

func (s *stuckSession) Arrived(in []command.Frame) {
	if s.blocks {
		s.h.entered <- struct{}{}
		<-s.h.release
	}
	_ = s.p.Send(in...)
}
func (s *stuckSession) Closed(error) {}

// Sessions that block on the log, and a Settle that does, hold up nobody else,
// and what their peers sent meanwhile is served when they go on.
func TestBlockedSessionsHoldUpNobody(t *testing.T) {
	tr := start(t, plugin.Settings{})
	h := &stuck{release: make(chan struct{}), entered: make(chan struct{}, 100)}
	ln := serve(t, tr, transport.Listen{}, h)
	f := frame(100)
	wire := f.Append(nil)
	echo := func(c net.Conn) {
		t.Helper()
		_, err := c.Write(wire)
		require.NoError(t, err)
		_, err = io.ReadFull(c, make([]byte, len(wire)))
		require.NoError(t, err)
	}
	const pairs = 20
	var free, blocked []net.Conn
	for range pairs { // one after the other, so that it is known which ones block
		for _, list := range []*[]net.Conn{&free, &blocked} {
			c, err := net.Dial("tcp", ln.Address())
			require.NoError(t, err)
			defer c.Close()
			*list = append(*list, c)
			want := int64(len(free) + len(blocked))
			require.Eventually(t, func() bool { return h.n.Load() == want }, 30*time.Second, time.Millisecond)
		}
	}
	h.settle.Store(true)
	_, err := free[0].Write(wire)
	require.NoError(t, err)
	<-h.entered
	for i := range pairs {
		_, err := blocked[i].Write(wire)
		require.NoError(t, err)
		<-h.entered
		_, err = blocked[i].Write(wire) // news for a session that is busy
		require.NoError(t, err)
		for _, c := range free[1:] {
			echo(c)
		}
	}
	close(h.release)
	for _, c := range blocked {
		_, err := io.ReadFull(c, make([]byte, 2*len(wire)))
		require.NoError(t, err)
	}
	_, err = io.ReadFull(free[0], make([]byte, len(wire)))
	require.NoError(t, err)
	echo(free[0])
}

// What was sent before the end of a connection is served, however little it is.
func TestBytesBeforeTheEndAreServed(t *testing.T) {
	tr := start(t, plugin.Settings{})
	srv := newProbe()
	ln := serve(t, tr, transport.Listen{}, srv)
	f := frame(100)
	wire := f.Append(nil)
	for range 200 {
		c, err := net.Dial("tcp", ln.Address())
		require.NoError(t, err)
		_, err = c.Write(wire)
		require.NoError(t, err)
		require.NoError(t, c.Close())
		s := <-srv.opened
		require.Equal(t, len(wire), <-s.bytes)
		require.ErrorIs(t, <-s.closed, io.EOF)
	}
}

// A peer that closes and is not read by anybody is gone after a while.
func TestCloseDoesNotWaitForEver(t *testing.T) {
	tr := start(t, plugin.Settings{})
	srv := newProbe()
	ln := serve(t, tr, transport.Listen{Limits: transport.Limits{PeerBytes: 64 << 20}}, srv)
	c, err := net.Dial("tcp", ln.Address())
	require.NoError(t, err)
	defer c.Close()
	s := <-srv.opened
	for range 200 {
		require.NoError(t, s.p.Send(frame(100_000)))
	}
	require.NoError(t, s.p.Close())
	require.ErrorIs(t, <-s.closed, transport.ErrClosed)
}

func TestIdentity(t *testing.T) {
	server, client := certificates(t)
	tr := start(t, plugin.Settings{})
	srv := newProbe()
	ln := serve(t, tr, transport.Listen{TLS: server}, srv)
	_, err := tr.Dial(t.Context(), ln.Address(), transport.Limits{}, client, newProbe())
	require.NoError(t, err)
	require.Equal(t, transport.Identity{Name: "somebody", TLS: true}, (<-srv.opened).p.Identity())

	// A failed handshake opens nobody, and the others go on.
	_, err = tr.Dial(t.Context(), ln.Address(), transport.Limits{}, &tls.Config{MinVersion: tls.VersionTLS12}, newProbe())
	require.ErrorContains(t, err, "certificate")
	anonymous := client.Clone()
	anonymous.Certificates = nil
	_, err = tr.Dial(t.Context(), ln.Address(), transport.Limits{}, anonymous, newProbe())
	require.NoError(t, err)
	require.Equal(t, transport.Identity{TLS: true}, (<-srv.opened).p.Identity())
}

// A connection to a listener with TLS that says nothing must not outlive Idle.
func TestSilentHandshake(t *testing.T) {
	server, _ := certificates(t)
	tr := start(t, plugin.Settings{})
	ln := serve(t, tr, transport.Listen{TLS: server, Limits: transport.Limits{Idle: 20 * time.Millisecond}}, newProbe())
	for _, first := range []string{"", "\x16", "\x16\x03\x01\x02"} {
		c, err := net.Dial("tcp", ln.Address())
		require.NoError(t, err)
		_, _ = c.Write([]byte(first)) // fails when it is closed already
		_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
		_, err = io.Copy(io.Discard, c)
		require.False(t, isTimeout(err), "%q", first)
		c.Close()
	}
}

// The read buffers of all peers together are bounded: who wants more is closed,
// who sends small frames is served.
func TestReadBytes(t *testing.T) {
	tr := start(t, plugin.Settings{})
	srv := newProbe()
	srv.echo = true
	ln := serve(t, tr, transport.Listen{Limits: transport.Limits{ReadBytes: 3 << 20}}, srv)
	f := frame(5 << 20)
	big := f.Append(nil)
	c, err := net.Dial("tcp", ln.Address())
	require.NoError(t, err)
	defer c.Close()
	s := <-srv.opened
	go func() { _, _ = c.Write(big) }()
	require.ErrorIs(t, <-s.closed, transport.ErrLimit)

	// Half frames of 1 MiB: three of them fit, the others must be closed. Who
	// sends small frames is served nevertheless.
	closed := make(chan error, 10)
	f = frame(1 << 20)
	half := f.Append(nil)[:1<<20]
	for range 10 {
		c, err := net.Dial("tcp", ln.Address())
		require.NoError(t, err)
		defer c.Close()
		s := <-srv.opened
		go func() { closed <- <-s.closed }()
		_, _ = c.Write(half) // fails when the server closes meanwhile
	}
	for range 7 {
		require.ErrorIs(t, <-closed, transport.ErrLimit)
	}
	cl := newProbe()
	p, err := tr.Dial(t.Context(), ln.Address(), transport.Limits{}, nil, cl)
	require.NoError(t, err)
	small := frame(2000)
	require.NoError(t, p.Send(small))
	(<-cl.opened).takes(t, small.Len())
}

// logs collects log lines.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logs) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), s)
}

// stoppedClock makes what is said once in a while be said once, however long a test takes.
type stoppedClock struct {
	plugin.SystemClock
	at time.Time
}

func (c stoppedClock) Now() time.Time { return c.at }

func TestStrangersDoNotFillTheLog(t *testing.T) {
	var l logs
	tr := start(t, plugin.Settings{Clock: stoppedClock{at: time.Now()}, Logger: slog.New(slog.NewTextHandler(&l, nil))})
	srv := newProbe()
	ln := serve(t, tr, transport.Listen{Limits: transport.Limits{Connections: 1}}, srv)
	first, err := net.Dial("tcp", ln.Address())
	require.NoError(t, err)
	defer first.Close()
	<-srv.opened
	for range 20 {
		c, err := net.Dial("tcp", ln.Address())
		require.NoError(t, err)
		_, _ = io.Copy(io.Discard, c)
		c.Close()
	}
	require.Equal(t, 1, l.count("connections are refused"))

	// So are peers that send garbage.
	first.Close()
	ln = serve(t, tr, transport.Listen{}, srv)
	for range 20 {
		c, err := net.Dial("tcp", ln.Address())
		require.NoError(t, err)
		_, _ = c.Write([]byte("not a frame"))
		_, _ = io.Copy(io.Discard, c)
		c.Close()
		require.ErrorIs(t, <-(<-srv.opened).closed, transport.ErrLimit)
	}
	require.Equal(t, 1, l.count("peers were closed"))
}

func TestServeErrors(t *testing.T) {
	tr := start(t, plugin.Settings{})
	ln := serve(t, tr, transport.Listen{}, newProbe())
	_, err := tr.Serve(t.Context(), transport.Listen{Address: ln.Address()}, transport.Services{Frames: newProbe()})
	require.ErrorContains(t, err, ln.Address())
	require.ErrorContains(t, err, "another process has that port")
	_, err = tr.Serve(t.Context(), transport.Listen{Address: "nonsense"}, transport.Services{Frames: newProbe()})
	require.ErrorContains(t, err, `"host:port"`)
}

// many is a handler whose values cannot be compared.
type many struct {
	*probe
	_ []string
}

// TestHandlersAreCompared: a handler that the transport cannot keep a list of is refused
// when it is given one, wherever that is.
func TestHandlersAreCompared(t *testing.T) {
	tr := start(t, plugin.Settings{})
	bad := many{probe: newProbe()}
	ln := serve(t, tr, transport.Listen{}, newProbe())
	for _, h := range []transport.Handler{bad, struct{ transport.Handler }{bad}} {
		_, err := tr.Serve(t.Context(), transport.Listen{Address: "127.0.0.1:0"}, transport.Services{Frames: h})
		require.ErrorContains(t, err, "cannot be compared; give a pointer to it")
		require.ErrorContains(t, err, "127.0.0.1:0")
		_, err = tr.Dial(t.Context(), ln.Address(), transport.Limits{}, nil, h)
		require.ErrorContains(t, err, fmt.Sprintf("the handler is a %T, ", h))
		require.ErrorContains(t, err, ln.Address())
	}
	_, err := tr.Dial(t.Context(), ln.Address(), transport.Limits{}, nil, nil)
	require.ErrorContains(t, err, "must be set")
	p, err := tr.Dial(t.Context(), ln.Address(), transport.Limits{}, nil, struct{ transport.Handler }{newProbe()})
	require.NoError(t, err, "a value of which all can be compared")
	require.NoError(t, p.Close())

	if m := tr.Capabilities().Mover; m != nil {
		f, err := m.GiveListener(ln)
		require.NoError(t, err)
		_, err = m.TakeListener(f, transport.Listen{}, transport.Services{Frames: bad})
		require.ErrorContains(t, err, "cannot be compared")
		f, err = os.Open(os.DevNull)
		require.NoError(t, err)
		_, err = m.TakePeer(ln, transport.Limits{}, transport.Moving{File: f}, bad)
		require.ErrorContains(t, err, "cannot be compared")
	}
}

// TestIdleClock checks Idle with a clock of the test's own.
func TestIdleClock(t *testing.T) {
	clock := &manualClock{timers: make(chan *manualTimer, 1)}
	tr := start(t, plugin.Settings{Clock: clock})
	srv := newProbe()
	ln := serve(t, tr, transport.Listen{Limits: transport.Limits{Idle: time.Hour}}, srv)
	timer := <-clock.timers
	require.Equal(t, 15*time.Minute, timer.d)
	c, err := net.Dial("tcp", ln.Address())
	require.NoError(t, err)
	defer c.Close()
	s := <-srv.opened
	f := frame(1)
	wire := f.Append(nil)
	look := func() {
		timer.fire()
		<-timer.reset // it has looked
	}
	for range 3 { // silence of less than an hour, then a word
		for range 4 {
			look()
		}
		_, err = c.Write(wire)
		require.NoError(t, err)
		s.takes(t, len(wire))
	}
	looks := 0
	for ; len(s.closed) == 0; looks++ { // it is served until Arrived has returned, perhaps at some of them
		look()
		require.Less(t, looks, 100_000)
	}
	require.ErrorIs(t, <-s.closed, transport.ErrIdle)
	require.Greater(t, looks, 4)
}

// manualClock makes timers that fire when they are told.
type manualClock struct {
	plugin.SystemClock
	timers chan *manualTimer
}

type manualTimer struct {
	d     time.Duration
	c     chan time.Time
	reset chan struct{} // has one when Reset was called
}

func (c *manualClock) NewTimer(d time.Duration) plugin.Timer {
	t := &manualTimer{d: d, c: make(chan time.Time), reset: make(chan struct{}, 1)}
	c.timers <- t
	return t
}
func (t *manualTimer) C() <-chan time.Time { return t.c }
func (t *manualTimer) Stop() bool          { return true }
func (t *manualTimer) fire()               { t.c <- time.Time{} }
func (t *manualTimer) Reset(time.Duration) bool {
	select {
	case t.reset <- struct{}{}:
	default:
	}
	return true
}

// Shutdown gives up with its context when a session does not return.
func TestShutdownContext(t *testing.T) {
	tr, err := remoting.New(t.Context(), transport.Params{}, remoting.Config{})
	require.NoError(t, err)
	require.NoError(t, tr.Start(t.Context()))
	srv := newProbe()
	srv.gate, srv.inside = make(chan struct{}), make(chan struct{}, 1)
	ln := serve(t, tr, transport.Listen{}, srv)
	p, err := tr.Dial(t.Context(), ln.Address(), transport.Limits{}, nil, newProbe())
	require.NoError(t, err)
	require.NoError(t, p.Send(frame(1)))
	<-srv.inside
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, tr.Shutdown(ctx), context.Canceled)
	close(srv.gate)
	require.NoError(t, tr.Shutdown(t.Context()))
}
