package transporttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/transport"
)

var limitCases = []testCase{
	{"frame", testFrameLimit},
	{"header", testHeaderLimit},
	{"connections", testConnections},
	{"slow", testSlow},
	{"largest_answer", testLargestAnswer},
	{"slow_together", testSlowTogether},
	{"idle", testIdle},
	{"idle_while_served", testIdleWhileServed},
}

func testFrameLimit(t *testing.T, h Harness) {
	const limit = 300_000
	r := h.serve(t, transport.Limits{Frame: limit})
	_, p := r.dial(transport.Limits{})
	f := frame(command.JSON, 1, 0)
	fits := frame(command.JSON, 1, limit-len(f.Header))
	for fits.Len() > limit { // the length is part of the header
		fits = frame(command.JSON, 1, len(fits.Body)-(fits.Len()-limit))
	}
	if err := p.Send(fits); err != nil {
		t.Fatal(err)
	}
	s := r.server.session(0)
	s.wait(1)
	_ = p.Send(frame(command.JSON, 1, len(fits.Body)+1)) // inproc may know at once
	mustBe(t, fmt.Sprintf("Closed after a frame of %d bytes, limit %d", fits.Len()+1, limit), s.gone(), transport.ErrLimit)
	s.wait(1)
}

func testHeaderLimit(t *testing.T, h Harness) {
	r := h.serve(t, transport.Limits{Header: 2000})
	_, p := r.dial(transport.Limits{})
	for i, n := range []int{1000, 3000} {
		w := command.Begin(nil, command.JSON, 10, 1, 0)
		w.ExtBytes("k", make([]byte, n/6)) // a NUL takes six bytes in JSON
		err := p.Send(command.Frame{Header: w.End(0)})
		if i == 0 {
			if err != nil {
				t.Fatal(err)
			}
			r.server.session(0).wait(1)
		}
	}
	mustBe(t, "Closed after a long header", r.server.session(0).gone(), transport.ErrLimit)
}

func testConnections(t *testing.T, h Harness) {
	r := h.serve(t, transport.Limits{Connections: 2}, echoes)
	alive := func() (transport.Peer, bool) {
		c := newRecorder(t, "client")
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		p, err := r.dialer.Dial(ctx, r.ln.Address(), transport.Limits{}, r.client, c)
		if err != nil {
			return nil, false
		}
		if err := p.Send(frame(command.JSON, 1, 1)); err != nil {
			return nil, false
		}
		s := c.session(0)
		c.until("an answer or the end", func() bool { return s.closed > 0 || s.count > 0 })
		c.mu.Lock()
		defer c.mu.Unlock()
		return p, s.count > 0
	}
	first, ok := alive()
	if _, second := alive(); !ok || !second {
		t.Fatal("the first two connections were not served")
	}
	if _, ok := alive(); ok {
		t.Fatal("a third connection was served, the limit is 2")
	}
	_ = first.Close()
	_ = r.server.session(0).gone()
	// The place is free at the latest a moment after Closed.
	deadline := time.Now().Add(patience)
	for {
		if _, ok := alive(); ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("no connection is served although one was closed")
		}
	}
}

// stuck is a client that does not read any more once something has arrived.
func stuck(gate chan struct{}) func(*recorder) {
	return func(c *recorder) {
		c.forget = true
		c.arrived = func(*session, []command.Frame) { <-gate }
	}
}

func testSlow(t *testing.T, h Harness) {
	const peerBytes = 1 << 20
	r := h.serve(t, transport.Limits{PeerBytes: peerBytes})
	gate := make(chan struct{})
	defer close(gate)
	_, p := r.dial(transport.Limits{}, stuck(gate))
	healthy, p2 := r.dial(transport.Limits{})
	for _, p := range []transport.Peer{p, p2} {
		if err := p.Send(frame(command.JSON, 1, 1)); err != nil {
			t.Fatal(err)
		}
	}
	byClient := map[string]*session{}
	for i := range 2 {
		s := r.server.session(i)
		byClient[s.peer.Remote().String()] = s
	}
	s, ok := byClient[p.Local().String()], byClient[p2.Local().String()]
	if s == nil || ok == nil {
		t.Fatal("the server's peers have other addresses than the clients")
	}
	f := frame(command.JSON, 2, 50_000)
	sent := 0
	// What the system buffers for both ends is not ours; 64 MiB is beyond it.
	var err error
	for err == nil && sent < 64<<20 {
		if err = s.peer.Send(f); err == nil {
			sent += f.Len()
		}
	}
	mustBe(t, fmt.Sprintf("Send to a peer that took %d bytes and does not read", sent), err, transport.ErrSlow)
	mustBe(t, "Send after ErrSlow", s.peer.Send(f), transport.ErrClosed)
	mustBe(t, "Closed", s.gone(), transport.ErrSlow)
	if err := ok.peer.Send(f); err != nil {
		t.Errorf("Send to another peer: %v", err)
	}
	healthy.session(0).wait(1)
}

