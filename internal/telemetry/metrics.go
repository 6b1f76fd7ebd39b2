package telemetry

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	"google.golang.org/grpc/credentials"

	"github.com/hardpointmq/hardpoint/core/plugin"
)

// Metrics sends what a gatherer has at an interval. It implements plugin.Component.
type Metrics struct {
	set      plugin.Settings
	target   Target
	every    time.Duration
	from     metric.Producer
	res      *resource.Resource
	counts   *counts
	exporter metric.Exporter

	base   context.Context // of the loop's requests
	quit   chan struct{}
	cancel context.CancelFunc
	once   sync.Once
	wg     sync.WaitGroup
}

var _ plugin.Component = (*Metrics)(nil)

// NewMetrics makes one. It does no I/O.
func NewMetrics(s plugin.Settings, t Target, every time.Duration, from prometheus.Gatherer, who Identity) *Metrics {
	s = s.WithDefaults()
	m := &Metrics{
		set: s, target: t.withDefaults(), every: every, from: bridge.NewMetricProducer(bridge.WithGatherer(from)), res: who.resource(),
		counts: newCounts(s, "metrics", t.Address), quit: make(chan struct{}),
	}
	m.base, m.cancel = context.WithCancel(context.Background())
	return m
}

// Start implements plugin.Component. It does not wait for the collector.
func (m *Metrics) Start(ctx context.Context) error {
	p, err := m.target.parse()
	if err != nil {
		return err
	}
	if m.target.HTTP {
		o := []otlpmetrichttp.Option{
			otlpmetrichttp.WithEndpoint(p.host), otlpmetrichttp.WithHeaders(p.headers), otlpmetrichttp.WithTimeout(m.target.Timeout),
			otlpmetrichttp.WithRetry(otlpmetrichttp.RetryConfig{}),
		}
		if p.tls == nil {
			o = append(o, otlpmetrichttp.WithInsecure())
		} else {
			o = append(o, otlpmetrichttp.WithTLSClientConfig(p.tls))
		}
		if p.path != "" {
			o = append(o, otlpmetrichttp.WithURLPath("/"+p.path))
		}
		m.exporter, err = otlpmetrichttp.New(ctx, o...)
	} else {
		o := []otlpmetricgrpc.Option{
			otlpmetricgrpc.WithEndpoint(p.host), otlpmetricgrpc.WithHeaders(p.headers), otlpmetricgrpc.WithTimeout(m.target.Timeout),
			otlpmetricgrpc.WithRetry(otlpmetricgrpc.RetryConfig{}),
		}
		if p.tls == nil {
			o = append(o, otlpmetricgrpc.WithInsecure())
		} else {
			o = append(o, otlpmetricgrpc.WithTLSCredentials(credentials.NewTLS(p.tls)))
		}
		m.exporter, err = otlpmetricgrpc.New(ctx, o...)
	}
	if err != nil {
		return fmt.Errorf("OTLP metrics to %s: %w", m.target.Address, err)
	}
	m.wg.Go(m.loop)
	return nil
}

func (m *Metrics) loop() {
	t := m.set.Clock.NewTimer(m.every)
	defer t.Stop()
	for {
		select {
		case <-t.C():
			m.send(m.base)
			t.Reset(m.every)
		case <-m.quit:
			return
		}
	}
}

// send gathers and sends once.
func (m *Metrics) send(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, m.target.Timeout)
	defer cancel()
	scopes, err := m.from.Produce(ctx)
	if len(scopes) > 0 { // an error beside them says what is left out, as at a scrape
		rocketmqNames(scopes)
		err = m.exporter.Export(ctx, &metricdata.ResourceMetrics{Resource: m.res, ScopeMetrics: scopes})
	}
	m.counts.done(err, 0)
}

// rocketmqNames takes off RocketMQ's metrics what Apache's Prometheus exporter adds to
// their names, and puts the unit where OTLP has it.
func rocketmqNames(scopes []metricdata.ScopeMetrics) {
	for _, s := range scopes {
		for i := range s.Metrics {
			x := &s.Metrics[i]
			if !strings.HasPrefix(x.Name, "rocketmq_") {
				continue
			}
			if name, ok := strings.CutSuffix(x.Name, "_milliseconds"); ok {
				x.Name, x.Unit = name, "milliseconds"
			}
			switch x.Name {
			case "rocketmq_storage_size_bytes":
				x.Name, x.Unit = "rocketmq_storage_size", "bytes"
			case "rocketmq_storage_flush_behind_bytes", "rocketmq_storage_dispatch_behind_bytes":
				x.Unit = "bytes"
			}
		}
	}
}

// Shutdown implements plugin.Component: what was counted last is sent once more, as far
// as there is time (Target.Last).
func (m *Metrics) Shutdown(ctx context.Context) error {
	if m.exporter == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, m.target.Last)
	defer cancel()
	var err error
	m.once.Do(func() {
		close(m.quit)
		stop := context.AfterFunc(ctx, m.cancel) // a request under way may end before
		m.wg.Wait()
		stop()
		m.send(ctx)
		m.cancel()
		err = m.exporter.Shutdown(ctx)
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil // a collector that does not answer is no fault of a stop
	}
	return err
}
