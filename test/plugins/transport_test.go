package plugins

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/internal/hosttest"
	"github.com/hardpointmq/hardpoint/test/harness"
)

// TestTransportBeside runs a transport as `plugin new` makes it, as a program, beside
// remoting: both are doors to one broker. When its process dies its clients lose their
// connection, those of remoting do not, and it serves the same address again.
func TestTransportBeside(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "carrier")
	command(t, ".", harness.Binary(t, false), "plugin", "new", "transport", "carrier", "--hardpoint", "../..", "--dir", dir)
	binary := filepath.Join(dir, "bin", "carrier")
	command(t, dir, "go", "build", "-o", binary, "./cmd/carrier")
	second := fmt.Sprintf("127.0.0.1:%d", harness.FreePort(t))
	n := harness.New(t, harness.Options{Race: true, Set: []string{"moreListeners=carrier://" + second, "plugins.transport.carrier.path=" + binary}})
	dial := func(address string) *harness.Conn {
		c, err := harness.Dial(address)
		require.NoError(t, err, address)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	first, beside := dial(n.Addr), dial(second)
	require.NoError(t, first.CreateTopic("T", 1))
	message := &harness.Send{Topic: "T", Body: []byte("x")}
	for i, c := range []*harness.Conn{first, beside, first, beside} {
		r, err := c.Send(message)
		require.NoError(t, err)
		require.EqualValues(t, i, r.QueueOffset, "one log behind both")
	}
	pids := hosttest.Children(t, n.Pid())
	require.Len(t, pids, 1, "the broker has one child, its second transport")
	require.NoError(t, syscall.Kill(pids[0], syscall.SIGKILL))
	_, err := first.Send(message)
	require.NoError(t, err, "the other transport goes on, with the connection that it had")
	_, err = beside.Send(message)
	require.Error(t, err)
	require.True(t, harness.Poll(time.Minute, func() bool {
		c, err := harness.Dial(second)
		if err != nil {
			return false
		}
		defer c.Close()
		_, err = c.Send(message)
		return err == nil
	}), "it serves its address again: %s", n.Log())
	_, err = first.Send(message)
	require.NoError(t, err)
	require.Contains(t, n.Log(), "signal: killed")
}
