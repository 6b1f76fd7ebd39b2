package register

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/nameserver"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/internal/rpc"
	"github.com/hardpointmq/hardpoint/plugins/transport/remoting"
)

// Over TCP with the real transport: a broker registers, the name server is
// replaced by an empty one on the same port, the broker registers again, leaves.
func TestOverTCP(t *testing.T) {
	tr, err := remoting.New(t.Context(), transport.Params{}, remoting.NewDefaultConfig())
	require.NoError(t, err)
	require.NoError(t, tr.Start(t.Context()))
	defer func() { require.NoError(t, tr.Shutdown(context.Background())) }()
	serve := func(addr string) (transport.Listener, *nameserver.Server) {
		s, err := nameserver.New(nameserver.Params{Config: nameserver.NewDefaultConfig()})
		require.NoError(t, err)
		require.NoError(t, s.Start(t.Context()))
		l, err := tr.Serve(t.Context(), transport.Listen{Address: addr}, transport.Services{Frames: s.Handler()})
		require.NoError(t, err)
		return l, s
	}
	l, s := serve("127.0.0.1:0")
	addr := l.Address()
	dialer := tr.Capabilities().Dialer

	b, answers := newBroker(), make(chan Answer, 16)
	r, err := New(Params{NameServers: []string{addr}, Dialer: dialer, Identity: b.identity, Source: b.source, Answered: func(a Answer) { answers <- a }})
	require.NoError(t, err)
	require.NoError(t, r.Start(t.Context()))
	<-r.Registered()
	<-answers
	require.NoError(t, CheckReachable(t.Context(), dialer, addr, nil))

	route := func(topic string) (*rpc.Response, *command.TopicRouteData) {
		c, err := rpc.Dial(t.Context(), dialer, addr, rpc.Options{})
		require.NoError(t, err)
		defer c.Close()
		resp, err := c.Call(t.Context(), rpc.Request(command.ReqGetRouteInfoByTopic, (&command.RouteRequest{Topic: topic}).Append, nil))
		require.NoError(t, err)
		var d command.TopicRouteData
		if resp.Header.Code == command.RespSuccess {
			require.NoError(t, json.Unmarshal(resp.Body, &d))
		}
		return resp, &d
	}
	b.add("New")
	require.NoError(t, r.Sync(t.Context()))
	_, d := route("New")
	require.Equal(t, command.BrokerAddrs{0: b.id.Addr}, d.BrokerDatas[0].BrokerAddrs)

	for len(answers) > 0 {
		<-answers
	}
	require.NoError(t, l.Close())
	require.NoError(t, s.Shutdown(t.Context()))
	l, s = serve(addr)
	<-answers // it registered by itself
	_, d = route("New")
	require.Equal(t, command.BrokerAddrs{0: b.id.Addr}, d.BrokerDatas[0].BrokerAddrs)

	require.NoError(t, r.Shutdown(t.Context()))
	resp, _ := route("New")
	require.Equal(t, command.RespTopicNotExist, resp.Header.Code)
	require.NoError(t, l.Close())
	require.NoError(t, s.Shutdown(t.Context()))
	require.ErrorContains(t, CheckReachable(t.Context(), dialer, addr, nil), addr)
}
