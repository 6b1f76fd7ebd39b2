package broker_test

import (
	"net"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
)

// TestVIPChannel: clients that use the VIP channel connect two ports below the
// one that they were told.
func TestVIPChannel(t *testing.T) {
	var slow throttle
	port := freePair(t)
	b := startThrottled(t, &slow, "--listen", "127.0.0.1:"+strconv.Itoa(port))
	for _, p := range []int{port, port - 2} {
		c, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(p))
		require.NoError(t, err)
		_, err = c.Write(sendFrame("vip", 0, []byte("x")))
		require.NoError(t, err)
		f, err := readFrame(c)
		require.NoError(t, err)
		var h command.Header
		require.NoError(t, h.Decode(&f))
		require.Equal(t, command.RespSuccess, h.Code, "port %d", p)
		require.NoError(t, c.Close())
	}
	require.Equal(t, "127.0.0.1:"+strconv.Itoa(port), b.Advertised(), "the VIP channel is not advertised")
}

// freePair finds a port that is free, as is the second one below it.
func freePair(t *testing.T) int {
	t.Helper()
	for range 50 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		port := l.Addr().(*net.TCPAddr).Port
		v, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port-2))
		require.NoError(t, l.Close())
		if err == nil {
			require.NoError(t, v.Close())
			return port
		}
	}
	t.Fatal("no free pair of ports")
	return 0
}
