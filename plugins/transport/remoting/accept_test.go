package remoting

import (
	"context"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/transport"
)

// brokeListener has no descriptors for the first attempts.
type brokeListener struct {
	net.Listener
	fail int
}

func (l *brokeListener) Accept() (net.Conn, error) {
	if l.fail > 0 {
		l.fail--
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

type openedHandler chan transport.Peer

func (h openedHandler) Opened(p transport.Peer) transport.Session { h <- p; return &collector{} }
func (openedHandler) Settle()                                     {}

func TestAcceptGoesOn(t *testing.T) {
	tr, err := New(t.Context(), transport.Params{}, Config{})
	require.NoError(t, err)
	require.NoError(t, tr.Start(t.Context()))
	defer func() { require.NoError(t, tr.Shutdown(context.Background())) }()
	nl, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	opened := make(openedHandler, 1)
	ln := &listener{g: tr.newGroup(transport.Limits{}, nil), nl: &brokeListener{Listener: nl, fail: 3}, h: opened, ended: make(chan struct{})}
	ln.g.onClose = func() { _ = nl.Close() }
	ln.g.wg.Add(1)
	go ln.accept()
	c, err := net.Dial("tcp", ln.Address())
	require.NoError(t, err)
	defer c.Close()
	require.Equal(t, c.LocalAddr().String(), (<-opened).Remote().String())
	require.NoError(t, ln.Close())
}