// testLargestAnswer sends more than may pile up to a peer that has nothing to read.
func testLargestAnswer(t *testing.T, h Harness) {
	r := h.serve(t, transport.Limits{PeerBytes: 64 << 10})
	client, p := r.dial(transport.Limits{})
	if err := p.Send(frame(command.JSON, 1, 1)); err != nil {
		t.Fatal(err)
	}
	f := frame(command.JSON, 2, 8<<20)
	if err := r.server.session(0).peer.Send(f); err != nil {
		t.Fatalf("Send of %d bytes to a peer for which nothing waits: %v", f.Len(), err)
	}
	if got := client.session(0).wait(1); !bytes.Equal(got[0], f.Append(nil)) {
		t.Error("another frame arrived than was sent")
	}
}

// testSlowTogether has many peers that stay below their own budget.
func testSlowTogether(t *testing.T, h Harness) {
	const total = 4 << 20
	r := h.serve(t, transport.Limits{PeerBytes: 64 << 20, TotalBytes: total})
	gate := make(chan struct{})
	defer close(gate)
	f := frame(command.JSON, 2, 50_000)
	sent := 0
	for i := range 4 {
		_, p := r.dial(transport.Limits{}, stuck(gate))
		if err := p.Send(frame(command.JSON, 1, 1)); err != nil {
			t.Fatal(err)
		}
		s := r.server.session(i)
		for range 16 << 20 / f.Len() {
			err := s.peer.Send(f)
			if errors.Is(err, transport.ErrSlow) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			sent += f.Len()
		}
	}
	t.Errorf("%d bytes were taken for peers that do not read, the limit of all together is %d", sent, total)
}

// untilProven repeats a case about Limits.Idle with a longer time as long as try says
// that it proved nothing: this machine held up the client until it was silent itself.
func untilProven(t *testing.T, idle time.Duration, try func(idle time.Duration) bool) {
	t.Helper()
	for ; !try(idle); idle *= 2 {
		if idle > 4*patience {
			t.Fatalf("the client was held up for longer than %v", idle)
		}
	}
}

// talker is a client that says words, each when the one before is answered.
type talker struct {
	*rig
	c     *recorder
	p     transport.Peer
	words int
	heard time.Time // not before the last word that is known to have arrived
}

// say says a word and waits for its answer; the first time it connects.
func (r *talker) say() error {
	r.t.Helper()
	now := time.Now()
	if r.p == nil {
		r.heard = now
		ctx, cancel := context.WithTimeout(r.t.Context(), patience)
		defer cancel()
		var err error
		if r.p, err = r.dialer.Dial(ctx, r.ln.Address(), transport.Limits{Idle: -1}, r.client, r.c); err != nil {
			return err
		}
	}
	if err := r.p.Send(frame(command.JSON, 1, 1)); err != nil {
		return err
	}
	r.words++
	s := r.c.session(0)
	r.c.until("an answer or the end", func() bool { return s.closed > 0 || s.count >= r.words })
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	if s.count < r.words {
		return s.cause
	}
	r.heard = now
	return nil
}

// held fails the test when err, of say, came before a silence of idle.
func (r *talker) held(idle time.Duration, err error) {
	r.t.Helper()
	if silent := time.Since(r.heard); silent < idle {
		r.t.Fatalf("a peer that was silent for %v at most was closed, the limit is %v: %v", silent, idle, err)
	}
}

func testIdle(t *testing.T, h Harness) {
	untilProven(t, 400*time.Millisecond, func(idle time.Duration) bool {
		r := h.serve(t, transport.Limits{Idle: idle}, echoes)
		silent := &talker{rig: r, c: newRecorder(t, "silent client")}
		if err := silent.say(); err != nil {
			silent.held(idle, err)
			return false
		}
		s := r.server.session(0)
		talks := &talker{rig: r, c: newRecorder(t, "talking client")}
		ticker := time.NewTicker(idle / 8)
		defer ticker.Stop()
		for began := time.Now(); time.Since(began) < 2*idle; {
			if err := talks.say(); err != nil {
				talks.held(idle, err)
				return false
			}
			<-ticker.C
		}
		mustBe(t, "Closed of a silent peer", s.gone(), transport.ErrIdle)
		return true
	})
}

func testIdleWhileServed(t *testing.T, h Harness) {
	untilProven(t, 50*time.Millisecond, func(idle time.Duration) bool {
		var served atomic.Bool
		r := h.serve(t, transport.Limits{Idle: idle}, func(s *recorder) {
			s.arrived = func(s *session, in []command.Frame) {
				served.Store(true)
				timer := time.NewTimer(4 * idle) // the log is slow; that is not the peer's fault
				<-timer.C
				echo(s, in)
			}
		})
		client := &talker{rig: r, c: newRecorder(t, "client")}
		if err := client.say(); served.Load() && err != nil {
			t.Fatalf("a peer was closed while its word was served: %v", err)
		} else if err != nil {
			client.held(idle, err)
			return false
		}
		mustBe(t, "Closed", r.server.session(0).gone(), transport.ErrIdle)
		return true
	})
}
