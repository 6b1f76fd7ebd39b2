package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/test/harness"
)

// TestAssignment: two brokers and a name server share the queues of a topic for
// members that ask, with raw frames. All say the same; members keep their queues
// over a restart; after kill -9 of the broker that computes the other one goes on.
func TestAssignment(t *testing.T) {
	t.Parallel()
	const topic, group = "shared", "sharers"
	ns := harness.New(t, harness.Options{Role: "namesrv"})
	nodes := map[string]*harness.Node{}
	for _, name := range []string{"broker-a", "broker-b"} {
		nodes[name] = harness.New(t, harness.Options{Role: "broker", Namesrv: ns.Addr, Broker: name, Set: []string{"zoneName=zone of " + name}})
		c, err := harness.Dial(nodes[name].Addr)
		require.NoError(t, err)
		require.NoError(t, c.CreateTopic(topic, 4))
		require.NoError(t, c.Close())
	}
	body := func(v any) []byte {
		b, err := command.EncodeBody(v)
		require.NoError(t, err)
		return b
	}
	call := func(c *harness.Conn, code int32, v any) *harness.Answer {
		a, err := c.Call(code, nil, body(v))
		require.NoError(t, err)
		require.NoError(t, a.Err())
		return a
	}
	members := []string{"m1", "m2", "m3"}
	// join connects every member with a broker, as consumers do.
	join := func(n *harness.Node) *harness.Conn {
		var c *harness.Conn
		for _, id := range members {
			var err error
			c, err = harness.Dial(n.Addr)
			require.NoError(t, err)
			t.Cleanup(func() { _ = c.Close() })
			call(c, command.ReqHeartBeat, command.HeartbeatData{ClientID: id, ConsumerDataSet: []command.ConsumerData{{
				GroupName: group, ConsumeType: command.ConsumePassively, MessageModel: command.Clustering, ConsumeFromWhere: command.ConsumeFromLastOffset,
				SubscriptionDataSet: []command.SubscriptionData{{Topic: topic, SubString: "*", SubVersion: 1}},
			}}})
		}
		return c
	}
	ask := func(c *harness.Conn, id string, plan *command.PlanRequest) (out command.QueryAssignmentResponse) {
		a := call(c, command.ReqQueryAssignment, command.QueryAssignmentBody{
			ClientID: id, ConsumerGroup: group, MessageModel: command.Clustering, StrategyName: "AVG", Topic: topic, Plan: plan,
		})
		require.NoError(t, command.DecodeBody(a.Body, &out))
		return out
	}
	// shares are what a broker says that the members have.
	shares := func(c *harness.Conn) (of map[string][]string, all []string) {
		of = map[string][]string{}
		for _, id := range members {
			for _, x := range ask(c, id, nil).Assignments {
				of[id] = append(of[id], fmt.Sprintf("%s/%d", x.MessageQueue.BrokerName, x.MessageQueue.QueueID))
			}
			all = append(all, of[id]...)
		}
		slices.Sort(all)
		return of, all
	}
	conns := map[string]*harness.Conn{}
	for name, n := range nodes {
		conns[name] = join(n)
		call(conns[name], command.ReqSetMessageRequestMode, command.SetMessageRequestModeBody{ConsumerGroup: group, Topic: topic, Mode: command.ModePull, Allocator: "sticky"})
	}
	a, b := conns["broker-a"], conns["broker-b"]
	before, all := shares(a)
	require.Equal(t, []string{"broker-a/0", "broker-a/1", "broker-a/2", "broker-a/3", "broker-b/0", "broker-b/1", "broker-b/2", "broker-b/3"}, all)
	other, _ := shares(b)
	require.Equal(t, before, other, "both brokers say the same")
	plan := ask(b, "", &command.PlanRequest{}).Plan
	require.NotNil(t, plan)
	require.Zero(t, plan.Moved)
	require.Equal(t, "sticky", plan.Present)
	require.Equal(t, "zone of broker-b", plan.Queues[7].Zone)

	owner := plan.Broker
	nodes[owner].Stop()
	nodes[owner].Start()
	conns[owner] = join(nodes[owner])
	after, _ := shares(conns[owner])
	require.Equal(t, before, after, "members keep their queues")

	left := "broker-a"
	if owner == left {
		left = "broker-b"
	}
	nodes[owner].Kill()
	require.Eventually(t, func() bool {
		_, all := shares(conns[left])
		return slices.Equal(all, []string{left + "/0", left + "/1", left + "/2", left + "/3"})
	}, 60*time.Second, 100*time.Millisecond, "the broker that is left shares what is left")
}
