package external_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/plugins/storage/memory"
	"github.com/hardpointmq/hardpoint/sdk/external"
)

// recorded is a meter whose values a test reads, by name{label=value,…}.
type recorded struct {
	mu       sync.Mutex
	counters map[string]*count
	gauges   map[string]func() float64
	read     func(context.Context) []plugin.Sample
	labels   []plugin.Label
}

func (r *recorded) Collect(read func(context.Context) []plugin.Sample, labels ...plugin.Label) func() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read, r.labels = read, labels
	return func() {}
}

type count struct {
	mu sync.Mutex
	n  uint64
}

func (c *count) Add(n uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += n
}

func (c *count) Observe(float64) { c.Add(1) }

func keyOf(name string, labels []plugin.Label) string {
	var parts []string
	for _, l := range labels {
		parts = append(parts, l.Name+"="+l.Value)
	}
	return name + "{" + strings.Join(parts, ",") + "}"
}

func (r *recorded) of(name string, labels []plugin.Label) *count {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := keyOf(name, labels)
	if r.counters[k] == nil {
		if r.counters == nil {
			r.counters = map[string]*count{}
		}
		r.counters[k] = &count{}
	}
	return r.counters[k]
}

func (r *recorded) Counter(name, _ string, labels ...plugin.Label) plugin.Counter {
	return r.of(name, labels)
}

func (r *recorded) Histogram(name, _ string, labels ...plugin.Label) plugin.Histogram {
	return r.of(name, labels)
}

func (r *recorded) Gauge(name, _ string, read func() float64, labels ...plugin.Label) func() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gauges == nil {
		r.gauges = map[string]func() float64{}
	}
	r.gauges[keyOf(name, labels)] = read
	return func() {}
}

func (r *recorded) gauge(key string) float64 {
	r.mu.Lock()
	read := r.gauges[key]
	r.mu.Unlock()
	if read == nil {
		return -1
	}
	return read()
}

// count is the value of a counter, or how much a histogram holds.
func (r *recorded) count(key string) uint64 {
	r.mu.Lock()
	c := r.counters[key]
	r.mu.Unlock()
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// state is the one of the process.
func (r *recorded) state(name string) string {
	r.mu.Lock()
	keys := slices.Sorted(maps.Keys(r.gauges))
	r.mu.Unlock()
	var on []string
	for _, k := range keys {
		if rest, ok := strings.CutPrefix(k, "plugin_process_state{plugin="+name+",state="); ok && r.gauge(k) == 1 {
			on = append(on, strings.TrimSuffix(rest, "}"))
		}
	}
	return strings.Join(on, "+")
}

// TestMetricsOfThePlugin: what it counts is the host's to show, as long as it lives.
func TestMetricsOfThePlugin(t *testing.T) {
	var m recorded
	f := external.Storage("counting", command(t, "serve"), external.Options{Meter: &m, Linger: -1})
	require.Empty(t, m.read(t.Context()), "there is no process")
	require.Equal(t, []plugin.Label{{Name: "plugin", Value: "counting"}}, m.labels)
	s := running(t, f, storage.Events{})
	got := map[string]plugin.Sample{}
	require.Eventually(t, func() bool { // a busy machine: it does not answer in time
		for _, one := range m.read(t.Context()) {
			got[one.Name] = one
		}
		return len(got) > 0
	}, patience, time.Millisecond)
	require.InDelta(t, 3, got["things_total"].Value, 0)
	require.Equal(t, "Things.", got["things_total"].Help)
	require.Equal(t, []plugin.Label{{Name: "sort", Value: "blue"}}, got["things_total"].Labels)
	require.Equal(t, plugin.SampleGauge, got["depth"].Kind)
	require.InDelta(t, 7, got["depth"].Value, 0)
	require.Equal(t, plugin.SampleHistogram, got["wait_seconds"].Kind)
	require.EqualValues(t, 1, got["wait_seconds"].Count)
	require.InDelta(t, 0, got["plugin_metrics_left_out"].Value, 0)
	require.NoError(t, s.Shutdown(t.Context()))
	require.Empty(t, m.read(t.Context()), "those of a process that is gone are gone")
}

// TestNoMetrics: a process that has none, or does not answer, is nothing to wait
// for.
func TestNoMetrics(t *testing.T) {
	var m recorded
	running(t, external.Storage(memory.Name, command(t, "no_metrics"), external.Options{Meter: &m, Linger: -1}), storage.Events{})
	require.Empty(t, m.read(t.Context()))
	require.Empty(t, m.read(t.Context()))

	var late recorded
	running(t, external.Storage(memory.Name, command(t, "slow_metrics"), external.Options{Meter: &late, Linger: -1}), storage.Events{})
	require.Empty(t, late.read(t.Context()))
}
