package transportwire

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/internal/wiretest"
	"github.com/hardpointmq/hardpoint/plugins/transport/remoting"
	"github.com/hardpointmq/hardpoint/sdk/wire"
)

// TestServing: who asks is told while a listener is served by nobody, with the cause.
func TestServing(t *testing.T) {
	l := wiretest.NewLauncher(t, func() []wire.Served { return []wire.Served{NewServer(nil, remoting.NewFactory())} })
	tr, err := NewFactory(remoting.Name, l).Build(t.Context(), transport.Params{}, nil)
	require.NoError(t, err)
	health := tr.Capabilities().Health
	require.ErrorIs(t, health.Serving(), transport.ErrNotRunning)
	require.NoError(t, tr.Start(t.Context()))
	t.Cleanup(func() {
		require.NoError(t, tr.Shutdown(context.WithoutCancel(t.Context())))
		require.ErrorIs(t, health.Serving(), transport.ErrNotRunning)
	})
	require.NoError(t, health.Serving(), "there is no listener")
	ln, err := tr.Serve(t.Context(), transport.Listen{Address: "127.0.0.1:0"}, transport.Services{Frames: newGated()})
	require.NoError(t, err)
	require.NoError(t, health.Serving())

	l.Refuse(errors.New("no memory for another one"))
	l.Kill()
	require.Eventually(t, func() bool {
		err := health.Serving()
		return err != nil && errors.Is(err, plugin.ErrUnavailable)
	}, patience, time.Millisecond)
	require.ErrorContains(t, health.Serving(), ln.Address())
	require.Eventually(t, func() bool {
		err := health.Serving()
		return err != nil && err.Error() == plugin.ErrUnavailable.Error()+": transport remoting does not serve "+ln.Address()+": no memory for another one"
	}, patience, time.Millisecond)

	l.Refuse(nil)
	require.Eventually(t, func() bool { return health.Serving() == nil }, patience, time.Millisecond)
	exchange(t, dial(t, ln.Address()), request(2, 10))

	l.Refuse(errors.New("no memory for another one"))
	l.Kill()
	require.Eventually(t, func() bool { return health.Serving() != nil }, patience, time.Millisecond)
	require.NoError(t, ln.Close())
	require.NoError(t, health.Serving(), "who was closed need not be served")
}
