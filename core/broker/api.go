package broker

import (
	"context"
	"fmt"
	"time"

	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/admin"
	"github.com/hardpointmq/hardpoint/core/internal/filter"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
)

var _ api.Broker = (*Broker)(nil)

// Send implements api.Broker.
func (b *Broker) Send(ctx context.Context, r *api.SendRequest) (api.SendResult, error) {
	p, key, err := b.sender.Send(ctx, r)
	if err != nil {
		return api.SendResult{}, err
	}
	u := p.Units[0]
	res := api.SendResult{
		MessageID: key, OffsetID: string(message.AppendOffsetID(nil, b.k.StoreHost.Bytes(), u.At)),
		Queue: u.Queue, Offset: u.Offset,
	}
	switch p.Outcome {
	case replication.FlushDiskTimeout:
		res.Status = api.FlushDiskTimeout
	case replication.FlushReplicaTimeout:
		res.Status = api.FlushSlaveTimeout
	case replication.NoReplica:
		res.Status = api.SlaveNotAvailable
	}
	return res, nil
}

// Pull implements api.Broker.
func (b *Broker) Pull(ctx context.Context, r *api.PullRequest) (api.PullResult, error) {
	tags, err := filter.Parse(r.Expression)
	if err != nil {
		return api.PullResult{}, err
	}
	if t := b.k.Topics.Named(r.Queue.Topic); t == nil || t.Internal {
		return api.PullResult{}, &api.Error{ID: api.TopicNotExist, Text: fmt.Sprintf("topic[%s] not exist, apply first please!", r.Queue.Topic)}
	}
	n := r.Max
	if n <= 0 {
		n = 32
	}
	deadline := b.p.Clock.Now().Add(r.Wait)
	for {
		// The signal first, then the read: what comes in between is not missed.
		fresh := b.wait.arm()
		res, err := b.pullOnce(ctx, r, n, tags)
		if err != nil || len(res.Messages) > 0 || res.Next != r.Offset {
			return res, err
		}
		left := deadline.Sub(b.p.Clock.Now())
		if left <= 0 {
			return res, nil
		}
		timer := b.p.Clock.NewTimer(left)
		select {
		case <-fresh:
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return api.PullResult{}, ctx.Err()
		}
		timer.Stop()
	}
}

func (b *Broker) pullOnce(ctx context.Context, r *api.PullRequest, n int32, tags *filter.Tags) (api.PullResult, error) {
	var c storage.Chunk
	defer c.Reset()
	lim := b.k.Config().Hot
	lim.Count = n
	if err := b.store.Read(ctx, storage.ReadRequest{Queue: r.Queue, Offset: r.Offset, Hot: lim, Cold: lim, Scan: b.k.Config().FilterScan, Tags: tags.Codes}, &c); err != nil {
		return api.PullResult{}, err
	}
	res := api.PullResult{Next: r.Offset, Min: c.Min, Max: c.Max}
	switch c.Status {
	case storage.Found, storage.NoMatchedMessage, storage.OffsetFoundNull, storage.MessageWasRemoving:
		res.Next = c.Next
	case storage.OffsetTooSmall:
		res.Next = c.Min
	case storage.OffsetOverflowBadly:
		res.Next = c.Max
	}
	var v message.View
	for i, rec := range c.Records {
		if err := message.Parse(rec, &v); err != nil || !tags.MatchProperties(v.Properties) {
			continue
		}
		res.Messages = append(res.Messages, messageOf(&v, c.Units[i]))
	}
	return res, nil
}

func messageOf(v *message.View, u message.Unit) api.Message {
	m := api.Message{
		Queue: u.Queue, Offset: u.Offset, Position: u.At, Body: append([]byte(nil), v.Body...),
		Properties: map[string]string{}, Flag: v.Flag, ReconsumeTimes: v.ReconsumeTimes,
		Born: time.UnixMilli(v.BornTime), Stored: time.UnixMilli(v.StoreTime),
	}
	p := message.NewProperties(v.Properties)
	for p.Next() {
		m.Properties[string(p.Name)] = string(p.Value)
	}
	m.MessageID = m.Properties[message.PropUniqueKey]
	return m
}

// Offset implements api.Broker.
func (b *Broker) Offset(ctx context.Context, q message.Queue, k api.OffsetKind, at time.Time) (int64, error) {
	if k == api.MaxOffset {
		return b.query.Newest(ctx, q)
	}
	query := storage.OffsetQuery{Queue: q, Time: at.UnixMilli()}
	switch k {
	case api.FirstAtOrAfter:
		query.Kind = storage.FirstAt
	case api.LastAtOrBefore:
		query.Kind = storage.LastAt
	}
	a, err := b.query.Offset(ctx, query)
	if err != nil {
		return 0, err
	}
	switch k {
	case api.MinOffset:
		return a.Min, nil
	default:
		return a.Offset, nil
	}
}

// Progress implements api.Broker.
func (b *Broker) Progress(ctx context.Context, group string, q message.Queue) (int64, bool, error) {
	if err := b.k.Barrier(ctx, "the progress of consumers is"); err != nil {
		return 0, false, err
	}
	n, ok := b.k.Offsets.Committed(group, q)
	return n, ok, nil
}

// Commit implements api.Broker.
func (b *Broker) Commit(ctx context.Context, group string, q message.Queue, offset int64) error {
	if _, err := b.k.Groups.Ensure(ctx, group); err != nil {
		return err
	}
	if offset < 0 || q.ID < 0 {
		return &api.Error{ID: api.InvalidParameter, Text: fmt.Sprintf("offset %d and queue %d must not be negative", offset, q.ID)}
	}
	if t := b.k.Topics.Named(q.Topic); t == nil || t.Internal {
		return &api.Error{ID: api.TopicNotExist, Text: fmt.Sprintf("Topic %s not exist!", q.Topic)}
	}
	b.k.Offsets.Commit(group, q, offset)
	return nil
}

// PutTopic implements api.Broker.
func (b *Broker) PutTopic(ctx context.Context, t api.Topic) error {
	cfg := command.TopicConfig{
		TopicName: t.Name, ReadQueueNums: t.ReadQueues, WriteQueueNums: t.WriteQueues, Perm: t.Perm, Order: t.Order,
		TopicFilterType: "SINGLE_TAG", Attributes: t.Attributes,
	}
	if cfg.Perm == 0 {
		cfg.Perm = 6
	}
	if err := admin.Check(&cfg); err != nil {
		return err
	}
	return b.k.Topics.Put(ctx, cfg)
}

// Topics implements api.Broker.
func (b *Broker) Topics(context.Context) ([]api.Topic, error) {
	all, _ := b.k.Topics.All()
	out := make([]api.Topic, 0, len(all))
	for _, t := range all {
		if !b.ofClients(t) {
			continue
		}
		c := t.Config
		out = append(out, api.Topic{Name: c.TopicName, ReadQueues: c.ReadQueueNums, WriteQueues: c.WriteQueueNums, Perm: c.Perm, Order: c.Order, Attributes: c.Attributes})
	}
	return out, nil
}
