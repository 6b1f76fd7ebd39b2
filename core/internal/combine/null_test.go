package combine_test

import (
	"context"
	"sync"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
)

// null is a store that only remembers where its log ends.
type null struct {
	storagetest.Nop
	mu sync.Mutex
	st storage.State
}

func nullStore() *null { return &null{st: storage.State{LogID: "null", Segment: 1 << 30}} }

func (n *null) State() storage.State {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.st
}

func (n *null) Append(_ context.Context, b *storage.Batch) error {
	n.mu.Lock()
	n.st.Tail, n.st.Published = b.End(), b.End()
	n.mu.Unlock()
	b.Done()
	return nil
}

func (n *null) Sync(_ context.Context, end message.Position) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.st.Durable = max(n.st.Durable, end)
	return nil
}
