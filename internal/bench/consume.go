package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/message"
)

// ErrVerify: what was read is not what must be there. Test with errors.Is.
var ErrVerify = errors.New("verification failed")

// stream reads one queue in one slot.
type stream struct {
	id            int32
	min, max      int64 // when the run began
	at            int64
	read          int64
	again, follow bool // from the start at the end, or wait there
}

// consumer is the work of a connection that pulls.
type consumer struct {
	r       *run
	streams []*stream
	req     command.PullRequest
	resp    command.PullResponse
	view    message.View
	verify  bool

	// End to end: messages of this run carry the nonce and when they were due.
	nonce    uint64
	received int64
	e2e      *hdrhistogram.Histogram
	from, to func() int64
	enough   func(received int64) bool
}

func newConsumer(r *run) *consumer {
	o := r.o
	return &consumer{r: r, verify: o.Verify, req: command.PullRequest{
		ConsumerGroup: []byte(o.Group), Topic: []byte(o.Topic), Subscription: []byte("*"), ExpressionType: []byte("TAG"),
		MaxMsgNums: int32(o.Batch), SysFlag: command.PullSubscription,
	}}
}

func (c *consumer) next(buf []byte, slot int, opaque int32, now int64) ([]byte, bool) {
	s := c.streams[slot]
	if c.enough != nil && c.enough(c.received) {
		return buf, false
	}
	if !s.follow && s.at >= s.max {
		if !s.again {
			return buf, false
		}
		s.at = s.min
	}
	if now >= c.r.to.Load() || c.r.budget.Load() <= 0 {
		return buf, false
	}
	c.req.QueueID, c.req.QueueOffset = s.id, s.at
	c.req.SysFlag = command.PullSubscription
	c.req.SuspendTimeoutMillis = 0
	if s.follow {
		c.req.SysFlag |= command.PullSuspend
		c.req.SuspendTimeoutMillis = (c.r.o.Timeout / 2).Milliseconds()
	}
	w := command.Begin(buf, c.r.o.Header, command.ReqPullMessage, opaque, 0)
	c.req.Append(&w)
	return w.End(0), true
}

func (c *consumer) answered(slot int, code int32, f *command.Frame, h *command.Header, now int64) (tally, error) {
	s := c.streams[slot]
	if c.r.isError(code) {
		return tally{}, nil
	}
	if err := h.Decode(f); err != nil {
		return tally{}, err
	}
	if err := c.resp.Decode(h); err != nil {
		return tally{}, err
	}
	if code != command.RespSuccess {
		if c.verify {
			return tally{}, fmt.Errorf("%w: queue %d: the broker has nothing at offset %d of [%d, %d): %s", ErrVerify, s.id, s.at, s.min, s.max, command.ResponseName(code))
		}
		if s.at == c.resp.NextBeginOffset && !s.follow {
			s.at = s.max // a broker that has less than it said
		} else {
			s.at = c.resp.NextBeginOffset
		}
		return tally{}, nil
	}
	t := tally{ok: true}
	for b := f.Body; len(b) > 0; {
		if err := message.Parse(b, &c.view); err != nil {
			return t, fmt.Errorf("queue %d, offset %d: %w", s.id, s.at, err)
		}
		v := &c.view
		b = b[v.Size:]
		if v.QueueOffset >= s.max && !s.follow {
			break // stored since the run began
		}
		t.messages++
		t.bytes += int64(len(v.Body))
		if c.verify {
			if v.QueueOffset != s.at+t.messages-1 || v.QueueID != s.id {
				return t, fmt.Errorf("%w: queue %d: offset %d of queue %d came where %d was due", ErrVerify, s.id, v.QueueOffset, v.QueueID, s.at+t.messages-1)
			}
			if err := v.CheckBody(); err != nil {
				return t, fmt.Errorf("%w: queue %d, offset %d: %w", ErrVerify, s.id, v.QueueOffset, err)
			}
		}
		if c.e2e != nil && len(v.Body) >= minStamped && binary.BigEndian.Uint64(v.Body) == c.nonce {
			c.received++
			if due := int64(binary.BigEndian.Uint64(v.Body[8:])); due >= c.from() && due < c.to() {
				_ = c.e2e.RecordValue(now - due)
			}
		}
	}
	s.read += t.messages
	s.at = c.resp.NextBeginOffset
	if !s.follow {
		s.at = min(s.at, s.max)
	}
	if c.r.o.Count > 0 && now >= c.r.from {
		c.r.budget.Add(-t.messages)
	}
	return t, nil
}

