//go:build unix

package main

import (
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/internal/otlptest"
)

// A broker sends its metrics and the spans of its requests to a collector, and stops
// whether or not there is one.
func TestTelemetry(t *testing.T) {
	c := otlptest.New()
	address := "http://" + c.Serve(t)
	s := standalone(t, t.TempDir(), "--set", "metricsExporterType=OTLP_GRPC", "--set", "metricsGrpcExporterTarget="+address,
		"--set", "metricsGrpcExporterHeader=authorization:Bearer hidden", "--set", "metricGrpcExporterIntervalInMills=100",
		"--set", "tracesExporterType=OTLP_GRPC", "--set", "tracesSampleRatio=1")
	produce(t, s, 10)
	require.Eventually(t, func() bool {
		m := c.Metric("rocketmq_messages_in_total")
		if m == nil {
			return false
		}
		n := 0.0
		for _, p := range m.GetSum().DataPoints {
			n += p.GetAsDouble()
		}
		return n >= 10
	}, patience, 20*time.Millisecond)
	require.Eventually(t, func() bool { return len(c.Spans()) >= 10 }, patience, 20*time.Millisecond)
	require.Equal(t, "send T", c.Spans()[0].Name)
	require.Contains(t, c.Authorizations(), "Bearer hidden")
	require.NotContains(t, s.text(), "hidden")

	c.Refuse(true)
	require.Eventually(t, func() bool {
		code, text := fetch(t, "http://"+s.addr("admin")+"/metrics")
		return code == http.StatusOK && !strings.Contains(text, "hardpoint_otlp_export_failures_total{signal=\"metrics\"} 0\n")
	}, patience, 20*time.Millisecond)
	produce(t, s, 10)
	require.Zero(t, s.signal(t, syscall.SIGTERM))
}
