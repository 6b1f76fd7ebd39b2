package register

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/plugin"
)

// pass lets d pass on the clock of synctest.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func isRegistered(r *Registrar) bool {
	select {
	case <-r.Registered():
		return true
	default:
		return false
	}
}

const (
	ns1, ns2 = "ns1:9876", "ns2:9876"
	noRoute  = command.RespTopicNotExist
)

func TestRegistersAndStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, b, l := newNetwork(), newBroker(), newLogs()
		first, second := nameServer(t, n, ns1), nameServer(t, n, ns2)
		r := start(t, n, b, l, ns1+"; "+ns2+";"+ns1)
		<-r.Registered()
		synctest.Wait()
		for _, addr := range []string{ns1, ns2} {
			require.Equal(t, command.RespSuccess, code(t, n, addr, "TBW102"))
		}
		require.Len(t, l.take(), 2, "once per name server")
		pass(10 * time.Minute) // longer than name servers wait for silent brokers
		require.Equal(t, command.RespSuccess, code(t, n, ns1, "TBW102"))
		require.Equal(t, 21, first.count(command.ReqRegisterBroker))
		require.Equal(t, 21, second.count(command.ReqRegisterBroker))
		require.Empty(t, l.take())

		require.NoError(t, r.Shutdown(t.Context()))
		require.Equal(t, 1, first.count(command.ReqUnregisterBroker))
		require.Equal(t, 1, second.count(command.ReqUnregisterBroker))
		require.Equal(t, noRoute, code(t, n, ns1, "TBW102"))
		require.NoError(t, r.Shutdown(t.Context()))
		r.Changed()
		require.NoError(t, r.Sync(t.Context()))
	})
}

func TestChangesAreRegisteredAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, b := newNetwork(), newBroker()
		nameServer(t, n, ns1)
		r := start(t, n, b, newLogs(), ns1, "down:9876")
		<-r.Registered()
		synctest.Wait()
		b.add("New")
		require.Equal(t, noRoute, code(t, n, ns1, "New"))
		require.NoError(t, r.Sync(t.Context()), "the name server that is down is not waited for")
		require.Equal(t, command.RespSuccess, code(t, n, ns1, "New"))
	})
}

// Changes that come while a registration is under way are one more, and that
// leaves the name server as much time as the last one took.
func TestBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, s := newNetwork(), &script{delay: 100 * time.Millisecond}
		n.start(ns1, s)
		r := start(t, n, newBroker(), newLogs(), ns1)
		<-r.Registered()
		require.Equal(t, int32(1), s.asked.Load())
		for range 1000 {
			r.Changed()
		}
		from := time.Now()
		require.NoError(t, r.Sync(t.Context()))
		require.LessOrEqual(t, time.Since(from), 400*time.Millisecond)
		require.LessOrEqual(t, s.asked.Load(), int32(3))

		s.asked.Store(0)
		for range 1000 {
			r.Changed()
			pass(10 * time.Millisecond)
		}
		require.InDelta(t, 50, s.asked.Load(), 3)
	})
}

func TestNameServerRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, b, l := newNetwork(), newBroker(), newLogs()
		r := start(t, n, b, l, ns1)
		pass(time.Minute) // it comes later than the broker
		require.False(t, isRegistered(r))
		nameServer(t, n, ns1)
		pass(maxPause)
		require.True(t, isRegistered(r))
		require.Equal(t, command.RespSuccess, code(t, n, ns1, "TBW102"))
		seen := l.take()
		require.Len(t, seen, 2, "%q", seen)
		require.Contains(t, seen[0], "WARN name server does not answer")
		require.Contains(t, seen[0], "connection refused")
		require.Contains(t, seen[1], "INFO registered with name server")

		pass(time.Minute)
		n.stop(ns1)
		pass(time.Minute)
		nameServer(t, n, ns1) // it knows nothing
		pass(maxPause)
		require.Equal(t, command.RespSuccess, code(t, n, ns1, "TBW102"))
		require.Len(t, l.take(), 2)

		pass(time.Minute)
		n.cut(ns1) // only the connection is lost: back at once
		synctest.Wait()
		require.Equal(t, command.RespSuccess, code(t, n, ns1, "TBW102"))

		from := n.dials.Load() // one that comes and goes is not hammered
		for range 100 {
			n.stop(ns1)
			nameServer(t, n, ns1)
			pass(100 * time.Millisecond)
		}
		require.Less(t, n.dials.Load()-from, int32(20))
	})
}

