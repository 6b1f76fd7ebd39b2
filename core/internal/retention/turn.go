package retention

import (
	"context"
	"sync"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagemw"
)

var _ storagemw.Middleware = Turn

// Turn makes calls that change the log come one at a time, as the contract wants
// it: the replicator appends and publishes, and retention expires (where the store
// does not order that itself). It costs a lock
// that nobody else wants for each batch. A store without the facet gets floors
// instead.
func Turn(_ storage.Params, next storage.Store) storage.Store {
	c := next.Capabilities()
	if c.Retention == nil {
		return &floored{Base: storagemw.Base{Store: next}, caps: c}
	}
	t := &turn{Base: storagemw.Base{Store: next}, caps: c}
	t.caps.Retention = &turnRetention{c.Retention, t}
	if c.RawLog != nil {
		t.caps.RawLog = &turnRawLog{c.RawLog, t}
	}
	return t
}

type turn struct {
	storagemw.Base
	caps storage.Capabilities
	mu   sync.Mutex
}

func (t *turn) Capabilities() storage.Capabilities { return t.caps }

func (t *turn) Append(ctx context.Context, b *storage.Batch) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.Store.Append(ctx, b)
}

type turnRawLog struct {
	next storage.RawLog
	t    *turn
}

func (r *turnRawLog) ReadLog(ctx context.Context, from message.Position, most int, c *storage.Chunk) error {
	return r.next.ReadLog(ctx, from, most, c)
}

func (r *turnRawLog) Publish(ctx context.Context, upTo message.Position) error {
	r.t.mu.Lock()
	defer r.t.mu.Unlock()
	return r.next.Publish(ctx, upTo)
}

func (r *turnRawLog) Truncate(ctx context.Context, at message.Position) error {
	r.t.mu.Lock()
	defer r.t.mu.Unlock()
	return r.next.Truncate(ctx, at)
}

func (r *turnRawLog) Reset(ctx context.Context, first message.Position, ends []message.Unit) error {
	r.t.mu.Lock()
	defer r.t.mu.Unlock()
	return r.next.Reset(ctx, first, ends)
}

type turnRetention struct {
	next storage.Retention
	t    *turn
}

func (r *turnRetention) Segments(ctx context.Context) ([]storage.Segment, error) {
	return r.next.Segments(ctx)
}

func (r *turnRetention) Expire(ctx context.Context, first message.Position) error {
	if !r.t.caps.ExpiresBeside {
		r.t.mu.Lock()
		defer r.t.mu.Unlock()
	}
	return r.next.Expire(ctx, first)
}

func (r *turnRetention) Drop(ctx context.Context, q []message.Queue) error {
	r.t.mu.Lock()
	defer r.t.mu.Unlock()
	return r.next.Drop(ctx, q)
}
