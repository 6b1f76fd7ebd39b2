package storagewire

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
)

// logConn carries the calls that change the log, one at a time. The caller
// itself writes the request and reads the answer: no goroutine is woken between.
type logConn struct {
	mu     sync.Mutex
	send   data.Sender
	in     *data.Reader
	out    []byte
	topics data.TopicWriter
}

func (l *logConn) open(c io.ReadWriteCloser) {
	l.send.Conn, l.in = c, data.NewReader(c, kindEvent)
}

// timeout is what remains of a context's time, 0 without a deadline.
func timeout(ctx context.Context) (int64, error) {
	d, ok := ctx.Deadline()
	if !ok {
		return 0, nil
	}
	left := time.Until(d)
	if left <= 0 {
		return 0, context.DeadlineExceeded
	}
	return int64(left), nil
}

// Append implements storage.Store.
func (s *store) Append(ctx context.Context, b *storage.Batch) error {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	err := s.running(ctx)
	var left int64
	if err == nil {
		left, err = timeout(ctx)
	}
	if err != nil {
		b.Done()
		return writeError(err)
	}
	s.pend.Lock()
	s.pend.list = append(s.pend.list, waiting{b.End(), b.Units, b})
	s.pend.Unlock()
	s.log.out = data.PutBatch(data.Begin(s.log.out[:0]), &s.log.topics, b)
	if err := s.exchange(kindAppend, s.last.Add(1), left, b.Buf); err != nil {
		s.takeBack(b)
		return err
	}
	return nil
}

// takeBack frees the batch of a failed Append.
func (s *store) takeBack(b *storage.Batch) {
	s.pend.Lock()
	n := len(s.pend.list)
	mine := n > 0 && s.pend.list[n-1].batch == b
	if mine {
		s.pend.list[n-1] = waiting{}
		s.pend.list = s.pend.list[:n-1]
	}
	s.pend.Unlock()
	if mine {
		b.Done()
	}
}

// exchange sends the request in log.out, followed by tail, and waits for the
// answer; log.mu is held. Events that belong to the call have returned then.
func (s *store) exchange(k data.Kind, id uint64, left int64, tail []byte) error {
	l := &s.log
	data.Finish(l.out, 0, k, id, left, len(tail))
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
		return writeError(s.gone(err))
	}
	for {
		h, body, err := l.in.Next()
		if err != nil {
			return writeError(s.gone(err))
		}
		if h.Kind == kindEvent {
			e, err := readEvent(body)
			if err != nil {
				return writeError(s.gone(err))
			}
			s.event(h.ID, &e)
			continue
		}
		o, err := readOutcome(body)
		if err == nil && (h.Kind != kindDone || h.ID != id) {
			err = fmt.Errorf("%w: answer %d of kind %d to call %d", data.ErrFrame, h.ID, h.Kind, id)
		}
		if err != nil {
			return writeError(s.gone(err))
		}
		stale := s.note(&o.marks)
		if o.own != 0 {
			s.deliverOwn(o.own, o.upTo)
		}
		if stale {
			s.refresh(context.Background())
		}
		return o.err
	}
}

// deliverOwn is deliver for what came through this connection.
func (s *store) deliverOwn(seq uint64, upTo message.Position) {
	s.deliver(seq, func() { s.published(upTo, true) })
}

// change does a call whose body is in log.out; log.mu is held. When ctx ends,
// the plugin is told, and what it says is the outcome.
func (s *store) change(ctx context.Context, k data.Kind) error {
	left, err := timeout(ctx)
	if err != nil {
		return err
	}
	id := s.last.Add(1)
	if ctx.Done() != nil && k != kindPublish { // which waits for nobody
		stop := context.AfterFunc(ctx, func() { s.cancel(id, 1) })
		defer stop()
	}
	return wire.OfCall(ctx, s.exchange(k, id, left, nil))
}

// rawLog is the facet.
type rawLog struct{ s *store }

// ReadLog implements storage.RawLog.
func (r rawLog) ReadLog(ctx context.Context, from message.Position, most int, c *storage.Chunk) error {
	c.Reset()
	out := data.TakeBuffer()
	*out = data.PutInt(data.PutInt(data.Begin((*out)[:0]), from), int64(most))
	return r.s.chunk(ctx, kindReadLog, out, "", c)
}

// Publish implements storage.RawLog.
func (r rawLog) Publish(ctx context.Context, upTo message.Position) error {
	return r.s.move(ctx, kindPublish, upTo)
}

// Truncate implements storage.RawLog.
func (r rawLog) Truncate(ctx context.Context, at message.Position) error {
	return r.s.move(ctx, kindTruncate, at)
}

// move does the calls whose argument is a position.
func (s *store) move(ctx context.Context, k data.Kind, at message.Position) error {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	if err := s.running(ctx); err != nil {
		return writeError(err)
	}
	s.log.out = data.PutInt(data.Begin(s.log.out[:0]), at)
	err := s.change(ctx, k)
	if err == nil && k == kindTruncate {
		s.free(at)
	}
	return err
}

// Reset implements storage.RawLog.
func (r rawLog) Reset(ctx context.Context, first message.Position, ends []message.Unit) error {
	s := r.s
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	if err := s.running(ctx); err != nil {
		return writeError(err)
	}
	s.log.out = data.PutEnds(data.PutInt(data.Begin(s.log.out[:0]), first), ends)
	err := s.change(ctx, kindReset)
	if err == nil {
		s.free(0)
	}
	return err
}
