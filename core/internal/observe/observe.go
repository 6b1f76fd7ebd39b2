package observe

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/client"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/internal/query"
	"github.com/hardpointmq/hardpoint/core/internal/stats"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/vfs"
)

// Params are where numbers come from and which are shown.
type Params struct {
	Clients *client.Manager
	Stats   *stats.Stats
	Query   *query.Query
	// Usage asks for the state of the disk of Dir, as vfs.FS does; no Dir: the store
	// is not on a disk.
	Usage func(dir string) (vfs.Usage, error)
	Dir   string
	// Oldest is when the oldest message was stored, in ms since epoch; 0: there is
	// none, or it is not known.
	Oldest func() int64
	// Labels are added to every metric (metricsLabel).
	Labels []plugin.Label
	// Limit is the most series of one name (metricsOtelCardinalityLimit).
	Limit int
	// Budget is how long one scrape computes lags.
	Budget time.Duration
	// Hide takes groups of metrics away (enableRemotingMetrics=false …).
	Hide Hidden

	_ struct{}
}

// Hidden are groups of metrics that are not shown.
type Hidden struct{ Remoting, Store, Connections, Stats, Requests, Lag bool }

// Exposer is what a plugin.Meter can be, too: it shows what c collects as it is,
// without a prefix, until drop is called. One that cannot shows no RocketMQ metrics.
type Exposer interface {
	Expose(c prometheus.Collector) (drop func())
}

// Observe is the behaviour. It implements prometheus.Collector.
type Observe struct {
	k    *kernel.Kernel
	p    Params
	d    descs
	lags lags
	left struct{ cardinality, time atomic.Int64 } // series, at the last scrape
}

// New makes the behaviour and registers it.
func New(k *kernel.Kernel, p Params) *Observe {
	o := &Observe{k: k, p: p}
	o.d = newDescs(k.Config(), p.Labels)
	var drops []func()
	k.Hooks.OnStart(func(context.Context) error {
		x, ok := k.Meter.(Exposer)
		if !ok {
			return nil
		}
		drops = append(drops, x.Expose(o))
		for reason, n := range map[string]*atomic.Int64{"cardinality": &o.left.cardinality, "time": &o.left.time} {
			drops = append(drops, k.Meter.Gauge("metrics_left_out_series", "Series of RocketMQ's metrics that the last scrape left out: more than metricsOtelCardinalityLimit, or no time for them yet.",
				func() float64 { return float64(n.Load()) }, plugin.Label{Name: "reason", Value: reason}))
		}
		return nil
	})
	k.Hooks.OnStop(func(context.Context) error {
		for _, drop := range drops {
			drop()
		}
		drops = nil
		return nil
	})
	return o
}

// Describe implements prometheus.Collector: what there is, is known at a scrape only.
func (o *Observe) Describe(chan<- *prometheus.Desc) {}

// scrape is one of them.
type scrape struct {
	out  chan<- prometheus.Metric
	left int64
}

func (s *scrape) gauge(d *prometheus.Desc, v float64, labels ...string) {
	s.out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (s *scrape) counter(d *prometheus.Desc, v float64, labels ...string) {
	s.out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
}

// Collect implements prometheus.Collector.
func (o *Observe) Collect(out chan<- prometheus.Metric) {
	s := &scrape{out: out}
	h := o.p.Hide
	if !h.Stats {
		o.stats(s)
	}
	if !h.Requests || !h.Lag {
		o.flow(s)
	}
	if !h.Requests {
		o.creations(s)
	}
	if !h.Connections {
		o.connections(s)
	}
	if !h.Remoting {
		o.remoting(s)
	}
	if !h.Store {
		o.store(s)
	}
	if !h.Lag {
		o.lag(s)
	}
	o.left.cardinality.Store(s.left)
}

func (o *Observe) stats(s *scrape) {
	s.gauge(o.d.permission, float64(o.k.Config().Permission))
	topics, _ := o.k.Topics.All()
	s.gauge(o.d.topics, float64(len(topics)))
	groups, _ := o.k.Groups.All()
	s.gauge(o.d.groups, float64(len(groups)))
}

// isSystem is BrokerMetricsManager's rule.
func isSystem(topic, group string) string {
	return strconv.FormatBool(message.IsSystem(topic) || isSystemGroup(group))
}

const systemGroupPrefix = "cid_rmq_sys_"

// isSystemGroup is that rule for a group. It is not message.IsSystemGroup: the tools'
// groups are none here, and the case of letters does not matter.
func isSystemGroup(group string) bool {
	return len(group) >= len(systemGroupPrefix) && strings.EqualFold(group[:len(systemGroupPrefix)], systemGroupPrefix)
}

// within cuts what is beyond the limit, always the same; each is so many series.
func within[T any](o *Observe, s *scrape, all []T, series int, order func(a, b T) int) []T {
	if len(all) <= o.p.Limit {
		return all
	}
	slices.SortFunc(all, order)
	s.left += int64((len(all) - o.p.Limit) * series)
	return all[:o.p.Limit]
}

func (o *Observe) flow(s *scrape) {
	in, out := o.p.Stats.Flow()
	in = within(o, s, in, 3, func(a, b stats.InOf) int { return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Kind, b.Kind)) })
	out = within(o, s, out, 2, func(a, b stats.OutOf) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Group, b.Group))
	})
	if !o.p.Hide.Requests {
		for _, i := range in {
			labels := []string{isSystem(i.Topic, ""), i.Kind.String(), i.Topic}
			n, bytes, upTo, count := i.Read()
			s.counter(o.d.messagesIn, float64(n), labels...)
			s.counter(o.d.throughputIn, float64(bytes), labels...)
			buckets := make(map[float64]uint64, len(upTo))
			for j, c := range upTo {
				buckets[float64(stats.SizeBounds[j])] = c
			}
			s.out <- prometheus.MustNewConstHistogram(o.d.messageSize, count, float64(bytes), buckets, labels...)
		}
	}
	for _, x := range out {
		labels := []string{x.Group, isSystem(x.Topic, x.Group), x.Topic}
		if !o.p.Hide.Lag && x.Dead > 0 {
			s.counter(o.d.dead, float64(x.Dead), labels...)
		}
		if !o.p.Hide.Requests && x.Messages > 0 && !isDerived(x.Topic) {
			s.counter(o.d.messagesOut, float64(x.Messages), labels...)
			s.counter(o.d.throughputOut, float64(x.Bytes), labels...)
		}
	}
}

