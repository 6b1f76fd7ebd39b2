// Package metrics makes plugin.Meter out of a Prometheus registry.
package metrics

import (
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hardpointmq/hardpoint/core/plugin"
)

// Prefix starts the name of every metric of ours.
const Prefix = "hardpoint_"

// Meter implements plugin.Meter over a registry of its own. Labels given to New
// are on every instrument.
type Meter struct {
	reg    *prometheus.Registry
	labels prometheus.Labels
}

var _ plugin.Meter = (*Meter)(nil)

// New makes a meter that registers in reg.
func New(reg *prometheus.Registry, labels ...plugin.Label) *Meter {
	return &Meter{reg: reg, labels: toLabels(labels)}
}

// With returns a meter whose instruments have further labels.
func (m *Meter) With(labels ...plugin.Label) *Meter {
	l := toLabels(labels)
	for k, v := range m.labels {
		l[k] = v
	}
	return &Meter{reg: m.reg, labels: l}
}

func toLabels(labels []plugin.Label) prometheus.Labels {
	l := prometheus.Labels{}
	for _, x := range labels {
		l[x.Name] = x.Value
	}
	return l
}

func (m *Meter) merged(labels []plugin.Label) prometheus.Labels {
	l := toLabels(labels)
	for k, v := range m.labels {
		l[k] = v
	}
	return l
}

// register returns c, or what is registered under its name already.
func register[C prometheus.Collector](reg *prometheus.Registry, c C) C {
	err := reg.Register(c)
	if are := (prometheus.AlreadyRegisteredError{}); errors.As(err, &are) {
		if old, ok := are.ExistingCollector.(C); ok {
			return old
		}
	}
	return c // a name used for two kinds of instrument: it counts, unseen
}

type counter struct{ prometheus.Counter }

func (c counter) Add(n uint64) { c.Counter.Add(float64(n)) }

// Counter implements plugin.Meter.
func (m *Meter) Counter(name, help string, labels ...plugin.Label) plugin.Counter {
	return counter{register(m.reg, prometheus.NewCounter(prometheus.CounterOpts{
		Name: Prefix + name, Help: help, ConstLabels: m.merged(labels),
	}))}
}

// Gauge implements plugin.Meter.
func (m *Meter) Gauge(name, help string, read func() float64, labels ...plugin.Label) func() {
	g := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: Prefix + name, Help: help, ConstLabels: m.merged(labels),
	}, read)
	if m.reg.Register(g) != nil {
		return func() {}
	}
	var once sync.Once
	return func() { once.Do(func() { m.reg.Unregister(g) }) }
}

// Histogram implements plugin.Meter.
func (m *Meter) Histogram(name, help string, labels ...plugin.Label) plugin.Histogram {
	return register(m.reg, prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: Prefix + name, Help: help, ConstLabels: m.merged(labels),
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160,
		Buckets: prometheus.ExponentialBuckets(0.0001, 4, 9),
	}))
}
