package nameserver

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
)

var (
	masterA = reg{name: "a", addr: "10.0.0.1:10911", version: command.DataVersion{Counter: 1, Timestamp: 5}}
	slaveA  = reg{name: "a", addr: "10.0.0.2:10911", id: 1}
	masterB = reg{name: "b", addr: "10.0.0.3:10911"}
)

func (r reg) with(change func(*reg)) reg { change(&r); return r }

func TestRoute(t *testing.T) {
	s := newServer(t, nil)
	c, a, sl, b := open(t, s), open(t, s), open(t, s), open(t, s)
	require.Nil(t, c.route("A"))
	require.Equal(t, command.RespSuccess, a.register(masterA).code)
	require.Equal(t, map[string]string{"a/0": "10.0.0.1:10911", "a": "6"}, c.addrs("A"))

	// A slave is told its master and adds its address, not its topics.
	r := sl.register(slaveA.with(func(r *reg) { r.topics = map[string]int32{"A": 6, "of-slave": 6} }))
	require.Equal(t, map[string]string{"masterAddr": "10.0.0.1:10911", "haServerAddr": "ha-10.0.0.1:10911"}, r.ext)
	require.Equal(t, map[string]string{"a/0": "10.0.0.1:10911", "a/1": "10.0.0.2:10911", "a": "6"}, c.addrs("A"))
	require.Nil(t, c.route("of-slave"))

	b.register(masterB)
	require.Equal(t, map[string]string{
		"a/0": "10.0.0.1:10911", "a/1": "10.0.0.2:10911", "a": "6", "b/0": "10.0.0.3:10911", "b": "6",
	}, c.addrs("A"))

	require.Equal(t, command.RespSuccess, a.unregister(masterA).code)
	require.Equal(t, map[string]string{"a/1": "10.0.0.2:10911", "a": "6", "b/0": "10.0.0.3:10911", "b": "6"}, c.addrs("A"))
	sl.unregister(slaveA)
	require.Equal(t, map[string]string{"b/0": "10.0.0.3:10911", "b": "6"}, c.addrs("A"))
	b.unregister(masterB)
	require.Nil(t, c.route("A"))
	require.Empty(t, s.table.groups)
}

// The text of a route is what the hand-written parser of the Go client and old
// Java clients read: no white space, quoted ids, brokerAddrs in every broker.
func TestRouteText(t *testing.T) {
	s := newServer(t, nil)
	c := open(t, s)
	open(t, s).register(masterB)
	open(t, s).register(masterA)
	open(t, s).register(slaveA)
	a := c.call(command.ReqGetRouteInfoByTopic, &command.RouteRequest{Topic: "A"}, nil)
	require.Equal(t, `{"brokerDatas":[`+
		`{"brokerAddrs":{"0":"10.0.0.1:10911","1":"10.0.0.2:10911"},"brokerName":"a","cluster":"C","enableActingMaster":false},`+
		`{"brokerAddrs":{"0":"10.0.0.3:10911"},"brokerName":"b","cluster":"C","enableActingMaster":false}],`+
		`"filterServerTable":{},"queueDatas":[`+
		`{"brokerName":"a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":8},`+
		`{"brokerName":"b","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":8}]}`, a.body)
	a = c.call(command.ReqGetRouteInfoByTopic, &command.RouteRequest{Topic: "X"}, nil)
	require.Equal(t, command.RespTopicNotExist, a.code)
	require.Equal(t, "No topic route info in name server for the topic: X\n"+
		"See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details.", a.remark)
	require.Empty(t, a.body)
}

