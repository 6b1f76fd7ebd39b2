package remoting_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/internal/tlsfiles"
	"github.com/hardpointmq/hardpoint/internal/tlstest"
	"github.com/hardpointmq/hardpoint/plugins/transport/remoting"
)

// secured is a configuration with a pair of an authority, for both ends.
func secured(a *tlstest.Authority, p tlstest.Pair, mode string) remoting.Config {
	c := remoting.NewDefaultConfig()
	c.TLSMode, c.TLSCertFile, c.TLSKeyFile = mode, p.Cert, p.Key
	c.DialTLS, c.DialVerify, c.DialCAFile = true, true, a.CAFile
	return c
}

// echoed sends a frame over a connection and waits for it.
func echoed(c net.Conn) error {
	f := frame(10)
	wire := f.Append(nil)
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := c.Write(wire); err != nil {
		return err
	}
	_, err := io.ReadFull(c, wire)
	return err
}

func dialPlain(address string) (net.Conn, error) { return net.Dial("tcp", address) }

func dialTLS(a *tlstest.Authority, certs ...tls.Certificate) func(string) (net.Conn, error) {
	return func(address string) (net.Conn, error) {
		return tls.Dial("tcp", address, &tls.Config{RootCAs: a.Pool(), Certificates: certs, MinVersion: tls.VersionTLS12})
	}
}

func tryEcho(t *testing.T, dial func(string) (net.Conn, error), address string) error {
	t.Helper()
	c, err := dial(address)
	if err != nil {
		return err
	}
	defer c.Close()
	return echoed(c)
}

// What each mode takes, with loops and with streams.
func TestModes(t *testing.T) {
	a := tlstest.New(t)
	pair := a.Issue(t, "server", nil)
	for _, streams := range []bool{false, true} {
		for mode, takes := range map[string][2]bool{
			"": {true, false}, remoting.TLSDisabled: {true, false}, remoting.TLSPermissive: {true, true}, remoting.TLSEnforcing: {false, true},
		} {
			cfg := secured(a, pair, mode)
			tr, err := remoting.New(t.Context(), transport.Params{}, cfg)
			require.NoError(t, err)
			remoting.Streams(tr, streams)
			require.NoError(t, tr.Start(t.Context()))
			srv := newProbe()
			srv.echo = true
			ln := serve(t, tr, transport.Listen{}, srv)
			plain, encrypted := tryEcho(t, dialPlain, ln.Address()), tryEcho(t, dialTLS(a), ln.Address())
			require.Equal(t, takes[0], plain == nil, "mode %q, streams %t, plain: %v", mode, streams, plain)
			require.Equal(t, takes[1], encrypted == nil, "mode %q, streams %t, TLS: %v", mode, streams, encrypted)
			require.NoError(t, tr.Shutdown(t.Context()))
		}
	}
}

