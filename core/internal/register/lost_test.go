package register

import (
	"context"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/transport"
)

// slow takes its time for requests, those of one connection one after the other.
type slow struct {
	*tap
	now    atomic.Pointer[times]
	opened atomic.Int32
	ended  atomic.Int32
	cut    atomic.Int32 // those that ended with a registration under way
	end    <-chan struct{}
}

// times are how long requests take: all of them, registrations more, and more for those
// of the first connection.
type times struct{ all, registering, first time.Duration }

// slowServer is a name server at ns1 that answers so late, and at beside at once.
func slowServer(t *testing.T, n *network, took times) *slow {
	end := make(chan struct{})
	t.Cleanup(func() { close(end) })
	s := &slow{tap: nameServer(t, n, ns1), end: end}
	s.now.Store(&took)
	n.start(ns1, s)
	n.start(beside, s.tap)
	return s
}

type slowSession struct {
	transport.Session
	s     *slow
	first bool
	busy  *atomic.Int32 // registrations
	jobs  chan func()
}

func (s *slow) Opened(p transport.Peer) transport.Session {
	o := slowSession{s.tap.Opened(p), s, s.opened.Add(1) == 1, new(atomic.Int32), make(chan func(), 1024)}
	go func() {
		for {
			select {
			case job := <-o.jobs:
				job()
			case <-s.end:
				return
			}
		}
	}()
	return o
}

func (o slowSession) Arrived(in []command.Frame) {
	took := o.s.now.Load()
	d := took.all
	if o.first {
		d += took.first
	}
	var h command.Header
	registers := h.Decode(&in[0]) == nil && h.Code == command.ReqRegisterBroker
	if registers {
		d += took.registering
		o.busy.Add(1)
	}
	o.jobs <- func() {
		select {
		case <-time.After(d):
			o.Session.Arrived(in)
			if registers {
				o.busy.Add(-1)
			}
		case <-o.s.end:
		}
	}
}

func (o slowSession) Closed(err error) {
	o.s.ended.Add(1)
	if o.busy.Load() > 0 {
		o.s.cut.Add(1)
	}
	o.jobs <- func() { o.Session.Closed(err) }
}

const beside = "beside:9876"

// soon is how long after it can be reached again a name server may not know a broker.
const soon = 2 * time.Second

// TestLostWithoutAWord loses a name server as a power cut or a partition does, at any point
// of the broker's round and for any time: nothing closes the connection, dialing gets no
// answer. It comes back with nothing in its memory, and within two seconds of that it
// answers the routes.
func TestLostWithoutAWord(t *testing.T) {
	for _, answer := range []time.Duration{0, 150 * time.Millisecond} {
		for at := time.Duration(0); at < 32*time.Second; at += 530 * time.Millisecond {
			for _, away := range []time.Duration{0, 70 * time.Millisecond, 600 * time.Millisecond, 1400 * time.Millisecond, 7300 * time.Millisecond, 24400 * time.Millisecond, 61 * time.Second} {
				synctest.Test(t, func(t *testing.T) {
					n, b := newNetwork(), newBroker()
					slowServer(t, n, times{all: answer})
					r := start(t, n, b, newLogs(), ns1)
					<-r.Registered()
					pass(at)
					n.lose(ns1)
					b.add("New")
					if at%3 == 0 { // it is registered with a name server that is lost
						r.Changed()
					}
					pass(away)
					h := slowServer(t, n, times{all: answer})
					n.find(ns1)
					pass(soon)
					require.Equal(t, command.RespSuccess, code(t, n, beside, "New"), "lost after %v for %v, answers after %v", at, away, answer)
					pass(5 * time.Second)
					require.LessOrEqual(t, h.count(command.ReqRegisterBroker), 2, "lost after %v for %v, answers after %v", at, away, answer)
				})
			}
		}
	}
}

// TestFoundAfterTheStart: the same of a name server that a broker never reached.
func TestFoundAfterTheStart(t *testing.T) {
	for away := time.Duration(0); away < 12*time.Second; away += 230 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			n, l := newNetwork(), newLogs()
			nameServer(t, n, ns1)
			n.lose(ns1)
			r := start(t, n, newBroker(), l, ns1)
			pass(away)
			require.Less(t, int64(n.dials.Load()), int64(away/time.Second)+5)
			n.find(ns1)
			pass(soon)
			require.True(t, isRegistered(r), "after %v", away)
			require.Equal(t, command.RespSuccess, code(t, n, ns1, "TBW102"))
		})
	}
}

