package metrics_test

import (
	"context"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/internal/metrics"
	"github.com/hardpointmq/hardpoint/core/plugin"
)

func TestMetricsOfOtherProcesses(t *testing.T) {
	m := metrics.New(prometheus.NewRegistry())
	m.Counter("sends_total", "Sends.").Add(1)
	samples := []plugin.Sample{
		{Name: "sends_total", Help: "Sends.", Kind: plugin.SampleCounter, Value: 5, Labels: []plugin.Label{{Name: "plugin", Value: "liar"}}},
		{Name: "depth", Help: "Depth.", Kind: plugin.SampleGauge, Value: 2.5},
		{Name: "wait_seconds", Help: "Wait.", Kind: plugin.SampleHistogram, Value: 7, Count: 3, Buckets: []plugin.Bucket{{UpTo: 1, Count: 2}}},
		{Name: "not a name", Kind: plugin.SampleGauge, Value: 111},
		{Name: "labelled", Kind: plugin.SampleGauge, Value: 222, Labels: []plugin.Label{{Name: "", Value: "x"}}},
		{Name: "reserved", Kind: plugin.SampleGauge, Value: 333, Labels: []plugin.Label{{Name: "__name__", Value: "x"}}},
		{Name: "odd", Kind: 9, Value: 444},
		{Name: "text", Help: "\xff", Labels: []plugin.Label{{Name: "a", Value: "\xff"}}, Kind: plugin.SampleGauge, Value: 555},
	}
	drop := m.With(plugin.Label{Name: "node", Value: "n"}).Collect(func(context.Context) []plugin.Sample { return samples }, plugin.Label{Name: "plugin", Value: "acme"})
	out := gatheredFrom(t, m.Gatherer(), false)
	for _, want := range []string{"counter:{value:1 ", "counter:{value:5}", `value:"acme"`, `value:"n"`, "gauge:{value:2.5}", "sample_count:3"} {
		require.Contains(t, out, want)
	}
	for _, not := range []string{"liar", "value:111", "value:222", "value:333", "value:444", "value:555"} {
		require.NotContains(t, out, not)
	}
	drop()
	drop()
	require.NotContains(t, gatheredFrom(t, m.Gatherer(), false), "acme")
}

// What another process says of a metric of this one changes nothing of it.
func TestContradictionsAreLeftOut(t *testing.T) {
	m := metrics.New(prometheus.NewRegistry())
	m.Counter("sends_total", "Sends.").Add(1)
	m.Collect(func(context.Context) []plugin.Sample {
		return []plugin.Sample{
			{Name: "sends_total", Help: "Sends.", Kind: plugin.SampleGauge, Value: 77},
			{Name: "twice", Kind: plugin.SampleGauge, Value: 1}, {Name: "twice", Kind: plugin.SampleGauge, Value: 88},
		}
	})
	out := gatheredFrom(t, m.Gatherer(), true)
	require.Contains(t, out, "counter:{value:1 ")
	require.NotContains(t, out, "value:77")
}

// All are read at the same time: the slowest alone delays a scrape.
func TestReadAtTheSameTime(t *testing.T) {
	m := metrics.New(prometheus.NewRegistry())
	var all sync.WaitGroup
	const processes = 5
	all.Add(processes)
	for range processes {
		m.Collect(func(context.Context) []plugin.Sample {
			all.Done()
			all.Wait()
			return nil
		})
	}
	gatheredFrom(t, m.Gatherer(), false)
}
