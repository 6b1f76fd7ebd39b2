package replicationwire

import (
	"testing"

	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/internal/wiretest"
)

// TestLife: Start and Shutdown of the plugin's replicator come one after the other.
func TestLife(t *testing.T) {
	type others struct{ replication.Replicator }
	life := wiretest.NewStarting()
	i := newInstance()
	defer i.cancel()
	i.rep = struct {
		*wiretest.Starting
		others
	}{Starting: life}
	life.Check(t, i.start, i.shutdown, replication.ErrNotRunning)
}