// A name server that forgot the broker while the connection stayed is told again within a
// second: another process came behind an address that stayed, or an old connection of the
// broker ended late and a name server of Apache's took that for the end of the broker.
func TestNameServerForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, b, l := newNetwork(), newBroker(), newLogs()
		tap := nameServer(t, n, ns1)
		r := start(t, n, b, l, ns1)
		<-r.Registered()
		pass(20500 * time.Millisecond)
		require.Equal(t, 1, tap.count(command.ReqRegisterBroker))
		require.Equal(t, 20, tap.count(command.ReqQueryDataVersion))
		l.take()
		id := brokerID(b.identity())
		ask(t, n, ns1, command.ReqUnregisterBroker, id.Append)
		require.Equal(t, noRoute, code(t, n, ns1, "TBW102"))
		pass(askPeriod)
		require.Equal(t, command.RespSuccess, code(t, n, ns1, "TBW102"))
		seen := l.take()
		require.Len(t, seen, 1)
		require.Contains(t, seen[0], "does not know this broker any more")
		require.Equal(t, int32(1+3), n.dials.Load(), "over the connection that there was")
		pass(29 * time.Second)
		require.Equal(t, 2, tap.count(command.ReqRegisterBroker), "the next one is a period after the last")
		pass(time.Second)
		require.Equal(t, 3, tap.count(command.ReqRegisterBroker))
	})
}

// The host name of a name server gets another address: the broker goes there although the
// old machine still answers, and never leaves a place before it is registered at the next.
func TestNameServerMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const name, first, second = "ns.example:9876", "10.1.0.1:9876", "10.1.0.2:9876"
		n, b, l := newNetwork(), newBroker(), newLogs()
		old, young := nameServer(t, n, first), nameServer(t, n, second)
		n.call(name, first)
		var fails atomic.Bool
		var asked atomic.Int32
		r, err := New(Params{
			Settings: plugin.Settings{Logger: slog.New(l)}, NameServers: []string{name, first}, Dialer: n, Identity: b.identity, Source: b.source,
			Resolve: func(ctx context.Context, host string) ([]netip.Addr, error) {
				asked.Add(1)
				if fails.Load() {
					return nil, errors.New("the resolver does not answer")
				}
				return n.resolve(ctx, host)
			},
		})
		require.NoError(t, err)
		require.NoError(t, r.Start(t.Context()))
		t.Cleanup(func() { require.NoError(t, r.Shutdown(context.Background())) })
		<-r.Registered()
		pass(time.Minute)
		require.Equal(t, int32(6), asked.Load(), "every 10 s, and an address is no name")
		require.Equal(t, int32(2), n.dials.Load(), "the connection leads to one of the addresses")
		require.Zero(t, young.count(command.ReqRegisterBroker))

		n.call(name, second)
		fails.Store(true)
		pass(resolvePeriod)
		require.Zero(t, young.count(command.ReqRegisterBroker), "who cannot look it up stays")
		fails.Store(false)
		n.stop(second)
		pass(resolvePeriod)
		require.Equal(t, command.RespSuccess, code(t, n, first, "TBW102"), "who does not get there stays")
		n.start(second, young)
		l.take()
		pass(resolvePeriod)
		require.Equal(t, command.RespSuccess, code(t, n, second, "TBW102"))
		pass(askPeriod) // the two connections to the first were of one registration
		require.Equal(t, command.RespSuccess, code(t, n, first, "TBW102"), "there by its address")
		require.Contains(t, l.take()[0], "name server moved nameserver=ns.example:9876 from=10.1.0.1 to=10.1.0.2")

		n.call(name, first)
		n.stop(second) // it fails: then the name is looked up by the dialer
		pass(maxPause)
		was := old.count(command.ReqRegisterBroker)
		pass(30 * time.Second)
		require.Equal(t, was+2, old.count(command.ReqRegisterBroker), "both entries")
	})
}