// TestSlowIsNotLost: a name server that takes its time is registered as often as any other.
func TestSlowIsNotLost(t *testing.T) {
	for _, c := range []struct {
		times
		most int // registrations in five minutes
	}{
		{times{all: 100 * time.Millisecond}, 10},
		{times{all: 100 * time.Millisecond, registering: 900 * time.Millisecond}, 10},
		{times{all: 100 * time.Millisecond, registering: 4 * time.Second}, 9},
		{times{all: 700 * time.Millisecond}, 10},
		{times{all: 3 * time.Second}, 9},
		{times{all: 8 * time.Second}, 8},
		{times{first: 3 * time.Second}, 9},
		{times{registering: 10 * time.Second}, 8 + 1}, // after firstPatience it was made again
	} {
		synctest.Test(t, func(t *testing.T) {
			n, l := newNetwork(), newLogs()
			h := slowServer(t, n, c.times)
			r := start(t, n, newBroker(), l, ns1)
			pass(5 * time.Minute)
			require.True(t, isRegistered(r))
			got := h.count(command.ReqRegisterBroker)
			require.LessOrEqual(t, got, c.most, c)
			require.GreaterOrEqual(t, got, c.most-1, c)
			want := 1 // "registered", once
			if c.registering > firstPatience {
				want++
			}
			seen := l.take()
			require.Len(t, seen, want, "%q", seen)
			require.Less(t, n.dials.Load(), int32(300), "at most one a second")
		})
	}
}

// TestSlowAgain: registrations became slower, and the name server says meanwhile that it does
// not know the broker: some are made anew, each with more time, and then it is registered.
func TestSlowAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, l := newNetwork(), newLogs()
		slowServer(t, n, times{})
		r := start(t, n, newBroker(), l, ns1)
		<-r.Registered()
		pass(10 * time.Second)
		n.stop(ns1)
		h := slowServer(t, n, times{registering: 10 * time.Second})
		pass(30 * time.Second)
		require.Equal(t, command.RespSuccess, code(t, n, beside, "TBW102"))
		require.LessOrEqual(t, h.count(command.ReqRegisterBroker), 3)
		l.take()
		pass(5 * time.Minute)
		require.LessOrEqual(t, h.count(command.ReqRegisterBroker), 3+8)
		require.Empty(t, l.take())
	})
}

// TestChangeIsNotLost: a partition ends, the name server never stopped and still knows the
// broker, but not the topic that was made meanwhile.
func TestChangeIsNotLost(t *testing.T) {
	for _, after := range []time.Duration{0, 700 * time.Millisecond, 1500 * time.Millisecond, 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			n, b := newNetwork(), newBroker()
			h := nameServer(t, n, ns1)
			r := start(t, n, b, newLogs(), ns1)
			<-r.Registered()
			pass(10 * time.Second)
			n.lose(ns1)
			pass(after)
			b.add("New")
			r.Changed()
			pass(10 * time.Second)
			n.find(ns1)
			pass(soon)
			require.Equal(t, command.RespSuccess, code(t, n, ns1, "New"), "made %v after the loss", after)
			pass(5 * time.Second)
			require.Equal(t, 2, h.count(command.ReqRegisterBroker), "made %v after the loss", after)
		})
	}
}

// TestSlowKeepsTheRoute: a name server becomes slow while it knows the broker, and never stops
// to know it, whatever the broker makes of that.
func TestSlowKeepsTheRoute(t *testing.T) {
	for took, c := range map[times]struct {
		most  int  // registrations
		moves bool // one of them is made over another connection
	}{
		{all: 3 * time.Second}:                                      {9, false},
		{registering: 3 * time.Second}:                              {9, false},
		{all: 700 * time.Millisecond, registering: 8 * time.Second}: {8, false},
		{registering: 12 * time.Second}:                             {9, true},
		{first: 12 * time.Second, registering: time.Second}:         {11, true}, // the old registration is taken after the new one
	} {
		synctest.Test(t, func(t *testing.T) {
			n, b := newNetwork(), newBroker()
			h := slowServer(t, n, times{})
			r := start(t, n, b, newLogs(), ns1)
			<-r.Registered()
			pass(10 * time.Second)
			h.now.Store(&took)
			was := h.count(command.ReqRegisterBroker)
			for i := range 3000 {
				if i == 1111 {
					b.add("New")
					r.Changed()
				}
				pass(100 * time.Millisecond)
				require.Equal(t, command.RespSuccess, code(t, n, beside, "TBW102"), "%+v, after %d00 ms", took, i)
			}
			require.Equal(t, command.RespSuccess, code(t, n, beside, "New"))
			require.LessOrEqual(t, h.count(command.ReqRegisterBroker)-was, c.most, "%+v", took)
			require.LessOrEqual(t, h.opened.Load()-h.ended.Load(), int32(1+1), "%+v: connections", took)
			if c.moves {
				require.Zero(t, h.cut.Load(), "%+v: connections that were closed with a registration under way", took)
			}
		})
	}
}

// TestNoStorm: a name server returns that needs three seconds for a registration, for it has
// those of all brokers at once: each comes once.
func TestNoStorm(t *testing.T) {
	for name, back := range map[string]func(n *network, start func()){
		"stopped": func(n *network, start func()) {
			n.stop(ns1)
			pass(10 * time.Second)
			start()
		},
		"lost": func(n *network, start func()) {
			n.lose(ns1)
			pass(10 * time.Second)
			start()
			n.find(ns1)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			const brokers = 5
			n := newNetwork()
			slowServer(t, n, times{})
			for i := range brokers {
				b := newBroker()
				b.id.Name = string(rune('a' + i))
				<-start(t, n, b, newLogs(), ns1).Registered()
				pass(130 * time.Millisecond)
			}
			pass(5 * time.Second)
			var h *slow
			back(n, func() { h = slowServer(t, n, times{registering: 3 * time.Second}) })
			pass(20 * time.Second)
			require.Equal(t, command.RespSuccess, code(t, n, beside, "TBW102"))
			require.Equal(t, brokers, h.count(command.ReqRegisterBroker), name)
		})
	}
}

