package transporttest

import (
	"bytes"
	"context"
	"io"
	"net"
	"slices"
	"testing"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/transport"
)

// moveCases are about the facet Mover, between two transports of a factory.
var moveCases = []testCase{
	{"mover_offered", testMoverOffered},
	{"move_listener", testMoveListener},
	{"move_peer", testMovePeer},
	{"move_under_load", testMoveUnderLoad},
	{"move_refused", testMoveRefused},
}

func testMoverOffered(t *testing.T, h Harness) {
	m := h.start(t).Capabilities().Mover
	if lacks := slices.Contains(h.Lacks, transport.FacetMover); lacks != (m == nil) {
		t.Fatalf("the transport offers the facet %s: %t; the harness says that it lacks it: %t; the two have to agree (Lacks)", transport.FacetMover, m != nil, lacks)
	}
}

// movers is a rig whose listener can be moved to another transport.
type movers struct {
	*rig
	from, to transport.Mover
	next     *recorder // serves in the other one
}

func (h Harness) movers(t *testing.T, change ...func(*recorder)) *movers {
	t.Helper()
	if slices.Contains(h.Lacks, transport.FacetMover) {
		t.Skip("named as lacking by the harness: the facet Mover")
	}
	if h.TLS != nil || h.Encrypted {
		t.Skip("keys of TLS connections do not move")
	}
	if h.Bytes == nil {
		t.Skip("the transport has no byte stream")
	}
	m := &movers{rig: h.serve(t, transport.Limits{}, change...), next: newRecorder(t, "next server")}
	for _, c := range change {
		c(m.next)
	}
	m.from, m.to = m.tr.Capabilities().Mover, h.start(t).Capabilities().Mover
	if m.from == nil || m.to == nil {
		t.Fatalf("the transport does not offer the facet %s: offer it, or name it in Lacks of the harness", transport.FacetMover)
	}
	return m
}

// moveListener has the other transport accept.
func (m *movers) moveListener() transport.Listener {
	m.t.Helper()
	f, err := m.from.GiveListener(m.ln)
	if err != nil {
		m.t.Fatalf("GiveListener: %v", err)
	}
	ln, err := m.to.TakeListener(f, transport.Listen{}, transport.Services{Frames: m.next})
	if err != nil {
		m.t.Fatalf("TakeListener: %v", err)
	}
	if ln.Address() != m.ln.Address() {
		m.t.Errorf("it listens on %s in the one transport, on %s in the other", m.ln.Address(), ln.Address())
	}
	m.t.Cleanup(func() { _ = ln.Close() })
	return ln
}

// movePeer has a peer go on in the other transport.
func (m *movers) movePeer(p transport.Peer, ln transport.Listener) {
	m.t.Helper()
	moving, err := m.from.GivePeer(m.t.Context(), p)
	if err != nil {
		m.t.Fatalf("GivePeer: %v", err)
	}
	if _, err := m.to.TakePeer(ln, transport.Limits{}, moving, m.next); err != nil {
		m.t.Fatalf("TakePeer: %v", err)
	}
}

// testMoveListener: who connects while nobody accepts is served by the next one.
func testMoveListener(t *testing.T, h Harness) {
	m := h.movers(t, echoes)
	old := m.bytes()
	exchanged(t, old, 1)
	f, err := m.from.GiveListener(m.ln)
	if err != nil {
		t.Fatalf("GiveListener: %v", err)
	}
	between := m.bytes()
	ln, err := m.to.TakeListener(f, transport.Listen{}, transport.Services{Frames: m.next})
	if err != nil {
		t.Fatalf("TakeListener: %v", err)
	}
	exchanged(t, between, 2)
	exchanged(t, m.bytes(), 3)
	exchanged(t, old, 4)
	if err := ln.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	exchanged(t, old, 5)
}

