package sticky_test

import (
	"testing"

	"github.com/hardpointmq/hardpoint/core/allocate/allocatetest"
	"github.com/hardpointmq/hardpoint/internal/alloctest"
	"github.com/hardpointmq/hardpoint/plugins/allocate/sticky"
)

func harness() allocatetest.Harness {
	return allocatetest.Harness{Factory: sticky.NewFactory(), Form: "in_process", Promises: allocatetest.Promises{FewMoves: true, OnlyNeeded: true}}
}

func TestConformance(t *testing.T) { allocatetest.Run(t, harness()) }

func BenchmarkAllocate(b *testing.B) { allocatetest.Benchmark(b, harness()) }

func TestExamples(t *testing.T) { alloctest.Run(t, "testdata/examples", sticky.NewFactory()) }
