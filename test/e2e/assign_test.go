package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/internal/hosttest"
	"github.com/hardpointmq/hardpoint/test/harness"
)

// sharers are members of a group, with raw frames, that let brokers share a topic.
type sharers struct {
	t            *testing.T
	topic, group string
	members      []string
}

func (s *sharers) call(c *harness.Conn, code int32, v any) *harness.Answer {
	s.t.Helper()
	b, err := command.EncodeBody(v)
	require.NoError(s.t, err)
	a, err := c.Call(code, nil, b)
	require.NoError(s.t, err)
	require.NoError(s.t, a.Err())
	return a
}

// join connects members with a broker, each by a connection of its own, and
// returns the last one.
func (s *sharers) join(n *harness.Node, members ...string) (c *harness.Conn) {
	s.t.Helper()
	for _, id := range members {
		one, err := harness.Dial(n.Addr)
		require.NoError(s.t, err)
		s.t.Cleanup(func() { _ = one.Close() })
		c = one
		s.call(c, command.ReqHeartBeat, command.HeartbeatData{ClientID: id, ConsumerDataSet: []command.ConsumerData{{
			GroupName: s.group, ConsumeType: command.ConsumePassively, MessageModel: command.Clustering, ConsumeFromWhere: command.ConsumeFromLastOffset,
			SubscriptionDataSet: []command.SubscriptionData{{Topic: s.topic, SubString: "*", SubVersion: 1}},
		}}})
	}
	return c
}

func (s *sharers) ask(c *harness.Conn, id string, plan *command.PlanRequest) (out command.QueryAssignmentResponse) {
	s.t.Helper()
	a := s.call(c, command.ReqQueryAssignment, command.QueryAssignmentBody{
		ClientID: id, ConsumerGroup: s.group, MessageModel: command.Clustering, StrategyName: "AVG", Topic: s.topic, Plan: plan,
	})
	require.NoError(s.t, command.DecodeBody(a.Body, &out))
	return out
}

// shares are what a broker says that the members have.
func (s *sharers) shares(c *harness.Conn) (of map[string][]string, all []string) {
	s.t.Helper()
	of = map[string][]string{}
	for _, id := range s.members {
		for _, x := range s.ask(c, id, nil).Assignments {
			of[id] = append(of[id], fmt.Sprintf("%s/%d", x.MessageQueue.BrokerName, x.MessageQueue.QueueID))
		}
		all = append(all, of[id]...)
	}
	slices.Sort(all)
	return of, all
}

func (s *sharers) create(n *harness.Node, queues int32) {
	s.t.Helper()
	c, err := harness.Dial(n.Addr)
	require.NoError(s.t, err)
	require.NoError(s.t, c.CreateTopic(s.topic, queues))
	require.NoError(s.t, c.Close())
}

func (s *sharers) choose(c *harness.Conn, allocator string) {
	s.t.Helper()
	s.call(c, command.ReqSetMessageRequestMode, command.SetMessageRequestModeBody{ConsumerGroup: s.group, Topic: s.topic, Mode: command.ModePull, Allocator: allocator})
}

