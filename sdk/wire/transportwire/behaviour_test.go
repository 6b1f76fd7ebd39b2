package transportwire

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/internal/wiretest"
	"github.com/hardpointmq/hardpoint/plugins/transport/remoting"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
	"github.com/hardpointmq/hardpoint/sdk/wire/transportwire/transportpb"
)

const patience = time.Minute

// both is a running transport over the wire, with its plugin's half.
func both(t *testing.T) (*remote, *Server) {
	t.Helper()
	s := NewServer(nil, remoting.NewFactory())
	tr, err := NewFactory(remoting.Name, wiretest.New(t, s)).Build(t.Context(), transport.Params{}, nil)
	require.NoError(t, err)
	require.NoError(t, tr.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, tr.Shutdown(context.WithoutCancel(t.Context()))) })
	return tr.(*remote), s
}

// gated is a handler that echoes; peers whose first byte of the body is 1 are
// held in Arrived, others are not.
type gated struct {
	hold, open chan struct{}
	mu         sync.Mutex
	closed     []error
	told       chan struct{}
}

func newGated() *gated {
	g := &gated{hold: make(chan struct{}), open: make(chan struct{}), told: make(chan struct{}, 1000)}
	close(g.open)
	return g
}

type gatedSession struct {
	g *gated
	p transport.Peer
}

func (g *gated) Opened(p transport.Peer) transport.Session {
	<-g.open
	return &gatedSession{g, p}
}
func (g *gated) Settle() {}
func (s *gatedSession) Arrived(in []command.Frame) {
	if in[0].Body[0] == 1 {
		<-s.g.hold
	}
	_ = s.p.Send(in...)
}
func (s *gatedSession) Closed(err error) {
	s.g.mu.Lock()
	s.g.closed = append(s.g.closed, err)
	s.g.mu.Unlock()
	s.g.told <- struct{}{}
}

func request(first byte, n int) []byte {
	b := whole(n)
	b[len(b)-n] = first
	return b
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	return c
}

func exchange(t *testing.T, c net.Conn, b []byte) {
	t.Helper()
	_, err := c.Write(b)
	require.NoError(t, err)
	answer(t, c, b)
}

func answer(t *testing.T, c net.Conn, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	_, err := io.ReadFull(c, got)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got))
}

// TestOneWaitsAlone: a session that is held up, and one that takes nothing of
// what it is sent, hold up nobody else.
func TestOneWaitsAlone(t *testing.T) {
	tr, _ := both(t)
	g := newGated()
	ln, err := tr.Serve(t.Context(), transport.Listen{Address: "127.0.0.1:0"}, transport.Services{Frames: g})
	require.NoError(t, err)
	var held []net.Conn
	for range 20 {
		c := dial(t, ln.Address())
		_, err := c.Write(request(1, 1000))
		require.NoError(t, err)
		held = append(held, c)
	}
	deaf := dial(t, ln.Address())
	go func() { _, _ = io.CopyN(deaf, forever{}, 12<<20) }() // its answers fill all buffers
	c := dial(t, ln.Address())
	for n := range 200 {
		exchange(t, c, request(2, 1+n*50))
	}
	close(g.hold)
	for _, c := range held {
		answer(t, c, request(1, 1000))
	}
	_ = deaf.Close()
	require.NoError(t, ln.Close())
}

// forever is requests without an end.
type forever struct{}

func (forever) Read(b []byte) (int, error) {
	one := request(3, 20_000)
	if len(b) < len(one) {
		return 0, io.ErrShortBuffer
	}
	return copy(b, one), nil
}

// TestGate: peers that the engine does not let in yet do not keep it from
// connecting itself, nor from closing the listener.
func TestGate(t *testing.T) {
	tr, _ := both(t)
	g := newGated()
	g.open = make(chan struct{})
	ln, err := tr.Serve(t.Context(), transport.Listen{Address: "127.0.0.1:0"}, transport.Services{Frames: g})
	require.NoError(t, err)
	early := dial(t, ln.Address())
	_, err = early.Write(request(2, 10))
	require.NoError(t, err)
	other, err := tr.Serve(t.Context(), transport.Listen{Address: "127.0.0.1:0"}, transport.Services{Frames: newGated()})
	require.NoError(t, err)
	h := newGated()
	p, err := tr.Dial(t.Context(), other.Address(), transport.Limits{}, nil, h)
	require.NoError(t, err)
	require.NoError(t, p.Send(command.Frame{Raw: request(2, 10)}))
	require.NoError(t, p.Close())
	<-h.told
	close(g.open)
	answer(t, early, request(2, 10))
	require.NoError(t, ln.Close())
}

