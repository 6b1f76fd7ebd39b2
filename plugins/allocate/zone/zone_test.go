package zone_test

import (
	"testing"

	"github.com/hardpointmq/hardpoint/core/allocate/allocatetest"
	"github.com/hardpointmq/hardpoint/internal/alloctest"
	"github.com/hardpointmq/hardpoint/plugins/allocate/zone"
)

func harness() allocatetest.Harness {
	return allocatetest.Harness{Factory: zone.NewFactory(), Form: "in_process", Lacks: allocatetest.Lacks{Balance: true}, Promises: allocatetest.Promises{Weights: true, Zones: true}}
}

func TestConformance(t *testing.T) { allocatetest.Run(t, harness()) }

func BenchmarkAllocate(b *testing.B) { allocatetest.Benchmark(b, harness()) }

func TestExamples(t *testing.T) { alloctest.Run(t, "testdata/examples", zone.NewFactory()) }
