package storekit

import (
	"context"
	"fmt"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// Append implements storage.Store.
func (s *Store) Append(ctx context.Context, b *storage.Batch) error {
	err := s.append(ctx, b)
	if err != nil {
		b.Done()
		s.tellFailed()
		return err
	}
	if s.p.Publish == storage.Immediate {
		s.tellPublished(b.End(), b.Units)
		b.Done()
	}
	return nil
}

func (s *Store) tellPublished(upTo message.Position, units []message.Unit) {
	if f := s.p.Events.Published; f != nil {
		s.told.Lock()
		defer s.told.Unlock()
		f(upTo, units)
	}
}

func (s *Store) append(ctx context.Context, b *storage.Batch) error {
	s.life.RLock()
	defer s.life.RUnlock()
	if err := s.check(ctx, true); err != nil {
		return err
	}
	s.write.Lock()
	defer s.write.Unlock()
	if err := s.place(b); err != nil {
		return err
	}
	s.term = b.Term
	s.ops.reset()
	first, last := int64(0), int64(0)
	for off := 0; off < len(b.Buf); {
		left := b.Buf[off:]
		n := 0
		if len(left) >= message.MinRecordSize {
			n = int(message.Size(left))
		}
		if n < message.MinRecordSize || n > len(left) {
			return fmt.Errorf("a batch at %d holds no record at its byte %d of %d", b.At, off, len(b.Buf))
		}
		s.ops.record(b.At+message.Position(off), left[:n])
		if last = message.StoreTime(left); off == 0 {
			first = last
		}
		off += n
	}
	st := s.State()
	if st.Tail = b.End(); len(b.Buf) > 0 {
		st.LastStoreTime = last
	}
	immediate := s.p.Publish == storage.Immediate
	if immediate {
		st.Published = st.Tail
		s.index(b.Units, b.Keys)
		s.queueOps()
	}
	s.stateOp(&st, s.number)
	if err := s.apply("append", false); err != nil {
		s.unstage()
		return err
	}
	if !immediate {
		s.pending = append(s.pending, pending{end: b.End(), units: b.Units, keys: b.Keys, batch: b})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.st.Tail, s.st.LastStoreTime, s.st.Published = st.Tail, st.LastStoreTime, st.Published
	s.commit()
	s.grow(b, first, last)
	return nil
}

// place checks a batch against term, tail and edges.
func (s *Store) place(b *storage.Batch) error {
	if b.Term < s.term {
		return fmt.Errorf("%w: the batch is of term %d, the store has seen %d", storage.ErrFenced, b.Term, s.term)
	}
	seg, tail := message.Position(s.st.Segment), s.st.Tail
	if b.At != tail {
		if edge := tail + seg - tail%seg; b.At != edge || tail%seg == 0 {
			return fmt.Errorf("%w: a batch at %d, the tail is %d, segments have %d bytes", storage.ErrGap, b.At, tail, seg)
		}
	}
	if room := seg - b.At%seg; message.Position(len(b.Buf))+message.BlankSize > room {
		return fmt.Errorf("%w: %d bytes at %d, where the segment has room for %d and its end", storage.ErrTooLarge, len(b.Buf), b.At, room)
	}
	return nil
}

// grow extends the segments by a batch; mu is held.
func (s *Store) grow(b *storage.Batch, first, last int64) {
	if len(b.Buf) == 0 {
		return
	}
	edge := b.At - b.At%message.Position(s.st.Segment)
	n := len(s.segs)
	if n == 0 || s.segs[n-1].At != edge {
		if n > 0 {
			s.segs[n-1].Bytes = s.st.Segment
		}
		s.segs = append(s.segs, storage.Segment{At: edge})
		n++
	}
	g := &s.segs[n-1]
	if g.FirstStoreTime == 0 {
		g.FirstStoreTime = first
	}
	g.LastStoreTime, g.Bytes = last, int64(b.End()-edge)
}

// index adds units and keys to the step and stages the ends of queues.
func (s *Store) index(units []message.Unit, keys []message.Key) {
	for i := range units {
		u := &units[i]
		q := s.queue(u.Queue)
		if !q.staged {
			q.staged, q.newMin, q.newMax, q.newKnown = true, q.min, q.max, q.known
			s.touched = append(s.touched, q)
		}
		if !q.newKnown || (q.newMin == q.newMax && u.Offset != q.newMax) {
			q.newMin, q.newMax, q.newKnown = u.Offset, u.Offset, true
		}
		q.newMax = max(q.newMax, u.Offset+1)
		s.ops.unit(q.number, u)
	}
	for i := range keys {
		s.ops.key(&keys[i])
	}
}

// queueOps adds the staged ends to the step.
func (s *Store) queueOps() {
	for _, q := range s.touched {
		s.ops.queue(q.q, q.number, q.newMin, q.newMax)
	}
}

// queue finds or makes a queue; a new one stays unknown until commit.
func (s *Store) queue(name message.Queue) *queue {
	if s.lastQ != nil && s.lastQ.q == name {
		return s.lastQ
	}
	q := s.queues[name] // only holders of write change the map
	if q == nil {
		q = &queue{q: name, number: s.number}
		s.mu.Lock()
		s.number++
		s.queues[name] = q
		s.mu.Unlock()
	}
	s.lastQ = q
	return q
}

// commit makes the staged ends valid; mu is held.
func (s *Store) commit() {
	for _, q := range s.touched {
		q.min, q.max, q.known, q.staged = q.newMin, q.newMax, q.newKnown, false
	}
	s.touched = s.touched[:0]
}

func (s *Store) unstage() {
	for _, q := range s.touched {
		q.staged = false
	}
	s.touched = s.touched[:0]
}

// Sync implements storage.Store.
func (s *Store) Sync(ctx context.Context, end message.Position) error {
	err := s.sync(ctx, end)
	if err != nil {
		s.tellFailed()
	}
	return err
}

func (s *Store) sync(ctx context.Context, end message.Position) error {
	s.life.RLock()
	defer s.life.RUnlock()
	if err := s.check(ctx, true); err != nil {
		return err
	}
	if tail := s.State().Tail; end > tail {
		return fmt.Errorf("%w: sync up to %d, the tail is %d", storage.ErrGap, end, tail)
	}
	s.syncing.Lock() // whoever waited finds it done
	defer s.syncing.Unlock()
	if err := s.check(ctx, true); err != nil {
		return err
	}
	st := s.State()
	if st.Durable >= end {
		return nil
	}
	if err := s.kv.Sync(); err != nil {
		return s.fail("sync", err)
	}
	s.mu.Lock()
	s.st.Durable = min(max(s.st.Durable, st.Tail), s.st.Tail)
	s.mu.Unlock()
	return nil
}

// Publish implements storage.RawLog.
func (s *Store) Publish(ctx context.Context, upTo message.Position) error {
	ready, err := s.publishLocked(ctx, upTo)
	if err != nil {
		s.tellFailed()
		return err
	}
	for i := range ready {
		s.tellPublished(ready[i].end, ready[i].units)
		if ready[i].whole {
			ready[i].free()
		}
	}
	return nil
}

func (s *Store) publishLocked(ctx context.Context, upTo message.Position) ([]pending, error) {
	s.life.RLock()
	defer s.life.RUnlock()
	if err := s.check(ctx, true); err != nil {
		return nil, err
	}
	s.write.Lock()
	defer s.write.Unlock()
	if upTo > s.st.Tail {
		return nil, fmt.Errorf("%w: publish up to %d, the tail is %d", storage.ErrGap, upTo, s.st.Tail)
	}
	if upTo <= s.st.Published {
		return nil, nil
	}
	if err := s.publish(upTo); err != nil {
		return nil, err
	}
	// A blank with which the log ends belongs to no pending batch.
	if n := len(s.ready); n == 0 {
		s.ready = append(s.ready, pending{end: upTo})
	} else {
		s.ready[n-1].end = upTo
	}
	return s.ready, nil
}

// publish indexes what is pending below upTo and moves the mark; s.ready tells
// what became visible.
func (s *Store) publish(upTo message.Position) error {
	s.ops.reset()
	clear(s.ready)
	s.ready = s.ready[:0]
	taken := 0
	for i := range s.pending {
		p := &s.pending[i]
		done := *p
		done.whole = p.end <= upTo
		if !done.whole {
			done.end = upTo
			done.units = p.units[:unitsBelow(p.units, upTo)]
			done.keys = p.keys[:keysBelow(p.keys, upTo)]
		}
		s.index(done.units, done.keys)
		s.ready = append(s.ready, done)
		if !done.whole {
			break
		}
		taken++
	}
	st := s.State()
	st.Published = upTo
	s.queueOps()
	s.stateOp(&st, s.number)
	s.ops.ops[0].Owed = true
	if err := s.apply("publish", false); err != nil {
		s.unstage()
		s.ready = s.ready[:0]
		return err
	}
	if taken < len(s.ready) {
		p, done := &s.pending[taken], &s.ready[taken]
		p.units, p.keys = p.units[len(done.units):], p.keys[len(done.keys):]
	}
	n := copy(s.pending, s.pending[taken:])
	clear(s.pending[n:])
	s.pending = s.pending[:n]
	s.mu.Lock()
	s.st.Published = upTo
	s.commit()
	s.mu.Unlock()
	return nil
}

// unitsBelow counts the units whose records end at or below upTo.
func unitsBelow(units []message.Unit, upTo message.Position) int {
	n := 0
	for n < len(units) && units[n].At+message.Position(units[n].Size) <= upTo {
		n++
	}
	return n
}

// keysBelow counts the keys of records below upTo. A record without units may
// have keys; its size is not known here, but upTo is a record's end.
func keysBelow(keys []message.Key, upTo message.Position) int {
	n := 0
	for n < len(keys) && keys[n].At < upTo {
		n++
	}
	return n
}