// servedAgain waits until an address answers, after the process that served it died.
func servedAgain(t *testing.T, address string) {
	t.Helper()
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return false
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		if _, err := c.Write(request(2, 10)); err != nil {
			return false
		}
		_, err = io.ReadFull(c, make([]byte, len(request(2, 10))))
		return err == nil
	}, patience, 10*time.Millisecond, "the address is not served again")
}

// TestGarbage: a plugin that does not speak the protocol is given up, by name;
// what it served is served again.
func TestGarbage(t *testing.T) {
	for name, say := range map[string]func(o *outbox){
		"unknown kind":   func(o *outbox) { o.put(lastKind+1, 1, nil, true) },
		"host's kind":    func(o *outbox) { o.put(kindSend, 1, []byte("x"), true) },
		"unknown peer":   func(o *outbox) { o.put(kindArrived, 99, whole(1), true) },
		"old peer":       func(o *outbox) { o.put(kindOpened, 1, someone(1), true) },
		"empty Opened":   func(o *outbox) { o.put(kindOpened, 99, nil, true) },
		"text":           func(o *outbox) { o.put(kindClosed, 1, []byte("HTTP/1.1 400 Bad Request\r\n\r\n"), true) },
		"a huge closing": func(o *outbox) { o.put(kindClosed, 1, make([]byte, maxNote+1), true) },
	} {
		t.Run(name, func(t *testing.T) {
			tr, s := both(t)
			g := newGated()
			ln, err := tr.Serve(t.Context(), transport.Listen{Address: "127.0.0.1:0"}, transport.Services{Frames: g})
			require.NoError(t, err)
			c := dial(t, ln.Address())
			exchange(t, c, request(2, 10))
			i, err := s.open.Get(1)
			require.NoError(t, err)
			say(&i.out)
			<-g.told
			g.mu.Lock()
			require.ErrorIs(t, g.closed[0], plugin.ErrUnavailable)
			require.ErrorIs(t, g.closed[0], data.ErrFrame)
			require.ErrorContains(t, g.closed[0], remoting.Name)
			g.mu.Unlock()
			_, err = io.Copy(io.Discard, c)
			require.NoError(t, err, "the peer's connection ends")
			servedAgain(t, ln.Address())
			require.NoError(t, ln.Close())
		})
	}
}

// standIn is a peer of the plugin that has no connection: the test says what it reads,
// and knows when the host has answered.
type standIn struct{ shut chan struct{} }

func (standIn) ID() string                   { return "stand-in" }
func (standIn) Remote() netip.AddrPort       { return netip.MustParseAddrPort("127.0.0.1:1") }
func (standIn) Local() netip.AddrPort        { return netip.MustParseAddrPort("127.0.0.1:2") }
func (standIn) Identity() transport.Identity { return transport.Identity{} }
func (standIn) Send(...command.Frame) error  { return nil }
func (p standIn) Close() error {
	select {
	case p.shut <- struct{}{}:
	default: // it was told before
	}
	return nil
}

// TestBrokenFrames: what a plugin hands in that is no whole frame closes the
// peer, not the process.
func TestBrokenFrames(t *testing.T) {
	tr, s := both(t)
	g := newGated()
	ln, err := tr.Serve(t.Context(), transport.Listen{Address: "127.0.0.1:0"}, transport.Services{Frames: g})
	require.NoError(t, err)
	bystander := dial(t, ln.Address())
	exchange(t, bystander, request(2, 10))
	i, err := s.open.Get(1)
	require.NoError(t, err)
	origin := ln.(*listener).num
	p := standIn{make(chan struct{}, 1)}
	session := (&handler{i: i, origin: origin}).Opened(p)
	session.Arrived([]command.Frame{{Raw: append(request(2, 10), 0, 0)}})
	select {
	case <-p.shut:
	case <-time.After(patience):
		t.Fatal("the peer of the broken frame is not closed")
	}
	session.Closed(transport.ErrClosed)
	<-g.told
	g.mu.Lock()
	require.ErrorIs(t, g.closed[0], data.ErrFrame)
	g.mu.Unlock()
	exchange(t, bystander, request(2, 10))
}