// testMovePeer: half a frame that was read, what is not read and answers go the
// right way, each once.
func testMovePeer(t *testing.T, h Harness) {
	m := h.movers(t)
	c := m.bytes()
	frames, all := stream(3, 200_000)
	cut := len(frames[0]) + len(frames[1])/2
	write(t, c, all[:cut])
	s := m.server.session(0)
	s.wait(1)
	answer := frame(command.JSON, 77, 300_000) // more than the system buffers at once
	sent := make(chan error, 1)
	go func() {
		got := make([]byte, len(raw(answer)))
		_, err := io.ReadFull(c, got)
		if err == nil && !bytes.Equal(got, raw(answer)) {
			t.Error("what was sent before is changed")
		}
		sent <- err
	}()
	if err := s.peer.Send(answer); err != nil {
		t.Fatal(err)
	}
	m.movePeer(s.peer, m.moveListener())
	if err := <-sent; err != nil {
		t.Fatalf("what was sent before: %v", err)
	}
	write(t, c, all[cut:])
	next := m.next.session(0)
	same(t, next.wait(2), frames[1:])
	if next.peer.Remote() != s.peer.Remote() {
		t.Errorf("the peer at %v is at %v now", s.peer.Remote(), next.peer.Remote())
	}
	small := frame(command.JSON, 78, 10)
	if err := next.peer.Send(small); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, len(raw(small)))); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	_ = next.gone()
	if s.closed > 0 {
		t.Error("the session that gave its peer away was told that it is closed")
	}
	mustBe(t, "Send to a peer that was given away", s.peer.Send(small), transport.ErrClosed)
	_, err := m.from.GivePeer(t.Context(), s.peer)
	mustBe(t, "GivePeer a second time", err, transport.ErrClosed)
}

// testMoveUnderLoad moves a peer back and forth while it sends without a pause.
func testMoveUnderLoad(t *testing.T, h Harness) {
	m := h.movers(t, echoes)
	c := m.bytes()
	frames, all := stream(2000, 3000)
	go func() { _, _ = c.Write(all) }()
	done := make(chan struct{})
	go func() {
		defer close(done)
		got := make([]byte, len(all))
		if n, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, all) {
			t.Errorf("%d of %d bytes of %d frames came back (%v), or changed", n, len(all), len(frames), err)
		}
	}()
	lns := []transport.Listener{m.ln, m.moveListener()}
	from, to := m.from, m.to
	p := m.server.session(0).peer
	for i := range 20 {
		moving, err := from.GivePeer(t.Context(), p)
		if err != nil {
			t.Fatalf("GivePeer: %v", err)
		}
		if p, err = to.TakePeer(lns[(i+1)%2], transport.Limits{}, moving, m.next); err != nil {
			t.Fatalf("TakePeer: %v", err)
		}
		from, to = to, from
	}
	<-done
}

func testMoveRefused(t *testing.T, h Harness) {
	m := h.movers(t, echoes)
	c := m.bytes()
	exchanged(t, c, 1)
	p := m.server.session(0).peer
	if _, err := m.to.GiveListener(m.ln); err == nil {
		t.Error("a transport gave away a listener of another one")
	}
	if _, err := m.to.GivePeer(t.Context(), p); err == nil {
		t.Error("a transport gave away a peer of another one")
	}
	exchanged(t, c, 2)
	_ = p.Close()
	_ = m.server.session(0).gone()
	_, err := m.from.GivePeer(t.Context(), p)
	mustBe(t, "GivePeer of a closed peer", err, transport.ErrClosed)
	// One that does not read what it was sent keeps GivePeer until the context ends.
	deaf := m.bytes()
	exchanged(t, deaf, 3)
	s := m.server.session(1)
	for range 40 {
		if err := s.peer.Send(frame(command.JSON, 4, 200_000)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = m.from.GivePeer(ctx, s.peer)
	mustBe(t, "GivePeer of one that does not read", err, context.Canceled)
	_ = s.gone()
}

func raw(f command.Frame) []byte { return f.Append(nil) }

// exchanged sends a frame to a server that echoes.
func exchanged(t *testing.T, c net.Conn, opaque int32) {
	t.Helper()
	want := raw(frame(command.JSON, opaque, 1000))
	write(t, c, want)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("frame %d did not come back (%v)", opaque, err)
	}
}
