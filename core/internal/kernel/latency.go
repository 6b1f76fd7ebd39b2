package kernel

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
)

// LatencyBounds are the upper bounds of the buckets of latencies, as RocketMQ's
// rocketmq_rpc_latency has them.
var LatencyBounds = [...]time.Duration{
	time.Millisecond, 3 * time.Millisecond, 5 * time.Millisecond, 7 * time.Millisecond, 10 * time.Millisecond,
	100 * time.Millisecond, time.Second, 2 * time.Second, 3 * time.Second,
}

// Result is how a request ended, beside its response code.
type Result uint8

// The results that there are.
const (
	ResultSuccess     Result = iota
	ResultOneway             // no answer was wanted
	ResultFailed             // the handler panicked
	ResultWriteFailed        // the peer is gone or too slow to take the answer
)

// String is RocketMQ's word for it (RemotingMetricsConstant).
func (r Result) String() string {
	return [...]string{"success", "oneway", "process_request_failed", "write_channel_failed"}[r&3]
}

// Outcome is what latencies are told apart by.
type Outcome struct {
	// Request is 0 for every code that nobody serves: clients choose codes.
	Request, Response int32
	// LongPolling: it waited for a message.
	LongPolling bool
	Result      Result
}

// Latencies is a distribution as it is gathered without others, for one batch.
type Latencies struct {
	Counts [len(LatencyBounds) + 1]uint32
	Nanos  int64
}

// Add counts one.
func (l *Latencies) Add(d time.Duration) {
	d = max(d, 0)
	i := 0
	for i < len(LatencyBounds) && d > LatencyBounds[i] {
		i++
	}
	l.Counts[i]++
	l.Nanos += int64(d)
}

// Latency is a distribution that was gathered since the start.
type Latency struct {
	counts [len(LatencyBounds) + 1]atomic.Uint64
	nanos  atomic.Int64
}

// Read returns how many were at most as long as each of LatencyBounds, how many
// there were, and their sum.
func (l *Latency) Read() (upTo [len(LatencyBounds)]uint64, n uint64, sum time.Duration) {
	for i := range l.counts {
		n += l.counts[i].Load()
		if i < len(upTo) {
			upTo[i] = n
		}
	}
	return upTo, n, time.Duration(l.nanos.Load())
}

// served is how long requests took, by outcome. There are few outcomes, so that the
// map is copied when one is new and read without a lock.
type served struct {
	mu sync.Mutex
	by atomic.Pointer[map[Outcome]*Latency]
}

func (s *served) of(o Outcome) *Latency {
	if by := s.by.Load(); by != nil {
		if l := (*by)[o]; l != nil {
			return l
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next := map[Outcome]*Latency{}
	if by := s.by.Load(); by != nil {
		if l := (*by)[o]; l != nil {
			return l
		}
		maps.Copy(next, *by)
	}
	l := &Latency{}
	next[o] = l
	s.by.Store(&next)
	return l
}

// Uptime is how long the kernel is there by its clock: when something arrived, for
// Took.
func (k *Kernel) Uptime() time.Duration { return k.Clock.Now().Sub(k.made) }

// Took counts requests that ended alike.
func (k *Kernel) Took(o Outcome, all *Latencies) {
	if k.handlers[o.Request] == nil && !isSend(o.Request) {
		o.Request = 0
	}
	l := k.served.of(o)
	for i, n := range all.Counts {
		if n > 0 {
			l.counts[i].Add(uint64(n))
		}
	}
	l.nanos.Add(all.Nanos)
}

func (k *Kernel) tookOne(o Outcome, began time.Duration) {
	var one Latencies
	one.Add(k.Uptime() - began)
	k.Took(o, &one)
}

// Served calls yield for each outcome that there was, in no order.
func (k *Kernel) Served(yield func(Outcome, *Latency) bool) {
	by := k.served.by.Load()
	if by == nil {
		return
	}
	for o, l := range *by {
		if !yield(o, l) {
			return
		}
	}
}

// isSend tells the requests that the Sender takes.
func isSend(code int32) bool {
	return code == command.ReqSendMessage || code == command.ReqSendMessageV2 || code == command.ReqSendBatchMessage
}

// resultOf is the result of an answer that was given to the peer with err.
func resultOf(err error, oneway, failed bool) Result {
	switch {
	case failed:
		return ResultFailed
	case oneway:
		return ResultOneway
	case err != nil:
		return ResultWriteFailed
	}
	return ResultSuccess
}
