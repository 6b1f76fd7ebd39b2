//go:build unix

package remoting_test

import (
	"net"
	"testing"

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
