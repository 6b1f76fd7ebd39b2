package storagewire_test

import (
	"testing"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
	"github.com/hardpointmq/hardpoint/plugins/storage/commitlog"
	"github.com/hardpointmq/hardpoint/plugins/storage/memory"
	"github.com/hardpointmq/hardpoint/plugins/storage/pebble"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire"
)

// TestConformance runs the suite over the wire, both halves in this process.
func TestConformance(t *testing.T) {
	all := []storage.Factory{memory.NewFactory(), pebble.NewFactory(), commitlog.NewFactory()}
	p, q := newPair(t, all...), newStreamPair(t, all...)
	storagetest.Run(t, storagetest.Harness{
		Factory: storagewire.NewFactory(memory.Name, p), Form: storagetest.Wire,
		Lacks: storagetest.Lacks{ProcessDeath: true, Reopen: true},
	}, storagetest.Harness{
		Factory: storagewire.NewFactory(memory.Name, q), Form: "stream",
		Lacks: storagetest.Lacks{ProcessDeath: true, Reopen: true},
	})
	storagetest.Run(t, storagetest.Harness{
		Factory: storagewire.NewFactory(pebble.Name, p), Form: storagetest.Wire,
		Config: plugin.Raw(`{"cacheBytes": 1048576, "memTableBytes": 1048576}`),
	}, storagetest.Harness{
		Factory: storagewire.NewFactory(pebble.Name, q), Form: "stream",
		Config: plugin.Raw(`{"cacheBytes": 1048576, "memTableBytes": 1048576}`),
	})
	storagetest.Run(t, storagetest.Harness{
		Factory: storagewire.NewFactory(commitlog.NewFactory().Name(), p), Form: storagetest.Wire,
		Config: plugin.Raw(`{"mappedFileSizeConsumeQueue": 4000, "maxHashSlotNum": 500, "maxIndexNum": 1000}`),
	}, storagetest.Harness{
		Factory: storagewire.NewFactory(commitlog.NewFactory().Name(), q), Form: "stream",
		Config: plugin.Raw(`{"mappedFileSizeConsumeQueue": 4000, "maxHashSlotNum": 500, "maxIndexNum": 1000}`),
	})
}

func BenchmarkStore(b *testing.B) {
	for name, newPair := range map[string]maker{"sockets": newPair, "stream": newStreamPair} {
		b.Run(name, func(b *testing.B) {
			storagetest.Benchmark(b, storagetest.Harness{Factory: storagewire.NewFactory(memory.Name, newPair(b, memory.NewFactory()))})
		})
	}
}