// A plain connection to a port that enforces TLS is closed before anything of it is
// decoded, whatever it says, and the log says who it was, once.
func TestEnforcingDecodesNothing(t *testing.T) {
	a := tlstest.New(t)
	var l logs
	m := newMeter()
	tr := startWith(t, plugin.Settings{Clock: stoppedClock{at: time.Now()}, Meter: m, Logger: slog.New(slog.NewTextHandler(&l, nil))}, secured(a, a.Issue(t, "server", nil), remoting.TLSEnforcing))
	srv := newProbe()
	srv.echo = true
	ln := serve(t, tr, transport.Listen{}, srv)
	f := frame(10)
	said := [][]byte{f.Append(nil), {0}, {0, 0, 0, 0}, {0xff, 0xff, 0xff, 0xff, 1}, []byte("GET / HTTP/1.1\r\n\r\n"), {0x15, 3, 1}, {0x17}}
	var last string
	for _, b := range said {
		c, err := net.Dial("tcp", ln.Address())
		require.NoError(t, err)
		if last == "" {
			last = c.LocalAddr().String()
		}
		_, err = c.Write(b)
		require.NoError(t, err)
		_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
		n, err := c.Read(make([]byte, 10))
		require.Zero(t, n)
		require.False(t, isTimeout(err), "%q is not closed", b)
		c.Close()
		// A peer is told by its connection's end, the log after that: the first one's line comes before the second's.
		require.Eventually(t, func() bool { return l.count("remote="+last) == 1 }, 30*time.Second, time.Millisecond)
	}
	require.Eventually(t, func() bool { return m.count("transport_plain_refused_total") == uint64(len(said)) }, 30*time.Second, time.Millisecond)
	for _, name := range []string{"transport_received_frames_total", "transport_received_bytes_total", "transport_limit_closes_total"} {
		require.Zero(t, m.count(name), name)
	}
	require.Empty(t, srv.opened, "no session is made")
	require.Equal(t, 1, l.count("plain connections are closed because"))
	require.Equal(t, 1, l.count("remote="+last))
	require.Zero(t, l.count("peers were closed"))
	require.NoError(t, tryEcho(t, dialTLS(a), ln.Address()), "TLS is served beside it")
}

func isTimeout(err error) bool {
	var n net.Error
	return err != nil && errors.As(err, &n) && n.Timeout()
}

// Who does not go on with a handshake is in nobody's way, however many do so: at once,
// or when there is time for a crowd when they are too many even for one.
func TestFloodOfHandshakes(t *testing.T) {
	const flood = 400
	t.Run("late", func(t *testing.T) { floodOfHandshakes(t, flood, 32, 0, 32) })
	t.Run("crowd", func(t *testing.T) { floodOfHandshakes(t, flood, 32, time.Hour, remoting.Crowd*32) })
}

func floodOfHandshakes(t *testing.T, flood, most int, grace time.Duration, left int) {
	a := tlstest.New(t)
	m := newMeter()
	tr, err := remoting.New(t.Context(), transport.Params{Settings: plugin.Settings{Meter: m}}, secured(a, a.Issue(t, "server", nil), remoting.TLSPermissive))
	require.NoError(t, err)
	remoting.Hurry(tr, time.Hour, grace, most)
	require.NoError(t, tr.Start(t.Context()))
	defer func() { require.NoError(t, tr.Shutdown(context.Background())) }()
	srv := newProbe()
	srv.echo = true
	ln := serve(t, tr, transport.Listen{Limits: transport.Limits{Connections: flood + 10}}, srv)
	hello := clientHello(t)
	for i := range flood {
		c, err := net.Dial("tcp", ln.Address())
		require.NoError(t, err)
		defer c.Close()
		_, err = c.Write(hello[:1+i%len(hello)]) // from one byte to all of it
		require.NoError(t, err)
		if i%100 == 99 {
			// Those that began later would make the next one the oldest.
			begun := func() bool {
				return remoting.Shaking(ln)+int(m.count("transport_tls_handshake_failures_total")) >= i+1
			}
			require.Eventually(t, begun, time.Minute, time.Millisecond)
			require.NoError(t, tryEcho(t, dialPlain, ln.Address()))
			require.NoError(t, tryEcho(t, dialTLS(a), ln.Address()))
		}
	}
	failed := func() bool { return m.count("transport_tls_handshake_failures_total") >= uint64(flood-left) }
	require.Eventually(t, failed, time.Minute, time.Millisecond)
	require.NoError(t, tryEcho(t, dialPlain, ln.Address()))
	require.NoError(t, tryEcho(t, dialTLS(a), ln.Address()))
}

// halting says one byte and goes on when all have said theirs.
type halting struct {
	net.Conn
	said *sync.WaitGroup
	once sync.Once
}

func (h *halting) Write(b []byte) (n int, err error) {
	h.once.Do(func() {
		if n, err = h.Conn.Write(b[:1]); err == nil {
			b = b[1:]
		}
		h.said.Done()
		h.said.Wait()
	})
	if err != nil {
		return 0, err
	}
	rest, err := h.Conn.Write(b)
	return n + rest, err
}

