package metrics

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hardpointmq/hardpoint/core/plugin"
)

var _ plugin.Collector = (*Meter)(nil)

// foreigners are the metrics of other processes. What they are is known at a scrape
// only.
type foreigners struct {
	reg *prometheus.Registry // of nothing else
	mu  sync.Mutex
	all []*foreign
}

type foreign struct {
	read   func(context.Context) []plugin.Sample
	labels prometheus.Labels
}

func newForeigners() *foreigners {
	f := &foreigners{reg: prometheus.NewRegistry()}
	f.reg.MustRegister(f)
	return f
}

// Gatherer is everything: what this process counts, then what others do. A metric
// of another process that contradicts one of this is left out.
func (m *Meter) Gatherer() prometheus.Gatherer {
	return prometheus.Gatherers{m.reg, m.others.reg}
}

// Collect implements plugin.Collector.
func (m *Meter) Collect(read func(context.Context) []plugin.Sample, labels ...plugin.Label) func() {
	c := &foreign{read: read, labels: m.merged(labels)}
	m.others.mu.Lock()
	defer m.others.mu.Unlock()
	m.others.all = append(m.others.all, c)
	return func() {
		m.others.mu.Lock()
		defer m.others.mu.Unlock()
		m.others.all = slices.DeleteFunc(slices.Clone(m.others.all), func(o *foreign) bool { return o == c })
	}
}

// Describe implements prometheus.Collector.
func (f *foreigners) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector. All are read at the same time.
func (f *foreigners) Collect(out chan<- prometheus.Metric) {
	f.mu.Lock()
	all := f.all
	f.mu.Unlock()
	var readers sync.WaitGroup
	for _, one := range all {
		readers.Go(func() {
			for _, s := range one.read(context.Background()) {
				if m := metricOf(s, one.labels); m != nil {
					out <- m
				}
			}
		})
	}
	readers.Wait()
}

// isName tells a name that every reader of metrics takes.
func isName(s string) bool {
	for i, r := range s {
		if r != '_' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return s != ""
}

// metricOf is nil for a sample that is none.
func metricOf(s plugin.Sample, own prometheus.Labels) prometheus.Metric {
	labels := toLabels(s.Labels)
	maps.Copy(labels, own) // ours say where it comes from
	if !isName(s.Name) {
		return nil
	}
	for name := range labels {
		if !isName(name) || strings.HasPrefix(name, "__") {
			return nil
		}
	}
	d := prometheus.NewDesc(Prefix+s.Name, s.Help, nil, labels)
	var m prometheus.Metric
	var err error
	switch s.Kind {
	case plugin.SampleCounter:
		m, err = prometheus.NewConstMetric(d, prometheus.CounterValue, s.Value)
	case plugin.SampleGauge:
		m, err = prometheus.NewConstMetric(d, prometheus.GaugeValue, s.Value)
	case plugin.SampleHistogram:
		buckets := map[float64]uint64{}
		for _, b := range s.Buckets {
			buckets[b.UpTo] = b.Count
		}
		m, err = prometheus.NewConstHistogram(d, s.Count, s.Value, buckets)
	}
	if err != nil {
		return nil
	}
	return m
}
