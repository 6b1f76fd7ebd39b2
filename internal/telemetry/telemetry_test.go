package telemetry_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	collmetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"

	"github.com/hardpointmq/hardpoint/core/adminport"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/internal/otlptest"
	"github.com/hardpointmq/hardpoint/internal/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second

// set is what a telemetry component runs with, and what it counted and logged.
type set struct {
	plugin.Settings
	m   *adminport.Metrics
	log *lines
}

type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newSet() set {
	m, log := adminport.NewMetrics(), &lines{}
	return set{plugin.Settings{Name: "telemetry", Meter: m.Meter(), Logger: slog.New(slog.NewTextHandler(log, nil))}, m, log}
}

func (s set) count(t *testing.T, name, signal string) float64 {
	t.Helper()
	all, err := s.m.Gatherer().Gather()
	require.NoError(t, err)
	for _, f := range all {
		for _, x := range f.Metric {
			if f.GetName() == "hardpoint_"+name && x.Label[0].GetValue() == signal {
				return x.Counter.GetValue()
			}
		}
	}
	t.Fatalf("hardpoint_%s{signal=%s} is missing", name, signal)
	return 0
}

func (s set) awaitCount(t *testing.T, least float64, name, signal string) {
	t.Helper()
	require.Eventually(t, func() bool { return s.count(t, name, signal) >= least }, patience, 5*time.Millisecond, name)
}

// rocketmq shows a few metrics under RocketMQ's names.
type rocketmq struct{}

func (rocketmq) Describe(chan<- *prometheus.Desc) {}
func (rocketmq) Collect(out chan<- prometheus.Metric) {
	gauge := func(name string, v float64) {
		out <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, "H.", []string{"topic"}, nil), prometheus.GaugeValue, v, "T")
	}
	gauge("rocketmq_consumer_lag_latency_milliseconds", 5)
	gauge("rocketmq_storage_size_bytes", 6)
	gauge("rocketmq_storage_flush_behind_bytes", 7)
	out <- prometheus.MustNewConstMetric(prometheus.NewDesc("rocketmq_messages_in_total", "H.", nil, nil), prometheus.CounterValue, 8)
	out <- prometheus.MustNewConstHistogram(prometheus.NewDesc("rocketmq_rpc_latency_milliseconds", "H.", nil, nil), 3, 9, map[float64]uint64{1: 1, 3: 2})
}

func (s set) metrics(t *testing.T, target telemetry.Target, every time.Duration) *telemetry.Metrics {
	t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(rocketmq{})
	if target.Timeout == 0 {
		target.Timeout = patience
	}
	if target.Last == 0 {
		target.Last = patience
	}
	m := telemetry.NewMetrics(s.Settings, target, every, prometheus.Gatherers{reg, s.m.Gatherer()}, telemetry.Identity{Instance: "broker-a"})
	require.NoError(t, m.Start(t.Context()))
	return m
}

func TestMetricsByGRPC(t *testing.T) {
	c, s := otlptest.New(), newSet()
	m := s.metrics(t, telemetry.Target{Address: "http://" + c.Serve(t), Headers: "authorization:Bearer xyz,tenant:a:b"}, 20*time.Millisecond)
	c.Await(t, 2)
	require.NoError(t, m.Shutdown(t.Context()))
	require.NoError(t, m.Shutdown(t.Context()))
	lag := c.Metric("rocketmq_consumer_lag_latency")
	require.NotNil(t, lag, "as Apache sends it")
	require.Equal(t, "milliseconds", lag.Unit)
	p := lag.GetGauge().DataPoints[0]
	require.InDelta(t, 5, p.GetAsDouble(), 0)
	require.Equal(t, "topic", p.Attributes[0].Key)
	require.Equal(t, "bytes", c.Metric("rocketmq_storage_size").Unit)
	require.Equal(t, "bytes", c.Metric("rocketmq_storage_flush_behind_bytes").Unit)
	sum := c.Metric("rocketmq_messages_in_total").GetSum()
	require.True(t, sum.IsMonotonic)
	require.InDelta(t, 8, sum.DataPoints[0].GetAsDouble(), 0)
	h := c.Metric("rocketmq_rpc_latency").GetHistogram().DataPoints[0]
	require.Equal(t, []float64{1, 3}, h.ExplicitBounds)
	require.Equal(t, []uint64{1, 1, 1}, h.BucketCounts)
	require.NotNil(t, c.Metric("hardpoint_otlp_exports_total"), "and all of ours")
	require.Contains(t, c.Authorizations(), "Bearer xyz")
	require.GreaterOrEqual(t, s.count(t, "otlp_exports_total", "metrics"), 2.0)
	require.NotContains(t, s.log.String(), "xyz")
}

