// Package otlptest is an OTLP collector for tests.
package otlptest

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	collmetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	colltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlpmetrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	otlptrace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// patience is how long a test waits for a call.
const patience = time.Minute

// Collector keeps what it is sent. Safe for concurrent use.
type Collector struct {
	mu      sync.Mutex
	metrics map[string]*otlpmetrics.Metric
	spans   []*otlptrace.Span
	auth    []string
	refuse  bool
	hold    chan struct{}
	came    chan struct{} // one for each call, if there is room
}

// New makes one that takes everything.
func New() *Collector {
	return &Collector{metrics: map[string]*otlpmetrics.Metric{}, came: make(chan struct{}, 100)}
}

// Serve opens it by gRPC, until the test ends, and returns HOST:PORT.
func (c *Collector) Serve(t testing.TB, o ...grpc.ServerOption) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(o...)
	collmetrics.RegisterMetricsServiceServer(s, metricService{c: c})
	colltrace.RegisterTraceServiceServer(s, traceService{c: c})
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); <-done })
	return l.Addr().String()
}

// Refuse makes it refuse everything, or take it again.
func (c *Collector) Refuse(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse = on
}

// Hold makes calls wait until the returned function is called.
func (c *Collector) Hold() (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	hold := make(chan struct{})
	c.hold = hold
	return func() { close(hold) }
}

// Await waits for so many further calls.
func (c *Collector) Await(t testing.TB, calls int) {
	t.Helper()
	limit := time.After(patience)
	for range calls {
		select {
		case <-c.came:
		case <-limit:
			t.Fatal("the collector was not called")
		}
	}
}

// Metric is the newest one of a name; nil: there was none.
func (c *Collector) Metric(name string) *otlpmetrics.Metric {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.metrics[name]
}

// Spans are all so far.
func (c *Collector) Spans() []*otlptrace.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spans[:len(c.spans):len(c.spans)]
}

// Authorizations are the values of that header.
func (c *Collector) Authorizations() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.auth[:len(c.auth):len(c.auth)]
}

func (c *Collector) enter(ctx context.Context, auth []string) error {
	c.mu.Lock()
	c.auth = append(c.auth, auth...)
	refuse, hold := c.refuse, c.hold
	c.mu.Unlock()
	select {
	case c.came <- struct{}{}:
	default:
	}
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
		}
	}
	if refuse {
		return status.Error(codes.Unavailable, "not today")
	}
	return nil
}

// Took takes metrics that came otherwise than by gRPC.
func (c *Collector) Took(ctx context.Context, auth []string, r *collmetrics.ExportMetricsServiceRequest) error {
	if err := c.enter(ctx, auth); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, res := range r.ResourceMetrics {
		for _, s := range res.ScopeMetrics {
			for _, m := range s.Metrics {
				c.metrics[m.Name] = m
			}
		}
	}
	return nil
}

func authOf(ctx context.Context) []string {
	md, _ := metadata.FromIncomingContext(ctx)
	return md.Get("authorization")
}

type metricService struct {
	collmetrics.UnimplementedMetricsServiceServer
	c *Collector
}

func (s metricService) Export(ctx context.Context, r *collmetrics.ExportMetricsServiceRequest) (*collmetrics.ExportMetricsServiceResponse, error) {
	return &collmetrics.ExportMetricsServiceResponse{}, s.c.Took(ctx, authOf(ctx), r)
}

type traceService struct {
	colltrace.UnimplementedTraceServiceServer
	c *Collector
}

func (s traceService) Export(ctx context.Context, r *colltrace.ExportTraceServiceRequest) (*colltrace.ExportTraceServiceResponse, error) {
	if err := s.c.enter(ctx, authOf(ctx)); err != nil {
		return nil, err
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for _, res := range r.ResourceSpans {
		for _, x := range res.ScopeSpans {
			s.c.spans = append(s.c.spans, x.Spans...)
		}
	}
	return &colltrace.ExportTraceServiceResponse{}, nil
}
