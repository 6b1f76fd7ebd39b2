package replicationwire_test

import (
	"testing"

	"github.com/hardpointmq/hardpoint/core/replication/replicationtest"
	"github.com/hardpointmq/hardpoint/plugins/replication/solo"
)

// TestConformance runs the suite over the border. The scripted replicator is driven
// by nobody here: it publishes at once.
func TestConformance(t *testing.T) {
	for _, h := range []replicationtest.Harness{
		{Factory: wired(t, solo.NewFactory()), Form: replicationtest.Wire + "_async", Lacks: replicationtest.Lacks{Members: true, Sync: true}},
		{Factory: wired(t, solo.NewFactory()), Form: replicationtest.Wire + "_sync", Config: syncFlush, Lacks: replicationtest.Lacks{Members: true}},
		{Factory: wired(t, replicationtest.ScriptedFactory(nil)), Form: replicationtest.Wire, Lacks: replicationtest.Lacks{Members: true, Sync: true}},
	} {
		h.NewStore = newStore
		replicationtest.Run(t, h)
	}
}
