package storagewire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
)

// logConn carries the calls that change the log, one at a time. The caller
// itself writes the request and reads the answer: no goroutine is woken between.
// It is used with store.log held.
type logConn struct {
	send   data.Sender
	in     *data.Reader
	out    []byte
	topics data.TopicWriter
	line   data.Line
	// version is that of the last marks that came.
	version uint64
	owed    atomic.Uint32 // kind of the call that the plugin has not answered; 0: none
}

func (l *logConn) open(c io.ReadWriteCloser) {
	l.line.Owes = l.owes
	l.send.Conn, l.in = c, data.NewReader(l.line.Hear(c), kindEvent)
}

func (l *logConn) owes() string { return due(data.Kind(l.owed.Load())) }

// Append implements storage.Store.
func (s *store) Append(ctx context.Context, b *storage.Batch) error {
	s.log.Lock()
	defer s.log.Unlock()
	c, err := s.writing(ctx)
	var left int64
	if err == nil {
		left, err = data.Left(ctx)
	}
	if err != nil {
		b.Done()
		return err
	}
	end := b.End()
	s.st.Lock()
	s.st.ack.written = max(s.st.ack.written, end)
	s.st.Unlock()
	s.pend.Lock()
	s.pend.queue.push(waiting{end, b.Units, b})
	s.pend.Unlock()
	c.log.out = data.PutBatch(data.Begin(c.log.out[:0]), &c.log.topics, b)
	must := promise{least: end, most: end}
	if s.p.Publish == storage.Immediate {
		must.published = end
	}
	err = c.exchange(kindAppend, c.read.last.Add(1), left, b.Buf, &must)
	if err != nil {
		s.takeBack(b, c.cause.Load() != nil)
		return err
	}
	s.st.Lock()
	s.st.ack.tail = max(s.st.ack.tail, end)
	if s.p.Publish == storage.Immediate {
		s.st.ack.published = max(s.st.ack.published, end)
	}
	s.st.Unlock()
	return nil
}

// takeBack frees the batch of a failed Append; it may be in the log all the same
// when the process died over it.
func (s *store) takeBack(b *storage.Batch, died bool) {
	s.pend.Lock()
	list := s.pend.queue.all()
	n := len(list) - 1
	mine := n >= 0 && list[n].batch == b
	if mine {
		if died {
			s.keep(list[n].units)
		}
		s.pend.queue.cut(n)
	}
	s.pend.Unlock()
	if mine {
		b.Done()
	}
}

// damageTime bounds asking for the list of damage within a call that changes the log.
const damageTime = 5 * time.Second

// exchange sends the request in log.out, followed by tail, and waits for the
// answer; store.log is held. Events that belong to the call have returned then, and
// the log is as the call must have left it.
func (c *session) exchange(k data.Kind, id uint64, left int64, tail []byte, must *promise) error {
	l := &c.log
	data.Finish(l.out, 0, k, id, left, len(tail))
	l.owed.Store(uint32(k))
	defer l.owed.Store(0)
	var err error
	if len(tail) > 0 {
		err = l.send.Send(l.out, tail)
	} else {
		err = l.send.Send(l.out)
	}
	if cap(l.out) > data.KeepSize {
		l.out = nil
	}
	if err != nil {
		return c.gone(err)
	}
	for {
		h, body, err := l.in.Next()
		if err != nil {
			return c.gone(err)
		}
		l.owed.Store(0) // what receivers of events take is not the plugin's
		if h.Kind == kindEvent {
			e, err := readEvent(body)
			if err != nil {
				return c.gone(err)
			}
			c.event(h.ID, &e)
			l.owed.Store(uint32(k))
			continue
		}
		o, err := readOutcome(body)
		if err == nil && (h.Kind != kindDone || h.ID != id) {
			err = fmt.Errorf("%w: answer %d of kind %d to call %d", data.ErrFrame, h.ID, h.Kind, id)
		}
		if err == nil && o.err == nil {
			err = c.believe(k, &o, must)
		}
		if err != nil {
			return c.gone(err)
		}
		stale := c.note(&o.marks)
		if o.own != 0 && !c.deliverOwn(o.own, o.upTo) {
			if why := c.lost(); why != nil {
				return why // what it published is told when the store is open again
			}
		}
		if why := c.lost(); o.err != nil && why != nil {
			return why // one that is given up ends its calls, and may still get to say so
		}
		if o.err == nil {
			if err := c.hasTold(k, must.published); err != nil {
				return err
			}
		}
		if stale {
			// The caller's context may end, and the list is asked for all the same; but
			// nobody waits for a plugin that keeps it, nor Shutdown, which needs the log.
			ctx, stop := context.WithTimeout(c.s.ctx, damageTime)
			c.refresh(ctx)
			stop()
		}
		return writeError(o.err)
	}
}

