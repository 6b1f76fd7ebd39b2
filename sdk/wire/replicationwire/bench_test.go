package replicationwire_test

import (
	"testing"

	"github.com/hardpointmq/hardpoint/core/replication/replicationtest"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
	"github.com/hardpointmq/hardpoint/plugins/replication/solo"
)

// BenchmarkWire is the shared benchmark over the border, both sides in one process,
// beside the same replicator without one. The store keeps nothing. Package external
// has it through a real process.
func BenchmarkWire(b *testing.B) {
	for _, h := range []replicationtest.Harness{
		{Factory: solo.NewFactory(), Form: replicationtest.InProcess},
		{Factory: wired(b, solo.NewFactory()), Form: replicationtest.Wire},
	} {
		h.NewStore = func(testing.TB, storage.Params) storage.Store { return storagetest.Nop{} }
		b.Run(h.Form, func(b *testing.B) { replicationtest.Benchmark(b, h) })
	}
}
