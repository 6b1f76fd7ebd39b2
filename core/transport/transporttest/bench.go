package transporttest

import (
	"fmt"
	"sync"
	"testing"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/transport"
)

// Benchmark runs the shared benchmarks, with the transport at both ends:
// "echo/CxD", requests of 1 KiB over C connections with D under way on each,
// answered as an engine answers, by one Send for each read. An op is a request
// and its answer; in steady state neither end allocates.
func Benchmark(b *testing.B, h Harness) {
	for _, load := range []struct{ conns, depth int }{{1, 64}, {64, 1}, {4, 64}} {
		b.Run(fmt.Sprintf("echo/%dx%d", load.conns, load.depth), func(b *testing.B) { benchEcho(b, h, load.conns, load.depth) })
	}
}

func benchEcho(b *testing.B, h Harness, conns, depth int) {
	tr := h.start(b)
	d := tr.Capabilities().Dialer
	if d == nil {
		b.Fatal("the benchmark connects through the facet Dialer")
	}
	l := transport.Listen{Address: h.Address(b)}
	server, client := h.tls(b)
	l.TLS = server
	ln, err := tr.Serve(b.Context(), l, transport.Services{Frames: answering{}})
	if err != nil {
		b.Fatalf("Serve(%q): %v", l.Address, err)
	}
	b.Cleanup(func() {
		if err := ln.Close(); err != nil {
			b.Errorf("Listener.Close: %v", err)
		}
	})
	request := command.Frame{Header: command.AppendResponse(nil, command.JSON, 0, 1, "", 1024), Body: make([]byte, 1024)}
	peers := make([]*asking, conns)
	for i := range peers {
		a := &asking{depth: depth, done: make(chan error, 1)}
		for range depth {
			a.out = append(a.out, request)
		}
		if a.peer, err = d.Dial(b.Context(), ln.Address(), transport.Limits{}, client, a); err != nil {
			b.Fatalf("Dial(%q): %v", ln.Address(), err)
		}
		peers[i] = a
	}
	round := func(n int) {
		for _, a := range peers {
			a.begin(n)
		}
		for _, a := range peers {
			if err := <-a.done; err != nil {
				b.Fatal(err)
			}
		}
	}
	round(8) // buffers have their size
	b.SetBytes(int64(request.Len()))
	b.ReportAllocs()
	b.ResetTimer()
	round(b.N/(conns*depth) + 1)
	b.StopTimer()
}

// answering is what an engine does at least.
type answering struct{}

func (answering) Opened(p transport.Peer) transport.Session {
	return &answeringSession{peer: p, one: command.AppendResponse(nil, command.JSON, 0, 1, "", 0)}
}

func (answering) Settle() {}

type answeringSession struct {
	peer transport.Peer
	one  []byte
	many []byte
	out  [1]command.Frame
}

func (s *answeringSession) Arrived(in []command.Frame) {
	s.many = s.many[:0]
	for range in {
		s.many = append(s.many, s.one...)
	}
	s.out[0].Raw = s.many
	_ = s.peer.Send(s.out[:]...) // a client that is gone has nothing to be told
}

func (s *answeringSession) Closed(error) {}

// asking is a client that sends its requests again when all are answered.
type asking struct {
	peer  transport.Peer
	out   []command.Frame
	depth int
	done  chan error

	mu     sync.Mutex
	rounds int // left
	wait   int // answers left in this round
}

func (a *asking) Opened(transport.Peer) transport.Session { return a }
func (a *asking) Settle()                                 {}

func (a *asking) begin(rounds int) {
	a.mu.Lock()
	a.rounds, a.wait = rounds, a.depth
	a.mu.Unlock()
	if err := a.peer.Send(a.out...); err != nil {
		a.end(err)
	}
}

func (a *asking) Arrived(in []command.Frame) {
	a.mu.Lock()
	a.wait -= len(in)
	again, over := false, false
	if a.wait == 0 {
		a.rounds--
		again, over, a.wait = a.rounds > 0, a.rounds == 0, a.depth
	}
	a.mu.Unlock()
	if over {
		a.end(nil)
	} else if again {
		if err := a.peer.Send(a.out...); err != nil {
			a.end(err)
		}
	}
}

func (a *asking) Closed(err error) { a.end(err) }

// end tells the first end only: the connection is closed after the last round.
func (a *asking) end(err error) {
	select {
	case a.done <- err:
	default:
	}
}
