package admin

import (
	"context"
	"fmt"

	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// newest asks, in place of a time, for the end of a queue.
const newest = -1

// reset serves INVOKE_BROKER_TO_RESET_OFFSET (222). The broker resets (the reference's
// useServerSideResetOffset): consumers of all ages obey, since they are told with the
// answer to their next pull. Without force a group is never moved forward, past
// messages that it has not seen.
func (a *Admin) reset(r *kernel.Request) {
	var h command.ResetOffsetRequest
	err := h.Decode(r.Header)
	var t *kernel.Topic
	if err == nil {
		if t, err = a.topicNamed(h.Topic); err != nil {
			err = &api.Error{ID: api.TopicNotExist, Text: fmt.Sprintf("Topic %s does not exist", h.Topic)}
		}
	}
	if err == nil && a.k.Groups.Named(h.Group) == nil && len(a.k.Offsets.Of(h.Group)) == 0 {
		err = &api.Error{ID: api.GroupNotExist, Text: fmt.Sprintf("Group %s does not exist", h.Group)}
	}
	ctx, cancel := a.k.Waiting()
	defer cancel()
	if err == nil {
		err = a.k.Barrier(ctx, "the ends of queues are")
	}
	var at map[int32]int64
	if err == nil {
		at, err = a.targets(ctx, &h, t)
	}
	if err != nil {
		r.Fail(err)
		return
	}
	out := command.ResetOffsetBody{OffsetTable: map[command.MessageQueue]int64{}, PreviousTable: map[command.MessageQueue]int64{}}
	for id, n := range at {
		q := message.Queue{Topic: h.Topic, ID: id}
		if old, ok := a.k.Offsets.Committed(h.Group, q); ok {
			out.PreviousTable[a.queue(q)] = old
			if !h.Force {
				n = min(n, old)
			}
		}
		at[id] = n
		out.OffsetTable[a.queue(q)] = n
	}
	if !h.DryRun {
		if err := a.k.Offsets.Reset(ctx, h.Group, h.Topic, at); err != nil {
			r.Fail(err)
			return
		}
		a.k.Log.Info("the progress of a group was reset", "group", h.Group, "topic", h.Topic, "queues", len(at), "force", h.Force, "by", r.Conn.Peer.Remote())
	}
	reply(r, out.AppendJSON(nil))
}

// targets are the offsets that a reset asks for, by queue.
func (a *Admin) targets(ctx context.Context, h *command.ResetOffsetRequest, t *kernel.Topic) (map[int32]int64, error) {
	n := t.Config.ReadQueueNums
	if h.QueueID >= n {
		return nil, &api.Error{ID: api.InvalidParameter, Text: fmt.Sprintf("queueId[%d] is illegal, topic:[%s] topicConfig.readQueueNums:[%d]", h.QueueID, h.Topic, n)}
	}
	from, to := int32(0), n
	if h.QueueID >= 0 {
		from, to = h.QueueID, h.QueueID+1
	}
	at := make(map[int32]int64, to-from)
	for id := from; id < to; id++ {
		ask := storage.OffsetQuery{Queue: message.Queue{Topic: h.Topic, ID: id}, Kind: storage.FirstAt, Time: h.Timestamp}
		explicit := h.QueueID >= 0 && h.Offset >= 0
		if explicit || h.Timestamp <= newest {
			ask.Kind = storage.Ends
		}
		e, err := a.q.Offset(ctx, ask)
		if err != nil {
			return nil, err
		}
		switch {
		case explicit && (h.Offset < e.Min || h.Offset > e.Max):
			return nil, &api.Error{ID: api.SystemError, Text: fmt.Sprintf("Target offset %d not in consume queue range [%d-%d]", h.Offset, e.Min, e.Max)}
		case explicit:
			at[id] = h.Offset
		case ask.Kind == storage.Ends:
			at[id] = e.Max
		default:
			at[id] = min(max(e.Offset, e.Min), e.Max)
		}
	}
	return at, nil
}