// A name server that is down is not hammered, whatever happens to topics.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		r := start(t, n, newBroker(), newLogs(), ns1)
		for range 600 {
			r.Changed()
			pass(100 * time.Millisecond)
		}
		require.Less(t, n.dials.Load(), int32(80))
		require.Greater(t, n.dials.Load(), int32(40))
	})
}

func TestRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, b, l, s := newNetwork(), newBroker(), newLogs(), &script{}
		s.code.Store(command.RespSystemError)
		n.start(ns1, s)
		r := start(t, n, b, l, ns1)
		pass(time.Minute)
		require.False(t, isRegistered(r))
		seen := l.take()
		require.Len(t, seen, 1)
		require.Contains(t, seen[0], "ERROR name server refused this broker")
		require.Contains(t, seen[0], "(code 1): as the script says")
		require.Equal(t, int32(1), n.dials.Load(), "the connection is good")
		require.NoError(t, r.Sync(t.Context()), "who refuses is not waited for")
		s.code.Store(command.RespSuccess)
		pass(maxPause)
		require.True(t, isRegistered(r))
		require.Len(t, l.take(), 1)
	})
}

func TestNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, b, l, s := newNetwork(), newBroker(), newLogs(), &script{}
		s.code.Store(-1)
		n.start(ns1, s)
		r := start(t, n, b, l, ns1)
		pass(time.Minute)
		require.False(t, isRegistered(r))
		require.Len(t, l.take(), 1)
		require.Equal(t, int32(3), s.asked.Load(), "each attempt takes 24 s")
		require.Less(t, n.dials.Load(), int32(70), "and once a second it is asked whether it is there")
		s.code.Store(command.RespSuccess)
		pass(30 * time.Second)
		require.True(t, isRegistered(r))
		l.take()

		s.code.Store(-1)
		r.Changed()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, r.Sync(ctx), context.DeadlineExceeded)
		from := time.Now()
		require.NoError(t, r.Shutdown(t.Context()), "a name server that hangs holds nobody up")
		require.LessOrEqual(t, time.Since(from), unregisterTimeout)
	})
}

func TestSlaveLearnsItsMaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, master, slave := newNetwork(), newBroker(), newBroker()
		nameServer(t, n, ns1)
		<-start(t, n, master, newLogs(), ns1).Registered()
		slave.id.ID, slave.id.Addr = 1, "10.0.0.9:10911"
		var got atomic.Pointer[Answer]
		r, err := New(Params{NameServers: []string{ns1}, Dialer: n, Identity: slave.identity, Source: slave.source, Resolve: n.resolve, Answered: func(a Answer) { got.Store(&a) }})
		require.NoError(t, err)
		require.NoError(t, r.Start(t.Context()))
		<-r.Registered()
		require.Equal(t, Answer{NameServer: ns1, MasterAddr: "10.0.0.1:10911", HAAddr: "10.0.0.1:10912"}, *got.Load())
		require.NoError(t, r.Shutdown(t.Context()))
	})
}

