package adminclient_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/transport"
)

// scriptedServer answers each request with what is scripted for its code, a body that
// is written as JSON, a refusal, a rawBody or silence; it closes the connection on one
// that is not.
type scriptedServer map[int32]any

type (
	refusal struct {
		code   int32
		remark string
	}
	rawBody string
	silence struct{}
)

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
		if err != nil || !ok {
			_ = c.p.Close()
			return
		}
		var body []byte
		switch a := answer.(type) {
		case silence:
			continue
		case refusal:
			_ = c.p.Send(command.Frame{Header: command.AppendResponse(nil, in[i].Type, a.code, h.Opaque, a.remark, 0)})
			continue
		case rawBody:
			body = []byte(a)
		default:
			if body, err = command.EncodeBody(answer); err != nil {
				panic(err)
			}
		}
		w := command.Begin(nil, in[i].Type, command.RespSuccess, h.Opaque, command.FlagResponse)
		_ = c.p.Send(command.Frame{Header: w.End(len(body)), Body: body})
	}
}

// TestPlanIsAskedOfEach: name servers know brokers for a while that are gone.
func TestPlanIsAskedOfEach(t *testing.T) {
	n := newNetwork(t)
	at := func(name, address string) command.BrokerData {
		return command.BrokerData{Cluster: "C", BrokerName: name, BrokerAddrs: map[int64]string{0: address}}
	}
	n.serve("names", scriptedServer{command.ReqGetRouteInfoByTopic: command.TopicRouteData{
		BrokerDatas: []command.BrokerData{at("a", "gone"), at("b", "dying"), at("c", "here")},
	}})
	n.serve("dying", scriptedServer{})
	n.serve("here", scriptedServer{command.ReqQueryAssignment: command.QueryAssignmentResponse{Plan: &command.AssignmentPlan{Broker: "c"}}})
	p, err := n.client("names").PlanAssignment(t.Context(), "", "G", "T", command.PlanRequest{})
	require.NoError(t, err)
	require.Equal(t, "c", p.Broker)

	n.serve("names2", scriptedServer{command.ReqGetRouteInfoByTopic: command.TopicRouteData{
		BrokerDatas: []command.BrokerData{at("a", "gone"), at("b", "dying")},
	}})
	_, err = n.client("names2").PlanAssignment(t.Context(), "", "G", "T", command.PlanRequest{})
	require.ErrorContains(t, err, "connecting to gone")
	require.ErrorContains(t, err, "asking dying")
}
