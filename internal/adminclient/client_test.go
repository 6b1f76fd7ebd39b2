package adminclient_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/internal/adminclient"
	"github.com/hardpointmq/hardpoint/plugins/transport/inproc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// network serves scripted servers by address.
type network struct {
	t  *testing.T
	tr *inproc.Transport
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	tr, err := inproc.New(t.Context(), transport.Params{}, inproc.Config{})
	require.NoError(t, err)
	require.NoError(t, tr.Start(t.Context()))
	t.Cleanup(func() { _ = tr.Shutdown(context.Background()) })
	return &network{t, tr}
}

func (n *network) serve(address string, s scriptedServer) {
	n.t.Helper()
	_, err := n.tr.Serve(n.t.Context(), transport.Listen{Address: address}, transport.Services{Frames: s})
	require.NoError(n.t, err)
}

func (n *network) client(names ...string) *adminclient.Client {
	c := adminclient.New(adminclient.Options{Dialer: n.tr, NameServers: names, Timeout: 10 * time.Second})
	n.t.Cleanup(c.Close)
	return c
}

func group(cluster, name string, addresses map[int64]string) command.BrokerData {
	return command.BrokerData{Cluster: cluster, BrokerName: name, BrokerAddrs: addresses}
}

// twoClusters are C with a pair, and a slave whose master is away, and D.
func twoClusters() command.ClusterInfo {
	return command.ClusterInfo{
		BrokerAddrTable: map[string]command.BrokerData{
			"a": group("C", "a", map[int64]string{0: "a:0", 1: "a:1"}),
			"b": group("C", "b", map[int64]string{2: "b:2", 1: "b:1"}),
			"d": group("D", "d", map[int64]string{0: "d:0"}),
		},
		ClusterAddrTable: map[string][]string{"C": {"a", "b"}, "D": {"d"}},
	}
}

func TestBrokers(t *testing.T) {
	n := newNetwork(t)
	n.serve("names", scriptedServer{command.ReqGetBrokerClusterInfo: twoClusters()})
	n.serve("x:1", scriptedServer{command.ReqGetBrokerConfig: rawBody("brokerName=x\nbrokerClusterName=C\nbrokerId=3\n")})
	c := n.client("names")
	addresses := func(s adminclient.Selection) (out []string) {
		t.Helper()
		brokers, err := c.Brokers(t.Context(), s)
		require.NoError(t, err)
		for _, b := range brokers {
			out = append(out, b.Address)
		}
		return out
	}
	require.Equal(t, []string{"a:0", "b:1", "d:0"}, addresses(adminclient.Selection{}))
	require.Equal(t, []string{"a:0", "b:1"}, addresses(adminclient.Selection{Cluster: "C"}))
	require.Equal(t, []string{"a:0", "a:1", "b:1", "b:2"}, addresses(adminclient.Selection{Cluster: "C", Slaves: true}))
	require.Equal(t, []string{"d:0"}, addresses(adminclient.Selection{Broker: "d"}))
	brokers, err := n.client().Brokers(t.Context(), adminclient.Selection{Broker: "x:1"})
	require.NoError(t, err)
	require.Equal(t, []adminclient.Broker{{Cluster: "C", Name: "x", ID: 3, Address: "x:1"}}, brokers)

	for says, s := range map[string]adminclient.Selection{
		`there is no cluster "Dd"; did you mean D?`: {Cluster: "Dd"},
		`there is no broker "d"; known are a, b`:    {Cluster: "C", Broker: "d"},
		"connecting to nobody:1":                    {Broker: "nobody:1"},
		"is of cluster C, not of D":                 {Broker: "x:1", Cluster: "D"},
	} {
		_, err := c.Brokers(t.Context(), s)
		require.ErrorContains(t, err, says)
	}
}

// TestNameServersFailOver: the first that answers will do, and is asked first then.
func TestNameServersFailOver(t *testing.T) {
	n := newNetwork(t)
	n.serve("dying", scriptedServer{})
	n.serve("here", scriptedServer{command.ReqGetBrokerClusterInfo: twoClusters()})
	c := n.client("gone", "dying", "here")
	for range 2 {
		info, err := c.Clusters(t.Context())
		require.NoError(t, err)
		require.Len(t, info.BrokerAddrTable, 3)
	}
	_, server, err := c.AskNameServer(t.Context(), command.ReqGetBrokerClusterInfo, nil, nil)
	require.NoError(t, err)
	require.Equal(t, "here", server)

	_, err = n.client("gone", "dying").Clusters(t.Context())
	require.ErrorIs(t, err, adminclient.ErrNoNameServer)
	require.ErrorIs(t, err, adminclient.ErrUnheard)
	require.ErrorContains(t, err, "connecting to gone")
	require.ErrorContains(t, err, "asking dying for GET_BROKER_CLUSTER_INFO")
	_, err = n.client().Clusters(t.Context())
	require.ErrorIs(t, err, adminclient.ErrNoNameServer)
}

