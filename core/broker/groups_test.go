package broker_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/broker"
	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagemw"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/core/wiring"
	"github.com/hardpointmq/hardpoint/plugins/replication/solo"
	"github.com/hardpointmq/hardpoint/plugins/storage/memory"
	"github.com/hardpointmq/hardpoint/plugins/transport/remoting"
)

// member is a group with a memory store of which each call is shown to fault first.
func member(t *testing.T, name string, fault func(context.Context, storagemw.Call) error) broker.Params {
	t.Helper()
	fs := pflag.NewFlagSet("broker", pflag.ContinueOnError)
	config.RegisterFlags(fs)
	require.NoError(t, fs.Parse([]string{"--data", t.TempDir(), "--listen", "127.0.0.1:0", "--storage", memory.Name, "--set", "brokerName=" + name}))
	l, err := config.Load(config.Options{Mode: config.Broker, Flags: fs})
	require.NoError(t, err)
	plugins, err := wiring.NewPlugins([]storage.Factory{storagemw.Wrap(memory.NewFactory(), storagemw.Faults(fault))}, nil,
		[]replication.Factory{solo.NewFactory()}, []transport.Factory{remoting.NewFactory()})
	require.NoError(t, err)
	return broker.Params{Config: &l.Config, Loaded: l, Plugins: plugins}
}

func sound(context.Context, storagemw.Call) error { return nil }

var errDisk = errors.New("the disk of this one fails")

// TestGroupsGoOn: the failure of one group's store is not the others'.
func TestGroupsGoOn(t *testing.T) {
	var broken atomic.Bool
	g, err := broker.NewGroups(t.Context(), member(t, "a", sound), member(t, "b", func(_ context.Context, c storagemw.Call) error {
		if c.Op == storagemw.OpAppend && !c.Done && broken.Load() {
			return storage.ErrFull
		}
		return nil
	}))
	require.NoError(t, err)
	require.NoError(t, g.Start(t.Context()))
	defer func() { require.NoError(t, g.Shutdown(context.Background())) }()
	a, b := g.All()[0], g.All()[1]
	require.NotEqual(t, a.Address(), b.Address())
	send := func(to *broker.Broker) error {
		_, err := to.Send(t.Context(), &api.SendRequest{Topic: "T", Body: []byte("x")})
		return err
	}
	require.NoError(t, send(a))
	require.NoError(t, send(b))
	broken.Store(true)
	for range 3 {
		require.Error(t, send(b))
		require.NoError(t, send(a))
	}
	require.NoError(t, a.Ready())
	broken.Store(false)
	require.NoError(t, send(b), "and it comes back by itself")
}

// TestGroupsStartTogether: one that does not start takes the others down again, and is
// the one that is named.
func TestGroupsStartTogether(t *testing.T) {
	waits := make(chan struct{})
	slow := func(ctx context.Context, c storagemw.Call) error {
		if c.Op == storagemw.OpStart && !c.Done {
			close(waits)
			<-ctx.Done() // a recovery that takes long is called off
			return ctx.Err()
		}
		return nil
	}
	failing := func(_ context.Context, c storagemw.Call) error {
		if c.Op == storagemw.OpStart && !c.Done {
			<-waits
			return errDisk
		}
		return nil
	}
	g, err := broker.NewGroups(t.Context(), member(t, "a", sound), member(t, "slow", slow), member(t, "c", failing))
	require.NoError(t, err)
	err = g.Start(t.Context())
	require.ErrorIs(t, err, errDisk)
	require.ErrorContains(t, err, "broker c: store memory: ")
	require.NotContains(t, err.Error(), "broker slow")
	_, err = net.Dial("tcp", g.All()[0].Address())
	require.Error(t, err, "nothing is half up")
	require.NoError(t, g.Shutdown(t.Context()), "after a start that failed")

	p := member(t, "d", sound)
	p.Config.Store.Storage = "tape"
	_, err = broker.NewGroups(t.Context(), member(t, "a", sound), p)
	require.ErrorContains(t, err, "broker d: ")
}
