package pull

import (
	"context"
	"sync"

	"github.com/hardpointmq/hardpoint/core/internal/kernel"
)

// mostBeside bounds the goroutines; beyond it sessions wait for their reads.
const mostBeside = 256

// beside reads in goroutines of their own when the store is in another process. There
// a read waits for that process, and the session, which many connections may share,
// would wait with it: one read at a time would be under way.
type beside struct {
	distant bool

	mu      sync.Mutex
	n       int
	stopped bool
	wg      sync.WaitGroup
}

func (b *beside) start(k *kernel.Kernel) func(context.Context) error {
	return func(context.Context) error {
		b.distant = k.Store.Capabilities().Reopener != nil
		return nil
	}
}

// begin reports whether a goroutine may begin; it calls end.
func (b *beside) begin() bool {
	if !b.distant {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped || b.n == mostBeside {
		return false
	}
	b.n++
	b.wg.Add(1)
	return true
}

func (b *beside) end() {
	b.mu.Lock()
	b.n--
	b.mu.Unlock()
	b.wg.Done()
}

func (b *beside) stop(context.Context) error {
	b.mu.Lock()
	b.stopped = true
	b.mu.Unlock()
	b.wg.Wait()
	return nil
}
