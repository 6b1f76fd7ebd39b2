package transportwire_test

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/core/transport/transporttest"
	"github.com/hardpointmq/hardpoint/internal/wiretest"
	"github.com/hardpointmq/hardpoint/plugins/transport/inproc"
	"github.com/hardpointmq/hardpoint/plugins/transport/remoting"
	"github.com/hardpointmq/hardpoint/sdk/wire/transportwire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func anyPort(testing.TB) string { return "127.0.0.1:0" }

func tcp(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

// names gives every listener of inproc one of its own.
func names() func(testing.TB) string {
	var n atomic.Int64
	return func(testing.TB) string { return fmt.Sprintf("broker-%d", n.Add(1)) }
}

// pair is both halves in one process.
func pair(tb testing.TB, factories ...transport.Factory) *wiretest.Pair {
	tb.Helper()
	return wiretest.New(tb, transportwire.NewServer(nil, factories...))
}

// TestConformance runs the suite over the wire, both halves in this process.
func TestConformance(t *testing.T) {
	p := pair(t, remoting.NewFactory(), inproc.NewFactory())
	transporttest.Run(t, transporttest.Harness{
		Factory: transportwire.NewFactory(remoting.Name, p), Form: "wire", Address: anyPort, Bytes: tcp,
		Lacks: []string{transport.FacetMover}, // it is used between two processes, by their host
	})
	transporttest.Run(t, transporttest.Harness{
		Factory: transportwire.NewFactory(inproc.Name, p), Form: "wire", Address: names(),
		Lacks: []string{"idle", "idle_while_served", transport.FacetMover}, // as in process
	})
}

func BenchmarkTransport(b *testing.B) {
	transporttest.Benchmark(b, transporttest.Harness{Factory: transportwire.NewFactory(remoting.Name, pair(b, remoting.NewFactory())), Address: anyPort})
}