// TestManyPeers: many peers at once, each with its own order.
func TestManyPeers(t *testing.T) {
	tr, _ := both(t)
	ln, err := tr.Serve(t.Context(), transport.Listen{Address: "127.0.0.1:0"}, transport.Services{Frames: newGated()})
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			c, err := net.Dial("tcp", ln.Address())
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			var all []byte
			for n := range 30 {
				all = append(all, request(byte(2+n), 1+n*40)...)
			}
			got := make([]byte, len(all))
			if _, err := c.Write(all); err != nil {
				t.Error(err)
			}
			if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(all, got) {
				t.Errorf("answers are not what was sent, in its order (%v)", err)
			}
		})
	}
	wg.Wait()
	require.NoError(t, ln.Close())
}

// TestBudget: what waits for the process counts, not what is sent now.
func TestBudget(t *testing.T) {
	l := &link{} // nobody writes
	l.out.open(nil)
	o := newOrigin(newGated(), transport.Limits{PeerBytes: 1000, TotalBytes: 5000}, new(atomic.Int64))
	send := func(p *peer, n int) error { return p.Send(command.Frame{Raw: make([]byte, n)}) }
	p := newPeer(&seat{l, 1, o}, o, opened{})
	require.NoError(t, send(p, 10))
	require.NoError(t, send(p, 2000), "the peer's connection may take it all")
	require.ErrorIs(t, send(p, 1), transport.ErrSlow)
	require.ErrorIs(t, send(p, 1), transport.ErrClosed)
	q := newPeer(&seat{l, 2, o}, o, opened{})
	require.NoError(t, send(q, 4000))
	r := newPeer(&seat{l, 3, o}, o, opened{})
	require.ErrorIs(t, send(r, 1), transport.ErrSlow, "all together")
	l.out.settle(l.out.end)
	require.Zero(t, o.unsent.Load())
	require.Zero(t, q.waiting.Load())
	s := newPeer(&seat{l, 4, o}, o, opened{})
	require.NoError(t, send(s, 4000))
	s.closed(transport.ErrSlow) // the plugin says so
	require.ErrorIs(t, send(s, 1), transport.ErrSlow)
	require.ErrorIs(t, send(s, 1), transport.ErrClosed)
}

// socketless is a plugin's half whose instances have no data socket.
type socketless struct{ *Server }

func (s socketless) Register(r grpc.ServiceRegistrar) { transportpb.RegisterTransportServer(r, s) }

func (s socketless) Open(ctx context.Context, r *transportpb.OpenRequest) (*transportpb.OpenResponse, error) {
	out, err := s.Server.Open(ctx, r)
	out.Socket = ""
	return out, err
}

// TestNoSocket: a plugin that forgets its data socket does not harm the host.
func TestNoSocket(t *testing.T) {
	p := wiretest.New(t, socketless{NewServer(nil, remoting.NewFactory())})
	tr, err := NewFactory(remoting.Name, p).Build(t.Context(), transport.Params{}, nil)
	require.NoError(t, err)
	err = tr.Start(t.Context())
	require.ErrorIs(t, err, plugin.ErrUnavailable)
	require.ErrorContains(t, err, `transport plugin "remoting"`)
	require.ErrorContains(t, err, "fault of the plugin")
}

// slow is a handler whose Opened takes until it may end.
type slow struct {
	gated
	entered, end chan struct{}
}

func (s *slow) Opened(p transport.Peer) transport.Session {
	close(s.entered)
	<-s.end
	return &gatedSession{&s.gated, p}
}

// TestDrainEnds: a session that takes long keeps no Drain beyond its time, even
// when the process is gone.
func TestDrainEnds(t *testing.T) {
	p := wiretest.New(t, NewServer(nil, remoting.NewFactory()))
	tr, err := NewFactory(remoting.Name, p).Build(t.Context(), transport.Params{}, nil)
	require.NoError(t, err)
	require.NoError(t, tr.Start(t.Context()))
	h := &slow{gated: gated{told: make(chan struct{}, 1)}, entered: make(chan struct{}), end: make(chan struct{})}
	ln, err := tr.Serve(t.Context(), transport.Listen{Address: "127.0.0.1:0"}, transport.Services{Frames: h})
	require.NoError(t, err)
	_, err = dial(t, ln.Address()).Write([]byte{0}) // before, it may become one with TLS
	require.NoError(t, err)
	<-h.entered
	p.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	drained := make(chan error, 1)
	go func() { drained <- ln.Drain(ctx) }()
	select {
	case err := <-drained:
		require.ErrorIs(t, err, context.DeadlineExceeded)
	case <-time.After(patience):
		t.Fatal("Drain waits for the session")
	}
	close(h.end)
	<-h.told
	require.NoError(t, tr.Shutdown(context.WithoutCancel(t.Context())))
}