// TestAssignment: two brokers and a name server share the queues of a topic for
// members that ask. All say the same; members keep their queues over a restart;
// after kill -9 of the broker that computes the other one goes on.
func TestAssignment(t *testing.T) {
	t.Parallel()
	s := &sharers{t, "shared", "sharers", []string{"m1", "m2", "m3"}}
	ns := harness.New(t, harness.Options{Role: "namesrv"})
	nodes, conns := map[string]*harness.Node{}, map[string]*harness.Conn{}
	for _, name := range []string{"broker-a", "broker-b"} {
		nodes[name] = harness.New(t, harness.Options{Role: "broker", Namesrv: ns.Addr, Broker: name, Set: []string{"zoneName=zone of " + name}})
		s.create(nodes[name], 4)
	}
	for name, n := range nodes {
		conns[name] = s.join(n, s.members...)
		s.choose(conns[name], "sticky")
	}
	a, b := conns["broker-a"], conns["broker-b"]
	before, all := s.shares(a)
	require.Equal(t, []string{"broker-a/0", "broker-a/1", "broker-a/2", "broker-a/3", "broker-b/0", "broker-b/1", "broker-b/2", "broker-b/3"}, all)
	other, _ := s.shares(b)
	require.Equal(t, before, other, "both brokers say the same")
	plan := s.ask(b, "", &command.PlanRequest{}).Plan
	require.NotNil(t, plan)
	require.Zero(t, plan.Moved)
	require.Equal(t, "sticky", plan.Present)
	require.Equal(t, "zone of broker-b", plan.Queues[7].Zone)

	owner := plan.Broker
	nodes[owner].Stop()
	nodes[owner].Start()
	conns[owner] = s.join(nodes[owner], s.members...)
	after, _ := s.shares(conns[owner])
	require.Equal(t, before, after, "members keep their queues")

	left := "broker-a"
	if owner == left {
		left = "broker-b"
	}
	nodes[owner].Kill()
	require.Eventually(t, func() bool {
		_, all := s.shares(conns[left])
		return slices.Equal(all, []string{left + "/0", left + "/1", left + "/2", left + "/3"})
	}, 60*time.Second, 100*time.Millisecond, "the broker that is left shares what is left")
}

// TestAllocatorProcess: the process of an allocator is stopped, continued and
// killed. Members keep their queues all the time, and who joins has its share when
// the process is back.
func TestAllocatorProcess(t *testing.T) {
	t.Parallel()
	t.Run("go", func(t *testing.T) {
		t.Parallel()
		allocatorProcess(t, "sticky", "plugins.allocate.sticky.process=true")
	})
	t.Run("python", func(t *testing.T) {
		t.Parallel()
		root, err := filepath.Abs("../..")
		require.NoError(t, err)
		script := filepath.Join(t.TempDir(), "dealt")
		require.NoError(t, os.WriteFile(script, fmt.Appendf(nil, "#!/bin/sh\nPYTHONPATH='%s/sdk/python' PYTHONDONTWRITEBYTECODE=1 exec '%s' '%s/examples/python-allocator/allocator.py'\n",
			root, hosttest.Python(t, "grpc", "google.protobuf"), root), 0o700))
		allocatorProcess(t, "dealt", "plugins.allocate.dealt.path="+script)
	})
}

func allocatorProcess(t *testing.T, name, setting string) {
	s := &sharers{t, "shared", "sharers", []string{"m1", "m2"}}
	n := harness.New(t, harness.Options{Set: []string{setting}})
	s.create(n, 12)
	c := s.join(n, s.members...)
	s.choose(c, name)
	var all []string
	require.Eventually(t, func() bool { // a process that is being started answers later
		_, all = s.shares(c)
		return len(all) == 12
	}, 60*time.Second, 100*time.Millisecond)
	require.Len(t, slices.Compact(all), 12)
	child := func() int {
		ids := hosttest.Children(t, n.Pid())
		require.Len(t, ids, 1)
		return ids[0]
	}
	for i, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		before, _ := s.shares(c)
		pid, id := child(), fmt.Sprintf("m%d", 3+i)
		if sig == syscall.SIGSTOP {
			hosttest.Stop(t, pid)
			// It does not answer, so nothing can have changed yet.
			s.join(n, id)
			after, _ := s.shares(c)
			require.Equal(t, before, after, "the last assignment stays")
			require.Nil(t, s.ask(c, id, nil).Assignments)
			_ = syscall.Kill(pid, syscall.SIGCONT) // unless it was ended as one that hangs
		} else {
			require.NoError(t, syscall.Kill(pid, sig))
			s.join(n, id)
		}
		s.members = append(s.members, id)
		require.Eventually(t, func() bool {
			of, all := s.shares(c)
			for _, id := range s.members {
				if len(of[id]) != 12/len(s.members) {
					return false
				}
			}
			return len(slices.Compact(all)) == 12
		}, 60*time.Second, 100*time.Millisecond, "who joined has its share when the process is back")
	}
}
