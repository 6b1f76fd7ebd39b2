package assign_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/assign"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/internal/nameserver"
	"github.com/hardpointmq/hardpoint/core/internal/register"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/plugins/transport/inproc"
)

// cluster is two brokers of a topic and a name server, joined by a transport
// inside the process.
type cluster struct {
	t     *testing.T
	net   *inproc.Transport
	clock *clock
	nodes map[string]*node // by broker name
}

type node struct {
	*world
	name     string
	listener transport.Listener
	reg      *register.Registrar
}

const nsAddress = "ns:9876"

func newCluster(t *testing.T) *cluster {
	tr, err := inproc.New(t.Context(), transport.Params{}, inproc.NewDefaultConfig())
	require.NoError(t, err)
	require.NoError(t, tr.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, tr.Shutdown(context.WithoutCancel(t.Context()))) })
	ns, err := nameserver.New(nameserver.Params{Config: nameserver.NewDefaultConfig()})
	require.NoError(t, err)
	require.NoError(t, ns.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, ns.Shutdown(context.WithoutCancel(t.Context()))) })
	l, err := tr.Serve(t.Context(), transport.Listen{Address: nsAddress}, transport.Services{Frames: ns.Handler()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	c := &cluster{t: t, net: tr, clock: newClock(), nodes: map[string]*node{}}
	for _, name := range []string{"broker-a", "broker-b"} {
		c.nodes[name] = c.start(name)
	}
	return c
}

func (c *cluster) start(name string) *node {
	address := name + ":10911"
	n := &node{name: name, world: newWorld(c.t, func(o *enginetest.Options) {
		o.Clock = c.clock
		o.Config = func(k *kernel.Config) { k.BrokerName = name }
		o.Assign.NameServers = func() []string { return []string{nsAddress} }
		o.Assign.Dialer = func() transport.Dialer { return c.net }
	})}
	var err error
	n.listener, err = c.net.Serve(c.t.Context(), transport.Listen{Address: address}, transport.Services{Frames: n.K})
	require.NoError(c.t, err)
	n.reg, err = register.New(register.Params{
		NameServers: []string{nsAddress}, Dialer: c.net,
		Identity: func() register.Identity {
			return register.Identity{Cluster: "DefaultCluster", Name: name, Addr: address, HAAddr: address, Zone: "zone of " + name}
		},
		Source: func() ([]command.TopicConfig, command.DataVersion) {
			all, v := n.K.Topics.All()
			out := make([]command.TopicConfig, len(all))
			for i, t := range all {
				out[i] = t.Config
			}
			return out, v
		},
	})
	require.NoError(c.t, err)
	require.NoError(c.t, n.reg.Start(c.t.Context()))
	<-n.reg.Registered()
	c.t.Cleanup(n.down)
	return n
}

// down takes a broker away, as a crash does for its peers.
func (n *node) down() {
	_ = n.listener.Close()
	require.NoError(n.t, n.reg.Shutdown(context.WithoutCancel(n.t.Context())))
	n.Stop()
}

// join has members send heartbeats to all brokers, as consumers do.
func (c *cluster) join(ids ...string) {
	for _, n := range c.nodes {
		n.join(ids...)
	}
}

// member is what a node says that a member has, as "broker/queue".
func (n *node) member(id string) []string {
	n.t.Helper()
	r := n.reply(id, "sticky")
	require.Equal(n.t, command.RespSuccess, r.Code, r.Remark)
	var out command.QueryAssignmentResponse
	require.NoError(n.t, command.DecodeBody(r.Body, &out))
	require.Nil(n.t, out.Group, "that is between brokers")
	var got []string
	for _, a := range out.Assignments {
		got = append(got, fmt.Sprintf("%s/%d", a.MessageQueue.BrokerName, a.MessageQueue.QueueID))
	}
	return got
}

// sides are the node whose allocator was asked, and the other one.
func (c *cluster) sides() (owner, other *node) {
	a, b := c.nodes["broker-a"], c.nodes["broker-b"]
	if a.shop.calls.Load() > 0 {
		require.Zero(c.t, b.shop.calls.Load(), "one broker computes")
		return a, b
	}
	require.NotZero(c.t, b.shop.calls.Load())
	return b, a
}

func TestForward(t *testing.T) {
	c := newCluster(t)
	members := []string{"a", "b", "c"}
	c.join(members...)
	said := map[string][]string{}
	queues := map[string]bool{}
	for _, id := range members {
		said[id] = c.nodes["broker-a"].member(id)
		require.Equal(t, said[id], c.nodes["broker-b"].member(id), "all brokers say the same")
		for _, q := range said[id] {
			require.False(t, queues[q], "%s has two owners", q)
			queues[q] = true
		}
	}
	require.Len(t, queues, 16, "queues of both brokers")
	owner, other := c.sides()

	// A plan is the owner's, too.
	r := other.asks.Do(command.ReqQueryAssignment, nil, other.asks.Body(command.QueryAssignmentBody{ConsumerGroup: "G", Topic: "T", Plan: &command.PlanRequest{Allocator: "averagely"}}))
	var out command.QueryAssignmentResponse
	require.NoError(t, command.DecodeBody(r.Body, &out))
	require.Equal(t, owner.name, out.Plan.Broker, r.Remark)
	for _, q := range out.Plan.Queues {
		require.Equal(t, "zone of "+q.BrokerName, q.Zone)
	}

	// Who is asked by a broker answers, whoever the owner is.
	out = other.forwarded("")
	require.NotZero(t, other.shop.calls.Load())
	require.NotNil(t, out.Group)
	require.Len(t, out.Group.Owners, 3)
}

// TestStamp: an owner tells the whole group's assignment once.
func TestStamp(t *testing.T) {
	w := newWorld(t, nil)
	w.join("a", "b")
	out := w.forwarded("")
	require.NotNil(t, out.Group)
	require.Nil(t, w.forwarded(assign.Stamp(*out.Group)).Group)
	w.join("c")
	require.NotNil(t, w.forwarded(assign.Stamp(*out.Group)).Group, "it is another one now")
}

// forwarded asks as another broker does that knows an assignment.
func (w *world) forwarded(known string) (out command.QueryAssignmentResponse) {
	w.t.Helper()
	r := w.asks.Do(command.ReqQueryAssignment, func(h *command.Writer) {
		h.Ext("hardpointForwardedBy", "broker-b")
		h.Ext("hardpointKnown", known)
	}, w.asks.Body(command.QueryAssignmentBody{ClientID: "a", ConsumerGroup: "G", MessageModel: command.Clustering, StrategyName: "AVG", Topic: "T"}))
	require.NoError(w.t, command.DecodeBody(r.Body, &out))
	return out
}

// TestOwnerGone: its last answer holds for all members, and then the next owner
// goes on from it.
func TestOwnerGone(t *testing.T) {
	c := newCluster(t)
	c.join("a", "b", "c", "d")
	for _, id := range []string{"a", "b", "c", "d"} {
		c.nodes["broker-a"].member(id)
		c.nodes["broker-b"].member(id)
	}
	owner, other := c.sides()
	for _, n := range c.nodes {
		n.leave("d")
	}
	said := map[string][]string{}
	for _, id := range []string{"a", "b", "c"} {
		said[id] = other.member(id)
	}
	// The name servers do not know yet, and new members get nothing from others.
	_ = owner.listener.Close()
	other.join("e")
	for id, had := range said {
		require.Equal(t, had, other.member(id))
	}
	require.Empty(t, other.member("e"))
	require.Zero(t, other.shop.calls.Load())
	require.True(t, other.HasLog("does not answer; what it said last holds"))
	other.leave("e")

	require.NoError(t, owner.reg.Shutdown(t.Context())) // now they do
	c.clock.pass(10 * time.Second)
	for id, had := range said {
		got := other.member(id)
		for _, q := range got {
			if q[:8] == other.name {
				continue
			}
			t.Fatalf("%s still has %s, whose broker is gone", id, q)
		}
		kept := 0
		for _, q := range had {
			for _, g := range got {
				if q == g {
					kept++
				}
			}
		}
		require.GreaterOrEqual(t, kept, 2, "%s had %v and has %v", id, had, got)
	}
	require.NotZero(t, other.shop.calls.Load())
}

// TestNoNameServer: the last route holds; without one, nothing is said, since a
// client that hears of some queues gives up the others.
func TestNoNameServer(t *testing.T) {
	w := newWorld(t, func(o *enginetest.Options) {
		o.Assign.NameServers = func() []string { return []string{nsAddress} }
	})
	w.join("a")
	require.Nil(t, w.queues("a", "AVG"))
}