func TestRegistrationRules(t *testing.T) {
	type step struct {
		reg  reg
		code int32
	}
	term := func(r reg, n int64) reg { r.version.StateVersion = n; return r }
	counter := func(r reg, n int64) reg { r.version.Counter = n; return r }
	topics := func(r reg, m map[string]int32) reg { r.topics = m; return r }
	for _, tc := range []struct {
		name  string
		steps []step
		topic string
		want  map[string]string
	}{
		{"an unknown id with one topic is refused",
			[]step{{topics(masterA, map[string]int32{"A": 6}), command.RespSystemError}}, "A", nil},
		{"an unknown id with no topic is not",
			[]step{{topics(masterA, map[string]int32{}), 0}}, "A", nil},
		{"a known id adds one topic",
			[]step{{masterA, 0}, {counter(topics(masterA, map[string]int32{"New": 6}), 2), 0}}, "New", map[string]string{"a/0": masterA.addr, "a": "6"}},
		{"topics not named stay",
			[]step{{masterA, 0}, {counter(topics(masterA, map[string]int32{"New": 6}), 2), 0}}, "A", map[string]string{"a/0": masterA.addr, "a": "6"}},
		{"a changed version changes a topic",
			[]step{{masterA, 0}, {counter(topics(masterA, map[string]int32{"A": 4}), 2), 0}}, "A", map[string]string{"a/0": masterA.addr, "a": "4"}},
		{"an unchanged version does not",
			[]step{{masterA, 0}, {topics(masterA, map[string]int32{"A": 4}), 0}}, "A", map[string]string{"a/0": masterA.addr, "a": "6"}},
		{"an unchanged version adds an unknown topic",
			[]step{{masterA, 0}, {topics(masterA, map[string]int32{"New": 4}), 0}}, "New", map[string]string{"a/0": masterA.addr, "a": "4"}},
		{"the same address under another id leaves the old id",
			[]step{{masterA, 0}, {masterA.with(func(r *reg) { r.id = 3 }), 0}}, "A", map[string]string{"a/3": masterA.addr, "a": "6"}},
		{"another address takes over an id",
			[]step{{masterA, 0}, {masterA.with(func(r *reg) { r.addr = "10.0.0.9:1"; r.topics = map[string]int32{"A": 4} }), 0}}, "A", map[string]string{"a/0": "10.0.0.9:1", "a": "4"}},
		{"another address of an equal term takes over",
			[]step{{term(masterA, 2), 0}, {term(masterA.with(func(r *reg) { r.addr = "10.0.0.9:1" }), 2), 0}}, "A", map[string]string{"a/0": "10.0.0.9:1", "a": "6"}},
		{"another address of an earlier term changes nothing and is not told",
			[]step{{term(masterA, 2), 0}, {term(masterA.with(func(r *reg) { r.addr = "10.0.0.9:1" }), 1), 0}}, "A", map[string]string{"a/0": masterA.addr, "a": "6"}},
		{"the same address of an earlier term is served",
			[]step{{term(masterA, 2), 0}, {topics(term(masterA, 1), map[string]int32{"A": 4, "B": 4}), 0}}, "A", map[string]string{"a/0": masterA.addr, "a": "4"}},
		{"a slave that may act as master registers topics without write",
			[]step{{slaveA.with(func(r *reg) { r.acting = true }), 0}}, "A", map[string]string{"a/1": slaveA.addr, "a": "4"}},
		{"a negative id is refused", []step{{masterA.with(func(r *reg) { r.id = -1 }), command.RespSystemError}}, "A", nil},
		{"an address without port is refused", []step{{masterA.with(func(r *reg) { r.addr = "10.0.0.1" }), command.RespSystemError}}, "A", nil},
		{"an address without host is refused", []step{{masterA.with(func(r *reg) { r.addr = ":10911" }), command.RespSystemError}}, "A", nil},
		{"an address with an empty port is refused", []step{{masterA.with(func(r *reg) { r.addr = "10.0.0.1:" }), command.RespSystemError}}, "A", nil},
		{"an address that breaks the Go client is refused", []step{{masterA.with(func(r *reg) { r.addr = "a,b:1" }), command.RespSystemError}}, "A", nil},
		{"an IPv6 address is served", []step{{masterA.with(func(r *reg) { r.addr = "[fd00::1]:10911" }), 0}}, "A", map[string]string{"a/0": "[fd00::1]:10911", "a": "6"}},
		{"a broker without name is refused", []step{{masterA.with(func(r *reg) { r.name = "" }), command.RespSystemError}}, "A", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newServer(t, nil)
			c := open(t, s)
			for _, st := range tc.steps {
				a := c.register(st.reg)
				require.Equal(t, st.code, a.code, a.remark)
				if st.code != 0 {
					require.NotEmpty(t, a.remark)
				}
			}
			require.Equal(t, tc.want, c.addrs(tc.topic))
		})
	}
}