// All clients of a broker that was restarted come at once: none is in another's way.
func TestHerd(t *testing.T) {
	const most, clients = 8, 60
	a := tlstest.New(t)
	tr, err := remoting.New(t.Context(), transport.Params{}, secured(a, a.Issue(t, "server", nil), remoting.TLSPermissive))
	require.NoError(t, err)
	remoting.Hurry(tr, time.Hour, time.Hour, most)
	require.NoError(t, tr.Start(t.Context()))
	defer func() { require.NoError(t, tr.Shutdown(context.Background())) }()
	srv := newProbe()
	srv.echo = true
	ln := serve(t, tr, transport.Listen{}, srv)
	var said sync.WaitGroup
	said.Add(clients)
	errs := make(chan error, clients)
	for range clients {
		go func() {
			c, err := net.Dial("tcp", ln.Address())
			if err != nil {
				said.Done()
				errs <- err
				return
			}
			defer c.Close()
			errs <- echoed(tls.Client(&halting{Conn: c, said: &said}, &tls.Config{RootCAs: a.Pool(), ServerName: "localhost", MinVersion: tls.VersionTLS12}))
		}()
	}
	for range clients {
		require.NoError(t, <-errs)
	}
}

// A handshake that takes too long ends; a connection that says nothing at all is
// the janitor's.
func TestSlowHandshake(t *testing.T) {
	a := tlstest.New(t)
	tr, err := remoting.New(t.Context(), transport.Params{}, secured(a, a.Issue(t, "server", nil), remoting.TLSPermissive))
	require.NoError(t, err)
	remoting.Hurry(tr, 50*time.Millisecond, 0, 10)
	require.NoError(t, tr.Start(t.Context()))
	defer func() { require.NoError(t, tr.Shutdown(context.Background())) }()
	ln := serve(t, tr, transport.Listen{}, newProbe())
	hello := clientHello(t)
	for _, n := range []int{1, 5, len(hello) - 1, len(hello)} {
		c, err := net.Dial("tcp", ln.Address())
		require.NoError(t, err)
		_, err = c.Write(hello[:n])
		require.NoError(t, err)
		_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
		_, err = io.Copy(io.Discard, c)
		require.False(t, isTimeout(err), "after %d bytes", n)
		c.Close()
	}
}

// Who says nothing, or stops in a handshake, is closed when it was silent for too long,
// and counted as that.
func TestSilentAreIdle(t *testing.T) {
	for _, streams := range []bool{false, true} {
		m := newMeter()
		tr, err := remoting.New(t.Context(), transport.Params{Settings: plugin.Settings{Meter: m}}, remoting.NewDefaultConfig())
		require.NoError(t, err)
		remoting.Streams(tr, streams)
		remoting.Hurry(tr, time.Hour, 0, 10)
		require.NoError(t, tr.Start(t.Context()))
		srv := newProbe()
		ln := serve(t, tr, transport.Listen{Limits: transport.Limits{Idle: 20 * time.Millisecond}}, srv)
		for _, said := range []string{"", "\x16"} {
			c, err := net.Dial("tcp", ln.Address())
			require.NoError(t, err)
			_, _ = c.Write([]byte(said)) // fails when it is closed already
			_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
			_, err = io.Copy(io.Discard, c)
			require.False(t, isTimeout(err), "%q", said)
			c.Close()
		}
		require.Eventually(t, func() bool { return m.count("transport_idle_closes_total") == 2 }, 30*time.Second, time.Millisecond)
		require.Empty(t, srv.opened)
		require.NoError(t, tr.Shutdown(t.Context()))
	}
}

