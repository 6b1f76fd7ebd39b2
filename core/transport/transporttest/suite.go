package transporttest

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"testing"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/transport"
)

// Harness tells [Run] what to test.
type Harness struct {
	Factory transport.Factory
	// Config is passed to Factory.Build.
	Config plugin.Raw
	// Form says how the transport is reached or set up: "plain", "tls". It
	// becomes part of the names of the tests.
	Form string
	// Address returns an address to serve at, another one at each call, or one
	// that means any.
	Address func(testing.TB) string
	// TLS makes the configurations of both ends; nil: plain. The client's may be
	// nil, where a listener takes both kinds.
	TLS func(testing.TB) (server, client *tls.Config)
	// Encrypted says that Config makes both ends use TLS, without TLS above.
	Encrypted bool
	// Bytes connects below the level of frames. nil: the transport has no byte
	// stream, and the part "bytes" is skipped.
	Bytes func(ctx context.Context, address string) (net.Conn, error)
	// Lacks names the cases ("idle") that the transport's documentation
	// exempts it from, and the facets Dialer and Mover where they are not offered.
	// What needs them is reported as skipped.
	Lacks []string

	_ struct{}
}

// Parts of the suite and their cases.
type (
	testPart struct {
		name  string
		cases []testCase
	}
	testCase struct {
		name string
		run  func(*testing.T, Harness)
	}
)

// Run runs the suite for each of hs, which are forms of one transport. The tests
// are named TestConformance/<transport>/<form>/<part>/<case> when it is called
// from a test named TestConformance.
func Run(t *testing.T, hs ...Harness) {
	parts := []testPart{
		{"life", lifeCases},
		{"frames", frameCases},
		{"bytes", byteCases},
		{"limits", limitCases},
		{"drain", drainCases},
		{"move", moveCases},
	}
	if len(hs) == 0 {
		t.Fatal("transporttest.Run needs a Harness")
	}
	t.Run(hs[0].Factory.Name(), func(t *testing.T) {
		for _, h := range hs {
			t.Run(h.Form, func(t *testing.T) {
				for _, part := range parts {
					t.Run(part.name, func(t *testing.T) { h.part(t, part) })
				}
			})
		}
	})
}

func (h Harness) part(t *testing.T, part testPart) {
	if part.name == "bytes" && h.Bytes == nil {
		t.Skip("the transport has no byte stream")
	}
	for _, c := range part.cases {
		t.Run(c.name, func(t *testing.T) {
			if slices.Contains(h.Lacks, c.name) {
				t.Skip("named as lacking by the harness")
			}
			c.run(t, h)
		})
	}
}

// build makes a transport that is not started.
func (h Harness) build(t testing.TB) transport.Transport {
	t.Helper()
	var p transport.Params
	p.Settings = plugin.Settings{Name: h.Factory.Name()}.WithDefaults()
	tr, err := h.Factory.Build(t.Context(), p, h.Config)
	if err != nil {
		t.Fatalf("Build: %v", err)
	}
	return tr
}

// start makes a running transport.
func (h Harness) start(t testing.TB) transport.Transport {
	t.Helper()
	tr := h.build(t)
	if err := tr.Start(t.Context()); err != nil {
		t.Fatalf("Start: %v", err)
	}
	t.Cleanup(func() {
		// The test's own context has ended by now.
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := tr.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	})
	return tr
}

func (h Harness) tls(t testing.TB) (server, client *tls.Config) {
	if h.TLS == nil {
		return nil, nil
	}
	return h.TLS(t)
}

// rig is a running transport with a listener.
type rig struct {
	t      *testing.T
	h      Harness
	tr     transport.Transport
	dialer transport.Dialer
	server *recorder
	ln     transport.Listener
	client *tls.Config
}

// serve starts a transport and a listener. change adjusts what the server does.
func (h Harness) serve(t *testing.T, lim transport.Limits, change ...func(*recorder)) *rig {
	t.Helper()
	r := &rig{t: t, h: h, tr: h.start(t), server: newRecorder(t, "server")}
	for _, c := range change {
		c(r.server)
	}
	r.dialer = r.tr.Capabilities().Dialer
	if lacks := slices.Contains(h.Lacks, transport.FacetDialer); lacks != (r.dialer == nil) {
		t.Fatalf("the transport offers the facet %s: %t; the harness says that it lacks it: %t", transport.FacetDialer, r.dialer != nil, lacks)
	} else if lacks {
		t.Skip("named as lacking by the harness: the facet Dialer, with which the suite connects")
	}
	l := transport.Listen{Address: h.Address(t), Limits: lim}
	l.TLS, r.client = h.tls(t)
	ln, err := r.tr.Serve(t.Context(), l, transport.Services{Frames: r.server})
	if err != nil {
		t.Fatalf("Serve(%q): %v", l.Address, err)
	}
	r.ln = ln
	t.Cleanup(func() {
		if err := ln.Close(); err != nil {
			t.Errorf("Listener.Close: %v", err)
		}
	})
	return r
}

// dial connects a client whose frames are recorded.
func (r *rig) dial(lim transport.Limits, change ...func(*recorder)) (*recorder, transport.Peer) {
	r.t.Helper()
	c := newRecorder(r.t, "client")
	for _, f := range change {
		f(c)
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	p, err := r.dialer.Dial(ctx, r.ln.Address(), lim, r.client, c)
	if err != nil {
		r.t.Fatalf("Dial(%q): %v", r.ln.Address(), err)
	}
	return c, p
}

// met is the first peer of a listener at both ends; a frame has arrived from it.
func (r *rig) met() (client *recorder, p transport.Peer, server *session) {
	r.t.Helper()
	client, p = r.dial(transport.Limits{})
	if err := p.Send(frame(command.JSON, 1, 1)); err != nil {
		r.t.Fatal(err)
	}
	server = r.server.session(0)
	server.wait(1)
	return client, p, server
}

// bytes connects below the level of frames.
func (r *rig) bytes() net.Conn {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	c, err := r.h.Bytes(ctx, r.ln.Address())
	if err != nil {
		r.t.Fatalf("Bytes(%q): %v", r.ln.Address(), err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

func mustBe(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got error %v, want one that is %q", what, err, want)
	}
}
