package transporttest

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/transport"
)

var lifeCases = []testCase{
	{"describe", testDescribe},
	{"not_running", testNotRunning},
	{"shutdown_without_start", testShutdownWithoutStart},
	{"shutdown_closes_all", testShutdownClosesAll},
	{"serve_twice", testServeTwice},
	{"serve_without_handler", testServeWithoutHandler},
	{"dial_nobody", testDialNobody},
	{"dial_context", testDialContext},
	{"peer", testPeer},
	{"client_closes", testClientCloses},
	{"server_closes", testServerCloses},
	{"close_in_arrived", testCloseInArrived},
	{"close_listener", testCloseListener},
	{"send_after_close", testSendAfterClose},
}

func testDescribe(t *testing.T, h Harness) {
	d, err := h.Factory.Describe(t.Context(), h.Config)
	if err != nil {
		t.Fatalf("Describe: %v", err)
	}
	if d.Name != h.Factory.Name() || d.Contract != transport.Contract {
		t.Errorf("Describe says %q %q, want %q %q", d.Name, d.Contract, h.Factory.Name(), transport.Contract)
	}
	offered := h.start(t).Capabilities().Facets()
	if len(offered) != len(d.Facets) || len(offered) > 0 && !d.Has(offered[0]) {
		t.Errorf("the transport offers %q, Describe says %q", offered, d.Facets)
	}
	if _, err := h.Factory.Build(t.Context(), transport.Params{}, plugin.Raw(`{"noSuchField":1}`)); !errors.Is(err, plugin.ErrConfig) {
		t.Errorf("an unknown field: got error %v, want plugin.ErrConfig", err)
	}
}

func testNotRunning(t *testing.T, h Harness) {
	tr := h.build(t)
	r := newRecorder(t, "server")
	try := func(when string) {
		t.Helper()
		addr := h.Address(t)
		_, err := tr.Serve(t.Context(), transport.Listen{Address: addr}, transport.Services{Frames: r})
		mustBe(t, "Serve "+when, err, transport.ErrNotRunning)
		if d := tr.Capabilities().Dialer; d != nil {
			_, err := d.Dial(t.Context(), addr, transport.Limits{}, nil, r)
			mustBe(t, "Dial "+when, err, transport.ErrNotRunning)
		}
	}
	try("before Start")
	if err := tr.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := tr.Shutdown(t.Context()); err != nil {
			t.Fatalf("Shutdown: %v", err)
		}
		try("after Shutdown")
	}
}

func testShutdownWithoutStart(t *testing.T, h Harness) {
	tr := h.build(t)
	for range 2 {
		if err := tr.Shutdown(t.Context()); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	}
}

func testShutdownClosesAll(t *testing.T, h Harness) {
	r := h.serve(t, transport.Limits{})
	client, _, s := r.met()
	if err := r.tr.Shutdown(t.Context()); err != nil {
		t.Fatalf("Shutdown: %v", err)
	}
	for _, s := range []*session{s, client.session(0)} {
		s.r.mu.Lock()
		if s.closed != 1 {
			t.Errorf("%s: Closed came %d times before Shutdown returned, want once", s.r.name, s.closed)
		}
		s.r.mu.Unlock()
	}
}

func testServeTwice(t *testing.T, h Harness) {
	r := h.serve(t, transport.Limits{})
	ln, err := r.tr.Serve(t.Context(), transport.Listen{Address: r.ln.Address()}, transport.Services{Frames: r.server})
	if err == nil {
		_ = ln.Close()
		t.Fatalf("a second listener at %q was accepted", r.ln.Address())
	}
	if err := r.ln.Close(); err != nil {
		t.Fatal(err)
	}
	if ln, err = r.tr.Serve(t.Context(), transport.Listen{Address: r.ln.Address()}, transport.Services{Frames: r.server}); err != nil {
		t.Fatalf("the address of a closed listener is not free: %v", err)
	}
	_ = ln.Close()
}

func testServeWithoutHandler(t *testing.T, h Harness) {
	tr := h.start(t)
	if ln, err := tr.Serve(t.Context(), transport.Listen{Address: h.Address(t)}, transport.Services{}); err == nil {
		_ = ln.Close()
		t.Error("Serve took Services without a handler for frames")
	}
}

func testDialNobody(t *testing.T, h Harness) {
	r := h.serve(t, transport.Limits{})
	_ = r.ln.Close()
	c := newRecorder(t, "client")
	p, err := r.dialer.Dial(t.Context(), r.ln.Address(), transport.Limits{}, r.client, c)
	if err == nil {
		_ = p.Close()
		t.Fatalf("Dial(%q) succeeded, nobody listens there", r.ln.Address())
	}
	if len(c.sessions) != 0 {
		t.Error("Opened was called for a connection that failed")
	}
}

