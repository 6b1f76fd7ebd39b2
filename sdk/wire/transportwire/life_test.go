package transportwire

import (
	"testing"

	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/internal/wiretest"
)

// TestLife: Start and Shutdown of the plugin's transport come one after the other.
func TestLife(t *testing.T) {
	type others struct{ transport.Transport }
	life := wiretest.NewStarting()
	i := newInstance()
	i.t = struct {
		*wiretest.Starting
		others
	}{Starting: life}
	close(i.ready)
	life.Check(t, i.start, i.shutdown, transport.ErrNotRunning)
}
