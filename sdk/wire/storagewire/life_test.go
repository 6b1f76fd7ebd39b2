package storagewire

import (
	"testing"

	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
	"github.com/hardpointmq/hardpoint/internal/wiretest"
)

// TestLife: Start and Shutdown of the plugin's store come one after the other.
func TestLife(t *testing.T) {
	type others struct{ storagetest.Nop }
	life := wiretest.NewStarting()
	i := newInstance()
	i.store = struct {
		*wiretest.Starting
		others
	}{Starting: life}
	close(i.ready)
	life.Check(t, i.start, i.shutdown, storage.ErrNotRunning)
}
