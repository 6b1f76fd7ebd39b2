package storagetest

import (
	"context"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

var (
	_ storage.Store = Nop{}
	_ storage.Store = Err{}
)

// Nop is a store that takes everything and keeps nothing; the zero value is
// ready. It offers no facet.
type Nop struct{}

// Start implements plugin.Component.
func (Nop) Start(context.Context) error { return nil }

// Shutdown implements plugin.Component.
func (Nop) Shutdown(context.Context) error { return nil }

// State gives an empty log with segments of 1 GiB.
func (Nop) State() storage.State { return storage.State{LogID: "nop", Segment: 1 << 30} }

// Append frees b.
func (Nop) Append(_ context.Context, b *storage.Batch) error { b.Done(); return nil }

// Sync does nothing.
func (Nop) Sync(context.Context, message.Position) error { return nil }

// Read knows no queue.
func (Nop) Read(_ context.Context, _ storage.ReadRequest, c *storage.Chunk) error {
	c.Reset()
	c.Status = storage.NoMatchedLogicQueue
	return nil
}

// Get finds nothing.
func (Nop) Get(_ context.Context, at []message.Position, c *storage.Chunk) error {
	c.Reset()
	for _, p := range at {
		c.Units = append(c.Units, message.Unit{At: p})
	}
	return nil
}

// Offsets knows no queue.
func (Nop) Offsets(_ context.Context, q []storage.OffsetQuery, a *storage.OffsetAnswers) error {
	a.Answers = a.Answers[:0]
	for i := range q {
		a.Answers = append(a.Answers, storage.OffsetAnswer{Queue: q[i].Queue})
	}
	return nil
}

// Capabilities offers nothing.
func (Nop) Capabilities() storage.Capabilities { return storage.Capabilities{} }

// Err is a store of which every call but Shutdown fails with Cause.
type Err struct {
	Nop
	Cause error
}

// Start fails.
func (e Err) Start(context.Context) error { return e.Cause }

// Append frees b and fails.
func (e Err) Append(_ context.Context, b *storage.Batch) error { b.Done(); return e.Cause }

// Sync fails.
func (e Err) Sync(context.Context, message.Position) error { return e.Cause }

// Read fails.
func (e Err) Read(context.Context, storage.ReadRequest, *storage.Chunk) error { return e.Cause }

// Get fails.
func (e Err) Get(context.Context, []message.Position, *storage.Chunk) error { return e.Cause }

// Offsets fails.
func (e Err) Offsets(context.Context, []storage.OffsetQuery, *storage.OffsetAnswers) error {
	return e.Cause
}