// Who speaks, or ends a handshake, only when the listener drains is closed: nobody would
// answer, and the drain would wait for it.
func TestDrainBeforeTheFirstByte(t *testing.T) {
	a := tlstest.New(t)
	pair := a.Issue(t, "server", nil)
	for _, streams := range []bool{false, true} {
		tr, err := remoting.New(t.Context(), transport.Params{}, secured(a, pair, remoting.TLSPermissive))
		require.NoError(t, err)
		remoting.Streams(tr, streams)
		require.NoError(t, tr.Start(t.Context()))
		srv := newProbe()
		srv.echo = true
		ln := serve(t, tr, transport.Listen{}, srv)
		var said sync.WaitGroup
		said.Add(2) // it, and the drain
		ended := make(chan error, 2)
		plain, err := net.Dial("tcp", ln.Address())
		require.NoError(t, err)
		other, err := net.Dial("tcp", ln.Address())
		require.NoError(t, err)
		go func() {
			ended <- echoed(tls.Client(&halting{Conn: other, said: &said}, &tls.Config{RootCAs: a.Pool(), ServerName: "localhost", MinVersion: tls.VersionTLS12}))
		}()
		require.Eventually(t, func() bool { return remoting.Shaking(ln) == 1 }, 30*time.Second, time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		drained := make(chan error, 1)
		go func() { drained <- ln.Drain(ctx) }()
		require.Eventually(t, func() bool {
			c, err := net.Dial("tcp", ln.Address())
			if err == nil {
				c.Close()
			}
			return err != nil
		}, 30*time.Second, time.Millisecond)
		said.Done()
		go func() { ended <- echoed(plain) }()
		for range 2 {
			err := <-ended
			require.Error(t, err)
			require.False(t, isTimeout(err), "streams %t", streams)
		}
		require.NoError(t, <-drained)
		cancel()
		require.Empty(t, srv.opened)
		require.NoError(t, tr.Shutdown(t.Context()))
		plain.Close()
		other.Close()
	}
}

// clientHello is what a client sends first.
func clientHello(t testing.TB) []byte {
	t.Helper()
	ours, theirs := net.Pipe()
	go func() {
		_ = tls.Client(theirs, &tls.Config{ServerName: "localhost", MinVersion: tls.VersionTLS12}).Handshake()
	}()
	buf := make([]byte, 4096)
	n, err := ours.Read(buf)
	require.NoError(t, err)
	require.NoError(t, ours.Close())
	return buf[:n]
}

// Certificates of clients: whom each setting lets in, and what it calls them.
func TestClientCertificates(t *testing.T) {
	a, stranger := tlstest.New(t), tlstest.New(t)
	server := a.Issue(t, "server", nil)
	known, unknown := load(t, a.Issue(t, "somebody", nil)), load(t, stranger.Issue(t, "nobody", nil))
	expired := load(t, a.Issue(t, "late", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }))
	const in, anonymous, out = "somebody", "", "refused"
	for _, x := range []struct {
		auth                          string
		verify                        bool
		none, known, unknown, expired string
	}{
		{remoting.ClientAuthNone, false, anonymous, anonymous, anonymous, anonymous},
		{remoting.ClientAuthOptional, false, anonymous, anonymous, anonymous, anonymous},
		{remoting.ClientAuthOptional, true, anonymous, in, out, out},
		{remoting.ClientAuthRequire, false, out, anonymous, anonymous, anonymous},
		{remoting.ClientAuthRequire, true, out, in, out, out},
	} {
		cfg := secured(a, server, remoting.TLSEnforcing)
		cfg.TLSClientAuth, cfg.TLSVerifyClients, cfg.TLSClientCAFile = x.auth, x.verify, a.CAFile
		tr := startWith(t, plugin.Settings{}, cfg)
		srv := newProbe()
		srv.echo = true
		ln := serve(t, tr, transport.Listen{}, srv)
		for want, certs := range map[*string][]tls.Certificate{&x.none: nil, &x.known: {known}, &x.unknown: {unknown}, &x.expired: {expired}} {
			err := tryEcho(t, dialAnyway(a, certs), ln.Address())
			if *want == out {
				require.Error(t, err, "%+v", x)
				continue
			}
			require.NoError(t, err, "%+v", x)
			require.Equal(t, transport.Identity{Name: *want, TLS: true}, (<-srv.opened).p.Identity(), "%+v", x)
		}
	}
}