func TestMetricsByHTTP(t *testing.T) {
	c, s := otlptest.New(), newSet()
	var mu sync.Mutex
	paths := map[string]bool{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		var in collmetrics.ExportMetricsServiceRequest
		if err := proto.Unmarshal(b, &in); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		mu.Lock()
		paths[r.URL.Path] = true
		mu.Unlock()
		_ = c.Took(r.Context(), r.Header.Values("Authorization"), &in)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(srv.Close)
	for _, path := range []string{"", "/own/path"} {
		m := s.metrics(t, telemetry.Target{HTTP: true, Address: srv.URL + path, Headers: "authorization:x"}, time.Hour)
		require.NoError(t, m.Shutdown(t.Context()), "the last ones are sent at the stop")
	}
	require.NotNil(t, c.Metric("rocketmq_consumer_lag_latency"))
	require.Equal(t, map[string]bool{"/v1/metrics": true, "/own/path": true}, paths)
	require.InDelta(t, 2, s.count(t, "otlp_exports_total", "metrics"), 0)
}

// Without http:// there is TLS, with the certificates of otlpCaFile.
func TestTLS(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	x := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "collector"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, x, x, &key.PublicKey, key)
	require.NoError(t, err)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	c, s := otlptest.New(), newSet()
	address := c.Serve(t, grpc.Creds(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})))
	m := s.metrics(t, telemetry.Target{Address: address, CAFile: ca}, time.Hour)
	require.NoError(t, m.Shutdown(t.Context()))
	require.NotNil(t, c.Metric("rocketmq_storage_size"))

	strange := s.metrics(t, telemetry.Target{Address: "https://" + address}, time.Hour)
	require.NoError(t, strange.Shutdown(t.Context()))
	require.InDelta(t, 1, s.count(t, "otlp_export_failures_total", "metrics"), 0, "it is signed by nobody we know")
	require.Contains(t, s.log.String(), "certificate")

	for _, bad := range []telemetry.Target{{Address: address, CAFile: ca + "x"}, {Address: address, CAFile: os.Args[0]}} {
		require.ErrorContains(t, telemetry.NewMetrics(s.Settings, bad, time.Hour, prometheus.NewRegistry(), telemetry.Identity{}).Start(t.Context()), "otlpCaFile")
	}
}

// A collector that refuses, or is not there, is counted, said once, and nothing else.
func TestRefused(t *testing.T) {
	c, s := otlptest.New(), newSet()
	c.Refuse(true)
	m := s.metrics(t, telemetry.Target{Address: "http://" + c.Serve(t)}, time.Millisecond)
	s.awaitCount(t, 3, "otlp_export_failures_total", "metrics")
	require.Equal(t, 1, strings.Count(s.log.String(), "did not take"), s.log)
	c.Refuse(false)
	s.awaitCount(t, 1, "otlp_exports_total", "metrics")
	require.NoError(t, m.Shutdown(t.Context()))
	require.Contains(t, s.log.String(), "again")

	gone := s.metrics(t, telemetry.Target{Address: "http://127.0.0.1:1"}, time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, gone.Shutdown(ctx))
	require.NoError(t, ctx.Err())
}

func TestSpans(t *testing.T) {
	c, s := otlptest.New(), newSet()
	x := telemetry.NewTraces(s.Settings, telemetry.Target{Address: "http://" + c.Serve(t), Headers: "authorization:y", Timeout: patience, Last: patience}, telemetry.Identity{Instance: "broker-a"})
	require.NoError(t, x.Shutdown(t.Context()), "without Start")
	require.NoError(t, x.Start(t.Context()))
	tr := x.Provider().Tracer("t")
	for range 600 {
		_, span := tr.Start(t.Context(), "send T")
		span.End()
	}
	c.Await(t, 1) // a full batch goes at once
	require.NoError(t, x.Shutdown(t.Context()))
	require.Len(t, c.Spans(), 600)
	require.Equal(t, "send T", c.Spans()[0].Name)
	require.Contains(t, c.Authorizations(), "y")
	require.InDelta(t, 0, s.count(t, "otlp_dropped_spans_total", "traces"), 0)
}

// Whoever makes spans never waits for the collector, and its stop is bounded.
func TestSlowCollector(t *testing.T) {
	c, s := otlptest.New(), newSet()
	release := c.Hold()
	x := telemetry.NewTraces(s.Settings, telemetry.Target{Address: "http://" + c.Serve(t), Timeout: time.Hour}, telemetry.Identity{})
	require.NoError(t, x.Start(t.Context()))
	tr := x.Provider().Tracer("t")
	for s.count(t, "otlp_dropped_spans_total", "traces") == 0 { // it ends only if nobody waits
		for range 1000 {
			_, span := tr.Start(t.Context(), "send T")
			span.End()
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.NoError(t, x.Shutdown(ctx))
	release()
}

// However long a request may take: a stop does not wait for a collector that does not
// answer.
func TestStopBesideSilentCollector(t *testing.T) {
	c, s := otlptest.New(), newSet()
	release := c.Hold()
	target := telemetry.Target{Address: "http://" + c.Serve(t), Timeout: time.Hour, Last: 50 * time.Millisecond}
	x := telemetry.NewTraces(s.Settings, target, telemetry.Identity{})
	require.NoError(t, x.Start(t.Context()))
	for range 2000 { // several requests
		_, span := x.Provider().Tracer("t").Start(t.Context(), "send T")
		span.End()
	}
	m := s.metrics(t, target, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, m.Shutdown(ctx))
	require.NoError(t, x.Shutdown(ctx))
	require.NoError(t, ctx.Err())
	release()
}
