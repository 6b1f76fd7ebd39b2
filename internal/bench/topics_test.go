package bench

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/internal/rpc"
	"github.com/hardpointmq/hardpoint/sdk/embedded"
)

func TestTopics(t *testing.T) {
	b := embedded.Start(t)
	ctx := t.Context()
	many := TopicsOptions{Options: Options{Broker: b.Address(), NameServer: b.NamesrvAddress(), Topic: "List", Connections: 2, Queues: 3}, Topics: 70, Create: true, List: 32}
	res, err := Topics(ctx, many)
	require.NoError(t, err)
	require.EqualValues(t, 70, res.Create.Messages)
	require.EqualValues(t, 3, res.Create.Requests)
	require.NotNil(t, res.Registered)
	require.Nil(t, res.Fill)

	one := TopicsOptions{Options: Options{Broker: b.Address(), Topic: "One", Size: 50, Queues: 2}, Topics: 9, Create: true, Fill: true, PerQueue: 3, Read: true}
	res, err = Topics(ctx, one)
	require.NoError(t, err)
	require.EqualValues(t, 9, res.Create.Requests)
	require.Nil(t, res.Registered, "no name server was given")
	require.EqualValues(t, 9*2*3, res.Fill.Messages)
	require.EqualValues(t, 9*2*3, res.Read.Messages)
	require.EqualValues(t, 9*2, res.Read.Requests)
	require.EqualValues(t, 9*2*3*50, res.Read.Bytes)

	// Less than was asked for is an error, and so is a refusal.
	one.Create, one.Fill, one.PerQueue = false, false, 4
	_, err = Topics(ctx, one)
	require.ErrorIs(t, err, ErrVerify)
	one.Topic, one.Create = "no name", true
	var no *rpc.CodeError
	_, err = Topics(ctx, one)
	require.ErrorAs(t, err, &no)
	require.Equal(t, command.RespInvalidParameter, no.Code)

	for _, o := range []TopicsOptions{
		{},
		{Options: Options{Broker: "h:1"}},
		{Options: Options{Broker: "h:1"}, Fill: true, PerQueue: 33},
		{Options: Options{Broker: "h:1"}, Create: true, List: -1},
		{Options: Options{Broker: "h:1"}, Create: true, Topics: -1},
	} {
		_, err := Topics(ctx, o)
		require.ErrorIs(t, err, ErrOptions)
	}
}

func TestWatch(t *testing.T) {
	b := embedded.Start(t)
	w := &Watch{To: b.NamesrvAddress()}
	require.NoError(t, w.Listen(t.Context(), "127.0.0.1:0"))
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 2)
	go func() { served <- w.Serve(ctx) }()

	_, err := Produce(t.Context(), Options{Broker: b.Address(), Count: 1})
	require.NoError(t, err)
	require.Eventually(t, func() bool { // the topic is registered
		_, err := Produce(t.Context(), Options{NameServer: w.Address(), Count: 1})
		var no *rpc.CodeError
		require.True(t, err == nil || errors.As(err, &no), err)
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	asked := w.Asked()
	require.Len(t, asked, 1)
	require.Equal(t, command.ReqGetRouteInfoByTopic, asked[0].Code)
	require.Positive(t, asked[0].Count)
	require.Positive(t, asked[0].Largest)
	require.GreaterOrEqual(t, asked[0].Bytes, asked[0].Largest)
	require.Positive(t, asked[0].MaxMs)
	require.GreaterOrEqual(t, asked[0].MaxMs, asked[0].MeanMs)
	w.Reset()
	require.Empty(t, w.Asked())

	// A name server that is away closes the connection of who asks.
	away := &Watch{To: "127.0.0.1:1"}
	require.NoError(t, away.Listen(t.Context(), "127.0.0.1:0"))
	go func() { served <- away.Serve(ctx) }()
	_, err = Produce(t.Context(), Options{NameServer: away.Address(), Count: 1})
	require.Error(t, err)
	cancel()
	require.NoError(t, <-served)
	require.NoError(t, <-served)
}

func TestOutside(t *testing.T) {
	o := Options{Broker: "other:1", Connections: 3, Size: 10, Count: 300}
	res, err := Outside(t.Context(), o, "publish", func(_ context.Context, l *Loop) error {
		for l.More() {
			l.Done(1, 10, time.Now())
		}
		return nil
	})
	require.NoError(t, err)
	require.EqualValues(t, 300, res.Messages)
	require.EqualValues(t, 3000, res.Bytes)
	require.EqualValues(t, 300, res.Latency.Count)
	require.Equal(t, "publish", res.Command)

	bad := errors.New("no")
	_, err = Outside(t.Context(), o, "publish", func(context.Context, *Loop) error { return bad })
	require.ErrorIs(t, err, bad)
	o.Rate = 1
	_, err = Outside(t.Context(), o, "publish", nil)
	require.ErrorIs(t, err, ErrOptions)
}
