package storagewire

import (
	"fmt"
	"sync"

	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
)

// mostEvents and mostEventBytes bound what waits while a receiver takes its time.
// Receivers must not block, so a process beyond that sends without end.
const (
	mostEvents     = 1 << 16
	mostEventBytes = 256 << 20
)

// events are those that the read connection brought, until one goroutine has
// delivered them in order: receivers may call Read, whose answer comes behind them.
type events struct {
	mu    sync.Mutex
	wait  []arrived
	bytes int           // of wait, as they came
	more  chan struct{} // has one when wait is not empty
}

// arrived is an event with its number.
type arrived struct {
	seq   uint64
	bytes int
	event
}

// put adds one that was encoded in some bytes.
func (e *events) put(a arrived) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := len(e.wait); n >= mostEvents || n > 0 && e.bytes+a.bytes > mostEventBytes {
		return fmt.Errorf("%w: %d events of %d bytes wait for delivery, and event %d came", data.ErrFrame, n, e.bytes, a.seq)
	}
	e.wait = append(e.wait, a)
	e.bytes += a.bytes
	select {
	case e.more <- struct{}{}:
	default:
	}
	return nil
}

// take gives all that wait, and takes over the memory of done.
func (e *events) take(done []arrived) []arrived {
	clear(done)
	e.mu.Lock()
	defer e.mu.Unlock()
	out := e.wait
	e.wait, e.bytes = done[:0], 0
	return out
}

// deliverEvents does so until the read connection has ended and all are delivered.
func (c *session) deliverEvents(read <-chan struct{}) {
	var list []arrived
	for last := false; !last; {
		select {
		case <-c.events.more:
		case <-read:
			last = true
		}
		list = c.events.take(list)
		for i := range list {
			c.event(list[i].seq, &list[i].event)
		}
	}
}
