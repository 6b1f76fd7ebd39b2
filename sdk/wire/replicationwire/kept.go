package replicationwire

import (
	"context"
	"sync"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagemw"
	"github.com/hardpointmq/hardpoint/sdk/wire"
)

// kept are the host's errors that went to the plugin last, so that one which comes
// back is known again.
type kept struct {
	mu   sync.Mutex
	last uint64
	ring [keepErrors]error
}

// keepErrors is how many are known; an older one comes back as its text and the
// sentinels that it matches.
const keepErrors = 256

// number makes an error ready to cross.
func (k *kept) number(err error) error {
	if err == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last++
	k.ring[k.last%keepErrors] = err
	return &wire.Numbered{Err: err, Number: k.last}
}

// known is an error that came back: the plugin's text, and what it matches.
type known struct{ err, own error }

func (e *known) Error() string   { return e.err.Error() }
func (e *known) Unwrap() []error { return []error{e.err, e.own} }

// restore finds the own error in one that came from the plugin.
func (k *kept) restore(err error) error {
	n := wire.OriginOf(err)
	if n == 0 {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if n > k.last || k.last-n >= keepErrors {
		return err
	}
	return &known{err, k.ring[n%keepErrors]}
}

// keeping is the host's store as it is lent to the plugin.
type keeping struct {
	storagemw.Base
	k *kept
}

// Capabilities implements storage.Store: the facets that are lent.
func (s keeping) Capabilities() storage.Capabilities {
	c := s.Store.Capabilities()
	lent := storage.Capabilities{Survives: c.Survives}
	if c.RawLog != nil {
		lent.RawLog = keepingLog{c.RawLog, s.k}
	}
	return lent
}

// Sync implements storage.Store.
func (s keeping) Sync(ctx context.Context, end message.Position) error {
	return s.k.number(s.Store.Sync(ctx, end))
}

// Read implements storage.Store.
func (s keeping) Read(ctx context.Context, r storage.ReadRequest, c *storage.Chunk) error {
	return s.k.number(s.Store.Read(ctx, r, c))
}

// Get implements storage.Store.
func (s keeping) Get(ctx context.Context, at []message.Position, c *storage.Chunk) error {
	return s.k.number(s.Store.Get(ctx, at, c))
}

// Offsets implements storage.Store.
func (s keeping) Offsets(ctx context.Context, q []storage.OffsetQuery, a *storage.OffsetAnswers) error {
	return s.k.number(s.Store.Offsets(ctx, q, a))
}

type keepingLog struct {
	storage.RawLog
	k *kept
}

// ReadLog implements storage.RawLog.
func (l keepingLog) ReadLog(ctx context.Context, from message.Position, most int, c *storage.Chunk) error {
	return l.k.number(l.RawLog.ReadLog(ctx, from, most, c))
}
