package transportmw_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/core/transport/transportmw"
	"github.com/hardpointmq/hardpoint/core/transport/transporttest"
	"github.com/hardpointmq/hardpoint/plugins/transport/inproc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// decorated makes inproc with decorators around it.
func decorated(with func(transport.Transport, plugin.Settings) transport.Transport) transport.Factory {
	f := inproc.NewFactory()
	return plugin.NewRawFactory(f.Name(), f.Describe, func(ctx context.Context, p transport.Params, raw plugin.Raw) (transport.Transport, error) {
		t, err := f.Build(ctx, p, raw)
		if err != nil {
			return nil, err
		}
		return with(t, p.Settings), nil
	})
}

func TestConformance(t *testing.T) {
	var n atomic.Int64
	transporttest.Run(t, transporttest.Harness{
		Factory: decorated(func(t transport.Transport, s plugin.Settings) transport.Transport {
			return transportmw.Metrics(transportmw.Faults(t, func(string, string) error { return nil }), s)
		}),
		Form:    "decorated",
		Address: func(testing.TB) string { return fmt.Sprintf("broker-%d", n.Add(1)) },
		Lacks:   []string{"idle", "idle_while_served", transport.FacetMover},
	})
}

// meter counts by name.
type meter struct {
	plugin.NopMeter
	mu sync.Mutex
	n  map[string]*count
}

type count struct{ v atomic.Int64 }

func (c *count) Add(n uint64)    { c.v.Add(int64(n)) }
func (c *count) Observe(float64) { c.v.Add(1) }

func (m *meter) get(name string) *count {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.n[name] == nil {
		m.n[name] = &count{}
	}
	return m.n[name]
}

func (m *meter) Counter(name, _ string, _ ...plugin.Label) plugin.Counter     { return m.get(name) }
func (m *meter) Histogram(name, _ string, _ ...plugin.Label) plugin.Histogram { return m.get(name) }

// answerer sends every frame back and tells when its peer is closed.
type answerer struct {
	p      transport.Peer
	sent   chan error
	closed chan error
}

func (a *answerer) Opened(p transport.Peer) transport.Session { a.p = p; return a }
func (a *answerer) Settle()                                   {}
func (a *answerer) Arrived(in []command.Frame)                { a.sent <- a.p.Send(in...) }
func (a *answerer) Closed(err error)                          { a.closed <- err }

func newAnswerer() *answerer {
	return &answerer{sent: make(chan error, 10), closed: make(chan error, 1)}
}

type sink struct{ arrived chan int }

func (s *sink) Opened(transport.Peer) transport.Session { return s }
func (s *sink) Settle()                                 {}
func (s *sink) Arrived(in []command.Frame)              { s.arrived <- len(in) }
func (s *sink) Closed(error)                            {}

func TestMetricsAndFaults(t *testing.T) {
	inner, err := inproc.New(t.Context(), transport.Params{}, inproc.Config{})
	require.NoError(t, err)
	m := &meter{n: map[string]*count{}}
	injected := errors.New("injected")
	var broken atomic.Pointer[string]
	none := ""
	broken.Store(&none)
	tr := transportmw.Metrics(transportmw.Faults(inner, func(op, _ string) error {
		if op == *broken.Load() {
			return injected
		}
		return nil
	}), plugin.Settings{Name: "x", Meter: m})
	require.NoError(t, tr.Start(t.Context()))
	t.Cleanup(func() { _ = tr.Shutdown(context.Background()) })
	fail := func(op string) { broken.Store(&op) }

	fail(transportmw.OpServe)
	srv := newAnswerer()
	_, err = tr.Serve(t.Context(), transport.Listen{Address: "s"}, transport.Services{Frames: srv})
	require.ErrorIs(t, err, injected)
	fail(transportmw.OpDial)
	_, err = tr.Serve(t.Context(), transport.Listen{Address: "s"}, transport.Services{Frames: srv})
	require.NoError(t, err)
	dial := tr.Capabilities().Dialer.Dial
	client := &sink{arrived: make(chan int, 10)}
	_, err = dial(t.Context(), "s", transport.Limits{}, nil, client)
	require.ErrorIs(t, err, injected)
	fail("")
	p, err := dial(t.Context(), "s", transport.Limits{}, nil, client)
	require.NoError(t, err)
	f := command.Frame{Header: command.AppendResponse(nil, command.JSON, 0, 1, "", 0)}
	require.NoError(t, p.Send(f, f))
	require.NoError(t, <-srv.sent)
	require.Equal(t, 2, <-client.arrived)

	fail(transportmw.OpSend)
	require.ErrorIs(t, p.Send(f), injected)
	t.Log("closed because of:", <-srv.closed)
	require.ErrorIs(t, p.Send(f), injected)
	fail("")
	require.ErrorIs(t, p.Send(f), transport.ErrClosed)
	require.NoError(t, tr.Shutdown(t.Context()))

	for name, want := range map[string]int64{
		"engine_received_frames_total": 4, "engine_arrivals_total": 2, "engine_arrival_seconds": 2,
		"engine_settle_seconds": 2, "engine_sends_total": 2, "engine_refused_sends_total": 1,
	} {
		require.Equal(t, want, m.get(name).v.Load(), name)
	}
}

func TestBaseOffersNoFacet(t *testing.T) {
	inner, err := inproc.New(t.Context(), transport.Params{}, inproc.Config{})
	require.NoError(t, err)
	require.NotNil(t, inner.Capabilities().Dialer)
	base := transportmw.Base{Transport: inner}
	require.Nil(t, base.Capabilities().Dialer)
	require.Nil(t, transportmw.Metrics(base, plugin.Settings{}).Capabilities().Dialer, "a facet that is not there is not made up")
}

// reloading is a transport that counts how often it is told to look at its files.
type reloading struct {
	transportmw.Base
	told int
}

func (r *reloading) Capabilities() transport.Capabilities { return transport.Capabilities{Reloader: r} }
func (r *reloading) Reload()                              { r.told++ }

func TestReloaderIsPassedOn(t *testing.T) {
	inner, err := inproc.New(t.Context(), transport.Params{}, inproc.Config{})
	require.NoError(t, err)
	r := &reloading{Base: transportmw.Base{Transport: inner}}
	transportmw.Metrics(r, plugin.Settings{}).Capabilities().Reloader.Reload()
	require.Equal(t, 1, r.told)
}
