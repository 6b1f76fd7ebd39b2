package transporttest

import (
	"bytes"
	"sync"
	"testing"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/transport"
)

var frameCases = []testCase{
	{"sizes", testSizes},
	{"pieces", testPieces},
	{"runs", testRuns},
	{"order", testOrder},
	{"both_directions", testBothDirections},
	{"lent", testLent},
	{"concurrent_send", testConcurrentSend},
	{"many_peers", testManyPeers},
	{"backlog", testBacklog},
}

// exchange sends frames one by one and compares what comes back.
func exchange(t *testing.T, r *rig, sizes []int) {
	t.Helper()
	client, p := r.dial(transport.Limits{})
	var want [][]byte
	for i, n := range sizes {
		f := frame(headerType(i), int32(i), n)
		want = append(want, f.Append(nil))
		if err := p.Send(f); err != nil {
			t.Fatalf("Send of %d bytes: %v", f.Len(), err)
		}
		got := client.session(0).wait(len(want))
		if !bytes.Equal(got[i], want[i]) {
			t.Fatalf("frame %d of %d bytes came back changed, as %d bytes", i, len(want[i]), len(got[i]))
		}
	}
}

func testSizes(t *testing.T, h Harness) {
	r := h.serve(t, transport.Limits{}, echoes)
	sizes := []int{0, 1, 100, 4 << 10, 64<<10 - 200, 64 << 10, 64<<10 + 1, 1 << 20, 3, 300_000, 0, 5 << 20, 1}
	exchange(t, r, sizes)
}

func testPieces(t *testing.T, h Harness) {
	r := h.serve(t, transport.Limits{})
	_, p := r.dial(transport.Limits{})
	whole := frame(command.RocketMQ, 7, 10_000)
	f := command.Frame{Header: whole.Header, Body: whole.Body[:1000:1000]}
	for at := 1000; at < 10_000; at += 3 { // more pieces than a vectored write takes
		f.Bodies = append(f.Bodies, whole.Body[at:min(at+3, 10_000)], nil)
	}
	if err := p.Send(f, whole, f); err != nil {
		t.Fatal(err)
	}
	for i, got := range r.server.session(0).wait(3) {
		if !bytes.Equal(got, whole.Append(nil)) {
			t.Errorf("frame %d is changed", i)
		}
	}
	if err := p.Send(); err != nil {
		t.Errorf("Send of nothing: %v", err)
	}
}

func testRuns(t *testing.T, h Harness) {
	r := h.serve(t, transport.Limits{}, echoes)
	client, p := r.dial(transport.Limits{})
	var run []byte
	const n = 2000
	for i := range n {
		f := frame(headerType(i), int32(i), i%700)
		run = f.Append(run)
	}
	if err := p.Send(command.Frame{Raw: run}); err != nil {
		t.Fatal(err)
	}
	if got := bytes.Join(client.session(0).wait(n), nil); !bytes.Equal(got, run) {
		t.Error("a run of frames came back changed")
	}
}

func testOrder(t *testing.T, h Harness) {
	r := h.serve(t, transport.Limits{})
	_, p := r.dial(transport.Limits{PeerBytes: 64 << 20})
	const n = 5000
	for i := 0; i < n; {
		var out []command.Frame
		for range 1 + i%17 {
			if i < n {
				out = append(out, frame(headerType(i), int32(i), i*37%3000))
				i++
			}
		}
		if err := p.Send(out...); err != nil {
			t.Fatalf("Send before frame %d: %v", i, err)
		}
	}
	for i, raw := range r.server.session(0).wait(n) {
		if got := opaque(t, raw); got != int32(i) {
			t.Fatalf("frame %d came at place %d", got, i)
		}
	}
}

