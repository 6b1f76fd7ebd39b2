package replicationmw

import (
	"context"
	"sync"
	"time"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
)

var _ Middleware = Metrics

// Metrics counts groups and their outcomes and times Append and Barrier, with
// the Meter and the Clock of p. All names begin with "replication_", all
// instruments have the label replicator. It allocates nothing per call.
func Metrics(p replication.Params, next replication.Replicator) replication.Replicator {
	s := p.WithDefaults()
	label := plugin.Label{Name: "replicator", Value: s.Name}
	m := &metrics{
		Base: Base{next}, clock: s.Clock, meter: s.Meter, label: label,
		appends:  s.Meter.Histogram("replication_append_seconds", "How long the replicator kept the turn of the log.", label),
		barriers: s.Meter.Histogram("replication_barrier_seconds", "Duration of barriers.", label),
		ordered:  s.Meter.Counter("replication_ordered_groups_total", "Groups that were ordered.", label),
		refused:  s.Meter.Counter("replication_refused_groups_total", "Groups that were refused before they were ordered.", label),
	}
	for o := range m.outcomes {
		m.outcomes[o] = s.Meter.Counter("replication_outcomes_total", "Outcomes of groups.", label, plugin.Label{Name: "outcome", Value: replication.Outcome(o).String()})
	}
	if f := next.Capabilities().Members; f != nil {
		m.caps.Members = &memberMetrics{next: f, errors: s.Meter.Counter("replication_member_errors_total", "Changes of the group that failed.", label)}
	}
	m.sink.m = m
	return m
}

type metrics struct {
	Base
	clock plugin.Clock
	meter plugin.Meter
	label plugin.Label
	caps  replication.Capabilities
	sink  countingSink

	mu   sync.Mutex // guards drop: Shutdown may be called twice at once
	drop func()

	appends, barriers plugin.Histogram
	ordered, refused  plugin.Counter
	outcomes          [replication.Unknown + 1]plugin.Counter
}

// countingSink stands between the replicator and one sink. An engine has one; a
// caller that uses several gets them wrapped one by one.
type countingSink struct {
	m    *metrics
	next replication.Sink
}

// Done implements [replication.Sink].
func (s *countingSink) Done(p *replication.Pending, from, to int, o replication.Outcome, err error) {
	if int(o) < len(s.m.outcomes) {
		s.m.outcomes[o].Add(uint64(to - from))
	}
	s.next.Done(p, from, to, o, err)
}

func (m *metrics) Capabilities() replication.Capabilities { return m.caps }

// Start implements [plugin.Component]; the gauge lives from here to Shutdown.
func (m *metrics) Start(ctx context.Context) error {
	if err := m.Replicator.Start(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop = m.meter.Gauge("replication_term", "Term of the present office.", func() float64 { return float64(m.Role().Term) }, m.label)
	return nil
}

// Shutdown implements [plugin.Component].
func (m *metrics) Shutdown(ctx context.Context) error {
	m.mu.Lock()
	drop := m.drop
	m.drop = nil
	m.mu.Unlock()
	if drop != nil {
		drop()
	}
	return m.Replicator.Shutdown(ctx)
}

func (m *metrics) Append(ctx context.Context, p *replication.Pending, s replication.Sink) error {
	sink := &m.sink
	switch sink.next { // guarded by the turn, which the caller holds
	case s:
	case nil:
		sink.next = s
	default:
		sink = &countingSink{m: m, next: s}
	}
	groups := len(p.Groups) // p may be somebody else's after Append
	began := m.clock.Now()
	err := m.Replicator.Append(ctx, p, sink)
	m.appends.Observe(m.since(began))
	if err != nil {
		m.refused.Add(uint64(groups))
		return err
	}
	m.ordered.Add(uint64(groups))
	return nil
}

func (m *metrics) Barrier(ctx context.Context) error {
	began := m.clock.Now()
	err := m.Replicator.Barrier(ctx)
	m.barriers.Observe(m.since(began))
	return err
}

func (m *metrics) since(began time.Time) float64 { return m.clock.Now().Sub(began).Seconds() }

type memberMetrics struct {
	next   replication.Members
	errors plugin.Counter
}

func (m *memberMetrics) count(err error) error {
	if err != nil {
		m.errors.Add(1)
	}
	return err
}

func (m *memberMetrics) AddLearner(ctx context.Context, id, addr string) error {
	return m.count(m.next.AddLearner(ctx, id, addr))
}

func (m *memberMetrics) Promote(ctx context.Context, id string) error {
	return m.count(m.next.Promote(ctx, id))
}

func (m *memberMetrics) Remove(ctx context.Context, id string) error {
	return m.count(m.next.Remove(ctx, id))
}

func (m *memberMetrics) Transfer(ctx context.Context, id string) error {
	return m.count(m.next.Transfer(ctx, id))
}

func (m *memberMetrics) Resign(ctx context.Context) error { return m.count(m.next.Resign(ctx)) }
