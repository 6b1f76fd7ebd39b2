package pull

import (
	"context"

	"github.com/hardpointmq/hardpoint/core/internal/kernel"
)

// mostBeside bounds the goroutines; beyond it sessions wait for their reads.
const mostBeside = 256

// beside reads in goroutines of their own when the store is in another process. There
// a read waits for that process, and the session, which many connections may share,
// would wait with it: one read at a time would be under way.
type beside struct {
	kernel.Beside
}

func (b *beside) start(k *kernel.Kernel) func(context.Context) error {
	return func(context.Context) error {
		if k.Store.Capabilities().Reopener != nil {
			b.Most = mostBeside
		}
		return nil
	}
}
