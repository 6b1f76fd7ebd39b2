// Package retry takes messages back that a consumer could not handle:
// CONSUMER_SEND_MSG_BACK (36). The message is stored again in the retry topic of
// the group, at once, or in its dead-letter topic when its attempts are used up.
package retry

import (
	"fmt"
	"math/rand/v2"

	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/combine"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/internal/stats"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// Retry is the behaviour.
type Retry struct {
	k     *kernel.Kernel
	q     *combine.Queue
	stats *stats.Stats
}

// New makes the behaviour and registers it.
func New(k *kernel.Kernel, q *combine.Queue, st *stats.Stats) *Retry {
	r := &Retry{k: k, q: q, stats: st}
	k.Handle(command.ReqConsumerSendMsgBack, r.back)
	return r
}

func (b *Retry) back(r *kernel.Request) {
	var h command.SendBackRequest
	if err := h.Decode(r.Header); err != nil {
		r.Fail(err)
		return
	}
	for !b.put(&h, r) { // its topic was deleted meanwhile: it is made again
	}
}

// put stores the record that goes back and answers; false when its topic has to be
// looked up again.
func (b *Retry) put(h *command.SendBackRequest, r *kernel.Request) bool {
	epoch := b.q.Epoch()
	x, err := b.make(h, r)
	if err != nil {
		r.Fail(err)
		return true
	}
	if x == nil { // the group keeps no retries
		r.OK()
		return true
	}
	t, rec, group := r.Ticket(), x.rec, string(h.Group)
	span := b.k.Spans.Settle("send_back", group, message.Queue{Topic: rec.Topic, ID: rec.QueueID})
	var in stats.In
	in.Add(1, int64(rec.Size()))
	ok := b.q.SubmitSince(epoch, []*message.Record{rec}, func(_ kernel.Placed, err error) {
		if err != nil {
			span.End(command.ResponseName(command.RespSystemError), true)
			t.Reply(command.RespSystemError, func(w *command.Writer) { w.Remark(err.Error()) })
			return
		}
		b.stats.Took(rec.Topic, stats.Normal, &in)
		span.End(command.ResponseName(command.RespSuccess), false)
		t.Reply(command.RespSuccess, nil)
	})
	if !ok {
		span.End(command.ResponseName(command.RespTopicNotExist), true)
		return false
	}
	b.stats.Back(group, x.from)
	if x.dead {
		b.stats.Dead(group, x.from)
	}
	return true
}

// sentBack is what goes back.
type sentBack struct {
	rec  *message.Record
	from string // the topic that it was consumed from
	dead bool   // its attempts are used up
}

// make builds the record that goes back; nil when there is nothing to do.
func (b *Retry) make(h *command.SendBackRequest, r *kernel.Request) (*sentBack, error) {
	k := b.k
	if err := k.Sendable(); err != nil {
		return nil, err
	}
	group := string(h.Group)
	g := k.Groups.Named(group)
	if g == nil {
		return nil, &api.Error{ID: api.GroupNotExist, Text: fmt.Sprintf("subscription group not exist, %s", group)}
	}
	if k.Config().Permission&command.PermWrite == 0 {
		return nil, &api.Error{ID: api.NoPermission, Text: fmt.Sprintf("the broker[%s] sending message is forbidden", k.Config().BrokerName)}
	}
	if g.RetryQueueNums <= 0 {
		return nil, nil
	}
	ctx, cancel := k.Waiting()
	defer cancel()
	var c storage.Chunk
	defer c.Reset()
	var v message.View
	if err := k.Store.Get(ctx, []message.Position{message.Position(h.Offset)}, &c); err != nil || len(c.Units) == 0 || c.Units[0].Size == 0 ||
		message.Parse(c.Frags[0], &v) != nil || message.IsInternal(string(v.Topic)) {
		return nil, &api.Error{ID: api.SystemError, Text: fmt.Sprintf("look message by offset failed, %d", h.Offset)}
	}
	limit := g.RetryMaxTimes
	if h.MaxReconsumeTimes >= 0 && r.Header.Version >= command.Version349 {
		limit = h.MaxReconsumeTimes
	}
	dead := h.DelayLevel < 0 || v.ReconsumeTimes >= limit
	target := kernel.DerivedTopic(message.RetryPrefix+group, g.RetryQueueNums)
	if dead {
		target = kernel.DerivedTopic(message.DLQPrefix+group, 1)
	}
	topic, err := k.Topics.Ensure(ctx, target)
	if err != nil {
		return nil, err
	}
	if topic.Config.Perm&command.PermWrite == 0 {
		return nil, &api.Error{ID: api.NoPermission, Text: fmt.Sprintf("the topic[%s] sending message is forbidden", topic.Config.TopicName)}
	}
	props := message.AppendWithout(nil, v.Properties, message.PropDelay)
	if _, ok := message.Property(props, message.PropRetryTopic); !ok {
		props = message.AppendProperty(props, message.PropRetryTopic, string(v.Topic))
	}
	if _, ok := message.Property(props, message.PropOriginMessageID); !ok {
		// Not the header's originMsgId: clients put the unique key there.
		props = message.AppendProperty(props, message.PropOriginMessageID, string(message.AppendOffsetID(nil, v.StoreHost, v.Position)))
	}
	rec := &message.Record{
		Topic: topic.Config.TopicName, QueueID: rand.Int32N(max(topic.Config.WriteQueueNums, 1)),
		Flag: v.Flag, SysFlag: v.SysFlag &^ message.SysTxMask, BornTime: v.BornTime,
		BornHost: message.HostOf(message.HostAddr(v.BornHost)), StoreHost: k.StoreHost,
		ReconsumeTimes: v.ReconsumeTimes + 1, Body: append([]byte(nil), v.Body...), Properties: props,
	}
	return &sentBack{rec, string(v.Topic), dead}, nil
}
