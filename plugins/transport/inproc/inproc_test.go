package inproc_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/core/transport/transporttest"
	"github.com/hardpointmq/hardpoint/plugins/transport/inproc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func harness() transporttest.Harness {
	var n atomic.Int64
	return transporttest.Harness{
		Factory: inproc.NewFactory(),
		Form:    "in_process",
		Address: func(testing.TB) string { return fmt.Sprintf("broker-%d", n.Add(1)) },
		Lacks:   []string{"idle", "idle_while_served", transport.FacetMover},
	}
}

func TestConformance(t *testing.T) {
	transporttest.Run(t, harness())
}

func BenchmarkTransport(b *testing.B) { transporttest.Benchmark(b, harness()) }
