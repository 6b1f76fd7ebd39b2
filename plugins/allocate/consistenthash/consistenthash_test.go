package consistenthash_test

import (
	"testing"

	"github.com/hardpointmq/hardpoint/core/allocate/allocatetest"
	"github.com/hardpointmq/hardpoint/internal/alloctest"
	"github.com/hardpointmq/hardpoint/plugins/allocate/consistenthash"
)

func harness() allocatetest.Harness {
	return allocatetest.Harness{Factory: consistenthash.NewFactory(), Form: "in_process", Lacks: allocatetest.Lacks{Balance: true}, Promises: allocatetest.Promises{OnlyNeeded: true}}
}

func TestConformance(t *testing.T) { allocatetest.Run(t, harness()) }

func BenchmarkAllocate(b *testing.B) { allocatetest.Benchmark(b, harness()) }

func TestExamples(t *testing.T) { alloctest.Run(t, "testdata/examples", consistenthash.NewFactory()) }

// TestJava: the shares are those of the official client.
func TestJava(t *testing.T) { alloctest.Run(t, "testdata/java", consistenthash.NewFactory()) }
