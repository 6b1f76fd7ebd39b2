package broker_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/broker"
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/core/transport/transportmw"
	"github.com/hardpointmq/hardpoint/core/wiring"
	"github.com/hardpointmq/hardpoint/internal/rpc"
	"github.com/hardpointmq/hardpoint/plugins/replication/solo"
	"github.com/hardpointmq/hardpoint/plugins/storage/memory"
	"github.com/hardpointmq/hardpoint/plugins/transport/inproc"
	"github.com/hardpointmq/hardpoint/plugins/transport/remoting"
)

// deafName is a transport without a Dialer.
const deafName = "deaf"

func deaf() transport.Factory {
	return transport.NewFactory(deafName,
		func(struct{}) plugin.Description { return plugin.Description{} },
		func() struct{} { return struct{}{} },
		func(ctx context.Context, p transport.Params, _ struct{}) (transportmw.Base, error) {
			t, err := remoting.NewFactory().Build(ctx, p, nil)
			return transportmw.Base{Transport: t}, err
		})
}

// configured is what a broker in memory with these keys and the transports of this
// test is made of.
func configured(t *testing.T, set ...string) broker.Params {
	t.Helper()
	fs := pflag.NewFlagSet("broker", pflag.ContinueOnError)
	config.RegisterFlags(fs)
	args := []string{"--data", t.TempDir()}
	if !slices.ContainsFunc(set, func(kv string) bool { return strings.HasPrefix(kv, "storage=") }) {
		args = append(args, "--storage", memory.Name)
	}
	for _, kv := range set {
		args = append(args, "--set", kv)
	}
	require.NoError(t, fs.Parse(args))
	l, err := config.Load(config.Options{Mode: config.Broker, Flags: fs, Hostname: "broker-a"})
	require.NoError(t, err)
	plugins, err := wiring.NewPlugins([]storage.Factory{memory.NewFactory()}, nil, []replication.Factory{solo.NewFactory()},
		[]transport.Factory{remoting.NewFactory(), inproc.NewFactory(), deaf()})
	require.NoError(t, err)
	return broker.Params{Config: &l.Config, Loaded: l, Plugins: plugins}
}

// TestTransportsBesideEachOther: each listener has its own transport, and all of
// them the same broker.
func TestTransportsBesideEachOther(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	second := free.Addr().String()
	require.NoError(t, free.Close())
	b, err := broker.New(t.Context(), configured(t, "transport=deaf", "listen=127.0.0.1:0", "moreListeners=inproc://the-broker;deaf://127.0.0.1:0;remoting://"+second))
	require.NoError(t, err)
	require.NoError(t, b.Start(t.Context()))
	defer func() { require.NoError(t, b.Shutdown(context.Background())) }()
	tr, err := remoting.NewFactory().Build(t.Context(), transport.Params{}, nil)
	require.NoError(t, err)
	require.NoError(t, tr.Start(t.Context()))
	for _, address := range []string{b.Address(), second} {
		c, err := rpc.Dial(t.Context(), tr.Capabilities().Dialer, address, rpc.Options{})
		require.NoError(t, err, address)
		_, err = call(t.Context(), c, command.ReqHeartBeat, enginetest.Heartbeat("a", "G", 1, "T"))
		require.NoError(t, err, address)
		require.NoError(t, c.Close())
		<-c.Done()
	}
	require.NoError(t, tr.Shutdown(t.Context()))
}

// TestTransportsRefused: what cannot be is said by name, with the place.
func TestTransportsRefused(t *testing.T) {
	for set, want := range map[string][]string{
		"transport=remotng":             {"--set", `there is no transport plugin "remotng"; known are deaf, inproc, remoting; did you mean remoting?`},
		"moreListeners=tape://:1":       {"--set", `there is no transport plugin "tape"`},
		"plugins.transport.inproc.x=1":  nil, // known, and not in use: nobody decodes it
		"plugins.transport.innproc.x=1": {`there is no transport plugin "innproc"`, "did you mean inproc?"},
	} {
		p := configured(t, set)
		err := errors.Join(broker.CheckPlugins(t.Context(), p.Config, p.Plugins)...)
		if want == nil {
			require.NoError(t, err, set)
		}
		for _, w := range want {
			require.ErrorContains(t, err, w)
		}
	}
	p := configured(t, "transport=deaf", "namesrvAddr=127.0.0.1:1")
	_, err := broker.New(t.Context(), p)
	require.ErrorContains(t, err, "transport deaf offers no Dialer, without which the broker cannot register with name servers")

	p = configured(t, "listen=127.0.0.1:0", "transport=deaf")
	p.NameServers = func() []string { return []string{"127.0.0.1:1"} }
	b, err := broker.New(t.Context(), p)
	require.NoError(t, err)
	require.ErrorContains(t, b.Start(t.Context()), "transport deaf offers no Dialer")

	b, err = broker.New(t.Context(), configured(t, "listen=127.0.0.1:0", "moreListeners=remoting://256.0.0.1:1"))
	require.NoError(t, err)
	require.ErrorContains(t, b.Start(t.Context()), "moreListeners remoting://256.0.0.1:1: ")
}

// TestNeedsAreRefusedByName: the same words in a broker of one's own, whose plugins
// are in its process.
func TestNeedsAreRefusedByName(t *testing.T) {
	p := configured(t, "storage=acme", "flushDiskType=SYNC_FLUSH")
	acme := storage.NewFactory("acme", func(struct{}) plugin.Description { return plugin.Description{} },
		func() struct{} { return struct{}{} },
		func(context.Context, storage.Params, struct{}) (storagetest.Nop, error) {
			return storagetest.Nop{}, nil
		})
	var err error
	p.Plugins, err = wiring.NewPlugins([]storage.Factory{acme}, nil, []replication.Factory{solo.NewFactory()}, []transport.Factory{remoting.NewFactory()})
	require.NoError(t, err)
	_, err = broker.New(t.Context(), p)
	require.ErrorContains(t, err, "replication solo needs the storage facet RawLog, storage acme offers none; choose another one of the two")
}
