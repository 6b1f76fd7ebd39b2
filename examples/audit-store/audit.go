package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagemw"
)

// line is what is written about a change: when, what, where in the log, how much,
// and how it went.
type line struct {
	Time    int64            `json:"time"` // ms
	Store   string           `json:"store"`
	Op      storagemw.Op     `json:"op"`
	At      message.Position `json:"at"`
	Bytes   int              `json:"bytes,omitempty"`
	Records map[string]int   `json:"records,omitempty"` // by topic
	Queues  []message.Queue  `json:"queues,omitempty"`
	Error   string           `json:"error,omitempty"`
}

// Audit makes a decorator of any store that writes a line to w for each change.
// One writer may serve many stores. When a line cannot be written the stores are
// read-only from then on: a change that nobody hears of is worse than none.
func Audit(w io.Writer) storagemw.Middleware {
	a := &auditor{w: w}
	return func(p storage.Params, next storage.Store) storage.Store {
		t := trail{auditor: a, store: p.Name, clock: p.WithDefaults().Clock}
		s := &store{Base: storagemw.Base{Store: next}, trail: t}
		// Each facet that the store offers is offered, and the ones that change
		// something are wrapped.
		c := next.Capabilities()
		s.caps = storage.Capabilities{KeyIndex: c.KeyIndex, Reopener: c.Reopener, Survives: c.Survives, ExpiresBeside: c.ExpiresBeside}
		if c.RawLog != nil {
			s.caps.RawLog = &rawLog{c.RawLog, t}
		}
		if c.Retention != nil {
			s.caps.Retention = &retention{c.Retention, t}
		}
		return s
	}
}

type auditor struct {
	mu     sync.Mutex
	w      io.Writer
	broken error
}

// trail is where one store writes.
type trail struct {
	*auditor
	store string
	clock plugin.Clock
}

// change makes one, and writes the line about it.
func (t *trail) change(l line, do func() error) error {
	t.mu.Lock()
	broken := t.broken
	t.mu.Unlock()
	if broken != nil {
		return fmt.Errorf("%w: the audit trail cannot be written: %w", storage.ErrReadOnly, broken)
	}
	err := do()
	l.Time, l.Store = t.clock.Now().UnixMilli(), t.store
	if err != nil {
		l.Error = err.Error()
	}
	b, fault := json.Marshal(l)
	t.mu.Lock()
	defer t.mu.Unlock()
	if fault == nil {
		_, fault = t.w.Write(append(b, '\n'))
	}
	if fault != nil && t.broken == nil {
		t.broken = fault
	}
	return err
}

type store struct {
	storagemw.Base
	trail
	caps storage.Capabilities
}

// Capabilities offers what the store does.
func (s *store) Capabilities() storage.Capabilities { return s.caps }

// Append writes how many records of which topics.
func (s *store) Append(ctx context.Context, b *storage.Batch) error {
	l := line{Op: storagemw.OpAppend, At: b.At, Bytes: len(b.Buf), Records: map[string]int{}}
	for i := range b.Units { // now: they are lent until the store frees them
		l.Records[b.Units[i].Queue.Topic]++
	}
	passed := false
	err := s.change(l, func() error {
		passed = true
		return s.Store.Append(ctx, b)
	})
	if !passed {
		b.Done() // an Append that fails frees its batch, which the store has not seen
	}
	return err
}

type rawLog struct {
	storage.RawLog
	trail
}

func (r *rawLog) Publish(ctx context.Context, upTo message.Position) error {
	return r.change(line{Op: storagemw.OpPublish, At: upTo}, func() error { return r.RawLog.Publish(ctx, upTo) })
}

func (r *rawLog) Truncate(ctx context.Context, at message.Position) error {
	return r.change(line{Op: storagemw.OpTruncate, At: at}, func() error { return r.RawLog.Truncate(ctx, at) })
}

func (r *rawLog) Reset(ctx context.Context, first message.Position, ends []message.Unit) error {
	return r.change(line{Op: storagemw.OpReset, At: first}, func() error { return r.RawLog.Reset(ctx, first, ends) })
}

type retention struct {
	storage.Retention
	trail
}

func (r *retention) Expire(ctx context.Context, first message.Position) error {
	return r.change(line{Op: storagemw.OpExpire, At: first}, func() error { return r.Retention.Expire(ctx, first) })
}

func (r *retention) Drop(ctx context.Context, q []message.Queue) error {
	return r.change(line{Op: storagemw.OpDrop, Queues: q}, func() error { return r.Retention.Drop(ctx, q) })
}
