package register

import (
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
	transport.Handler
	times
	opened atomic.Int32
	end    <-chan struct{}
}

// times are how long requests take: all of them, registrations more, and more for those
// of the first connection.
type times struct{ all, registering, first time.Duration }

// slowServer is a name server at ns1 that answers so late, and at beside at once.
func slowServer(t *testing.T, n *network, took times) *tap {
	h, end := nameServer(t, n, ns1), make(chan struct{})
	t.Cleanup(func() { close(end) })
	n.start(ns1, &slow{Handler: h, times: took, end: end})
	n.start(beside, h)
	return h
}

type slowSession struct {
	transport.Session
	s    *slow
	most time.Duration // but for registering
	jobs chan func()
}

func (s *slow) Opened(p transport.Peer) transport.Session {
	o := slowSession{s.Handler.Opened(p), s, s.all, make(chan func(), 1024)}
	if s.opened.Add(1) == 1 {
		o.most += s.first
	}
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
	var h command.Header
	d := o.most
	if h.Decode(&in[0]) == nil && h.Code == command.ReqRegisterBroker {
		d += o.s.registering
	}
	o.jobs <- func() {
		select {
		case <-time.After(d):
			o.Session.Arrived(in)
		case <-o.s.end:
		}
	}
}

func (o slowSession) Closed(err error) {
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
	synctest.Test(t, func(t *testing.T) {
		n, b := newNetwork(), newBroker()
		h := nameServer(t, n, ns1)
		r := start(t, n, b, newLogs(), ns1)
		<-r.Registered()
		pass(10 * time.Second)
		n.lose(ns1)
		b.add("New")
		r.Changed()
		pass(10 * time.Second)
		n.find(ns1)
		pass(soon)
		require.Equal(t, command.RespSuccess, code(t, n, ns1, "New"))
		pass(5 * time.Second)
		require.Equal(t, 2, h.count(command.ReqRegisterBroker))
	})
}