// TestOtherKind: of a broker where a name server should be, and the reverse, it is said.
func TestOtherKind(t *testing.T) {
	n := newNetwork(t)
	unknown := refusal{command.RespRequestCodeNotSupported, " request type 1 not supported"}
	n.serve("a broker", scriptedServer{command.ReqGetBrokerClusterInfo: unknown, command.ReqGetRouteInfoByTopic: unknown})
	n.serve("names", scriptedServer{command.ReqGetBrokerConfig: unknown, command.ReqGetBrokerRuntimeInfo: unknown})
	c := n.client("a broker")
	_, err := c.Clusters(t.Context())
	require.ErrorContains(t, err, "a broker is no name server (a broker?): it answers to GET_BROKER_CLUSTER_INFO")
	_, err = c.Route(t.Context(), "T")
	require.ErrorContains(t, err, "is no name server")
	_, err = c.Runtime(t.Context(), adminclient.Broker{Address: "names"}, false)
	require.ErrorContains(t, err, "names is no broker (a name server?): it answers to GET_BROKER_RUNTIME_INFO")
}

// TestPartialFailure: one of two brokers that is down is named, and what the other one
// says is there.
func TestPartialFailure(t *testing.T) {
	n := newNetwork(t)
	n.serve("names", scriptedServer{command.ReqGetBrokerClusterInfo: twoClusters()})
	n.serve("a:0", scriptedServer{command.ReqGetTopicStatsInfo: command.TopicStatsTable{TopicPutTps: 7}})
	n.serve("d:0", scriptedServer{command.ReqGetTopicStatsInfo: refusal{command.RespTopicNotExist, "topic[T] not exist"}})
	c := n.client("names")
	brokers, err := c.Brokers(t.Context(), adminclient.Selection{})
	require.NoError(t, err)
	results := adminclient.Each(t.Context(), brokers, func(ctx context.Context, b adminclient.Broker) (command.TopicStatsTable, error) {
		return adminclient.Get[command.TopicStatsTable](ctx, c, b.Address, command.ReqGetTopicStatsInfo, &command.TopicRequest{Topic: "T"}, nil)
	})
	require.Len(t, results, 3)
	require.NoError(t, results[0].Err)
	require.Equal(t, 7.0, results[0].Value.TopicPutTps)
	code, ok := adminclient.CodeOf(results[2].Err)
	require.True(t, ok)
	require.Equal(t, command.RespTopicNotExist, code)
	require.NotErrorIs(t, results[2].Err, adminclient.ErrUnheard)

	err = adminclient.Failed(results)
	require.ErrorIs(t, err, adminclient.ErrUnheard)
	require.Regexp(t, "^2 of 3 brokers failed\n  b \\(b:1\\): connecting to b:1: .*\n  d \\(d:0\\): d:0 answers to GET_TOPIC_STATS_INFO: TOPIC_NOT_EXIST \\(code 17\\): topic\\[T\\] not exist$", err.Error())
	failures := adminclient.FailuresOf(errors.Join(errors.New("besides"), err))
	require.Len(t, failures, 2)
	require.Equal(t, "b", failures[0].Name)
	require.NoError(t, adminclient.Failed(results[:1]))
	require.Empty(t, adminclient.FailuresOf(nil))
}

// TestTimeout: a server that is silent is unheard, and the error says which flag.
func TestTimeout(t *testing.T) {
	n := newNetwork(t)
	n.serve("silent", scriptedServer{command.ReqGetBrokerConfig: silence{}})
	c := adminclient.New(adminclient.Options{Dialer: n.tr, Timeout: time.Millisecond})
	t.Cleanup(c.Close)
	_, err := c.Ask(t.Context(), "silent", command.ReqGetBrokerConfig, nil, nil)
	require.ErrorIs(t, err, adminclient.ErrUnheard)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "nothing for 1ms (--timeout)")
}

func TestUnreadableAnswer(t *testing.T) {
	n := newNetwork(t)
	n.serve("names", scriptedServer{command.ReqGetBrokerClusterInfo: rawBody("<html>")})
	_, err := n.client("names").Clusters(t.Context())
	require.ErrorIs(t, err, command.ErrBody)
	require.ErrorContains(t, err, "what names answers to GET_BROKER_CLUSTER_INFO cannot be read")
}

func TestParseAddresses(t *testing.T) {
	list, err := adminclient.ParseAddresses("a:1; [::1]:2,b:3")
	require.NoError(t, err)
	require.Equal(t, []string{"a:1", "[::1]:2", "b:3"}, list)
	for _, bad := range []string{"", ";", "a", "a:1;b", "a:"} {
		_, err := adminclient.ParseAddresses(bad)
		require.Error(t, err, bad)
	}
}