// dialAnyway shows the certificate whatever authorities the server names.
func dialAnyway(a *tlstest.Authority, certs []tls.Certificate) func(string) (net.Conn, error) {
	return func(address string) (net.Conn, error) {
		c := &tls.Config{RootCAs: a.Pool(), MinVersion: tls.VersionTLS12}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if len(certs) == 0 {
				return &tls.Certificate{}, nil
			}
			return &certs[0], nil
		}
		return tls.Dial("tcp", address, c)
	}
}

func load(t *testing.T, p tlstest.Pair) tls.Certificate {
	t.Helper()
	c, err := tls.LoadX509KeyPair(p.Cert, p.Key)
	require.NoError(t, err)
	return c
}

// What a dialled connection demands of the server.
func TestDialVerifies(t *testing.T) {
	a, stranger := tlstest.New(t), tlstest.New(t)
	nameless := a.Issue(t, "server", func(c *x509.Certificate) { c.IPAddresses, c.DNSNames = nil, nil })
	for _, x := range []struct {
		name   string
		pair   tlstest.Pair
		change func(*remoting.Config)
		fails  string
	}{
		{"known", a.Issue(t, "server", nil), nil, ""},
		{"stranger", stranger.Issue(t, "server", nil), nil, "signed by unknown authority"},
		{"stranger, not verified", stranger.Issue(t, "server", nil), func(c *remoting.Config) { c.DialVerify = false }, ""},
		{"without a name", nameless, nil, "127.0.0.1"},
		{"without a name, any will do", nameless, func(c *remoting.Config) { c.DialVerifyName = false }, ""},
		{"stranger, any name", stranger.Issue(t, "server", nil), func(c *remoting.Config) { c.DialVerifyName = false }, "signed by unknown authority"},
		{"expired", a.Issue(t, "server", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }), nil, "expired"},
		{"of the test mode", tlstest.Pair{}, func(c *remoting.Config) { c.DialVerify = false }, ""},
	} {
		cfg := secured(a, x.pair, remoting.TLSEnforcing)
		if x.change != nil {
			x.change(&cfg)
		}
		tr := startWith(t, plugin.Settings{}, cfg)
		ln := serve(t, tr, transport.Listen{}, newProbe())
		p, err := tr.Dial(t.Context(), ln.Address(), transport.Limits{}, nil, newProbe())
		if x.fails != "" {
			require.ErrorContains(t, err, x.fails, x.name)
			continue
		}
		require.NoError(t, err, x.name)
		require.True(t, p.Identity().TLS)
	}
}

// Files that cannot be used stop the start, which says what is wrong.
func TestTLSFilesOfTheStart(t *testing.T) {
	a := tlstest.New(t)
	one, other := a.Issue(t, "one", nil), a.Issue(t, "other", nil)
	for name, x := range map[string]struct {
		cert, key string
		want      string
	}{
		"missing":     {"/does/not/exist.pem", one.Key, "does not exist"},
		"swapped":     {one.Key, one.Cert, "holds no certificate"},
		"mismatching": {one.Cert, other.Key, "does not belong to"},
	} {
		tr, err := remoting.New(t.Context(), transport.Params{}, remoting.Config{TLSMode: remoting.TLSPermissive, TLSCertFile: x.cert, TLSKeyFile: x.key})
		require.NoError(t, err)
		require.ErrorContains(t, tr.Start(t.Context()), x.want, name)
		require.NoError(t, tr.Shutdown(t.Context()))
	}
	for want, cfg := range map[string]remoting.Config{
		"tlsMode is":                 {TLSMode: "on"},
		"tlsClientAuth is":           {TLSClientAuth: "must"},
		"tlsCertFile is \"a\"":       {TLSCertFile: "a"},
		"there is no certificate":    {TLSMode: remoting.TLSEnforcing},
		"what nobody is asked for":   {TLSVerifyClients: true},
		"dialKeyFile is \"b\"; name": {DialKeyFile: "b"},
	} {
		_, err := remoting.New(t.Context(), transport.Params{}, cfg)
		require.ErrorContains(t, err, want)
	}
}