func testBothDirections(t *testing.T, h Harness) {
	r := h.serve(t, transport.Limits{}, echoes)
	client, p := r.dial(transport.Limits{})
	if err := p.Send(frame(command.JSON, 0, 10)); err != nil {
		t.Fatal(err)
	}
	c, s := client.session(0), r.server.session(0)
	c.wait(1)
	const n = 300
	for i := range n { // the server calls, nobody asked it
		if err := s.peer.Send(frame(headerType(i), int32(i+1), i)); err != nil {
			t.Fatal(err)
		}
	}
	for i, raw := range c.wait(n + 1) {
		if got := opaque(t, raw); got != int32(i) {
			t.Fatalf("frame %d came at place %d", got, i)
		}
	}
}

// testLent overwrites what was sent as soon as Send has returned; the recorder
// does the same to what arrived.
func testLent(t *testing.T, h Harness) {
	r := h.serve(t, transport.Limits{PeerBytes: 64 << 20}, echoes)
	client, p := r.dial(transport.Limits{PeerBytes: 64 << 20})
	const n = 400
	var want [][]byte
	for i := range n {
		f := frame(headerType(i), int32(i), 1+i*i%60_000)
		f.Bodies = [][]byte{f.Body[len(f.Body)/2:]}
		f.Body = f.Body[:len(f.Body)/2]
		want = append(want, f.Append(nil))
		if err := p.Send(f); err != nil {
			t.Fatal(err)
		}
		for _, piece := range append(f.Bodies, f.Header, f.Body) {
			clear(piece)
		}
	}
	for i, got := range client.session(0).wait(n) {
		if !bytes.Equal(got, want[i]) {
			t.Fatalf("frame %d came back changed", i)
		}
	}
}

func testConcurrentSend(t *testing.T, h Harness) {
	r := h.serve(t, transport.Limits{})
	_, p := r.dial(transport.Limits{PeerBytes: 64 << 20})
	const senders, each = 8, 400
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			for i := range each {
				if err := p.Send(frame(headerType(i), int32(s*each+i), i%900), frame(command.JSON, -1, 0)); err != nil {
					t.Errorf("Send: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	var next [senders]int
	got := r.server.session(0).wait(2 * senders * each)
	for i := 0; i < len(got); i += 2 { // the frames of one Send stay together
		a, b := opaque(t, got[i]), opaque(t, got[i+1])
		s, n := int(a)/each, int(a)%each
		if a < 0 || b != -1 || n != next[s] {
			t.Fatalf("at place %d: frames %d, %d; sender %d is at %d", i, a, b, s, next[s])
		}
		next[s]++
	}
}

func testManyPeers(t *testing.T, h Harness) {
	r := h.serve(t, transport.Limits{}, echoes)
	var wg sync.WaitGroup
	defer wg.Wait() // dial may end the test
	for range 20 {
		client, p := r.dial(transport.Limits{})
		wg.Go(func() {
			for i := range 100 {
				if err := p.Send(frame(headerType(i), int32(i), i*11%5000)); err != nil {
					t.Errorf("Send: %v", err)
				}
			}
			for i, raw := range client.session(0).wait(100) {
				if got := opaque(t, raw); got != int32(i) {
					t.Errorf("frame %d came at place %d", got, i)
				}
			}
		})
	}
}

// testBacklog lets the reader stand until more than the system's own buffers
// hold has been sent; then everything must come, in order.
func testBacklog(t *testing.T, h Harness) {
	gate := make(chan struct{})
	r := h.serve(t, transport.Limits{}, func(s *recorder) {
		s.arrived = func(*session, []command.Frame) { <-gate }
	})
	_, p := r.dial(transport.Limits{PeerBytes: 64 << 20})
	const n, size = 300, 100_000
	for i := range n {
		if err := p.Send(frame(headerType(i), int32(i), size)); err != nil {
			close(gate)
			t.Fatalf("Send of frame %d: %v", i, err)
		}
	}
	close(gate)
	for i, raw := range r.server.session(0).wait(n) {
		f := frame(headerType(i), int32(i), size)
		if !bytes.Equal(raw, f.Append(nil)) {
			t.Fatalf("frame %d is changed or not at its place", i)
		}
	}
}
