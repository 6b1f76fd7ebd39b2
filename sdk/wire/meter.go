package wire

import (
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/sdk/wire/pluginpb"
)

// MaxSeries bounds the metrics that cross from a plugin process.
const MaxSeries = 2000

// Meter keeps what the plugins of a process count, for the host that asks (Metrics
// of service Plugin). It keeps at most [MaxSeries] instruments; further ones record
// nothing and are counted. Make it with [NewMeter]. Safe for concurrent use.
type Meter struct {
	mu      sync.Mutex
	byKey   map[string]*series
	order   []string // keys, as they were made
	leftOut uint64
}

var _ plugin.Meter = (*Meter)(nil)

// NewMeter makes an empty Meter.
func NewMeter() *Meter { return &Meter{byKey: map[string]*series{}} }

// series is one instrument; what it is decides which of its fields count.
type series struct {
	name, help string
	labels     []plugin.Label
	counter    *atomic.Uint64
	histogram  *histogram
	reads      []*func() float64 // of a gauge, whose sum it is
}

// bounds are those of the histograms in seconds, as the host's own.
var bounds = func() (b [9]float64) {
	for i, v := 0, 0.0001; i < len(b); i, v = i+1, v*4 {
		b[i] = v
	}
	return b
}()

type histogram struct {
	count   atomic.Uint64
	sum     atomic.Uint64 // bits of a float64
	buckets [len(bounds)]atomic.Uint64
}

// Observe implements plugin.Histogram.
func (h *histogram) Observe(v float64) {
	h.count.Add(1)
	for {
		old := h.sum.Load()
		if h.sum.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+v)) {
			break
		}
	}
	for i := range bounds {
		if v <= bounds[i] {
			h.buckets[i].Add(1)
			return
		}
	}
}

type counter struct{ *atomic.Uint64 }

// Add implements plugin.Counter.
func (c counter) Add(n uint64) { c.Uint64.Add(n) }

// of finds or makes an instrument; m.mu is held. It is nil when there are too many.
func (m *Meter) of(name, help string, labels []plugin.Label) *series {
	labels = slices.SortedFunc(slices.Values(labels), func(a, b plugin.Label) int { return strings.Compare(a.Name, b.Name) })
	var key strings.Builder
	key.WriteString(name)
	for _, l := range labels {
		key.WriteByte(0)
		key.WriteString(l.Name)
		key.WriteByte(0)
		key.WriteString(l.Value)
	}
	if s := m.byKey[key.String()]; s != nil {
		return s
	}
	if len(m.order) == MaxSeries {
		m.leftOut++
		return nil
	}
	s := &series{name: name, help: help, labels: labels}
	m.byKey[key.String()] = s
	m.order = append(m.order, key.String())
	return s
}

// Counter implements plugin.Meter.
func (m *Meter) Counter(name, help string, labels ...plugin.Label) plugin.Counter {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.of(name, help, labels)
	if s == nil || s.histogram != nil || s.reads != nil {
		return counter{new(atomic.Uint64)}
	}
	if s.counter == nil {
		s.counter = new(atomic.Uint64)
	}
	return counter{s.counter}
}

// Histogram implements plugin.Meter.
func (m *Meter) Histogram(name, help string, labels ...plugin.Label) plugin.Histogram {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.of(name, help, labels)
	if s == nil || s.counter != nil || s.reads != nil {
		return &histogram{}
	}
	if s.histogram == nil {
		s.histogram = &histogram{}
	}
	return s.histogram
}

// Gauge implements plugin.Meter. One that several register tells the sum.
func (m *Meter) Gauge(name, help string, read func() float64, labels ...plugin.Label) func() {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.of(name, help, labels)
	if s == nil || s.counter != nil || s.histogram != nil {
		return func() {}
	}
	mine := &read
	s.reads = append(slices.Clone(s.reads), mine)
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		left := slices.DeleteFunc(slices.Clone(s.reads), func(r *func() float64) bool { return r == mine })
		if len(left) == len(s.reads) {
			return
		}
		if s.reads = left; len(left) > 0 {
			return
		}
		m.order = slices.DeleteFunc(m.order, func(k string) bool { return m.byKey[k] == s })
		for k, one := range m.byKey {
			if one == s {
				delete(m.byKey, k)
			}
		}
	}
}

// collect is what Metrics answers, with at most so many series.
func (m *Meter) collect(most int) *pluginpb.MetricsResponse {
	type reading struct {
		to    *pluginpb.Series
		reads []*func() float64
	}
	var gauges []reading
	m.mu.Lock()
	out := &pluginpb.MetricsResponse{LeftOut: m.leftOut}
	for i, key := range m.order {
		if i == most {
			out.LeftOut += uint64(len(m.order) - most)
			break
		}
		s := m.byKey[key]
		p := &pluginpb.Series{Name: valid(s.name), Help: valid(s.help)}
		for _, l := range s.labels {
			p.Labels = append(p.Labels, &pluginpb.Label{Name: valid(l.Name), Value: valid(l.Value)})
		}
		switch {
		case s.counter != nil:
			p.Value = &pluginpb.Series_Counter{Counter: float64(s.counter.Load())}
		case s.histogram != nil:
			p.Value = &pluginpb.Series_Histogram{Histogram: s.histogram.toProto()}
		default:
			gauges = append(gauges, reading{p, s.reads})
		}
		out.Series = append(out.Series, p)
	}
	m.mu.Unlock()
	for _, g := range gauges { // they may ask for what makes instruments
		sum := 0.0
		for _, read := range g.reads {
			sum += (*read)()
		}
		g.to.Value = &pluginpb.Series_Gauge{Gauge: sum}
	}
	return out
}

func (h *histogram) toProto() *pluginpb.Histogram {
	out := &pluginpb.Histogram{Sum: math.Float64frombits(h.sum.Load())}
	for i := range bounds {
		out.Count += h.buckets[i].Load()
		out.Buckets = append(out.Buckets, &pluginpb.Bucket{UpTo: bounds[i], Count: out.Count})
	}
	out.Count = max(out.Count, h.count.Load()) // observed while this was read
	return out
}