func testDialContext(t *testing.T, h Harness) {
	r := h.serve(t, transport.Limits{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := r.dialer.Dial(ctx, r.ln.Address(), transport.Limits{}, r.client, newRecorder(t, "client"))
	mustBe(t, "Dial with an ended context", err, context.Canceled)

	// A context bounds connecting, not the connection.
	ctx, cancel = context.WithCancel(t.Context())
	c := newRecorder(t, "client")
	p, err := r.dialer.Dial(ctx, r.ln.Address(), transport.Limits{}, r.client, c)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := p.Send(frame(command.JSON, 1, 1)); err != nil {
		t.Errorf("Send after the end of Dial's context: %v", err)
	}
	r.server.session(0).wait(1)
}

func testPeer(t *testing.T, h Harness) {
	r := h.serve(t, transport.Limits{})
	ids := map[string]bool{}
	for i := range 3 {
		_, p := r.dial(transport.Limits{})
		if err := p.Send(frame(command.JSON, 1, 1)); err != nil {
			t.Fatal(err)
		}
		s := r.server.session(i)
		s.wait(1)
		for _, p := range []transport.Peer{p, s.peer} {
			if p.ID() == "" || ids[p.ID()] {
				t.Errorf("ID %q is empty or not unique", p.ID())
			}
			ids[p.ID()] = true
			if p.Identity().TLS != (r.client != nil || h.Encrypted) {
				t.Errorf("Identity says TLS: %v", p.Identity().TLS)
			}
		}
		if p.Local() != s.peer.Remote() || p.Remote() != s.peer.Local() || !p.Local().IsValid() {
			t.Errorf("addresses differ: client %s to %s, server %s to %s", p.Local(), p.Remote(), s.peer.Remote(), s.peer.Local())
		}
		if p.Local().Addr().Is4In6() {
			t.Errorf("address %s is not unmapped", p.Local())
		}
	}
}

func testClientCloses(t *testing.T, h Harness) {
	r := h.serve(t, transport.Limits{})
	client, p, s := r.met()
	for range 2 {
		if err := p.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	mustBe(t, "server's Closed", s.gone(), io.EOF)
	mustBe(t, "client's Closed", client.session(0).gone(), transport.ErrClosed)
}

func testServerCloses(t *testing.T, h Harness) {
	r := h.serve(t, transport.Limits{})
	client, _, s := r.met()
	_ = s.peer.Close()
	mustBe(t, "server's Closed", s.gone(), transport.ErrClosed)
	mustBe(t, "client's Closed", client.session(0).gone(), io.EOF)
}

func testCloseInArrived(t *testing.T, h Harness) {
	r := h.serve(t, transport.Limits{}, func(s *recorder) {
		s.arrived = func(s *session, _ []command.Frame) {
			_ = s.peer.Close()
			mustBe(t, "Send after Close", s.peer.Send(frame(command.JSON, 1, 1)), transport.ErrClosed)
		}
	})
	_, p := r.dial(transport.Limits{})
	if err := p.Send(frame(command.JSON, 1, 1)); err != nil {
		t.Fatal(err)
	}
	mustBe(t, "server's Closed", r.server.session(0).gone(), transport.ErrClosed)
}

func testCloseListener(t *testing.T, h Harness) {
	r := h.serve(t, transport.Limits{})
	var sessions []*session
	for i := range 3 {
		client, p := r.dial(transport.Limits{})
		if err := p.Send(frame(command.JSON, 1, 1)); err != nil {
			t.Fatal(err)
		}
		sessions = append(sessions, client.session(0))
		r.server.session(i).wait(1)
	}
	if err := r.ln.Close(); err != nil {
		t.Fatal(err)
	}
	r.server.mu.Lock()
	for _, s := range r.server.sessions {
		if s.closed != 1 {
			t.Errorf("Closed came %d times before Listener.Close returned, want once", s.closed)
		}
	}
	r.server.mu.Unlock()
	for _, s := range sessions {
		_ = s.gone()
	}
	if err := r.ln.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

func testSendAfterClose(t *testing.T, h Harness) {
	r := h.serve(t, transport.Limits{})
	client, p := r.dial(transport.Limits{})
	_ = p.Close()
	mustBe(t, "Send after Close", p.Send(frame(command.JSON, 1, 1)), transport.ErrClosed)
	_ = client.session(0).gone()
	mustBe(t, "Send after Closed", p.Send(frame(command.JSON, 1, 1)), transport.ErrClosed)
}
