package broker_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/broker"
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/plugins/transport/inproc"
)

// scriptedServer answers each request with the body that is scripted for its code; it
// closes the connection on one that is not.
type scriptedServer map[int32]any

type scriptedConn struct {
	s scriptedServer
	p transport.Peer
}

func (s scriptedServer) Opened(p transport.Peer) transport.Session { return &scriptedConn{s, p} }
func (s scriptedServer) Settle()                                   {}
func (c *scriptedConn) Closed(error)                               {}

func (c *scriptedConn) Arrived(in []command.Frame) {
	for i := range in {
		var h command.Header
		err := h.Decode(&in[i])
		answer, ok := c.s[h.Code]
		body, err2 := command.EncodeBody(answer)
		if err != nil || err2 != nil || !ok {
			_ = c.p.Close()
			return
		}
		w := command.Begin(nil, in[i].Type, command.RespSuccess, h.Opaque, command.FlagResponse)
		_ = c.p.Send(command.Frame{Header: w.End(len(body)), Body: body})
	}
}

// TestPlanIsAskedOfEach: name servers know brokers for a while that are gone.
func TestPlanIsAskedOfEach(t *testing.T) {
	tr, err := inproc.New(t.Context(), transport.Params{}, inproc.Config{})
	require.NoError(t, err)
	require.NoError(t, tr.Start(t.Context()))
	t.Cleanup(func() { _ = tr.Shutdown(context.Background()) })
	at := func(name, address string) command.BrokerData {
		return command.BrokerData{Cluster: "C", BrokerName: name, BrokerAddrs: map[int64]string{0: address}}
	}
	serve := func(address string, s scriptedServer) {
		_, err := tr.Serve(t.Context(), transport.Listen{Address: address}, transport.Services{Frames: s})
		require.NoError(t, err)
	}
	serve("names", scriptedServer{command.ReqGetRouteInfoByTopic: command.TopicRouteData{
		BrokerDatas: []command.BrokerData{at("a", "gone"), at("b", "dying"), at("c", "here")},
	}})
	serve("dying", scriptedServer{})
	serve("here", scriptedServer{command.ReqQueryAssignment: command.QueryAssignmentResponse{Plan: &command.AssignmentPlan{Broker: "c"}}})
	p, err := broker.PlanAssignment(t.Context(), tr, "names", true, "G", "T", command.PlanRequest{})
	require.NoError(t, err)
	require.Equal(t, "c", p.Broker)

	serve("names2", scriptedServer{command.ReqGetRouteInfoByTopic: command.TopicRouteData{
		BrokerDatas: []command.BrokerData{at("a", "gone"), at("b", "dying")},
	}})
	_, err = broker.PlanAssignment(t.Context(), tr, "names2", true, "G", "T", command.PlanRequest{})
	require.ErrorContains(t, err, "connecting to gone")
	require.ErrorContains(t, err, "asking dying")
}
