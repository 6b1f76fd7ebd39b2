package transportwire

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/core/transport/transporttest"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
)

// said is a frame.
func said(k data.Kind, id uint64, body ...byte) []byte {
	b := append(data.Begin(nil), body...)
	data.Finish(b, 0, k, id, 0, 0)
	return b
}

func whole(n int) []byte {
	return append(command.AppendResponse(nil, command.JSON, 0, 1, "", n), make([]byte, n)...)
}

func someone(origin uint64) []byte {
	at := netip.MustParseAddrPort("[::1]:10911")
	return putOpened(nil, &opened{
		origin: origin, id: "one", remote: netip.MustParseAddrPort("10.0.0.1:999"), local: at,
		who: transport.Identity{Name: "somebody", TLS: true, Attributes: map[string]string{"zone": "a"}},
	})
}

// fed is a connection that yields one frame per read, when ready says so. What is
// written to it is dropped.
type fed struct {
	net.Conn
	in     []byte
	ready  func()
	closed atomic.Bool
}

func (c *fed) Read(b []byte) (int, error) {
	c.ready()
	n := len(c.in)
	if n == 0 {
		return 0, io.EOF
	}
	if n >= data.HeadSize {
		n = min(n, data.HeadSize+int(binary.LittleEndian.Uint32(c.in)))
	}
	n = copy(b, c.in[:n])
	c.in = c.in[n:]
	return n, nil
}

func (c *fed) Write(b []byte) (int, error) {
	if c.closed.Load() {
		return 0, net.ErrClosed
	}
	return len(b), nil
}

func (c *fed) Close() error {
	c.closed.Store(true)
	return nil
}

// strict is a handler that checks the order of calls.
type strict struct {
	t    *testing.T
	mu   sync.Mutex
	open int
}

type strictSession struct {
	s      *strict
	p      transport.Peer
	inside atomic.Bool
	closed atomic.Bool
}

func (s *strict) Opened(p transport.Peer) transport.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open++
	return &strictSession{s: s, p: p}
}

func (s *strict) Settle() {}

func (s *strictSession) call() func() {
	if s.inside.Swap(true) || s.closed.Load() {
		s.s.t.Error("calls of a session overlap, or one comes after Closed")
	}
	return func() { s.inside.Store(false) }
}

func (s *strictSession) Arrived(in []command.Frame) {
	defer s.call()()
	if len(in) == 0 {
		s.s.t.Error("Arrived without a frame")
	}
	_ = s.p.Send(in...)
}

func (s *strictSession) Closed(err error) {
	s.call()
	s.closed.Store(true)
	if err == nil {
		s.s.t.Error("Closed without a reason")
	}
	s.s.mu.Lock()
	defer s.s.mu.Unlock()
	s.s.open--
}

// FuzzHost: whatever a plugin says, sessions see the rules of the contract, and
// every one ends.
func FuzzHost(f *testing.F) {
	open := said(kindOpened, 1, someone(1)...)
	arrived := said(kindArrived, 1, whole(10)...)
	closed := said(kindClosed, 1, data.PutFailure(nil, io.EOF)...)
	f.Add(bytes.Join([][]byte{open, arrived, arrived, closed}, nil))
	f.Add(bytes.Join([][]byte{open, said(kindOpened, 2, someone(7)...), arrived, said(kindArrived, 2, whole(1)...), closed, closed}, nil))
	f.Add(bytes.Join([][]byte{open, said(kindArrived, 1, append(whole(3), 1, 2)...)}, nil))
	f.Add(bytes.Join([][]byte{open, said(kindArrived, 1)}, nil))
	f.Add(bytes.Join([][]byte{open, said(kindClosed, 1)}, nil))
	f.Add(bytes.Join([][]byte{arrived, open}, nil))
	f.Add(said(kindTook, 1))
	f.Fuzz(func(t *testing.T, in []byte) {
		tr := &remote{}
		l := &link{t: tr, over: make(chan struct{}), peers: map[uint64]*peer{}, origins: map[uint64]*origin{}}
		l.gone.L = &l.mu
		h := &strict{t: t}
		l.add(1, newOrigin(h, transport.Limits{Frame: 1000}, new(atomic.Int64)))
		c := &fed{in: in, ready: func() {
			for busy := true; busy; runtime.Gosched() {
				busy = false
				l.mu.Lock()
				for _, p := range l.peers {
					p.mu.Lock()
					busy = busy || p.busy
					p.mu.Unlock()
				}
				l.mu.Unlock()
			}
		}}
		l.conn = c
		l.out.open(c)
		l.tasks.Go(func() { _ = l.out.run() })
		if err := l.read(); err == nil {
			t.Error("the end of a connection is no error")
		}
		l.ending.Store(true)
		l.fail(io.EOF)
		l.join()
		if h.open != 0 {
			t.Errorf("%d sessions were not told the end", h.open)
		}
	})
}

// FuzzPlugin: whatever a host says, the plugin's peers get whole bodies or
// nothing.
func FuzzPlugin(f *testing.F) {
	send := said(kindSend, 1, whole(100)...)
	f.Add(bytes.Join([][]byte{send, said(kindTook, 1), said(kindMark, 7), said(kindSend, 2, whole(readSize)...), said(kindClose, 1), send}, nil))
	f.Add(said(kindTook, 2))
	f.Add(said(kindSend, 9, whole(1)...))
	f.Add(said(kindClose, 1, 5))
	f.Add(said(kindArrived, 1))
	f.Fuzz(func(t *testing.T, in []byte) {
		i := newInstance()
		defer i.cancel()
		var sent int
		for n := range uint64(3) {
			p := transporttest.NewPeer(netip.AddrPort{})
			g := &guest{i: i, p: p, num: n, took: make(chan struct{}, 1)}
			g.asks.Store(n == 1)
			i.guests[n] = g
			defer func() {
				for _, f := range p.Take() {
					sent += len(f.Raw)
				}
				if sent > len(in) {
					t.Errorf("%d bytes were sent of %d", sent, len(in))
				}
			}()
		}
		if err := i.read(&fed{in: in, ready: func() {}}); err == nil {
			t.Error("the end of a connection is no error")
		}
	})
}

func TestOpenedCrosses(t *testing.T) {
	o := opened{origin: 5, id: "x-1", remote: netip.MustParseAddrPort("192.0.2.7:80"), who: transport.Identity{Attributes: map[string]string{"a": "b", "c": ""}}}
	got, err := readOpened(putOpened(nil, &o))
	if err != nil || got.id != o.id || got.remote != o.remote || got.local.IsValid() || len(got.who.Attributes) != 2 || got.origin != 5 {
		t.Errorf("%+v became %+v (%v)", o, got, err)
	}
}
