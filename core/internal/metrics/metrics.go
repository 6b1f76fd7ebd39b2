// Package metrics makes plugin.Meter out of a Prometheus registry.
package metrics

import (
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hardpointmq/hardpoint/core/plugin"
)

// Prefix starts the name of every metric of ours.
const Prefix = "hardpoint_"

// Meter implements plugin.Meter over a registry of its own. Labels given to New
// are on every instrument.
type Meter struct {
	reg     *prometheus.Registry
	labels  prometheus.Labels
	gauges  *sync.Mutex // held while one is registered or dropped
	others  *foreigners
	exposed *exposed
}

var _ plugin.Meter = (*Meter)(nil)

// New makes a meter that registers in reg.
func New(reg *prometheus.Registry, labels ...plugin.Label) *Meter {
	m := &Meter{reg: reg, labels: toLabels(labels), gauges: &sync.Mutex{}, others: newForeigners(), exposed: &exposed{}}
	reg.MustRegister(m.exposed)
	return m
}

// With returns a meter whose instruments have further labels.
func (m *Meter) With(labels ...plugin.Label) *Meter {
	l := toLabels(labels)
	for k, v := range m.labels {
		l[k] = v
	}
	return &Meter{reg: m.reg, labels: l, gauges: m.gauges, others: m.others, exposed: m.exposed}
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

// exposed are collectors that are shown as they are. A registry cannot give back
// those that do not know before what they collect, so it has this one for all.
type exposed struct {
	mu  sync.Mutex
	all []*prometheus.Collector
}

// Describe implements prometheus.Collector.
func (e *exposed) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector. The collectors work at the same time, as
// those of a registry do: each broker group of a process may take a second.
func (e *exposed) Collect(out chan<- prometheus.Metric) {
	e.mu.Lock()
	all := slices.Clone(e.all)
	e.mu.Unlock()
	var wg sync.WaitGroup
	for _, c := range all {
		wg.Go(func() { (*c).Collect(out) })
	}
	wg.Wait()
}

// Expose shows what c collects, without the prefix and with its own labels only, until
// drop is called.
func (m *Meter) Expose(c prometheus.Collector) (drop func()) {
	m.exposed.mu.Lock()
	defer m.exposed.mu.Unlock()
	m.exposed.all = append(m.exposed.all, &c)
	return func() {
		m.exposed.mu.Lock()
		defer m.exposed.mu.Unlock()
		m.exposed.all = slices.DeleteFunc(m.exposed.all, func(o *prometheus.Collector) bool { return o == &c })
	}
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

// gauge is one metric that several registered: the transports of the broker and
// of the name server in one process count the same thing. It tells their sum, as
// a counter that is shared does.
type gauge struct {
	prometheus.GaugeFunc

	mu    sync.Mutex
	reads map[*func() float64]struct{} // of those who registered it; empty: unregistered
}

func (g *gauge) value() float64 {
	g.mu.Lock()
	reads := slices.Collect(maps.Keys(g.reads))
	g.mu.Unlock()
	sum := 0.0
	for _, read := range reads {
		sum += (*read)()
	}
	return sum
}

// Gauge implements plugin.Meter.
func (m *Meter) Gauge(name, help string, read func() float64, labels ...plugin.Label) func() {
	fresh := &gauge{reads: map[*func() float64]struct{}{}}
	fresh.GaugeFunc = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: Prefix + name, Help: help, ConstLabels: m.merged(labels),
	}, fresh.value)
	m.gauges.Lock()
	defer m.gauges.Unlock()
	g := fresh
	if err := m.reg.Register(fresh); err != nil {
		are := prometheus.AlreadyRegisteredError{}
		if !errors.As(err, &are) {
			return func() {}
		}
		var same bool
		if g, same = are.ExistingCollector.(*gauge); !same {
			return func() {} // another kind of instrument has the name
		}
	}
	g.add(&read)
	return func() {
		m.gauges.Lock()
		defer m.gauges.Unlock()
		if g.drop(&read) {
			m.reg.Unregister(g)
		}
	}
}

func (g *gauge) add(read *func() float64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reads[read] = struct{}{}
}

// drop tells whether it was the last.
func (g *gauge) drop(read *func() float64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, had := g.reads[read]
	delete(g.reads, read)
	return had && len(g.reads) == 0
}

// Histogram implements plugin.Meter.
func (m *Meter) Histogram(name, help string, labels ...plugin.Label) plugin.Histogram {
	return register(m.reg, prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: Prefix + name, Help: help, ConstLabels: m.merged(labels),
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160,
		Buckets: prometheus.ExponentialBuckets(0.0001, 4, 9),
	}))
}
