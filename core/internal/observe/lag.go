package observe

import (
	"strings"
	"sync"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

const (
	// seriesOfPair is how many series a group and a topic have.
	seriesOfPair = 5
	// fresh is how long lags are shown as they were computed: several who scrape at
	// the same time, or often, must not cost several times.
	fresh = time.Second
)

type pair struct{ group, topic string }

// behind is how far a group is in a topic.
type behind struct {
	lag, inflight, ready int64
	// lagSince and readySince are when the oldest message not acknowledged, and the
	// oldest not handed out, were stored, ms since epoch; 0: there is none.
	lagSince, readySince int64
	known                bool
	queues               []stamps
}

// stamps are store times that were read, of one queue: a record is read once while a
// group stays where it is.
type stamps struct{ lag, ready stamp }

type stamp struct{ offset, at int64 }

// lags is what was computed, kept from scrape to scrape.
type lags struct {
	mu    sync.Mutex
	of    map[pair]*behind
	order []pair
	next  int // in order: whose turn it is
	at    time.Time
	left  int64 // series beyond the limit
}

// lag computes as much as there is time for and shows all that is known.
func (o *Observe) lag(s *scrape) {
	l := &o.lags
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := o.k.Clock.Now(); l.of == nil || now.Sub(l.at) >= fresh || now.Before(l.at) {
		o.gather()
		o.compute(now)
		l.at = now
	}
	s.left += l.left
	now := o.k.Clock.Now().UnixMilli()
	since := func(at int64) float64 {
		if at == 0 {
			return 0
		}
		return float64(max(now-at, 0))
	}
	unknown := int64(0)
	for _, p := range l.order {
		b := l.of[p]
		if !b.known {
			unknown += seriesOfPair
			continue
		}
		labels := []string{p.group, "false", isSystem(p.topic, p.group), p.topic}
		s.gauge(o.d.lag, float64(b.lag), labels...)
		s.gauge(o.d.lagLatency, since(b.lagSince), labels...)
		s.gauge(o.d.inflight, float64(b.inflight), labels...)
		s.gauge(o.d.queueing, since(b.readySince), labels...)
		s.gauge(o.d.ready, float64(b.ready), labels...)
	}
	o.left.time.Store(unknown)
}

// gather finds who consumes what now: as RocketMQ does, only groups with members.
func (o *Observe) gather() {
	l := &o.lags
	was, turn := l.of, pair{}
	if l.next < len(l.order) {
		turn = l.order[l.next]
	}
	l.of, l.order, l.next, l.left = map[pair]*behind{}, l.order[:0], 0, 0
	for _, group := range o.p.Clients.ConsumerGroups() {
		topics, n := o.p.Clients.Topics(group, o.p.Limit-len(l.order))
		l.left += int64(n-len(topics)) * seriesOfPair
		for _, topic := range topics {
			if strings.HasPrefix(topic, message.RetryPrefix) || !o.readable(topic) {
				continue
			}
			p := pair{group, topic}
			b := was[p]
			if b == nil {
				b = &behind{}
			}
			if p == turn {
				l.next = len(l.order)
			}
			l.of[p] = b
			l.order = append(l.order, p)
		}
	}
}

func (o *Observe) readable(topic string) bool {
	t := o.k.Topics.Named(topic)
	return t != nil && !t.Internal && t.Config.Perm&o.k.Config().Permission&(command.PermRead|command.PermWrite) != 0
}

// compute brings pairs up to date from the one whose turn it is, until the time is
// over or all are.
func (o *Observe) compute(began time.Time) {
	l := &o.lags
	ends := map[string][]storage.OffsetAnswer{}
	for range len(l.order) {
		p := l.order[l.next]
		if !o.update(p, l.of[p], ends) {
			return // the store does not answer: the next scrape tries again
		}
		l.next = (l.next + 1) % len(l.order)
		if o.k.Clock.Now().Sub(began) >= o.p.Budget {
			return
		}
	}
}

// update computes one pair; ends are those of topics that were asked for already.
func (o *Observe) update(p pair, b *behind, ends map[string][]storage.OffsetAnswer) bool {
	all, ok := ends[p.topic]
	if !ok {
		var err error
		t := o.k.Topics.Named(p.topic)
		if t == nil {
			return true // it was deleted meanwhile
		}
		if all, err = o.p.Query.Ends(o.k.Serving(), p.topic, t.Config.WriteQueueNums); err != nil {
			return false
		}
		ends[p.topic] = all
	}
	if len(b.queues) != len(all) {
		b.queues = make([]stamps, len(all))
	}
	now := behind{known: true, queues: b.queues}
	for i := range all {
		end := &all[i]
		committed, ok := o.k.Offsets.Committed(p.group, end.Queue)
		if !ok || committed < 0 {
			committed = end.Max // RocketMQ's view of a group that acknowledged nothing
		}
		pulled := max(o.p.Stats.Pulled(p.group, end.Queue), committed)
		now.lag += max(end.Max-committed, 0)
		now.inflight += max(min(pulled, end.Max)-committed, 0)
		now.ready += max(end.Max-pulled, 0)
		earlier(&now.lagSince, o.storeTime(end, committed, &b.queues[i].lag))
		earlier(&now.readySince, o.storeTime(end, pulled, &b.queues[i].ready))
	}
	*b = now
	return true
}

func earlier(least *int64, at int64) {
	if at > 0 && (*least == 0 || at < *least) {
		*least = at
	}
}

// storeTime is when the record at an offset was stored; 0: there is none. What
// retention took away counts as the oldest that is there.
func (o *Observe) storeTime(end *storage.OffsetAnswer, offset int64, known *stamp) int64 {
	offset = max(offset, end.Min)
	if offset >= end.Max {
		return 0
	}
	if known.at == 0 || known.offset != offset {
		*known = stamp{offset, o.p.Query.StoreTime(o.k.Serving(), end.Queue, offset)}
	}
	return known.at
}
