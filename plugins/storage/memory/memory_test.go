package memory_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/storage/storagemw"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
	"github.com/hardpointmq/hardpoint/plugins/storage/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func harness() storagetest.Harness {
	return storagetest.Harness{
		Factory: memory.NewFactory(),
		Lacks:   storagetest.Lacks{ProcessDeath: true, Reopen: true},
	}
}

func TestConformance(t *testing.T) {
	decorated := harness()
	decorated.Factory, decorated.Form = storagemw.Wrap(decorated.Factory, storagemw.Metrics), storagetest.Decorated
	storagetest.Run(t, harness(), decorated)
}

func BenchmarkStore(b *testing.B) { storagetest.Benchmark(b, harness()) }
