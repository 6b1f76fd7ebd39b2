package enginetest

import (
	"context"
	"sync"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
)

// NullStore is a store that only remembers where its log ends.
type NullStore struct {
	storagetest.Nop
	mu sync.Mutex
	st storage.State
}

// NewNullStore makes one with segments of 1 GiB.
func NewNullStore() *NullStore { return &NullStore{st: storage.State{LogID: "null", Segment: 1 << 30}} }

// State implements storage.Store.
func (n *NullStore) State() storage.State {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.st
}

// Append frees b.
func (n *NullStore) Append(_ context.Context, b *storage.Batch) error {
	n.mu.Lock()
	n.st.Tail, n.st.Published = b.End(), b.End()
	n.mu.Unlock()
	b.Done()
	return nil
}

// Sync does nothing.
func (n *NullStore) Sync(_ context.Context, end message.Position) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.st.Durable = max(n.st.Durable, end)
	return nil
}
