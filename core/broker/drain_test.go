package broker_test

import (
	"context"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/broker"
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/nameserver"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/core/wiring"
	"github.com/hardpointmq/hardpoint/internal/rpc"
	"github.com/hardpointmq/hardpoint/plugins/replication/solo"
	"github.com/hardpointmq/hardpoint/plugins/storage/memory"
	"github.com/hardpointmq/hardpoint/plugins/transport/remoting"
)

// cluster is a name server with brokers.
type cluster struct {
	t     *testing.T
	names string
	asks  *rpc.Client
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	cfg := nameserver.NewDefaultConfig()
	cfg.Listen.Address = "127.0.0.1:0"
	s, err := nameserver.New(t.Context(), plugin.Settings{}, cfg, remoting.NewFactory())
	require.NoError(t, err)
	require.NoError(t, s.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, s.Shutdown(context.Background())) })
	tr, err := remoting.NewFactory().Build(t.Context(), transport.Params{}, nil)
	require.NoError(t, err)
	require.NoError(t, tr.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, tr.Shutdown(context.Background())) })
	c, err := rpc.Dial(t.Context(), tr.Capabilities().Dialer, s.Address(), rpc.Options{})
	require.NoError(t, err)
	return &cluster{t, s.Address(), c}
}

// params are those of a broker.
func (c *cluster) params(name string) broker.Params {
	c.t.Helper()
	fs := pflag.NewFlagSet("broker", pflag.ContinueOnError)
	config.RegisterFlags(fs)
	require.NoError(c.t, fs.Parse([]string{
		"--data", c.t.TempDir(), "--listen", "127.0.0.1:0", "--storage", memory.Name, "--namesrv-addr", c.names,
		"--set", "brokerName=" + name, "--set", "drainTimeout=1h",
	}))
	l, err := config.Load(config.Options{Mode: config.Broker, Flags: fs, Hostname: name})
	require.NoError(c.t, err)
	plugins, err := wiring.NewPlugins([]storage.Factory{memory.NewFactory()}, nil,
		[]replication.Factory{solo.NewFactory()}, []transport.Factory{remoting.NewFactory()})
	require.NoError(c.t, err)
	return broker.Params{Config: &l.Config, Loaded: l, Plugins: plugins}
}

// broker starts one with topics.
func (c *cluster) broker(name string, topics []string) *broker.Broker {
	c.t.Helper()
	b, err := broker.New(c.t.Context(), c.params(name))
	require.NoError(c.t, err)
	require.NoError(c.t, b.Start(c.t.Context()))
	c.t.Cleanup(func() { require.NoError(c.t, b.Shutdown(context.Background())) })
	c.topics(b, topics...)
	return b
}

// topics makes topics at a broker.
func (c *cluster) topics(b *broker.Broker, topics ...string) {
	c.t.Helper()
	for _, topic := range topics {
		require.NoError(c.t, b.PutTopic(c.t.Context(), api.Topic{Name: topic, ReadQueues: 1, WriteQueues: 1}))
		c.await(topic, b.Name(), true)
	}
}

// writable tells the brokers to which clients send messages of a topic, and whether.
func (c *cluster) writable(topic string) map[string]bool {
	c.t.Helper()
	q := command.RouteRequest{Topic: topic, AcceptStandardJSONOnly: true}
	r, err := c.asks.Call(c.t.Context(), rpc.Request(command.ReqGetRouteInfoByTopic, q.Append, nil))
	require.NoError(c.t, err)
	if r.Err() != nil {
		return nil
	}
	var d command.TopicRouteData
	require.NoError(c.t, command.DecodeBody(r.Body, &d))
	out := map[string]bool{}
	for _, q := range d.QueueDatas {
		require.NotZero(c.t, q.Perm&command.PermRead)
		out[q.BrokerName] = q.Perm&command.PermWrite != 0
	}
	return out
}

func (c *cluster) await(topic, broker string, writable bool) {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		now, known := c.writable(topic)[broker]
		return known && now == writable
	}, time.Minute, time.Millisecond)
}