// The late close of an old connection leaves what a newer one registered.
func TestCloseComparesIncarnations(t *testing.T) {
	again := map[string]func(c *conn){
		"register": func(c *conn) { c.register(masterA) },
		"data version": func(c *conn) {
			a := c.call(command.ReqQueryDataVersion, &command.BrokerID{BrokerName: "a", BrokerAddr: masterA.addr, ClusterName: "C"}, []byte(`{"counter":1,"timestamp":5}`))
			require.Equal(t, "false", a.ext["changed"])
			require.JSONEq(t, `{"counter":1,"stateVersion":0,"timestamp":5}`, a.body)
		},
		"heartbeat": func(c *conn) {
			require.Zero(t, c.call(command.ReqBrokerHeartbeat, &command.BrokerHeartbeatRequest{BrokerID: command.BrokerID{BrokerName: "a", BrokerAddr: masterA.addr, ClusterName: "C"}}, nil).code)
		},
	}
	for name, do := range again {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, nil)
			old, young, c := open(t, s), open(t, s), open(t, s)
			old.register(masterA)
			do(young)
			do(old) // what was sent before, taken late
			old.close()
			require.NotNil(t, c.route("A"))
			young.close()
			require.Nil(t, c.route("A"))
			require.Zero(t, s.brokers.Load())
		})
	}
}

func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		c, a, sl, b := open(t, s), open(t, s), open(t, s), open(t, s)
		a.register(masterA)
		sl.register(slaveA.with(func(r *reg) { r.timeout = 300_000 }))
		b.register(masterB)
		step := func(d time.Duration) {
			<-time.After(d) // of the clock of synctest
			synctest.Wait()
		}
		step(100 * time.Second)
		b.call(command.ReqBrokerHeartbeat, &command.BrokerHeartbeatRequest{BrokerID: command.BrokerID{BrokerName: "b", BrokerAddr: masterB.addr, ClusterName: "C"}}, nil)
		step(19 * time.Second)
		require.Equal(t, masterA.addr, c.addrs("A")["a/0"])
		step(7 * time.Second) // 126 s: the scan at 125 s saw it
		require.Equal(t, map[string]string{"a/1": slaveA.addr, "a": "6", "b/0": masterB.addr, "b": "6"}, c.addrs("A"))
		require.True(t, a.peer.isClosed(), "a broker that only hung must notice")
		require.False(t, b.peer.isClosed())
		step(100 * time.Second) // 226 s: b, last seen at 100 s, is gone
		require.Equal(t, map[string]string{"a/1": slaveA.addr, "a": "6"}, c.addrs("A"))
		step(80 * time.Second)
		require.Nil(t, c.route("A"))

		open(t, s).register(masterA.with(func(r *reg) { r.timeout = math.MaxInt64 }))
		step(23 * time.Hour)
		require.NotNil(t, c.route("A"))
		step(2 * time.Hour)
		require.Nil(t, c.route("A"), "a day is the most a broker may claim")
	})
}

// A group that allows slaves to act as masters is not written to without one.
func TestMasterLostOfActingGroup(t *testing.T) {
	s := newServer(t, nil)
	c, a := open(t, s), open(t, s)
	a.register(masterA.with(func(r *reg) { r.acting = true }))
	open(t, s).register(slaveA.with(func(r *reg) { r.acting = true }))
	require.Equal(t, "6", c.addrs("A")["a"])
	a.close()
	require.Equal(t, map[string]string{"a/1": slaveA.addr, "a": "4"}, c.addrs("A"))
}

func TestClusterMoves(t *testing.T) {
	s := newServer(t, nil)
	c := open(t, s)
	c.register(masterA)
	c.register(masterA.with(func(r *reg) { r.cluster = "D" }))
	require.JSONEq(t, `{"brokerAddrTable":{"a":{"brokerAddrs":{"0":"10.0.0.1:10911"},"brokerName":"a","cluster":"D","enableActingMaster":false}},"clusterAddrTable":{"D":["a"]}}`,
		c.call(command.ReqGetBrokerClusterInfo, nil, nil).body)
}
