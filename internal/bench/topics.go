package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/internal/rpc"
)

// TopicsOptions is what is done with many topics, in this order: created, waited for at
// the name server, filled, read. The zero value of a field means what is in brackets.
type TopicsOptions struct {
	// Options gives Broker, NameServer (which is only asked whether it knows the topics),
	// Connections × Depth [4 × 1], Size, Group, Timeout, Header and PIDs. Topic is what
	// the names begin with.
	Options
	// Topics is how many there are [1,000], of Queues queues each [8].
	Topics int
	// Create makes them: List to a request (UPDATE_AND_CREATE_TOPIC_LIST), 0: one
	// (UPDATE_AND_CREATE_TOPIC).
	Create bool
	List   int
	// Fill sends PerQueue messages to every queue [1, at most 32]; Read pulls each queue
	// once from its beginning and fails unless so many come of each.
	Fill, Read bool
	PerQueue   int
}

// TopicsResult is what TopicsOptions asked for, the rest is nil.
type TopicsResult struct {
	Command string `json:"command"`
	Topics  int    `json:"topics"`
	Queues  int    `json:"queues"`

	// Create counts topics as messages.
	Create *Result `json:"create,omitempty"`
	// Registered is how many seconds after the last creation was answered the name server
	// listed all topics.
	Registered *float64 `json:"registeredSeconds,omitempty"`
	Fill       *Result  `json:"fill,omitempty"`
	Read       *Result  `json:"read,omitempty"`
}

const (
	// maxFill is what one pull of a queue brings.
	maxFill = 32
	// registeredPoll is how often the name server is asked for its topics.
	registeredPoll = 20 * time.Millisecond
	// registeredLimit is how long they may take: two rounds of registration.
	registeredLimit = 2 * time.Minute
)

func (o *TopicsOptions) check() error {
	if o.Broker == "" {
		return fmt.Errorf("%w: give the address of a broker", ErrOptions)
	}
	if o.Topics < 1 || o.List < 0 || o.PerQueue < 1 || o.PerQueue > maxFill {
		return fmt.Errorf("%w: topics is %d, topics a request %d, messages a queue %d; allowed are topics from 1 and messages from 1 to %d", ErrOptions, o.Topics, o.List, o.PerQueue, maxFill)
	}
	if !o.Create && !o.Fill && !o.Read {
		return fmt.Errorf("%w: topics are to be created, filled or read: say which", ErrOptions)
	}
	alone := o.Options // here the name server is not asked for brokers
	alone.NameServer = ""
	return errors.Join(alone.check(), checkPIDs(o.PIDs))
}

// Topics measures what many topics cost.
func Topics(ctx context.Context, o TopicsOptions) (*TopicsResult, error) {
	if o.Topics == 0 {
		o.Topics = 1000
	}
	if o.Queues == 0 {
		o.Queues = 8
	}
	if o.PerQueue == 0 {
		o.PerQueue = 1
	}
	o.Options = o.withDefaults(1)
	if err := o.check(); err != nil {
		return nil, err
	}
	res := &TopicsResult{Command: "topics", Topics: o.Topics, Queues: o.Queues}
	var err error
	if o.Create {
		if res.Create, err = o.create(ctx); err != nil {
			return nil, fmt.Errorf("creating topics: %w", err)
		}
		if o.NameServer != "" {
			s, err := o.registered(ctx)
			if err != nil {
				return nil, err
			}
			res.Registered = &s
		}
	}
	if o.Fill {
		if res.Fill, err = o.fill(ctx); err != nil {
			return nil, fmt.Errorf("filling topics: %w", err)
		}
	}
	if o.Read {
		if res.Read, err = o.read(ctx); err != nil {
			return nil, fmt.Errorf("reading topics: %w", err)
		}
	}
	return res, nil
}

func (o *TopicsOptions) name(i int) string { return fmt.Sprintf("%s-%05d", o.Topic, i) }

// each is the work of connections that make n requests among them.
type each struct {
	n     int64
	taken *atomic.Int64
	of    []int64 // by slot, the request it waits for
	make  func(buf []byte, i int, opaque int32, now int64) []byte
	took  func(i int, code int32, f *command.Frame) (tally, error)
}

func (e *each) next(buf []byte, slot int, opaque int32, now int64) ([]byte, bool) {
	i := e.taken.Add(1) - 1
	if i >= e.n {
		return buf, false
	}
	e.of[slot] = i
	return e.make(buf, int(i), opaque, now), true
}

func (e *each) answered(slot int, code int32, f *command.Frame, _ *command.Header, _ int64) (tally, error) {
	return e.took(int(e.of[slot]), code, f)
}

// all makes n requests; the first that is refused is the error.
func (o *TopicsOptions) all(ctx context.Context, what string, n int, e each) (*Result, error) {
	r := newRun(&o.Options)
	defer r.close()
	e.n, e.taken = int64(n), new(atomic.Int64)
	for range min(o.Connections, n) {
		mine := e
		mine.of = make([]int64, o.Depth)
		if _, err := r.dial(ctx, o.Broker, o.Depth, &mine); err != nil {
			return nil, err
		}
	}
	if err := r.drive(ctx, time.Now()); err != nil {
		return nil, err
	}
	for _, e := range r.errors {
		return nil, &rpc.CodeError{Code: e.Code, Remark: fmt.Sprintf("%s (%d of %d requests were refused)", e.First, e.Count, n)}
	}
	if r.interrupted {
		return nil, fmt.Errorf("interrupted after %d of %d requests", e.taken.Load(), n)
	}
	return r.result(what, &target{brokers: []string{o.Broker}}), nil
}

