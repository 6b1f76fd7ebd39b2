package inproc_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/transport/transporttest"
	"github.com/hardpointmq/hardpoint/plugins/transport/inproc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	var n atomic.Int64
	transporttest.Run(t, transporttest.Harness{
		Factory: inproc.NewFactory(),
		Form:    "in_process",
		Address: func(testing.TB) string { return fmt.Sprintf("broker-%d", n.Add(1)) },
		Lacks:   []string{"idle", "idle_while_served"},
	})
}
