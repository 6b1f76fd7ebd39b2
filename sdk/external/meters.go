package external

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/pluginpb"
)

// meters count what happens to the processes of one launcher.
type meters struct {
	meter          plugin.Meter
	name           string
	starts, deaths plugin.Counter
	methods        sync.Map // full name of a method to *methodMeters
}

func newMeters(l *launcher) *meters {
	label := plugin.Label{Name: "plugin", Value: l.name}
	m := &meters{
		meter: l.o.Meter, name: l.name,
		starts: l.o.Meter.Counter("plugin_process_starts_total", "Starts of the process of a plugin, those that failed with them.", label),
		deaths: l.o.Meter.Counter("plugin_process_deaths_total", "Ends of the process of a plugin that nobody asked for: it failed to start, died, or was killed because it did not answer.", label),
	}
	for _, s := range []string{stateIdle, stateRunning, stateWaiting, stateOpen, stateHalfOpen} {
		l.o.Meter.Gauge("plugin_process_state", "1 for the state that the process of a plugin is in, 0 for all others.", func() float64 {
			if l.state() == s {
				return 1
			}
			return 0
		}, label, plugin.Label{Name: "state", Value: s})
	}
	l.o.Meter.Gauge("plugin_process_resident_bytes", "Memory of the process of a plugin; 0 without one, and where the system does not tell.", func() float64 {
		l.mu.Lock()
		p := l.cur
		l.mu.Unlock()
		if p == nil || !p.run.alive() {
			return 0
		}
		return residentBytes(p.run.cmd.Process.Pid)
	}, label)
	if c, ok := l.o.Meter.(plugin.Collector); ok {
		c.Collect(l.collect, label)
	}
	return m
}

// state is that of the metric.
func (l *launcher) state() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cur != nil && l.cur.run.alive() {
		return stateRunning
	}
	return l.hist.state(l.o.Clock.Now())
}

// methodMeters count the calls of one method.
type methodMeters struct {
	calls, errors plugin.Counter
	seconds       plugin.Histogram
}

// of gives the meters of a method such as /hardpoint.storage.v1.Storage/Open, nil
// of those that are go-plugin's and gRPC's own.
func (m *meters) of(full string) *methodMeters {
	if one, ok := m.methods.Load(full); ok {
		return one.(*methodMeters)
	}
	rest, ours := strings.CutPrefix(full, "/hardpoint.")
	kind, _, _ := strings.Cut(rest, ".")
	_, method, found := strings.Cut(rest, "/")
	if !ours || !found || full == pluginpb.Plugin_Metrics_FullMethodName {
		return nil
	}
	labels := []plugin.Label{{Name: "plugin", Value: m.name}, {Name: "kind", Value: kind}, {Name: "method", Value: method}}
	one, _ := m.methods.LoadOrStore(full, &methodMeters{
		calls:   m.meter.Counter("plugin_calls_total", "Calls of a plugin in a process over its control connection.", labels...),
		errors:  m.meter.Counter("plugin_call_errors_total", "Those of them that failed, in the process or on the way.", labels...),
		seconds: m.meter.Histogram("plugin_call_seconds", "How long they took; streams are not measured.", labels...),
	})
	return one.(*methodMeters)
}

// dialOptions watch the calls on the control connection.
func (p *process) dialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithUnaryInterceptor(p.unary), grpc.WithStreamInterceptor(p.stream)}
}

func (p *process) unary(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	m := p.l.m.of(method)
	switch {
	case m == nil:
		return invoke(ctx, method, req, reply, conn, opts...)
	case wire.IsAsking(opts): // it is no call of the plugin
		return p.explain(ctx, method, invoke(ctx, method, req, reply, conn, opts...))
	}
	m.calls.Add(1)
	clock := p.l.o.Clock
	began := clock.Now()
	err := invoke(ctx, method, req, reply, conn, opts...)
	m.seconds.Observe(clock.Now().Sub(began).Seconds())
	f, ok := reply.(interface{ GetFailure() *pluginpb.Failure })
	if err != nil || ok && f.GetFailure() != nil {
		m.errors.Add(1)
	}
	return p.explain(ctx, method, err)
}

// explain makes an error of gRPC say which program it is about and what became of
// it; wire.FromRPC passes the text on.
func (p *process) explain(ctx context.Context, method string, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	switch status.Code(err) {
	case codes.Unimplemented:
		return status.Errorf(codes.Unimplemented, "the program %s of plugin %q does not know %s", p.cmd.Path, p.l.name, method)
	case codes.Unavailable, codes.Canceled:
		return status.Error(status.Code(err), strings.TrimPrefix(p.Cause().Error(), plugin.ErrUnavailable.Error()+": "))
	}
	return err
}

func (p *process) stream(ctx context.Context, d *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	m := p.l.m.of(method)
	if m == nil {
		return open(ctx, d, conn, method, opts...)
	}
	m.calls.Add(1)
	s, err := open(ctx, d, conn, method, opts...)
	if err != nil {
		m.errors.Add(1)
		return nil, err
	}
	return &meteredStream{ClientStream: s, failed: sync.OnceFunc(func() { m.errors.Add(1) })}, nil
}

// meteredStream counts a stream that fails.
type meteredStream struct {
	grpc.ClientStream
	failed func()
}

// RecvMsg implements grpc.ClientStream.
func (s *meteredStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err != nil && !errors.Is(err, io.EOF) && s.Context().Err() == nil {
		s.failed()
	}
	return err
}

// withDefaults fills what was left zero.
func (o Options) withDefaults() Options {
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	o.StartTimeout = max(o.StartTimeout, 0)
	set(&o.StartTimeout, 30*time.Second)
	set(&o.Linger, 5*time.Second)
	set(&o.Health, 5*time.Second)
	set(&o.HealthLimit, 5*time.Second)
	set(&o.CallTimeout, time.Minute)
	set(&o.StopTimeout, 5*time.Second)
	set(&o.Backoff.First, 100*time.Millisecond)
	set(&o.Backoff.Most, 30*time.Second)
	set(&o.Breaker.Window, time.Minute)
	set(&o.Breaker.Open, 30*time.Second)
	if o.Breaker.Deaths == 0 {
		o.Breaker.Deaths = 5
	}
	if o.Meter == nil {
		o.Meter = plugin.NopMeter{}
	}
	if o.Clock == nil {
		o.Clock = plugin.SystemClock{}
	}
	return o
}

// collect gives what the process counts itself, nothing when there is none or it
// does not answer in time.
func (l *launcher) collect(ctx context.Context) []plugin.Sample {
	l.mu.Lock()
	p := l.cur
	l.mu.Unlock()
	if p == nil || !p.run.alive() || p.mute.Load() {
		return nil
	}
	out, err := wire.Metrics(ctx, p.conn)
	if status.Code(err) == codes.Unimplemented {
		p.mute.Store(true) // it is asked once
	}
	return out
}
