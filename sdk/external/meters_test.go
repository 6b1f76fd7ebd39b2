package external_test

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/hardpointmq/hardpoint/core/plugin"
)

// recorded is a meter whose values a test reads, by name{label=value,…}.
type recorded struct {
	mu       sync.Mutex
	counters map[string]*count
	gauges   map[string]func() float64
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
