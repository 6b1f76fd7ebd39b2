//go:build unix

package transportwire

import (
	"io"
	"log/slog"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/internal/wiretest"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
)

// receiving is an instance that takes over, and the connection from the old process.
func receiving(t *testing.T, clock plugin.Clock) (*instance, *net.UnixConn) {
	t.Helper()
	i := newInstance()
	i.clock, i.log = clock, slog.New(slog.DiscardHandler)
	ln, err := data.Listen(t.TempDir())
	require.NoError(t, err)
	i.tasks.Go(func() { i.receive(ln) })
	conns, err := data.Dial(t.Context(), ln.Path, ln.Nonce, handRole)
	t.Cleanup(func() { i.cancel(); i.tasks.Wait(); i.hand.close() })
	require.NoError(t, err)
	t.Cleanup(func() { _ = conns[0].Close() })
	return i, conns[0].(*net.UnixConn)
}

// TestNobodyTakes: a connection that came, and of which the host does not know since
// the old process died before it said so, is closed: nobody would ever read it.
func TestNobodyTakes(t *testing.T) {
	clock := wiretest.NewClock(peerTime)
	i, old := receiving(t, clock)
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer tcp.Close()
	var clients []net.Conn
	for ticket := range uint64(2) {
		clients = append(clients, dial(t, tcp.Addr().String()))
		c, err := tcp.Accept()
		require.NoError(t, err)
		f, err := c.(*net.TCPConn).File()
		require.NoError(t, err)
		require.NoError(t, c.Close())
		require.NoError(t, passFile(old, ticket, f))
		require.NoError(t, f.Close())
	}
	require.NoError(t, old.Close())

	// What is asked for before the time is over is there, also after the old process.
	f, err := i.hand.take(t.Context(), 0)
	require.NoError(t, err)
	require.True(t, wiretest.Pass(clock, peerTime, i.ctx.Done()))
	_, err = clients[1].Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	_, err = i.hand.take(t.Context(), 1)
	require.ErrorContains(t, err, "did not come")
	require.NoError(t, f.Close())
	_, err = clients[0].Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
}
