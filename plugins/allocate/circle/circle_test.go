package circle_test

import (
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/hardpointmq/hardpoint/core/allocate/allocatetest"
	"github.com/hardpointmq/hardpoint/plugins/allocate/circle"
)

func harness() allocatetest.Harness {
	return allocatetest.Harness{Factory: circle.NewFactory(), Form: "in_process"}
}

func TestConformance(t *testing.T) { allocatetest.Run(t, harness()) }

func BenchmarkAllocate(b *testing.B) { allocatetest.Benchmark(b, harness()) }

// TestExamples runs the worked examples of the reference's clients: one line a
// member, its queues as broker letter and id.
func TestExamples(t *testing.T) {
	datadriven.RunTest(t, "testdata/examples", func(t *testing.T, d *datadriven.TestData) string {
		var queues, members int
		d.ScanArgs(t, "queues", &queues)
		d.ScanArgs(t, "members", &members)
		r := allocatetest.Make(queues, members)
		a, err := circle.Allocate(t.Context(), r)
		if err != nil {
			return err.Error() + "\n"
		}
		return allocatetest.Format(r, a)
	})
}