func TestNew(t *testing.T) {
	b, n := newBroker(), newNetwork()
	_, err := New(Params{NameServers: []string{"ns1"}, Dialer: n, Identity: b.identity, Source: b.source})
	require.ErrorContains(t, err, `namesrvAddr: "ns1" is no host:port`)
	_, err = New(Params{NameServers: []string{ns1}})
	require.ErrorContains(t, err, "transport that can dial")

	for given, want := range map[time.Duration]time.Duration{0: 30 * time.Second, time.Second: 10 * time.Second, 45 * time.Second: 45 * time.Second, time.Hour: time.Minute} {
		r, err := New(Params{Period: given})
		require.NoError(t, err)
		require.Equal(t, want, r.p.Period)
	}

	r, err := New(Params{NameServers: []string{" ; "}})
	require.NoError(t, err)
	require.NoError(t, r.Shutdown(t.Context()), "legal without Start")
	require.False(t, isRegistered(r))
	require.NoError(t, r.Start(t.Context()))
	require.True(t, isRegistered(r), "there is nobody to wait for")
	require.Error(t, r.Start(t.Context()))
	require.NoError(t, r.Sync(t.Context()))
	require.NoError(t, r.Shutdown(t.Context()))
}

func TestGauge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		nameServer(t, n, ns1)
		r := start(t, n, newBroker(), newLogs(), ns1, ns2)
		<-r.Registered()
		synctest.Wait()
		var values []float64
		for _, k := range r.keepers {
			values = append(values, k.gauge())
		}
		require.Equal(t, []float64{1, 0}, values)
	})
}

func TestBody(t *testing.T) {
	topic := func(name string, perm int32) command.TopicConfig {
		return command.TopicConfig{TopicName: name, Perm: perm, ReadQueueNums: 4, WriteQueueNums: 8, TopicFilterType: "SINGLE_TAG", Attributes: command.StringMap{"message.type": "FIFO"}}
	}
	version := command.DataVersion{Counter: 3, StateVersion: 2, Timestamp: 9}
	for _, tc := range []struct {
		permission int32
		want       map[string]int32
	}{
		{permBoth, map[string]int32{"T": 6, "TBW102": 7, "R": 4}},
		{4, map[string]int32{"T": 4, "TBW102": 4, "R": 4}},
		{2, map[string]int32{"T": 2, "TBW102": 2, "R": 0}},
	} {
		var head command.RegisterBrokerRequest
		body, err := encode(&head, []command.TopicConfig{topic("T", 6), topic("TBW102", 7), topic("R", 4), topic("rmq_sys_hardpoint_catalog", 6)}, version, tc.permission)
		require.NoError(t, err)
		require.False(t, head.Compressed)
		b, err := command.DecodeRegisterBody(&head, command.Version, body)
		require.NoError(t, err)
		require.Equal(t, version, b.Topics.DataVersion)
		got := map[string]int32{}
		for name, c := range b.Topics.TopicConfigTable {
			got[name] = c.Perm
		}
		require.Equal(t, tc.want, got)
	}
	many := make([]command.TopicConfig, 15_000)
	for i := range many {
		many[i] = topic("T"+strconv.Itoa(i)+strings.Repeat("x", 100), 6)
	}
	var head command.RegisterBrokerRequest
	body, err := encode(&head, many, version, permBoth)
	require.NoError(t, err)
	require.True(t, head.Compressed)
	b, err := command.DecodeRegisterBody(&head, command.Version, body)
	require.NoError(t, err)
	require.Equal(t, version, b.Topics.DataVersion)
	require.Len(t, b.Topics.TopicConfigTable, len(many))
	require.Equal(t, many[7], b.Topics.TopicConfigTable[many[7].TopicName])
}

func TestCheckReachable(t *testing.T) {
	n := newNetwork()
	n.start("here:1", &script{})
	require.NoError(t, CheckReachable(t.Context(), n, "here:1", nil))
	err := CheckReachable(t.Context(), n, "there:1", nil)
	require.ErrorIs(t, err, errRefused)
	require.ErrorContains(t, err, "there:1")
	require.ErrorContains(t, err, "set advertise")
}

var _ plugin.Component = (*Registrar)(nil)
