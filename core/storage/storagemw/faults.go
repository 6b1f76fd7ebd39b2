package storagemw

import (
	"context"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// Op names a call of a store or of one of its facets.
type Op string

// Calls that a Hook meets.
const (
	OpStart    Op = "Start"
	OpAppend   Op = "Append"
	OpSync     Op = "Sync"
	OpRead     Op = "Read"
	OpGet      Op = "Get"
	OpOffsets  Op = "Offsets"
	OpReadLog  Op = "ReadLog"
	OpPublish  Op = "Publish"
	OpTruncate Op = "Truncate"
	OpReset    Op = "Reset"
	OpSegments Op = "Segments"
	OpExpire   Op = "Expire"
	OpDrop     Op = "Drop"
	OpFind     Op = "Find"
	OpReopened Op = "Reopened"
)

// Call is what a Hook is asked about.
type Call struct {
	Op Op
	// At is the position that the call is about: of the batch, the end to sync,
	// the mark, the cut; 0 for calls without one.
	At message.Position
	// Done is false before the store is called, true after it succeeded.
	Done bool
}

// Hook decides about calls: it may block to make one slow, and return an error
// to make it fail, before the store has seen it or after. It is called by many
// goroutines.
type Hook func(ctx context.Context, c Call) error

// Faults makes a Middleware that asks hook about every call but State,
// Capabilities and Shutdown. An Append that fails before the store frees its
// batch, as a store would.
func Faults(hook Hook) Middleware {
	return func(_ storage.Params, next storage.Store) storage.Store {
		f := &faults{Base: Base{next}, hook: hook}
		c := next.Capabilities()
		f.caps.Survives, f.caps.ExpiresBeside = c.Survives, c.ExpiresBeside
		if c.RawLog != nil {
			f.caps.RawLog = &rawLogFaults{c.RawLog, hook}
		}
		if c.Retention != nil {
			f.caps.Retention = &retentionFaults{c.Retention, hook}
		}
		if c.KeyIndex != nil {
			f.caps.KeyIndex = &keyIndexFaults{c.KeyIndex, hook}
		}
		if c.Reopener != nil {
			f.caps.Reopener = &reopenerFaults{c.Reopener, hook}
		}
		return f
	}
}

// around asks before and after a call.
func (h Hook) around(ctx context.Context, op Op, at message.Position, call func() error) error {
	if err := h(ctx, Call{Op: op, At: at}); err != nil {
		return err
	}
	if err := call(); err != nil {
		return err
	}
	return h(ctx, Call{Op: op, At: at, Done: true})
}

type faults struct {
	Base
	hook Hook
	caps storage.Capabilities
}

func (f *faults) Capabilities() storage.Capabilities { return f.caps }

func (f *faults) Start(ctx context.Context) error {
	if err := f.hook(ctx, Call{Op: OpStart}); err != nil {
		return err
	}
	return f.Store.Start(ctx)
}

func (f *faults) Append(ctx context.Context, b *storage.Batch) error {
	at := b.At
	if err := f.hook(ctx, Call{Op: OpAppend, At: at}); err != nil {
		b.Done()
		return err
	}
	if err := f.Store.Append(ctx, b); err != nil {
		return err
	}
	return f.hook(ctx, Call{Op: OpAppend, At: at, Done: true})
}

func (f *faults) Sync(ctx context.Context, end message.Position) error {
	return f.hook.around(ctx, OpSync, end, func() error { return f.Store.Sync(ctx, end) })
}

func (f *faults) Read(ctx context.Context, r storage.ReadRequest, c *storage.Chunk) error {
	return f.hook.around(ctx, OpRead, 0, func() error { return f.Store.Read(ctx, r, c) })
}

func (f *faults) Get(ctx context.Context, at []message.Position, c *storage.Chunk) error {
	return f.hook.around(ctx, OpGet, 0, func() error { return f.Store.Get(ctx, at, c) })
}

func (f *faults) Offsets(ctx context.Context, q []storage.OffsetQuery, a *storage.OffsetAnswers) error {
	return f.hook.around(ctx, OpOffsets, 0, func() error { return f.Store.Offsets(ctx, q, a) })
}

type rawLogFaults struct {
	next storage.RawLog
	hook Hook
}

func (f *rawLogFaults) ReadLog(ctx context.Context, from message.Position, most int, c *storage.Chunk) error {
	return f.hook.around(ctx, OpReadLog, from, func() error { return f.next.ReadLog(ctx, from, most, c) })
}

func (f *rawLogFaults) Publish(ctx context.Context, upTo message.Position) error {
	return f.hook.around(ctx, OpPublish, upTo, func() error { return f.next.Publish(ctx, upTo) })
}

func (f *rawLogFaults) Truncate(ctx context.Context, at message.Position) error {
	return f.hook.around(ctx, OpTruncate, at, func() error { return f.next.Truncate(ctx, at) })
}

func (f *rawLogFaults) Reset(ctx context.Context, first message.Position, ends []message.Unit) error {
	return f.hook.around(ctx, OpReset, first, func() error { return f.next.Reset(ctx, first, ends) })
}

type retentionFaults struct {
	next storage.Retention
	hook Hook
}

func (f *retentionFaults) Segments(ctx context.Context) (out []storage.Segment, err error) {
	err = f.hook.around(ctx, OpSegments, 0, func() error {
		out, err = f.next.Segments(ctx)
		return err
	})
	return out, err
}

func (f *retentionFaults) Expire(ctx context.Context, first message.Position) error {
	return f.hook.around(ctx, OpExpire, first, func() error { return f.next.Expire(ctx, first) })
}

func (f *retentionFaults) Drop(ctx context.Context, q []message.Queue) error {
	return f.hook.around(ctx, OpDrop, 0, func() error { return f.next.Drop(ctx, q) })
}

type keyIndexFaults struct {
	next storage.KeyIndex
	hook Hook
}

func (f *keyIndexFaults) Find(ctx context.Context, q storage.KeyQuery, at []message.Position) (out []message.Position, err error) {
	err = f.hook.around(ctx, OpFind, 0, func() error {
		out, err = f.next.Find(ctx, q, at)
		return err
	})
	return out, err
}

// reopenerFaults leaves Gone alone: it tells of something, and does nothing.
type reopenerFaults struct {
	storage.Reopener
	hook Hook
}

func (f *reopenerFaults) Reopened(ctx context.Context) error {
	return f.hook.around(ctx, OpReopened, 0, func() error { return f.Reopener.Reopened(ctx) })
}