// drains starts a drain; ended is closed when it is over.
func drains(t *testing.T, b wiring.Drainer) (hurry context.CancelFunc, ended chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended = make(chan struct{})
	go func() {
		b.Drain(ctx)
		close(ended)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return cancel, ended
}

// A broker that drains takes itself out of the routes of producers, where they find
// another one, and goes on serving.
func TestDrain(t *testing.T) {
	c := newCluster(t)
	a := c.broker("broker-a", []string{"both", "here"})
	c.broker("broker-b", []string{"both", "there"})
	send := func(topic string) {
		t.Helper()
		_, err := a.Send(t.Context(), &api.SendRequest{Topic: topic, Body: []byte("x")})
		require.NoError(t, err)
	}
	require.NoError(t, a.Ready())
	hurry, ended := drains(t, a)
	c.await("both", "broker-a", false)
	c.await("TBW102", "broker-a", false)
	require.Equal(t, map[string]bool{"broker-a": false, "broker-b": true}, c.writable("both"))
	require.Equal(t, map[string]bool{"broker-a": true}, c.writable("here"), "nobody else takes it")
	require.Equal(t, map[string]bool{"broker-b": true}, c.writable("there"))
	require.ErrorContains(t, a.Ready(), "it is draining")
	send("both")
	send("here")

	// What is registered meanwhile is no way back.
	require.NoError(t, a.PutTopic(t.Context(), api.Topic{Name: "new", ReadQueues: 1, WriteQueues: 1}))
	c.await("new", "broker-a", true)
	require.Equal(t, map[string]bool{"broker-a": false, "broker-b": true}, c.writable("both"))
	select {
	case <-ended:
		t.Fatal("it did not wait")
	default:
	}
	hurry()
	<-ended
	require.NoError(t, a.Shutdown(t.Context()))
	require.Eventually(t, func() bool { return len(c.writable("both")) == 1 }, time.Minute, time.Millisecond)
	a.Drain(t.Context()) // of no use any more, and no harm
}

// Nobody is led to where nothing will be.
func TestNoDrain(t *testing.T) {
	c := newCluster(t)
	a := c.broker("broker-a", []string{"both", "here"})
	a.Drain(t.Context()) // alone
	require.Equal(t, map[string]bool{"broker-a": true}, c.writable("both"))
	require.NoError(t, a.Ready())
	c.broker("broker-b", []string{"there"}).Drain(t.Context()) // with other topics
	c.broker("broker-c", []string{"both"})
	_, ended := drains(t, a)
	c.await("both", "broker-a", false)
	select {
	case <-ended:
		t.Fatal("it did not wait")
	default:
	}
}

// A broker whose producers are led to another one finds that it stops as well, and that
// one serves both.
func TestDrainWhileAnotherDrains(t *testing.T) {
	c := newCluster(t)
	a, b := c.broker("broker-a", []string{"both"}), c.broker("broker-b", []string{"both"})
	hurry, gone := drains(t, a)
	c.await("both", "broker-a", false)
	_, ended := drains(t, b)
	require.Eventually(t, func() bool { return b.Ready() != nil }, time.Minute, time.Millisecond)
	require.ErrorContains(t, b.Ready(), "no other broker takes messages of its topics at present")
	hurry()
	<-gone
	require.NoError(t, a.Shutdown(t.Context()))
	require.Eventually(t, func() bool { return len(c.writable("both")) == 1 }, time.Minute, time.Millisecond)
	require.Equal(t, map[string]bool{"broker-b": true}, c.writable("both"))
	select {
	case <-ended:
		t.Fatal("it did not wait")
	default:
	}
}

// Groups of one process lead nobody to each other: they stop together.
func TestDrainOfGroups(t *testing.T) {
	c := newCluster(t)
	g, err := broker.NewGroups(t.Context(), c.params("broker-a"), c.params("broker-b"))
	require.NoError(t, err)
	require.NoError(t, g.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, g.Shutdown(context.Background())) })
	for _, b := range g.All() {
		c.topics(b, "both")
	}
	g.Drain(t.Context())
	require.Equal(t, map[string]bool{"broker-a": true, "broker-b": true}, c.writable("both"))

	c.broker("broker-c", []string{"both"})
	_, ended := drains(t, g)
	c.await("both", "broker-a", false)
	c.await("both", "broker-b", false)
	require.True(t, c.writable("both")["broker-c"])
	select {
	case <-ended:
		t.Fatal("it did not wait")
	default:
	}
}