func (o *TopicsOptions) create(ctx context.Context) (*Result, error) {
	config := func(i int) command.TopicConfig {
		return command.TopicConfig{
			TopicName: o.name(i), ReadQueueNums: int32(o.Queues), WriteQueueNums: int32(o.Queues), Perm: command.PermRead | command.PermWrite, TopicFilterType: "SINGLE_TAG",
			Attributes: command.StringMap{},
		}
	}
	if o.List == 0 {
		return o.all(ctx, "create", o.Topics, each{
			make: func(buf []byte, i int, opaque int32, _ int64) []byte {
				t := config(i)
				w := command.Begin(buf, o.Header, command.ReqUpdateAndCreateTopic, opaque, 0)
				req := command.CreateTopicRequest{
					Topic: t.TopicName, DefaultTopic: autoCreate, TopicFilterType: t.TopicFilterType,
					ReadQueueNums: t.ReadQueueNums, WriteQueueNums: t.WriteQueueNums, Perm: t.Perm,
				}
				req.Append(&w)
				return w.End(0)
			},
			took: func(_ int, code int32, _ *command.Frame) (tally, error) {
				return stored(code, 1, 0), nil
			},
		})
	}
	var lists [][]byte
	var sizes []int64
	for from := 0; from < o.Topics; from += o.List {
		var l command.TopicConfigList
		for i := from; i < min(from+o.List, o.Topics); i++ {
			l.Topics = append(l.Topics, config(i))
		}
		b, err := command.EncodeBody(l)
		if err != nil {
			return nil, err
		}
		lists, sizes = append(lists, b), append(sizes, int64(len(l.Topics)))
	}
	return o.all(ctx, "create", len(lists), each{
		make: func(buf []byte, i int, opaque int32, _ int64) []byte {
			w := command.Begin(buf, o.Header, command.ReqUpdateAndCreateTopicList, opaque, 0)
			return append(w.End(len(lists[i])), lists[i]...)
		},
		took: func(i int, code int32, _ *command.Frame) (tally, error) {
			return stored(code, sizes[i], 0), nil
		},
	})
}

// stored is the tally of an answer that says whether something was done.
func stored(code int32, n, bytes int64) tally {
	if code != command.RespSuccess {
		return tally{}
	}
	return tally{n, bytes, true}
}

// registered waits until the name server lists all topics and returns the seconds.
func (o *TopicsOptions) registered(ctx context.Context) (float64, error) {
	asks, err := o.questions(ctx)
	if err != nil {
		return 0, err
	}
	defer asks.close()
	began := time.Now()
	for {
		answer, err := asks.ask(ctx, o.NameServer, command.ReqGetAllTopicListFromNameserver, nothing{})
		if err != nil {
			return 0, err
		}
		var l command.TopicList
		if err := command.DecodeBody(answer.Body, &l); err != nil {
			return 0, fmt.Errorf("topics of %s: %w", o.NameServer, err)
		}
		n := 0
		for _, t := range l.Topics {
			if strings.HasPrefix(t, o.Topic+"-") {
				n++
			}
		}
		took := time.Since(began)
		if n >= o.Topics {
			return round(took.Seconds(), 1e4), nil
		}
		if took > registeredLimit {
			return 0, fmt.Errorf("name server %s knows %d of %d topics %v after they were created", o.NameServer, n, o.Topics, registeredLimit)
		}
		pause := time.NewTimer(registeredPoll)
		select {
		case <-pause.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

type nothing struct{}

func (nothing) Append(*command.Writer) {}

func (o *TopicsOptions) fill(ctx context.Context) (*Result, error) {
	// A template is one topic's; requests go to its queues in turn.
	at := make([]*template, o.Topics*o.Queues)
	for i := range at {
		of := o.Options
		of.Topic = o.name(i / o.Queues)
		var err error
		if at[i], err = newTemplate(&of, int32(i%o.Queues), 1); err != nil {
			return nil, err
		}
	}
	base := time.Now().UnixMilli()
	return o.all(ctx, "fill", len(at)*o.PerQueue, each{
		make: func(buf []byte, i int, opaque int32, now int64) []byte {
			return at[i%len(at)].append(buf, opaque, base+now/int64(time.Millisecond), uint64(i), -1)
		},
		took: func(_ int, code int32, _ *command.Frame) (tally, error) {
			return stored(code, 1, int64(o.Size)), nil
		},
	})
}

// read pulls every queue once.
func (o *TopicsOptions) read(ctx context.Context) (*Result, error) {
	return o.all(ctx, "read", o.Topics*o.Queues, each{
		make: func(buf []byte, i int, opaque int32, _ int64) []byte {
			req := command.PullRequest{
				ConsumerGroup: []byte(o.Group), Topic: []byte(o.name(i / o.Queues)), QueueID: int32(i % o.Queues),
				Subscription: []byte("*"), ExpressionType: []byte("TAG"), MaxMsgNums: maxFill, SysFlag: command.PullSubscription,
			}
			w := command.Begin(buf, o.Header, command.ReqPullMessage, opaque, 0)
			req.Append(&w)
			return w.End(0)
		},
		took: func(i int, code int32, f *command.Frame) (tally, error) {
			var t tally
			var v message.View
			for b := f.Body; code == command.RespSuccess && len(b) > 0; {
				if err := message.Parse(b, &v); err != nil {
					return t, fmt.Errorf("queue %d of %s: %w", i%o.Queues, o.name(i/o.Queues), err)
				}
				b = b[v.Size:]
				t.messages++
				t.bytes += int64(len(v.Body))
			}
			if t.messages < int64(o.PerQueue) {
				return t, fmt.Errorf("%w: queue %d of %s: %d messages came where %d were sent: %s", ErrVerify, i%o.Queues, o.name(i/o.Queues), t.messages, o.PerQueue, command.ResponseName(code))
			}
			t.ok = true
			return t, nil
		},
	})
}
