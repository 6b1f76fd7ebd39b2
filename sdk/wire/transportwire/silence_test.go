package transportwire

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/internal/wiretest"
	"github.com/hardpointmq/hardpoint/plugins/transport/remoting"
	"github.com/hardpointmq/hardpoint/sdk/wire"
)

const (
	callLimit = 8 * time.Second
	callLook  = time.Second
)

// known is a handler whose peers a test knows; they echo.
type known struct {
	opened chan transport.Peer
	closed chan error
}

type knownSession struct {
	*known
	p transport.Peer
}

func (k known) Opened(p transport.Peer) transport.Session {
	k.opened <- p
	return knownSession{&k, p}
}
func (known) Settle()                             {}
func (s knownSession) Arrived(in []command.Frame) { _ = s.p.Send(in...) }
func (s knownSession) Closed(err error)           { s.closed <- err }

// underLimit is a transport that serves k; each process has a server of its own.
func underLimit(t *testing.T, clock plugin.Clock, k known) (transport.Listener, func() []*Server) {
	t.Helper()
	var mu sync.Mutex
	var servers []*Server
	l := wiretest.NewLauncher(t, func() []wire.Served {
		mu.Lock()
		defer mu.Unlock()
		servers = append(servers, NewServer(nil, remoting.NewFactory()))
		return []wire.Served{servers[len(servers)-1]}
	})
	l.Limit = callLimit
	tr, err := NewFactory(remoting.Name, l).Build(t.Context(), transport.Params{Settings: plugin.Settings{Clock: clock}}, nil)
	require.NoError(t, err)
	require.NoError(t, tr.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, tr.Shutdown(context.WithoutCancel(t.Context()))) })
	ln, err := tr.Serve(t.Context(), transport.Listen{Address: "127.0.0.1:0"}, transport.Services{Frames: k})
	require.NoError(t, err)
	return ln, func() []*Server {
		mu.Lock()
		defer mu.Unlock()
		return servers
	}
}

// TestSilent: a plugin that does not say that it closed a peer is given up; what it
// served is served again.
func TestSilent(t *testing.T) {
	clock := wiretest.NewClock(callLook)
	k := known{make(chan transport.Peer, 10), make(chan error, 10)}
	ln, servers := underLimit(t, clock, k)
	first, bystander := dial(t, ln.Address()), dial(t, ln.Address())
	exchange(t, first, request(2, 10))
	exchange(t, bystander, request(2, 10))
	p := <-k.opened
	<-k.opened
	i, err := servers()[0].open.Get(1)
	require.NoError(t, err)
	i.out.over.Store(true) // it swallows what it would say
	require.NoError(t, p.Close())
	// The clock is faster than what is still on its way.
	gone := first
	if p.Remote().String() == bystander.LocalAddr().String() {
		gone = bystander
	}
	_, err = gone.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	l, err := ln.(*listener).t.current()
	require.NoError(t, err)
	require.Eventually(t, func() bool { return l.owes() == "say that it closed a peer" }, patience, time.Millisecond/10)
	errs := make(chan error, 1)
	go func() {
		for { // the one that was closed has its own cause
			if err := <-k.closed; err != transport.ErrClosed { //nolint:errorlint // that itself
				errs <- err
				return
			}
		}
	}()
	err = wiretest.Outcome(t, clock, errs)
	require.ErrorIs(t, err, plugin.ErrUnavailable)
	require.ErrorContains(t, err, "did not say that it closed a peer for 8s, though it answers health calls")
	_ = servers()[0].Close(context.WithoutCancel(t.Context())) // as the end of a process does
	servedAgain(t, ln.Address())
	require.Len(t, servers(), 2)
}

// TestIdleIsNotSilent: a plugin that has nothing to say, and owes nothing, is not given
// up.
func TestIdleIsNotSilent(t *testing.T) {
	clock := wiretest.NewClock(callLook)
	k := known{make(chan transport.Peer, 10), make(chan error, 10)}
	ln, servers := underLimit(t, clock, k)
	tr := ln.(*listener).t
	idle := func() {
		for range 30 {
			// The clock is faster than what is still on its way.
			require.Eventually(t, func() bool {
				l, err := tr.current()
				return err == nil && l.owes() == ""
			}, patience, time.Millisecond/10)
			require.True(t, wiretest.Pass(clock, callLook, k.closed))
		}
	}
	c := dial(t, ln.Address())
	exchange(t, c, request(2, 10))
	<-k.opened
	idle()
	leaving := dial(t, ln.Address())
	exchange(t, leaving, request(2, 10))
	p := <-k.opened
	require.NoError(t, p.Close())
	require.ErrorIs(t, <-k.closed, transport.ErrClosed)
	idle()
	exchange(t, c, request(2, 10))
	require.Len(t, servers(), 1)
}

// TestUnread: an end that does not read what it is sent owes that.
func TestUnread(t *testing.T) {
	ours, theirs := net.Pipe()
	l := &link{}
	l.out.open(ours)
	require.Empty(t, l.owes())
	done := make(chan error, 1)
	go func() { done <- l.out.run() }()
	l.out.put(kindClose, 1, nil, true)
	require.Eventually(t, func() bool { return l.owes() == "read what it is sent" }, patience, time.Millisecond)
	_, err := io.ReadFull(theirs, make([]byte, 24))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return l.owes() == "" }, patience, time.Millisecond)
	l.out.close()
	require.Error(t, <-done)
	require.NoError(t, theirs.Close())
}