// believe holds the answer of a call that succeeded against what it must have done.
func (c *session) believe(k data.Kind, o *outcome, must *promise) error {
	if err := must.kept(k, &o.marks); err != nil {
		return err
	}
	if o.marks.version <= c.log.version {
		return lie("marks of version %d after those of version %d", o.marks.version, c.log.version)
	}
	c.log.version = o.marks.version
	return nil
}

// hasTold is an error when what a call published was not told: nobody would hear of
// it, and its batches were kept for ever.
func (c *session) hasTold(k data.Kind, published message.Position) error {
	s := c.s
	s.told.Lock()
	upTo := s.told.upTo
	s.told.Unlock()
	if upTo >= published {
		return nil
	}
	if why := c.lost(); why != nil {
		return why // it is told when the store is open again
	}
	return c.gone(lie("%s published up to %d, and no event told of more than %d", names[k], published, upTo))
}

// writeError is the other end's word on a write. plugin.ErrUnavailable by itself
// would be taken for the end of a process.
func writeError(err error) error {
	if errors.Is(err, plugin.ErrUnavailable) && !errors.Is(err, storage.ErrFailed) {
		return fmt.Errorf("%w: %w", storage.ErrFailed, err)
	}
	return err
}

// change does a call whose body is in log.out; store.log is held. When ctx ends,
// the plugin is told, and what it says is the outcome.
func (c *session) change(ctx context.Context, k data.Kind, must promise) error {
	left, err := data.Left(ctx)
	if err != nil {
		return err
	}
	id := c.read.last.Add(1)
	if ctx.Done() != nil && k != kindPublish { // which waits for nobody
		stop := context.AfterFunc(ctx, func() { c.read.cancel(id, cancelLog) })
		defer stop()
	}
	return wire.OfCall(ctx, c.exchange(k, id, left, nil, &must))
}

// rawLog is the facet.
type rawLog struct{ s *store }

// ReadLog implements storage.RawLog.
func (r rawLog) ReadLog(ctx context.Context, from message.Position, most int, c *storage.Chunk) error {
	on, err := r.s.serving(ctx)
	if err != nil {
		c.Reset()
		return err
	}
	return on.read.ReadLog(ctx, from, most, c)
}

// Publish implements storage.RawLog.
func (r rawLog) Publish(ctx context.Context, upTo message.Position) error {
	return r.s.move(ctx, kindPublish, upTo, promise{least: upTo, most: mostLog, published: upTo})
}

// Truncate implements storage.RawLog.
func (r rawLog) Truncate(ctx context.Context, at message.Position) error {
	return r.s.move(ctx, kindTruncate, at, promise{most: at})
}

// move does the calls whose argument is a position.
func (s *store) move(ctx context.Context, k data.Kind, at message.Position, must promise) error {
	s.log.Lock()
	defer s.log.Unlock()
	c, err := s.writing(ctx)
	if err != nil {
		return err
	}
	if k == kindTruncate {
		s.intend(&at, nil)
	}
	c.log.out = data.PutInt(data.Begin(c.log.out[:0]), at)
	err = c.change(ctx, k, must)
	s.settle(c, func(a *acked) {
		switch {
		case err != nil:
		case k == kindPublish:
			a.published = max(a.published, at)
		case k == kindTruncate:
			a.cut(at)
		}
	})
	if err == nil && k == kindTruncate {
		s.free(at)
	}
	return err
}

// intend notes what a call that cuts the log is about to do.
func (s *store) intend(cut, reset *message.Position) {
	s.st.Lock()
	defer s.st.Unlock()
	s.st.ack.cutting, s.st.ack.resetting = cut, reset
}

// settle notes what a call did, if its process lived to say so.
func (s *store) settle(c *session, f func(*acked)) {
	if c.cause.Load() != nil {
		return
	}
	s.st.Lock()
	defer s.st.Unlock()
	f(&s.st.ack)
	s.st.ack.cutting, s.st.ack.resetting = nil, nil
}

// Reset implements storage.RawLog.
func (r rawLog) Reset(ctx context.Context, first message.Position, ends []message.Unit) error {
	s := r.s
	s.log.Lock()
	defer s.log.Unlock()
	c, err := s.writing(ctx)
	if err != nil {
		return err
	}
	s.intend(nil, &first)
	c.log.out = data.PutEnds(data.PutInt(data.Begin(c.log.out[:0]), first), ends)
	err = c.change(ctx, kindReset, promise{least: first, most: first})
	s.settle(c, func(a *acked) {
		if err == nil {
			*a = acked{tail: first, published: first, synced: first, written: first}
		}
	})
	if err == nil {
		s.free(0)
	}
	return err
}
