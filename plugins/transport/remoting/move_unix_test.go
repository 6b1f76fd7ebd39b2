//go:build unix

package remoting_test

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/internal/tlstest"
	"github.com/hardpointmq/hardpoint/plugins/transport/remoting"
)

// A connection with TLS does not move to another process, and is none the worse for
// being asked to. The listening socket moves.
func TestTLSDoesNotMove(t *testing.T) {
	a := tlstest.New(t)
	cfg := secured(a, a.Issue(t, "server", nil), remoting.TLSPermissive)
	from, to := startWith(t, plugin.Settings{}, cfg), startWith(t, plugin.Settings{}, cfg)
	srv := newProbe()
	srv.echo = true
	ln := serve(t, from, transport.Listen{}, srv)
	c, err := dialTLS(a)(ln.Address())
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, echoed(c))
	plain, err := net.Dial("tcp", ln.Address())
	require.NoError(t, err)
	defer plain.Close()
	s := <-srv.opened
	require.NoError(t, echoed(plain))
	p := <-srv.opened
	f, err := from.GiveListener(ln)
	require.NoError(t, err)
	next := newProbe()
	next.echo = true
	taken, err := to.TakeListener(f, transport.Listen{}, transport.Services{Frames: next})
	require.NoError(t, err)
	_, err = from.GivePeer(t.Context(), s.p)
	require.ErrorContains(t, err, "keys of a TLS connection do not cross")
	require.NoError(t, echoed(c), "it goes on where it is")
	m, err := from.GivePeer(t.Context(), p.p)
	require.NoError(t, err)
	_, err = to.TakePeer(taken, transport.Limits{}, m, next)
	require.NoError(t, err)
	require.NoError(t, echoed(plain))
	require.NoError(t, tryEcho(t, dialTLS(a), taken.Address()), "new ones go to the other")
	require.NoError(t, tryEcho(t, dialPlain, taken.Address()))
}

// giveAway gives a listener to nobody, beside the caller.
func giveAway(tr transport.Transport, ln transport.Listener) <-chan error {
	given := make(chan error, 1)
	go func() {
		f, err := tr.Capabilities().Mover.GiveListener(ln)
		if err == nil {
			err = f.Close()
		}
		given <- err
	}()
	return given
}

// doorman lets nobody in until its gate is open.
type doorman struct {
	*probe
	entered, gate chan struct{}
}

func (d *doorman) Opened(p transport.Peer) transport.Session {
	d.entered <- struct{}{}
	<-d.gate
	return d.probe.Opened(p)
}

// TestGivenListenerSettles: who is accepted when the listener is given away is opened
// before the caller is told, so that he can be moved, too; but for one who waits too long.
func TestGivenListenerSettles(t *testing.T) {
	for _, late := range []bool{false, true} {
		clock := &manualClock{timers: make(chan *manualTimer, 1)}
		tr := start(t, plugin.Settings{Clock: clock})
		d := &doorman{newProbe(), make(chan struct{}), make(chan struct{})}
		ln := serve(t, tr, transport.Listen{}, d)
		<-clock.timers // the janitor's
		c, err := net.Dial("tcp", ln.Address())
		require.NoError(t, err)
		defer c.Close()
		<-d.entered
		given := giveAway(tr, ln)
		var timer *manualTimer
		select {
		case timer = <-clock.timers:
		case err := <-given:
			t.Fatal("it does not wait for who is accepted", err)
		}
		if late {
			timer.fire()
			require.NoError(t, <-given)
			close(d.gate)
		} else {
			close(d.gate)
			require.NoError(t, <-given)
		}
		<-d.opened
	}
}

// TestGivenListenerSilent: who has to say first whether it speaks TLS is waited for, and
// closed when it does not; nothing that it says later is read.
func TestGivenListenerSilent(t *testing.T) {
	a := tlstest.New(t)
	cfg := secured(a, a.Issue(t, "server", nil), remoting.TLSPermissive)
	for _, streams := range []bool{false, true} {
		clock := &manualClock{timers: make(chan *manualTimer, 16)}
		tr, err := remoting.New(t.Context(), transport.Params{Settings: plugin.Settings{Clock: clock}}, cfg)
		require.NoError(t, err)
		remoting.Streams(tr, streams)
		require.NoError(t, tr.Start(t.Context()))
		srv := newProbe()
		srv.echo = true
		ln := serve(t, tr, transport.Listen{}, srv)
		speaks, err := net.Dial("tcp", ln.Address())
		require.NoError(t, err)
		defer speaks.Close()
		silent, err := net.Dial("tcp", ln.Address())
		require.NoError(t, err)
		defer silent.Close()
		require.NoError(t, tryEcho(t, dialPlain, ln.Address())) // both are accepted
		<-srv.opened
		given := giveAway(tr, ln)
		require.NoError(t, echoed(speaks))
		<-srv.opened
		for fired := false; !fired; {
			select {
			case timer := <-clock.timers:
				if fired = timer.d == remoting.OpeningTime; fired {
					timer.fire()
				}
			case err := <-given:
				t.Fatal("it does not wait for who is silent", err)
			}
		}
		require.NoError(t, <-given)
		require.ErrorIs(t, read(silent), io.EOF)
		require.NoError(t, echoed(speaks), "it goes on where it is")
		require.Empty(t, srv.opened)
		require.NoError(t, tr.Shutdown(t.Context()))
	}
}

func read(c net.Conn) error {
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
	_, err := c.Read(make([]byte, 1))
	return err
}