// TestSlowIsAskedSeldom: what is slow because it has much to do is not given more to do.
func TestSlowIsAskedSeldom(t *testing.T) {
	for took, most := range map[times]int{
		{all: 150 * time.Millisecond}: 0, // never overdue
		{all: 700 * time.Millisecond}: 1, // then it is known that it takes that long
		{all: 3 * time.Second}:        4,
		{all: 20 * time.Second}:       5 * 15,
		{first: 20 * time.Second}:     12, // until it is registered with over another connection
	} {
		synctest.Test(t, func(t *testing.T) {
			n := newNetwork()
			h := slowServer(t, n, times{})
			r := start(t, n, newBroker(), newLogs(), ns1)
			<-r.Registered()
			pass(10 * time.Second)
			h.now.Store(&took)
			was := n.dials.Load()
			pass(5 * time.Minute)
			require.LessOrEqual(t, int(n.dials.Load()-was), most, "%+v", took)
			require.Zero(t, h.count(command.ReqGetBrokerClusterInfo), "the whole cluster")
		})
	}
}

// before5 answers as name servers before RocketMQ 5 do, which have no request 901.
type before5 struct{ transport.Handler }

type before5Session struct {
	transport.Session
	p transport.Peer
}

func (b before5) Opened(p transport.Peer) transport.Session {
	return before5Session{b.Handler.Opened(p), p}
}

func (s before5Session) Arrived(in []command.Frame) {
	var h command.Header
	if h.Decode(&in[0]) != nil || h.Code != command.ReqGetBrokerMemberGroup {
		s.Session.Arrived(in)
		return
	}
	w := command.Begin(nil, command.JSON, command.RespRequestCodeNotSupported, h.Opaque, command.FlagResponse)
	_ = s.p.Send(command.Frame{Header: w.End(0)})
}

// TestOldNameServerIsLost: one that does not answer request 901 is found again all the same.
func TestOldNameServerIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		serve := func() *tap {
			h := nameServer(t, n, ns1)
			n.start(ns1, before5{h})
			return h
		}
		h := serve()
		r := start(t, n, newBroker(), newLogs(), ns1)
		<-r.Registered()
		pass(10 * time.Second)
		n.lose(ns1)
		pass(10 * time.Second)
		n.find(ns1)
		pass(10 * time.Second)
		require.Equal(t, 1, h.count(command.ReqRegisterBroker), "it knows the broker")
		require.Positive(t, h.count(command.ReqGetBrokerClusterInfo))
		pass(30 * time.Second)
		n.lose(ns1)
		pass(10 * time.Second)
		serve()
		n.find(ns1)
		pass(soon)
		require.Equal(t, command.RespSuccess, code(t, n, ns1, "TBW102"))
	})
}

// TestOtherOfTheName: a name stands for two name servers. What the second knows is no reason to
// leave the first, if that is there.
func TestOtherOfTheName(t *testing.T) {
	const name, second = "ns.example:9876", "10.1.0.2:9876"
	first := netip.MustParseAddrPort("10.1.0.1:9876")
	for what, c := range map[string]struct {
		then  func(n *network, h *slow)
		moves bool
	}{
		"slow":    {func(_ *network, h *slow) { h.now.Store(&times{all: 3 * time.Second}) }, false},
		"stopped": {func(n *network, _ *slow) { n.lose(first.String()); n.find(first.String()); n.stop(first.String()) }, true},
		"lost":    {func(n *network, _ *slow) { n.lose(first.String()) }, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			n, b := newNetwork(), newBroker()
			h := slowServer(t, n, times{})
			n.start(first.String(), h)
			other := nameServer(t, n, second)
			n.call(name, first.String())
			r, err := New(Params{
				NameServers: []string{name}, Dialer: n, Identity: b.identity, Source: b.source,
				Resolve: func(context.Context, string) ([]netip.Addr, error) {
					return []netip.Addr{first.Addr(), netip.MustParseAddrPort(second).Addr()}, nil
				},
			})
			require.NoError(t, err)
			require.NoError(t, r.Start(t.Context()))
			t.Cleanup(func() { require.NoError(t, r.Shutdown(context.Background())) })
			<-r.Registered()
			pass(10 * time.Second)
			n.call(name, second) // this time the resolver names the other one first
			c.then(n, h)
			for range 100 {
				pass(100 * time.Millisecond)
				require.True(t, c.moves || code(t, n, beside, "TBW102") == command.RespSuccess, what)
			}
			require.Equal(t, c.moves, other.count(command.ReqRegisterBroker) == 1, what)
		})
	}
}
