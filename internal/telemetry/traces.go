package telemetry

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/credentials"

	"github.com/hardpointmq/hardpoint/core/plugin"
)

const (
	// waiting spans at most; more are dropped.
	queued = 4096
	// batch is how many go in one request, gather how long the first one waits for
	// others.
	batch  = 512
	gather = time.Second
)

// Traces sends the spans of its provider. It implements plugin.Component.
type Traces struct {
	set      plugin.Settings
	target   Target
	counts   *counts
	provider *sdktrace.TracerProvider
	exporter *otlptrace.Exporter
	left     []sdktrace.ReadOnlySpan // of the loop that ended

	spans  chan sdktrace.ReadOnlySpan
	base   context.Context // of the loop's requests
	quit   chan struct{}
	cancel context.CancelFunc
	once   sync.Once
	wg     sync.WaitGroup
}

var _ plugin.Component = (*Traces)(nil)

// NewTraces makes one. It does no I/O.
func NewTraces(s plugin.Settings, t Target, who Identity) *Traces {
	s = s.WithDefaults()
	x := &Traces{
		set: s, target: t.withDefaults(), counts: newSpanCounts(s, "traces", t.Address),
		spans: make(chan sdktrace.ReadOnlySpan, queued), quit: make(chan struct{}),
	}
	x.base, x.cancel = context.WithCancel(context.Background())
	// Who makes spans has decided which requests have one.
	x.provider = sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.AlwaysSample()), sdktrace.WithResource(who.resource()), sdktrace.WithSpanProcessor(queue{x}))
	return x
}

// Provider makes spans; it may be used before Start and after Shutdown.
func (t *Traces) Provider() trace.TracerProvider { return t.provider }

// queue is the processor of the provider.
type queue struct{ t *Traces }

func (queue) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (queue) Shutdown(context.Context) error                  { return nil }
func (queue) ForceFlush(context.Context) error                { return nil }

// OnEnd never blocks.
func (q queue) OnEnd(s sdktrace.ReadOnlySpan) {
	select {
	case q.t.spans <- s:
	default:
		q.t.counts.dropped.Add(1)
	}
}

// Start implements plugin.Component. It does not wait for the collector.
func (t *Traces) Start(ctx context.Context) error {
	p, err := t.target.parse()
	if err != nil {
		return err
	}
	var client otlptrace.Client
	if t.target.HTTP {
		o := []otlptracehttp.Option{
			otlptracehttp.WithEndpoint(p.host), otlptracehttp.WithHeaders(p.headers), otlptracehttp.WithTimeout(t.target.Timeout),
			otlptracehttp.WithRetry(otlptracehttp.RetryConfig{}),
		}
		if p.tls == nil {
			o = append(o, otlptracehttp.WithInsecure())
		} else {
			o = append(o, otlptracehttp.WithTLSClientConfig(p.tls))
		}
		if p.path != "" {
			o = append(o, otlptracehttp.WithURLPath("/"+p.path))
		}
		client = otlptracehttp.NewClient(o...)
	} else {
		o := []otlptracegrpc.Option{
			otlptracegrpc.WithEndpoint(p.host), otlptracegrpc.WithHeaders(p.headers), otlptracegrpc.WithTimeout(t.target.Timeout),
			otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{}),
		}
		if p.tls == nil {
			o = append(o, otlptracegrpc.WithInsecure())
		} else {
			o = append(o, otlptracegrpc.WithTLSCredentials(credentials.NewTLS(p.tls)))
		}
		client = otlptracegrpc.NewClient(o...)
	}
	if t.exporter, err = otlptrace.New(ctx, client); err != nil {
		return fmt.Errorf("OTLP traces to %s: %w", t.target.Address, err)
	}
	t.wg.Go(t.loop)
	return nil
}

// loop sends batches until it is told to end; what waits then it puts into left.
func (t *Traces) loop() {
	timer := t.set.Clock.NewTimer(time.Hour)
	defer timer.Stop()
	var all []sdktrace.ReadOnlySpan
	defer func() { t.left = all }()
	for {
		select {
		case s := <-t.spans:
			if len(all) == 0 {
				timer.Reset(gather)
			}
			if all = append(all, s); len(all) < batch {
				continue
			}
		case <-timer.C():
		case <-t.quit:
			return
		}
		t.send(t.base, all)
		clear(all)
		all = all[:0]
	}
}

func (t *Traces) send(ctx context.Context, all []sdktrace.ReadOnlySpan) {
	if len(all) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, t.target.Timeout)
	defer cancel()
	t.counts.done(t.exporter.ExportSpans(ctx, all), len(all))
}

// Shutdown implements plugin.Component: what waits is sent, as far as there is time
// (Target.Last).
func (t *Traces) Shutdown(ctx context.Context) error {
	if t.exporter == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, t.target.Last)
	defer cancel()
	var err error
	t.once.Do(func() {
		close(t.quit)
		stop := context.AfterFunc(ctx, t.cancel) // a request under way may end before
		t.wg.Wait()
		stop()
		for all := t.left; ctx.Err() == nil && (len(all) > 0 || len(t.spans) > 0); all = nil {
			for len(t.spans) > 0 && len(all) < batch {
				all = append(all, <-t.spans)
			}
			t.send(ctx, all)
		}
		t.cancel()
		err = t.exporter.Shutdown(ctx)
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil // a collector that does not answer is no fault of a stop
	}
	return err
}
