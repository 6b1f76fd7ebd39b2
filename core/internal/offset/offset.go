// Package offset serves consumer progress: QUERY_CONSUMER_OFFSET (14),
// UPDATE_CONSUMER_OFFSET (15), GET_ALL_CONSUMER_OFFSET (43).
package offset

import (
	"fmt"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/internal/query"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// Offset is the behaviour.
type Offset struct {
	k *kernel.Kernel
	q *query.Query
}

// New makes the behaviour and registers it.
func New(k *kernel.Kernel, q *query.Query) *Offset {
	o := &Offset{k, q}
	k.Handle(command.ReqQueryConsumerOffset, o.query)
	k.Handle(command.ReqUpdateConsumerOffset, o.update)
	k.Handle(command.ReqGetAllConsumerOffset, o.all)
	return o
}

func (o *Offset) query(r *kernel.Request) {
	var h command.QueryConsumerOffsetRequest
	if err := h.Decode(r.Header); err != nil {
		r.Fail(err)
		return
	}
	ctx, cancel := o.k.Waiting()
	defer cancel()
	if err := o.k.Barrier(ctx, "the progress of consumers is"); err != nil {
		r.Fail(err)
		return
	}
	q := message.Queue{Topic: string(h.Topic), ID: h.QueueID}
	n, ok := o.k.Offsets.Committed(string(h.ConsumerGroup), q)
	if !ok && h.SetZeroIfNotFound {
		n, ok = 0, o.young(q)
	}
	if !ok {
		r.Error(command.RespQueryNotFound, "Not found, maybe this group consumer boot first")
		return
	}
	w := r.Begin(command.RespSuccess)
	(&command.OffsetResponse{Offset: n}).Append(&w)
	r.Reply(w)
}

// young is the reference's rule for groups without progress: a queue that still
// begins at 0, with its first message in memory, is consumed from the start. So
// nothing is lost of what arrived in a new queue before the group noticed it.
func (o *Offset) young(q message.Queue) bool {
	a, err := o.q.Offset(o.k.Serving(), storage.OffsetQuery{Queue: q})
	if err != nil || a.Min > 0 {
		return false
	}
	if a.Min == a.Max {
		return true
	}
	var c storage.Chunk
	defer c.Reset()
	one := storage.Limit{Count: 1}
	err = o.k.Store.Read(o.k.Serving(), storage.ReadRequest{Queue: q, Hot: one, Cold: one}, &c)
	return err == nil && len(c.Units) > 0 && !c.Cold
}

func (o *Offset) update(r *kernel.Request) {
	var h command.UpdateConsumerOffsetRequest
	if err := h.Decode(r.Header); err != nil {
		r.Fail(err)
		return
	}
	group, topic := string(h.ConsumerGroup), string(h.Topic)
	span := o.k.Spans.Settle("commit", group, message.Queue{Topic: topic, ID: h.QueueID})
	defer func() { span.End(command.ResponseName(r.Code()), r.Code() != command.RespSuccess) }()
	switch {
	case o.k.Groups.Named(group) == nil:
		r.Error(command.RespSubscriptionGroupNotExist, fmt.Sprintf("Group %s not exist!", group))
	case o.k.Topics.Lookup(h.Topic) == nil || message.IsInternal(topic):
		r.Error(command.RespTopicNotExist, fmt.Sprintf("Topic %s not exist!", topic))
	case h.QueueID < 0 || h.CommitOffset < 0:
		r.Error(command.RespInvalidParameter, fmt.Sprintf("queueId %d and commitOffset %d must not be negative", h.QueueID, h.CommitOffset))
	default:
		w := r.Begin(command.RespSuccess)
		if !o.k.Offsets.Commit(group, message.Queue{Topic: topic, ID: h.QueueID}, h.CommitOffset) {
			w.Remark("Offset has been previously reset")
		}
		r.Reply(w)
	}
}

func (o *Offset) all(r *kernel.Request) {
	table, version := o.k.Offsets.All()
	body, err := command.EncodeBody(command.ConsumerOffsetSerializeWrapper{DataVersion: version, OffsetTable: table})
	if err != nil {
		r.Fail(err)
		return
	}
	r.JSON(body)
}
