package broker_test

import (
	"context"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/broker"
	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/replication/replicationtest"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/core/wiring"
	"github.com/hardpointmq/hardpoint/plugins/storage/memory"
	"github.com/hardpointmq/hardpoint/plugins/transport/remoting"
)

// newScripted makes a broker under a replicator of somebody else's: it has a
// configuration of its own, and none of RocketMQ's keys in it.
func newScripted(t *testing.T, script **replicationtest.Scripted, flags ...string) (*broker.Broker, error) {
	t.Helper()
	fs := pflag.NewFlagSet("broker", pflag.ContinueOnError)
	config.RegisterFlags(fs)
	require.NoError(t, fs.Parse(append([]string{
		"--data", t.TempDir(), "--listen", "127.0.0.1:0", "--storage", memory.Name, "--set", "replication=" + replicationtest.ScriptedName,
	}, flags...)))
	l, err := config.Load(config.Options{Mode: config.Broker, Flags: fs, Hostname: "broker-a"})
	require.NoError(t, err)
	plugins, err := wiring.NewPlugins([]storage.Factory{memory.NewFactory()}, nil,
		[]replication.Factory{replicationtest.ScriptedFactory(func(s *replicationtest.Scripted) { *script = s })},
		[]transport.Factory{remoting.NewFactory()})
	require.NoError(t, err)
	return broker.New(t.Context(), broker.Params{Config: &l.Config, Loaded: l, Plugins: plugins})
}

// The typed operations ask behind a barrier what requests ask behind one.
func TestTypedBarriers(t *testing.T) {
	var s *replicationtest.Scripted
	b, err := newScripted(t, &s)
	require.NoError(t, err)
	require.NoError(t, b.Start(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		require.NoError(t, b.Shutdown(ctx))
	})
	ctx, q := t.Context(), message.Queue{Topic: "T"}
	require.NoError(t, b.PutTopic(ctx, api.Topic{Name: "T", ReadQueues: 1, WriteQueues: 1}))
	_, err = b.Send(ctx, &api.SendRequest{Topic: "T", Body: []byte("x")})
	require.NoError(t, err)
	n, err := b.Offset(ctx, q, api.MaxOffset, time.Time{})
	require.NoError(t, err)
	require.Equal(t, int64(1), n)

	s.FailBarrier(replication.ErrNotLeader)
	_, err = b.Offset(ctx, q, api.MaxOffset, time.Time{})
	require.ErrorIs(t, err, replication.ErrNotLeader)
	require.Equal(t, api.ServiceNotAvailable, api.IDOf(err))
	_, _, err = b.Progress(ctx, "G", q)
	require.ErrorIs(t, err, replication.ErrNotLeader)
	require.Equal(t, api.ServiceNotAvailable, api.IDOf(err))
	_, err = b.Offset(ctx, q, api.MinOffset, time.Time{})
	require.NoError(t, err)
}

// A replicator that does not know RocketMQ's flush keys is not given them, and a
// promise that it would not keep is refused.
func TestFlushKeysOfAnotherReplicator(t *testing.T) {
	var s *replicationtest.Scripted
	_, err := newScripted(t, &s, "--set", "flushDiskType=SYNC_FLUSH")
	require.ErrorContains(t, err, "flushDiskType")
	require.ErrorContains(t, err, replicationtest.ScriptedName)
}
