package send

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/combine"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
)

// Send takes a message that came through the typed API, by the same checks that a
// request goes through, and returns its place and its unique key.
func (s *Send) Send(ctx context.Context, r *api.SendRequest) (kernel.Placed, string, error) {
	p, key, err := s.write(ctx, r)
	for errors.Is(err, combine.ErrOutdated) {
		p, key, err = s.write(ctx, r)
	}
	if err != nil {
		s.refused.Add(1)
		return kernel.Placed{}, "", err
	}
	s.sent.Add(1)
	return p, key, nil
}

func (s *Send) write(ctx context.Context, r *api.SendRequest) (kernel.Placed, string, error) {
	epoch := s.q.Epoch()
	rec, key, err := s.record(r)
	if err != nil {
		return kernel.Placed{}, "", err
	}
	p, err := s.q.WriteSince(ctx, epoch, rec)
	return p, key, err
}

func (s *Send) record(r *api.SendRequest) (*message.Record, string, error) {
	if err := s.k.Sendable(); err != nil {
		return nil, "", err
	}
	topic, err := s.topicOf(&command.SendRequest{Topic: []byte(r.Topic), DefaultTopic: []byte(message.AutoCreateTopic), DefaultTopicQueueNums: 4})
	if err != nil {
		return nil, "", err
	}
	n := max(topic.Config.WriteQueueNums, topic.Config.ReadQueueNums)
	if r.Queue >= n {
		return nil, "", &api.Error{ID: api.InvalidParameter, Text: fmt.Sprintf("queue %d is illegal, topic %s has %d queues", r.Queue, r.Topic, n)}
	}
	queue := r.Queue
	if queue < 0 {
		queue = rand.Int32N(max(topic.Config.WriteQueueNums, 1))
	}
	born := r.Born
	if born.IsZero() {
		born = s.k.Clock.Now()
	}
	if len(r.Body) == 0 {
		return nil, "", &api.Error{ID: api.MessageIllegal, Text: "the message body is empty"}
	}
	if limit := s.k.Config().MaxMessageSize; len(r.Body) > limit {
		return nil, "", &api.Error{ID: api.MessageIllegal, Text: fmt.Sprintf("the message body has %d bytes, at most %d (maxMessageSize) are allowed", len(r.Body), limit)}
	}
	var props []byte
	for name, value := range r.Properties {
		props = message.AppendProperty(props, name, value)
	}
	e := entry{rec: message.Record{
		Topic: topic.Config.TopicName, QueueID: queue, Flag: r.Flag, BornTime: born.UnixMilli(),
		BornHost: s.k.StoreHost, StoreHost: s.k.StoreHost, Body: r.Body,
		Properties: props, BrokerProperties: s.k.Config().BrokerProperties,
	}}
	e.facts.Scan(props)
	st := connState{s: s}
	if err := st.add(&e, &group{}); err != nil {
		return nil, "", err
	}
	if seg := s.k.Sequencer.Segment(); int64(e.size)+message.BlankSize > seg {
		return nil, "", tooLarge(e.size, seg)
	}
	return &e.rec, string(e.facts.UniqueKey), nil
}

func tooLarge(n int, segment int64) error {
	return &api.Error{ID: api.MessageIllegal, Text: fmt.Sprintf("the message needs %d bytes in the log, whose segments (mappedFileSizeCommitLog) have %d", n, segment)}
}

var _ kernel.Sender = (*Send)(nil)
