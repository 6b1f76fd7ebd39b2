package retry_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
)

// meanwhile calls f, once, when a topic has been looked up.
type meanwhile struct {
	kernel.Topics
	f func()
}

func (m *meanwhile) Ensure(ctx context.Context, t command.TopicConfig) (*kernel.Topic, error) {
	got, err := m.Topics.Ensure(ctx, t)
	if f := m.f; f != nil {
		m.f = nil
		f()
	}
	return got, err
}

// A retry topic that is deleted while a message is on its way there is made again for
// it: no message lies in a topic that is not there.
func TestRetryTopicDeletedOnTheWay(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	c := e.Connect(t)
	require.NoError(t, e.K.Groups.Put(t.Context(), command.DefaultSubscriptionGroup("G")))
	r := c.Send(enginetest.Message{Topic: "T", Body: "x"})
	require.Zero(t, r.Code, r.Remark)
	topics := e.K.Topics
	e.K.Topics = &meanwhile{topics, func() {
		require.NoError(t, topics.Remove(t.Context(), "%RETRY%G"))
		require.NoError(t, e.K.Journal.Alone(t.Context(), func(context.Context) error { return nil }))
	}}
	r = back(c, "G", position(t, r.Ext["msgId"]), 0, -1)
	require.Zero(t, r.Code, r.Remark)
	require.NotNil(t, topics.Named("%RETRY%G"))
	require.Equal(t, "x", string(last(t, c, "%RETRY%G", 0).Body))
}