// Replaced files count for new connections; ones that cannot be used do not, and the
// log says so once.
func TestReload(t *testing.T) {
	a := tlstest.New(t)
	pair := a.Issue(t, "server", nil)
	var l logs
	m := newMeter()
	clock := &manualClock{timers: make(chan *manualTimer, 10)}
	cfg := secured(a, pair, remoting.TLSEnforcing)
	cfg.DialTLS = false
	tr := startWith(t, plugin.Settings{Clock: clock, Meter: m, Logger: slog.New(slog.NewTextHandler(&l, nil))}, cfg)
	timer := <-clock.timers
	require.Equal(t, tlsfiles.PollEvery, timer.d)
	srv := newProbe()
	srv.echo = true
	ln := serve(t, tr, transport.Listen{Limits: transport.Limits{Idle: -1}}, srv)
	shown := func() *x509.Certificate {
		c, err := dialTLS(a)(ln.Address())
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, echoed(c))
		return c.(*tls.Conn).ConnectionState().PeerCertificates[0]
	}
	look := func() {
		timer.fire()
		<-timer.reset // it has looked
	}
	old, err := dialTLS(a)(ln.Address())
	require.NoError(t, err)
	defer old.Close()
	require.NoError(t, echoed(old))
	first := shown()
	require.InDelta(t, float64(first.NotAfter.Unix()), m.gauge("transport_tls_certificate_expiry_seconds"), 1)

	look()
	require.Equal(t, first.SerialNumber, shown().SerialNumber)
	a.IssueTo(t, pair, "server", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(time.Hour) })
	look()
	look()
	second := shown()
	require.NotEqual(t, first.SerialNumber, second.SerialNumber)
	require.InDelta(t, float64(second.NotAfter.Unix()), m.gauge("transport_tls_certificate_expiry_seconds"), 1)
	require.EqualValues(t, 1, m.count("transport_tls_reloads_total"))
	require.Equal(t, 1, l.count("expires soon"))
	require.NoError(t, echoed(old), "connections go on")

	good, err := os.ReadFile(pair.Cert)
	require.NoError(t, err)
	for _, bad := range [][]byte{[]byte("nonsense"), nil, bytes.Replace(good, []byte("M"), []byte("?"), 1)} {
		failures := m.count("transport_tls_reload_failures_total")
		require.NoError(t, os.WriteFile(pair.Cert, bad, 0o600))
		look()
		require.Equal(t, failures, m.count("transport_tls_reload_failures_total"), "the other file may be on its way")
		for range 3 {
			look()
			require.Equal(t, failures+1, m.count("transport_tls_reload_failures_total"))
		}
		require.Equal(t, second.SerialNumber, shown().SerialNumber)
	}
	require.Equal(t, 3, l.count("the old ones still count"))
	a.IssueTo(t, pair, "server", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Second) })
	look()
	look()
	require.Equal(t, second.SerialNumber, shown().SerialNumber, "an expired one is no better")
	require.Equal(t, 1, l.count("is not valid now"))
	require.NoError(t, os.Remove(pair.Key))
	look()
	look()
	require.Equal(t, 1, l.count("does not exist"))
	a.IssueTo(t, pair, "server", nil)
	look()
	look()
	third := shown()
	require.NotEqual(t, second.SerialNumber, third.SerialNumber)
	require.EqualValues(t, 2, m.count("transport_tls_reloads_total"))

	// Who asks for it need not wait for looks.
	reload := tr.Capabilities().Reloader.Reload
	reload()
	require.Equal(t, 1, l.count("hold what counts already"))
	require.NoError(t, os.WriteFile(pair.Cert, good, 0o600))
	for n := range 2 {
		reload()
		require.Equal(t, 5+n+1, l.count("the old ones still count"), "each time that it is asked")
	}
	require.Equal(t, third.SerialNumber, shown().SerialNumber)
	a.IssueTo(t, pair, "server", nil)
	reload()
	require.NotEqual(t, third.SerialNumber, shown().SerialNumber)
	require.EqualValues(t, 3, m.count("transport_tls_reloads_total"))
	require.NoError(t, tr.Shutdown(t.Context()))
	said := l.count("TLS files")
	reload()
	require.Equal(t, said, l.count("TLS files"), "nothing when it does not run")
}

