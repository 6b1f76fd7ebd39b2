package adminclient_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/internal/adminclient"
)

// scriptedServer answers each request with what is scripted for its code, a body that
// is written as JSON, a refusal, a rawBody, silence or a sequence of them; it closes the connection on one
// that is not.
type scriptedServer map[int32]any

type (
	refusal struct {
		code   int32
		remark string
	}
	rawBody string
	silence struct{}
	// sequence is one answer after the other.
	sequence struct{ left []any }
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
		if q, ok := answer.(*sequence); ok {
			answer, q.left = q.left[0], q.left[1:]
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

// TestPlanBesideForeignBrokers: brokers of Apache's, before version 5 or since, make no
// plans and keep no allocator; that is said, and Hardpoint's are asked.
func TestPlanBesideForeignBrokers(t *testing.T) {
	n := newNetwork(t)
	at := func(name, address string) command.BrokerData {
		return command.BrokerData{Cluster: "C", BrokerName: name, BrokerAddrs: map[int64]string{0: address}}
	}
	unknown := refusal{command.RespRequestCodeNotSupported, " request type 400 not supported"}
	n.serve("four", scriptedServer{
		command.ReqQueryAssignment: unknown, command.ReqGetAllMessageRequestMode: unknown, command.ReqSetMessageRequestMode: unknown,
	})
	n.serve("five", scriptedServer{
		command.ReqQueryAssignment: command.QueryAssignmentResponse{}, command.ReqGetAllMessageRequestMode: command.MessageRequestModes{},
		command.ReqSetMessageRequestMode: rawBody(""),
	})
	n.serve("half", scriptedServer{ // of a version between
		command.ReqGetAllMessageRequestMode: command.MessageRequestModes{}, command.ReqSetMessageRequestMode: unknown,
	})
	n.serve("here", scriptedServer{command.ReqQueryAssignment: command.QueryAssignmentResponse{Plan: &command.AssignmentPlan{Broker: "c"}}})
	brokers := []command.BrokerData{at("a", "four"), at("b", "five"), at("c", "here")}
	n.serve("names", scriptedServer{command.ReqGetRouteInfoByTopic: command.TopicRouteData{BrokerDatas: brokers}})
	p, err := n.client("names").PlanAssignment(t.Context(), "", "G", "T", command.PlanRequest{})
	require.NoError(t, err)
	require.Equal(t, "c", p.Broker)

	n.serve("names2", scriptedServer{command.ReqGetRouteInfoByTopic: command.TopicRouteData{BrokerDatas: brokers[:2]}})
	c := n.client("names2")
	_, err = c.PlanAssignment(t.Context(), "", "G", "T", command.PlanRequest{})
	require.ErrorIs(t, err, adminclient.ErrForeignBroker)
	require.ErrorContains(t, err, "broker at four: it keeps no allocator")
	require.ErrorContains(t, err, "broker at five: it keeps no allocator")
	_, err = c.PlanAssignment(t.Context(), "four", "G", "T", command.PlanRequest{})
	require.ErrorIs(t, err, adminclient.ErrForeignBroker)

	var all []command.PlanBroker
	for _, address := range []string{"four", "five", "half"} {
		all = append(all, command.PlanBroker{BrokerName: address, Address: address})
	}
	errs := c.SetAssignment(t.Context(), &command.AssignmentPlan{Group: "G", Topic: "T", Brokers: all}, adminclient.AssignmentSetting{Allocator: "sticky"})
	for i, err := range errs {
		require.ErrorIs(t, err, adminclient.ErrForeignBroker, all[i].Address)
	}
}
