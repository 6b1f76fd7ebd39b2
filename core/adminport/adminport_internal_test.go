package adminport

import (
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/plugin"
)

// once is a listener with one connection.
type once struct {
	c    chan net.Conn
	done chan struct{}
}

func (l *once) Accept() (net.Conn, error) {
	select {
	case c := <-l.c:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *once) Close() error   { close(l.done); return nil }
func (l *once) Addr() net.Addr { return &net.TCPAddr{} }

// A connection that is forgotten does not keep its descriptor for ever.
func TestIdleConnectionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(plugin.Settings{}, "127.0.0.1:0", NewMetrics())
		here, there := net.Pipe()
		l := &once{make(chan net.Conn, 1), make(chan struct{})}
		l.c <- there
		ended := make(chan error, 1)
		go func() { ended <- p.server.Serve(l) }()
		_, err := here.Write([]byte("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"))
		require.NoError(t, err)
		buf := make([]byte, 4096)
		_, err = here.Read(buf)
		require.NoError(t, err)
		require.NoError(t, here.SetReadDeadline(time.Now().Add(time.Hour)))
		for err == nil {
			_, err = here.Read(buf)
		}
		require.ErrorContains(t, err, "EOF")
		require.NoError(t, p.server.Close())
		require.ErrorIs(t, <-ended, http.ErrServerClosed)
	})
}
