package config

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/plugin"
)

func TestMetricsKeys(t *testing.T) {
	l, err := loadText(t, Broker, "broker.conf", `
metricsExporterType=otlp_grpc
metricsGrpcExporterTarget=collector.example:4317
metricsGrpcExporterHeader=Authorization:Bearer xyz==,tenant:a:b
metricsLabel=az:z1, rack:r2
tracesExporterType=OTLP_HTTP
tracesExporterTarget=http://127.0.0.1:4318/v1/traces
tracesSampleRatio=0.25
`)
	require.NoError(t, err)
	m := &l.Config.Metrics
	require.Equal(t, ExportOTLPGRPC, m.ExporterType)
	require.Equal(t, "******", m.Header.String())
	headers, err := Headers(m.Header)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"authorization": "Bearer xyz==", "tenant": "a:b"}, headers)
	labels, err := m.Labels()
	require.NoError(t, err)
	require.Equal(t, []plugin.Label{{Name: "az", Value: "z1"}, {Name: "rack", Value: "r2"}}, labels)
	require.InDelta(t, 0.25, m.SampleRatio, 0)
	require.Empty(t, m.PromAddress())
	require.NotContains(t, string(l.Properties()), "xyz")

	l, err = loadText(t, Broker, "broker.conf", "metricsExporterType=PROM\nmetricsPromExporterHost=127.0.0.1")
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:5557", l.Config.Metrics.PromAddress())

	for text, want := range map[string]string{
		"metricsExporterType=OTLP_GRPC":                           "needs metricsGrpcExporterTarget",
		"tracesExporterType=OTLP_GRPC":                            "needs tracesExporterTarget",
		"metricsGrpcExporterTarget=collector":                     "has no HOST:PORT",
		"metricsGrpcExporterTarget=ftp://collector:1":             "begins with ftp://",
		"tracesExporterTarget=http://collector:99999/v1":          "has no HOST:PORT",
		"tracesExporterTarget=https://somebody@collector:4318":    "names a user, which is not sent; give it as a header",
		"metricsLabel=az=z1":                                      "is no pair",
		"metricsLabel=a-z:z1":                                     "is no name of a label",
		"metricsLabel=topic:z1":                                   "one of RocketMQ's own",
		"metricsLabel=az:z1,az:z2":                                "twice",
		"metricsGrpcExporterHeader=secret-without-a-name":         "write NAME:VALUE pairs",
		"tracesExporterHeader=bad name:secret-without-a-name":     "name 1 of a header",
		"tracesSampleRatio=1.5":                                   "from 0 to 1",
		"metricsOtelCardinalityLimit=0":                           "from 1 to",
		"metricsExporterType=PROM\nmetricsPromExporterPort=10911": "the port is also that of listen",
	} {
		_, err := loadText(t, Broker, "broker.conf", text)
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), "secret-without-a-name", text)
	}
	l, err = loadText(t, Broker, "broker.conf", "metricsExporterType=LOG\nmetricsGrpcExporterTarget=http://far.example:1\nmetricsGrpcExporterHeader=a:b")
	require.NoError(t, err)
	var said string
	for _, w := range l.Warnings {
		said += w.String()
	}
	require.Contains(t, said, "LOG has no effect")
	require.Contains(t, said, "unencrypted")
}