// Replaced authorities of clients count, too, beside a certificate of own making.
func TestReloadOfAuthorities(t *testing.T) {
	old, fresh := tlstest.New(t), tlstest.New(t)
	clock := &manualClock{timers: make(chan *manualTimer, 10)}
	tr := startWith(t, plugin.Settings{Clock: clock}, remoting.Config{
		TLSMode: remoting.TLSEnforcing, TLSTestMode: true, TLSClientAuth: remoting.ClientAuthRequire, TLSVerifyClients: true, TLSClientCAFile: old.CAFile,
	})
	timer := <-clock.timers
	srv := newProbe()
	srv.echo = true
	ln := serve(t, tr, transport.Listen{Limits: transport.Limits{Idle: -1}}, srv)
	as := func(a *tlstest.Authority) error {
		certs := []tls.Certificate{load(t, a.Issue(t, "somebody", nil))}
		return tryEcho(t, func(address string) (net.Conn, error) {
			return tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, Certificates: certs}) //nolint:gosec // nobody vouches for a certificate of own making
		}, ln.Address())
	}
	require.NoError(t, as(old))
	require.Error(t, as(fresh))
	text, err := os.ReadFile(fresh.CAFile)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(old.CAFile, text, 0o600))
	for range 2 {
		timer.fire()
		<-timer.reset
	}
	require.NoError(t, as(fresh))
	require.Error(t, as(old))
}

// FuzzFirstBytes: whatever a stranger says, a port that enforces TLS makes no session
// of it without a handshake, and serves others.
func FuzzFirstBytes(f *testing.F) {
	hello := clientHello(f)
	whole := frame(3)
	for _, b := range [][]byte{nil, {0}, {0x16}, {0x16, 3, 1, 0xff, 0xff}, hello, hello[:len(hello)/2], append([]byte{0x16, 3, 1, 0, 0}, hello...), whole.Append(nil), {0x80, 0x2e, 1, 3, 1}, []byte("PROXY TCP4 ")} {
		f.Add(b)
	}
	tr, err := remoting.New(f.Context(), transport.Params{}, remoting.Config{TLSMode: remoting.TLSEnforcing, TLSTestMode: true})
	require.NoError(f, err)
	require.NoError(f, tr.Start(f.Context()))
	f.Cleanup(func() { require.NoError(f, tr.Shutdown(context.Background())) })
	srv := newProbe()
	ln := serve(f, tr, transport.Listen{}, srv)
	f.Fuzz(func(t *testing.T, said []byte) {
		c, err := net.Dial("tcp", ln.Address())
		require.NoError(t, err)
		defer c.Close()
		_, _ = c.Write(said) // fails when the server has closed
		_ = c.(*net.TCPConn).CloseWrite()
		_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
		answer, err := io.ReadAll(c)
		require.False(t, isTimeout(err), "the server does not end a connection whose client has ended")
		require.Empty(t, srv.opened)
		if !strings.HasPrefix(string(said), "\x16") {
			require.Empty(t, answer)
		}
	})
}
