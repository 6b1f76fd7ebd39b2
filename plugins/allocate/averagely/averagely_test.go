package averagely_test

import (
	"testing"

	"github.com/hardpointmq/hardpoint/core/allocate/allocatetest"
	"github.com/hardpointmq/hardpoint/internal/alloctest"
	"github.com/hardpointmq/hardpoint/plugins/allocate/averagely"
)

func harness() allocatetest.Harness {
	return allocatetest.Harness{Factory: averagely.NewFactory(), Form: "in_process"}
}

func TestConformance(t *testing.T) { allocatetest.Run(t, harness()) }

func BenchmarkAllocate(b *testing.B) { allocatetest.Benchmark(b, harness()) }

// TestExamples runs the worked examples of the reference's clients.
func TestExamples(t *testing.T) { alloctest.Run(t, "testdata/examples", averagely.NewFactory()) }