func (o *Observe) creations(s *scrape) {
	o.p.Stats.Creations(func(c stats.Creation, x stats.Spent) bool {
		buckets := make(map[float64]uint64, len(x.UpTo))
		for i, n := range x.UpTo {
			buckets[float64(stats.CreationBounds[i].Milliseconds())] = n
		}
		d, labels := o.d.groupCreation, []string{"success"}
		if c.Failed {
			labels[0] = "failure"
		}
		if !c.Group {
			d, labels = o.d.topicCreation, append(labels, strconv.FormatBool(c.System))
		}
		s.out <- prometheus.MustNewConstHistogram(d, x.N, float64(x.Sum)/float64(time.Millisecond), buckets, labels...)
		return true
	})
}

// isDerived tells the topics that a group has for itself.
func isDerived(topic string) bool {
	return strings.HasPrefix(topic, message.RetryPrefix) || strings.HasPrefix(topic, message.DLQPrefix)
}

// mode is RocketMQ's word for how a group consumes (ConsumeType).
func mode(t command.ConsumeType) string {
	switch t {
	case command.ConsumePassively:
		return "push"
	case command.ConsumeActively:
		return "pull"
	}
	return strings.ToLower(strings.TrimPrefix(string(t), "CONSUME_"))
}

const remoting = "remoting"

// connection is what members are told apart by. Many versions and languages have one
// word: they are one series.
type connection struct{ group, mode, language, version string }

type connections struct {
	connection
	n int
}

func listOf(by map[client.ConnectionKey]int) []connections {
	sums := make(map[connection]int, len(by))
	for k, n := range by {
		sums[connection{k.Group, mode(k.Kind), strings.ToLower(k.Language.String()), strings.ToLower(command.VersionDesc(k.Version))}] += n
	}
	out := make([]connections, 0, len(sums))
	for c, n := range sums {
		out = append(out, connections{c, n})
	}
	return out
}

func (o *Observe) connections(s *scrape) {
	order := func(a, b connections) int {
		return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.mode, b.mode), cmp.Compare(a.language, b.language), cmp.Compare(a.version, b.version))
	}
	consumers, producers := o.p.Clients.Connections()
	for _, c := range within(o, s, listOf(consumers), 1, order) {
		s.gauge(o.d.consumers, float64(c.n), c.mode, c.group, strconv.FormatBool(isSystemGroup(c.group)), c.language, remoting, c.version)
	}
	for _, c := range within(o, s, listOf(producers), 1, order) {
		s.gauge(o.d.producers, float64(c.n), c.language, remoting, c.version)
	}
}

func (o *Observe) remoting(s *scrape) {
	o.k.Served(func(x kernel.Outcome, l *kernel.Latency) bool {
		upTo, n, sum := l.Read()
		buckets := make(map[float64]uint64, len(upTo))
		for i, c := range upTo {
			buckets[float64(kernel.LatencyBounds[i].Milliseconds())] = c
		}
		request := "unknown"
		if x.Request != 0 {
			request = strings.ToLower(command.RequestName(x.Request))
		}
		s.out <- prometheus.MustNewConstHistogram(o.d.latency, n, float64(sum)/float64(time.Millisecond), buckets,
			strconv.FormatBool(x.LongPolling), remoting, request, strings.ToLower(command.ResponseName(x.Response)), x.Result.String())
		return true
	})
}

// What RocketMQ calls the kind of its storage, whatever it is.
const local, disk = "local", "disk"

func (o *Observe) store(s *scrape) {
	st := o.k.Store.State()
	s.gauge(o.d.flushBehind, float64(max(st.Tail-st.Durable, 0)), disk, local)
	s.gauge(o.d.dispatchBehind, float64(max(st.Tail-st.Published, 0)), disk, local)
	if o.p.Dir != "" {
		if u, err := o.p.Usage(o.p.Dir); err == nil && u.Total > 0 {
			s.gauge(o.d.storageSize, float64(u.Used()), disk, local)
		}
	}
	if at := o.p.Oldest(); at > 0 {
		s.gauge(o.d.reserve, float64(max(o.k.Clock.Now().UnixMilli()-at, 0)), disk, local)
	}
}
