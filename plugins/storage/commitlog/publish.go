package commitlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/vfs"
)

// Publish implements [storage.RawLog].
func (s *Store) Publish(ctx context.Context, upTo message.Position) error {
	if !s.gate.enter() {
		return storage.ErrNotRunning
	}
	defer s.gate.leave()
	if int64(upTo) > s.marks.tail.Load() {
		return fmt.Errorf("%w: publish up to %d, the log ends at %d", storage.ErrGap, upTo, s.marks.tail.Load())
	}
	if err := s.changeable(); err != nil {
		return err
	}
	w := &s.writer
	for {
		published := message.Position(s.marks.published.Load())
		if upTo <= published {
			break
		}
		var b *storage.Batch
		if w.head < len(w.waiting) {
			b = w.waiting[w.head]
		}
		if b != nil && b.End() <= upTo && published <= b.At && int64(b.At) <= s.edgeOrSame(int64(published)) {
			if err := s.show(b.End(), b.Units, b.Keys); err != nil {
				return err
			}
			w.next()
			continue
		}
		// Records from before Start, whose batches are gone, or a part of a
		// batch: they are read.
		to := upTo
		if b != nil && published < b.At {
			to = min(to, b.At)
		} else if b != nil {
			to = min(to, b.End())
		}
		if err := s.publishFromLog(ctx, to); err != nil {
			return err
		}
		if b != nil && to == b.End() {
			s.giveBackKeys(b)
			w.next()
		}
	}
	if w.head == len(w.waiting) {
		w.waiting, w.head = w.waiting[:0], 0
	} else if w.head > 256 && w.head > len(w.waiting)/2 {
		n := copy(w.waiting, w.waiting[w.head:])
		clear(w.waiting[n:])
		w.waiting, w.head = w.waiting[:n], 0
	}
	return nil
}

// giveBackKeys frees the room in the key index of a batch that will not use it.
func (s *Store) giveBackKeys(b *storage.Batch) {
	if s.keys != nil {
		s.keys.giveBack(len(b.Keys))
	}
}

// next drops the first waiting batch, which is published.
func (w *writer) next() {
	b := w.waiting[w.head]
	w.waiting[w.head] = nil
	w.head++
	b.Done()
}

// edgeOrSame is where a batch that continues the log at pos may begin at most:
// the next edge.
func (s *Store) edgeOrSame(pos int64) int64 {
	return (pos + s.p.Segment - 1) / s.p.Segment * s.p.Segment
}

// show makes everything below upTo readable: units, keys, mark, event.
func (s *Store) show(upTo message.Position, units []message.Unit, keys []message.Key) error {
	s.marks.pubSeq.Add(1)
	err := s.queues.put(units)
	if err != nil {
		s.marks.pubSeq.Add(1)
		return s.fail(fmt.Errorf("write ConsumeQueue units: %w", err))
	}
	if s.keys != nil && len(keys) > 0 {
		if err := s.keys.add(keys); err != nil {
			s.marks.pubSeq.Add(1)
			return s.fail(fmt.Errorf("write the key index: %w", err))
		}
	}
	if n := len(units); n > 0 {
		s.marks.pubTime.Store(units[n-1].StoreTime)
		s.marks.pubAt.Store(int64(units[n-1].At))
	}
	s.marks.published.Store(int64(upTo))
	s.marks.pubSeq.Add(1)
	if err := s.cp.set(cpConfirm, int64(upTo)); err != nil {
		return s.fail(fmt.Errorf("write the published mark: %w", err))
	}
	if f := s.p.Events.Published; f != nil {
		s.events.begin()
		f(upTo, units)
		s.events.end()
	}
	return nil
}

// publishBytes bounds what one event of publishFromLog covers.
const publishBytes = 4 << 20

// publishFromLog publishes up to a record edge by reading the records.
func (s *Store) publishFromLog(ctx context.Context, upTo message.Position) error {
	from := message.Position(s.marks.published.Load())
	var units []message.Unit
	var keys []message.Key
	end := from
	flush := func() error {
		if end == message.Position(s.marks.published.Load()) {
			return nil
		}
		err := s.queues.reserve(units)
		if err == nil && s.keys != nil {
			err = s.keys.reserve(len(keys))
		}
		if errors.Is(err, vfs.ErrNoSpace) {
			return fmt.Errorf("%w: %w", storage.ErrFull, err)
		}
		if err != nil {
			return s.fail(err)
		}
		err = s.show(end, units, keys)
		units, keys = units[:0], keys[:0]
		return err
	}
	err := s.walk(from, upTo, func(v *message.View) error {
		units, keys = s.deriver.Derive(v, nil, units, keys)
		end = v.Position + message.Position(v.Size)
		if len(units) >= 8192 || int64(end)-s.marks.published.Load() > publishBytes {
			if err := ctx.Err(); err != nil {
				return err
			}
			return flush()
		}
		return nil
	})
	if err != nil {
		return err
	}
	end = upTo
	return flush()
}

// walk calls do for each record in [from, to), both record edges, passing over
// blanks and damage. The view is lent for the call. ErrGap when to turns out to
// be no record edge.
func (s *Store) walk(from, to message.Position, do func(*message.View) error) error {
	r := newLogReader(*s.list.Load())
	defer r.close()
	var v message.View
	for pos := from; pos < to; {
		if end, ok := s.damage.end(pos); ok {
			pos = end
			continue
		}
		seg := r.list.at(pos)
		if seg == nil {
			return fmt.Errorf("%w: %d is not in the log", storage.ErrGap, pos)
		}
		err := r.record(pos, &v)
		if errors.Is(err, message.ErrBlank) {
			edge := message.Position(seg.base + seg.size)
			if to < edge {
				return fmt.Errorf("%w: %d is inside of the blank at %d", storage.ErrGap, to, pos)
			}
			pos = edge
			continue
		}
		if err == nil && v.Position != pos {
			err = fmt.Errorf("it says that its position is %d", v.Position)
		}
		if err != nil {
			return &storage.CorruptError{File: seg.path, Offset: int64(pos) - seg.base, Reason: "no record where one should begin", Err: err}
		}
		if pos+message.Position(v.Size) > to {
			return fmt.Errorf("%w: %d is inside of the record [%d, %d)", storage.ErrGap, to, pos, pos+message.Position(v.Size))
		}
		if err := do(&v); err != nil {
			return err
		}
		pos += message.Position(v.Size)
	}
	return nil
}
