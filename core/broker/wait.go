package broker

import (
	"sync"

	"github.com/hardpointmq/hardpoint/core/message"
)

// waiters wakes the typed pulls of this process when anything was published.
// They are few (embedders, tests); clients over the network wait by queue and
// tag in package pull.
type waiters struct {
	mu sync.Mutex
	c  chan struct{}
}

// arm returns a channel that is closed at the next publish.
func (w *waiters) arm() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.c == nil {
		w.c = make(chan struct{})
	}
	return w.c
}

func (w *waiters) published(message.Position, []message.Unit) {
	w.mu.Lock()
	if w.c != nil {
		close(w.c)
		w.c = nil
	}
	w.mu.Unlock()
}
