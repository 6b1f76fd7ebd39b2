package drain

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/plugins/transport/remoting"
)

func TestOffers(t *testing.T) {
	masters := []command.BrokerData{
		{BrokerName: "a", BrokerAddrs: command.BrokerAddrs{0: "10.0.0.1:1"}},
		{BrokerName: "b", BrokerAddrs: command.BrokerAddrs{0: "10.0.0.2:1", 1: "10.0.0.3:1"}},
		{BrokerName: "b2", BrokerAddrs: command.BrokerAddrs{0: "10.0.0.5:1"}},
		{BrokerName: "c", BrokerAddrs: command.BrokerAddrs{1: "10.0.0.4:1"}},
	}
	queue := func(broker string, perm, queues int32) command.QueueData {
		return command.QueueData{BrokerName: broker, Perm: perm, ReadQueueNums: 4, WriteQueueNums: queues}
	}
	for name, c := range map[string]struct {
		queues []command.QueueData
		order  string
		leave  []string
		want   Other
	}{
		"only this one":          {[]command.QueueData{queue("a", 6, 4)}, "", nil, Nobody},
		"another one":            {[]command.QueueData{queue("a", 6, 4), queue("b", 6, 4)}, "", nil, Takes},
		"it only reads":          {[]command.QueueData{queue("a", 6, 4), queue("b", 4, 4)}, "", nil, Keeps},
		"one of them only reads": {[]command.QueueData{queue("b", 4, 4), queue("b2", 6, 4)}, "", nil, Takes},
		"it has no queue":        {[]command.QueueData{queue("a", 6, 4), queue("b", 6, 0)}, "", nil, Nobody},
		"it has no master":       {[]command.QueueData{queue("a", 6, 4), queue("c", 6, 4)}, "", nil, Nobody},
		"nobody knows it":        {[]command.QueueData{queue("a", 6, 4), queue("d", 6, 4)}, "", nil, Nobody},
		"it stops, too":          {[]command.QueueData{queue("a", 6, 4), queue("b", 6, 4)}, "", []string{"b"}, Nobody},
		"clients choose by name": {[]command.QueueData{queue("a", 6, 4), queue("b", 6, 4)}, "a:4;b:4", nil, Nobody},
		"nobody":                 {nil, "", nil, Nobody},
	} {
		r := Routes{Leaving: append([]string{"a"}, c.leave...)}
		require.Equal(t, c.want, r.offers(&command.TopicRouteData{BrokerDatas: masters, QueueDatas: c.queues, OrderTopicConf: c.order}), name)
	}
}

// names is a name server that says what it is told to, or nothing.
type names struct {
	route func(topic string) (code int32, body []byte)
	asked *atomic.Int64
}

func (n *names) Opened(p transport.Peer) transport.Session { return &namesPeer{n, p} }
func (n *names) Settle()                                   {}

type namesPeer struct {
	*names
	p transport.Peer
}

func (s *namesPeer) Arrived(in []command.Frame) {
	for i := range in {
		var h command.Header
		if h.Decode(&in[i]) != nil {
			_ = s.p.Close()
			return
		}
		s.asked.Add(1)
		if s.route == nil {
			continue
		}
		code, body := s.route(h.ExtString("topic"))
		w := command.Begin(nil, command.JSON, code, h.Opaque, command.FlagResponse)
		_ = s.p.Send(command.Frame{Header: w.End(len(body)), Body: body})
	}
}

func (s *namesPeer) Closed(error) {}

// The name server that answers first counts, whoever is silent; answers that cannot be
// read are none.
func TestElsewhere(t *testing.T) {
	tr, err := remoting.NewFactory().Build(t.Context(), transport.Params{Settings: plugin.Settings{Name: "remoting"}}, nil)
	require.NoError(t, err)
	require.NoError(t, tr.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, tr.Shutdown(context.Background())) })
	serve := func(route func(topic string) (int32, []byte)) (string, *atomic.Int64) {
		asked := new(atomic.Int64)
		l, err := tr.Serve(t.Context(), transport.Listen{Address: "127.0.0.1:0"}, transport.Services{Frames: &names{route, asked}})
		require.NoError(t, err)
		return l.Address(), asked
	}
	both := command.TopicRouteData{
		BrokerDatas: []command.BrokerData{{BrokerName: "b", BrokerAddrs: command.BrokerAddrs{0: "10.0.0.2:1"}}},
		QueueDatas:  []command.QueueData{{BrokerName: "b", Perm: 6, WriteQueueNums: 1}},
	}
	good, asked := serve(func(topic string) (int32, []byte) {
		switch topic {
		case "both":
			return command.RespSuccess, both.AppendJSON(nil)
		case "here":
			return command.RespSuccess, (&command.TopicRouteData{}).AppendJSON(nil)
		default:
			return command.RespTopicNotExist, nil
		}
	})
	bad, _ := serve(func(string) (int32, []byte) { return command.RespSuccess, []byte("{") })
	refusing, _ := serve(func(string) (int32, []byte) { return command.RespSystemError, nil })
	d := tr.Capabilities().Dialer
	topics := []string{"here", "both", "unknown"}
	for range 100 { // more than are asked for at a time
		topics = append(topics, "unknown")
	}

	found, err := (&Routes{Dialer: d, Servers: []string{"127.0.0.1:1", bad, refusing, good}}).Elsewhere(t.Context(), topics)
	require.NoError(t, err)
	require.Equal(t, map[string]Other{"both": Takes}, found)
	require.EqualValues(t, len(topics), asked.Load())
	silent, _ := serve(nil)
	found, err = (&Routes{Dialer: d, Servers: []string{silent, good}}).Elsewhere(t.Context(), topics)
	require.NoError(t, err)
	require.Equal(t, map[string]Other{"both": Takes}, found)

	_, err = (&Routes{Dialer: d, Servers: []string{bad, refusing}}).Elsewhere(t.Context(), topics)
	require.ErrorContains(t, err, bad)
	require.ErrorContains(t, err, refusing)
	_, err = (&Routes{Dialer: d}).Elsewhere(t.Context(), topics)
	require.ErrorIs(t, err, errNoServer)
	over, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("told"))
	_, err = (&Routes{Dialer: d, Servers: []string{good}}).Elsewhere(over, topics)
	require.Error(t, err)
}
