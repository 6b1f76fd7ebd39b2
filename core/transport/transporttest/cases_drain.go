package transporttest

import (
	"context"
	"testing"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/transport"
)

var drainCases = []testCase{
	{"nobody", testDrainNobody},
	{"answers", testDrainAnswers},
	{"context", testDrainContext},
}

func testDrainNobody(t *testing.T, h Harness) {
	r := h.serve(t, transport.Limits{})
	for range 2 {
		if err := r.ln.Drain(t.Context()); err != nil {
			t.Errorf("Drain: %v", err)
		}
	}
	if p, err := r.dialer.Dial(t.Context(), r.ln.Address(), transport.Limits{}, r.client, newRecorder(t, "client")); err == nil {
		_ = p.Close()
		t.Error("Dial succeeded after Drain")
	}
}

func testDrainAnswers(t *testing.T, h Harness) {
	r := h.serve(t, transport.Limits{})
	client, p, s := r.met()
	// Drain has begun when it stops those who want to connect.
	drained := make(chan error, 1)
	go func() { drained <- r.ln.Drain(t.Context()) }()
	for {
		c := newRecorder(t, "late client")
		late, err := r.dialer.Dial(t.Context(), r.ln.Address(), transport.Limits{}, r.client, c)
		if err != nil {
			break
		}
		_ = late.Close()
		_ = c.session(0).gone()
	}
	if err := p.Send(frame(command.JSON, 2, 1)); err != nil {
		t.Fatal(err)
	}
	if err := s.peer.Send(frame(command.JSON, 1, 300_000)); err != nil {
		t.Fatalf("Send of an answer while draining: %v", err)
	}
	client.session(0).wait(1)
	select {
	case err := <-drained:
		t.Fatalf("Drain returned %v before its peer was closed", err)
	default:
	}
	_ = s.peer.Close()
	if err := <-drained; err != nil {
		t.Errorf("Drain: %v", err)
	}
	_ = s.gone()
	s.wait(1) // what came after Drain did not arrive
}

func testDrainContext(t *testing.T, h Harness) {
	r := h.serve(t, transport.Limits{})
	_, _, s := r.met()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	mustBe(t, "Drain with a peer that stays", r.ln.Drain(ctx), context.DeadlineExceeded)
	if err := s.peer.Send(frame(command.JSON, 1, 1)); err != nil {
		t.Errorf("Send after Drain gave up: %v", err)
	}
}