// ends asks for both ends of a queue.
func ends(ctx context.Context, asks *questions, q queue) (lo, hi int64, err error) {
	topic := asks.o.Topic
	ask := func(code int32) (int64, error) {
		r, err := asks.ask(ctx, q.broker, code, &command.QueueRequest{Topic: []byte(topic), QueueID: q.id})
		if err != nil {
			return 0, fmt.Errorf("queue %d of %s: %w", q.id, topic, err)
		}
		var resp command.OffsetResponse
		err = resp.Decode(&r.Header)
		return resp.Offset, err
	}
	if lo, err = ask(command.ReqGetMinOffset); err == nil {
		hi, err = ask(command.ReqGetMaxOffset)
	}
	return lo, hi, err
}

// consumers connects everything that reads, n streams over the connections.
func (r *run) consumers(ctx context.Context, t *target, n int, from Begin) ([]*consumer, error) {
	o := r.o
	asks, err := o.questions(ctx)
	if err != nil {
		return nil, err
	}
	defer asks.close()
	byBroker := map[string][]*stream{}
	for i := range n {
		q := t.queues[i%len(t.queues)]
		lo, hi, err := ends(ctx, asks, q)
		if err != nil {
			return nil, err
		}
		s := &stream{id: q.id, min: lo, max: hi, at: lo, again: o.Duration > 0 && !o.Verify && hi > lo}
		if from == FromEnd {
			s.at, s.follow, s.again = hi, true, false
		}
		byBroker[q.broker] = append(byBroker[q.broker], s)
	}
	var all []*consumer
	for i, broker := range t.brokers {
		conns := o.Connections / len(t.brokers)
		if i < o.Connections%len(t.brokers) {
			conns++
		}
		streams := byBroker[broker]
		conns = min(max(conns, 1), len(streams))
		for k := range conns {
			c := newConsumer(r)
			for j := k; j < len(streams); j += conns {
				c.streams = append(c.streams, streams[j])
			}
			if _, err := r.dial(ctx, broker, len(c.streams), c); err != nil {
				return nil, err
			}
			all = append(all, c)
		}
	}
	return all, nil
}

// Consume reads and measures. From the beginning it reads every queue up to
// where it ended at the start, again and again when a duration is given; from the
// end it waits for what comes. With Verify each queue is read once.
func Consume(ctx context.Context, o Options) (*Result, error) {
	o = o.withDefaults(1)
	if o.Begin == FromEnd && o.Duration == 0 && o.Count == 0 {
		o.Duration = 10 * time.Second
	}
	if o.Verify && (o.Begin == FromEnd || o.Duration > 0 || o.Count > 0) {
		return nil, fmt.Errorf("%w: verify reads every queue once from its beginning; it goes with no duration, count or other offset", ErrOptions)
	}
	if o.Rate > 0 {
		return nil, fmt.Errorf("%w: a consumer has no rate; use depth and batch", ErrOptions)
	}
	if o.Verify {
		o.Warmup = 0
	}
	if err := errors.Join(o.check(), checkPIDs(o.PIDs)); err != nil {
		return nil, err
	}
	t, err := locate(ctx, &o, false)
	if err != nil {
		return nil, err
	}
	r := newRun(&o)
	defer r.close()
	n := o.Connections * o.Depth
	if o.Verify {
		n = len(t.queues)
	}
	cs, err := r.consumers(ctx, t, n, o.Begin)
	if err != nil {
		return nil, err
	}
	if err := r.drive(ctx, time.Now()); err != nil {
		return nil, err
	}
	res := r.result("consume", t)
	if o.Verify {
		v := &Verified{Bytes: res.Bytes}
		for _, c := range cs {
			for _, s := range c.streams {
				if s.read != s.max-s.min {
					return nil, fmt.Errorf("%w: queue %d has offsets %d to %d, %d messages came", ErrVerify, s.id, s.min, s.max, s.read)
				}
				v.Queues++
				v.Messages += s.read
			}
		}
		res.Verified = v
	}
	return res, nil
}
