package broker_test

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/broker"
	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagemw"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/core/wiring"
	"github.com/hardpointmq/hardpoint/plugins/replication/solo"
	"github.com/hardpointmq/hardpoint/plugins/storage/memory"
	"github.com/hardpointmq/hardpoint/plugins/transport/remoting"
)

// later is the system's clock, moved on.
type later struct {
	plugin.SystemClock
	by atomic.Int64
}

func (l *later) Now() time.Time { return time.Now().Add(time.Duration(l.by.Load())) }

// A disk, or the process of a store, that hangs is no state in which to be sent
// clients.
func TestNotReadyWhileTheLogHangs(t *testing.T) {
	var armed atomic.Bool
	in, out := make(chan struct{}), make(chan struct{})
	hang := storagemw.Faults(func(_ context.Context, c storagemw.Call) error {
		if c.Op == storagemw.OpAppend && !c.Done && armed.CompareAndSwap(true, false) {
			close(in)
			<-out
		}
		return nil
	})
	fs := pflag.NewFlagSet("broker", pflag.ContinueOnError)
	config.RegisterFlags(fs)
	require.NoError(t, fs.Parse([]string{"--data", t.TempDir(), "--listen", "127.0.0.1:0", "--storage", memory.NewFactory().Name()}))
	l, err := config.Load(config.Options{Mode: config.Broker, Flags: fs, Hostname: "broker-a"})
	require.NoError(t, err)
	plugins, err := wiring.NewPlugins([]storage.Factory{storagemw.Wrap(memory.NewFactory(), hang)}, nil,
		[]replication.Factory{solo.NewFactory()}, []transport.Factory{remoting.NewFactory()})
	require.NoError(t, err)
	clock := &later{}
	b, err := broker.New(t.Context(), broker.Params{Config: &l.Config, Loaded: l, Plugins: plugins, Settings: plugin.Settings{Clock: clock}})
	require.NoError(t, err)
	require.NoError(t, b.Start(t.Context()))
	defer func() { require.NoError(t, b.Shutdown(context.Background())) }()

	c, err := net.Dial("tcp", b.Address())
	require.NoError(t, err)
	defer c.Close()
	send := func() {
		_, err := c.Write(sendFrame("T", 0, []byte("x")))
		require.NoError(t, err)
	}
	send()
	_, err = readFrame(c)
	require.NoError(t, err)
	require.NoError(t, b.Ready())

	armed.Store(true)
	send()
	<-in
	require.NoError(t, b.Ready(), "a slow log is none that hangs")
	clock.by.Store(int64(15 * time.Second))
	require.ErrorContains(t, b.Ready(), "the log hangs: store memory")
	close(out)
	_, err = readFrame(c)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return b.Ready() == nil }, time.Minute, time.Millisecond)
}

// sometimes is a transport that may be away.
type sometimes struct {
	transport.Transport
	away *atomic.Pointer[error]
}

func (s sometimes) Capabilities() transport.Capabilities {
	c := s.Transport.Capabilities()
	c.Health = s
	return c
}

func (s sometimes) Serving() error {
	if why := s.away.Load(); why != nil {
		return *why
	}
	return nil
}

// A broker that no client reaches is none to send clients to. What listens beside the
// client port is another matter.
func TestNotReadyWhileTheClientPortIsAway(t *testing.T) {
	var client, beside atomic.Pointer[error]
	mayLeave := func(name string, away *atomic.Pointer[error]) transport.Factory {
		f := remoting.NewFactory()
		return plugin.NewRawFactory(name, f.Describe, func(ctx context.Context, p transport.Params, raw plugin.Raw) (transport.Transport, error) {
			tr, err := f.Build(ctx, p, raw)
			return sometimes{tr, away}, err
		})
	}
	p := configured(t, "transport=first", "listen=127.0.0.1:0", "moreListeners=second://127.0.0.1:0")
	var err error
	p.Plugins, err = wiring.NewPlugins([]storage.Factory{memory.NewFactory()}, nil, []replication.Factory{solo.NewFactory()},
		[]transport.Factory{mayLeave("first", &client), mayLeave("second", &beside)})
	require.NoError(t, err)
	b, err := broker.New(t.Context(), p)
	require.NoError(t, err)
	require.NoError(t, b.Start(t.Context()))
	defer func() { require.NoError(t, b.Shutdown(context.Background())) }()
	require.NoError(t, b.Ready())

	gone := fmt.Errorf("%w: it is away", plugin.ErrUnavailable)
	beside.Store(&gone)
	require.NoError(t, b.Ready())
	client.Store(&gone)
	require.EqualError(t, b.Ready(), "the client port is away: "+gone.Error())
	client.Store(nil)
	require.NoError(t, b.Ready())
}
