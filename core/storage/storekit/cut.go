package storekit

import (
	"context"
	"fmt"
	"slices"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// changing begins a call that removes something; done ends it.
func (s *Store) changing(ctx context.Context) (done func(), err error) {
	s.life.RLock()
	if err := s.check(ctx, true); err != nil {
		s.life.RUnlock()
		return nil, err
	}
	s.write.Lock()
	s.ops.reset()
	s.lastQ = nil
	return func() {
		s.unstage()
		s.write.Unlock()
		s.life.RUnlock()
	}, nil
}

// Truncate implements storage.RawLog.
func (s *Store) Truncate(ctx context.Context, at message.Position) error {
	below, freed, err := s.truncate(ctx, at)
	if err != nil {
		s.tellFailed()
		return err
	}
	if f := s.p.Events.Truncated; f != nil && below {
		s.told.Lock()
		f(at)
		s.told.Unlock()
	}
	for i := range freed {
		freed[i].free()
	}
	return nil
}

func (s *Store) truncate(ctx context.Context, at message.Position) (below bool, freed []pending, err error) {
	done, err := s.changing(ctx)
	if err != nil {
		return false, nil, err
	}
	defer done()
	st := s.State()
	if at == st.Tail {
		return false, nil, nil
	}
	last, err := s.edge(at, &st)
	if err != nil {
		return false, nil, err
	}
	below = at < st.Published
	var queues []*queue
	if below {
		if err := s.dropKeys(ctx, at, st.Published); err != nil {
			return false, nil, err
		}
		if queues, err = s.shorten(at); err != nil {
			return false, nil, err
		}
	}
	s.ops.remove(recordKey(nil, at), prefixEnd(keyRecord))
	st.Tail, st.Published, st.LastStoreTime = at, min(st.Published, at), last
	st.Durable = at
	s.stateOp(&st, s.number)
	s.cut.Lock() // readers are gone
	defer s.cut.Unlock()
	if err := s.applyCut("truncate", &st, queues); err != nil {
		return false, nil, err
	}
	return below, s.cutPending(at), nil
}

// applyCut does the step durably and makes its outcome valid; cut is held.
func (s *Store) applyCut(what string, st *storage.State, queues []*queue) error {
	if err := s.apply(what, true); err != nil {
		return err
	}
	if err := s.kv.Sync(); err != nil {
		return s.fail(what, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.st = *st
	for _, q := range queues {
		if q.known = q.newKnown; !q.known {
			delete(s.queues, q.q)
		}
		q.min, q.max = q.newMin, q.newMax
	}
	var err error
	if s.segs, err = s.loadSegments(); err != nil {
		return s.fail(what, err)
	}
	return nil
}

// edge checks that a position is a record's edge, and gives the store time of
// the record before it.
func (s *Store) edge(at message.Position, st *storage.State) (int64, error) {
	if at < st.First || at > st.Tail {
		return 0, fmt.Errorf("%w: cut at %d, the log has %d to %d", storage.ErrGap, at, st.First, st.Tail)
	}
	_, begins, err := s.kv.Get(recordKey(nil, at), nil)
	if err != nil {
		return 0, err
	}
	legal, last := begins || at == st.First, int64(0)
	err = s.scan([]byte{keyRecord}, recordKey(nil, at), true, func(k, rec []byte) bool {
		legal = legal || recordAt(k)+message.Position(len(rec)) == at
		last = message.StoreTime(rec)
		return false
	})
	if err == nil && !legal {
		err = fmt.Errorf("%w: cut at %d, where no record begins or ends", storage.ErrGap, at)
	}
	return last, err
}

// dropKeys adds the removal of the keys of the records in [from, to).
func (s *Store) dropKeys(ctx context.Context, from, to message.Position) error {
	var keys []message.Key
	return s.records(ctx, from, to, func(v *message.View) bool {
		if v.Position >= from {
			_, keys = s.deriver.Derive(v, nil, nil, keys[:0])
			for i := range keys {
				s.ops.dropKey(&keys[i])
			}
		}
		return true
	})
}

// shorten adds the removal of all units at or behind a position, and stages the
// ends that remain.
func (s *Store) shorten(at message.Position) ([]*queue, error) {
	var out []*queue
	for _, q := range s.queues {
		if !q.known {
			continue
		}
		end, err := s.search(q.number, q.min, q.max, func(u *message.Unit) bool { return u.At >= at })
		if err != nil {
			return nil, err
		}
		if end == q.max {
			continue
		}
		s.ops.remove(unitKey(nil, q.number, end), unitKey(nil, q.number, q.max))
		q.newMin, q.newMax, q.newKnown = q.min, end, end > 0
		if q.newKnown {
			s.ops.queue(q.q, q.number, q.newMin, q.newMax)
		} else {
			s.ops.dropQueue(q.q)
		}
		out = append(out, q)
	}
	return out, nil
}

// cutPending takes away what is pending at or behind a position. Batches of
// which nothing remains are returned; one that the position divides keeps what
// lies below.
func (s *Store) cutPending(at message.Position) []pending {
	keep := 0
	for keep < len(s.pending) && s.pending[keep].end <= at {
		keep++
	}
	// Up to the published mark nothing is pending.
	if keep < len(s.pending) && at > s.st.Published {
		// What Start derived has no batch, and begins at the mark.
		if p := &s.pending[keep]; p.batch == nil || p.batch.At < at {
			p.units = p.units[:unitsBelow(p.units, at)]
			p.keys = p.keys[:keysBelow(p.keys, at)]
			p.end = at
			keep++
		}
	}
	freed := slices.Clone(s.pending[keep:])
	clear(s.pending[keep:])
	s.pending = s.pending[:keep]
	return freed
}

// Reset implements storage.RawLog.
func (s *Store) Reset(ctx context.Context, first message.Position, ends []message.Unit) error {
	below, freed, err := s.reset(ctx, first, ends)
	if err != nil {
		s.tellFailed()
		return err
	}
	if f := s.p.Events.Truncated; f != nil && below >= 0 {
		s.told.Lock()
		f(below)
		s.told.Unlock()
	}
	for i := range freed {
		freed[i].free()
	}
	return nil
}

func (s *Store) reset(ctx context.Context, first message.Position, ends []message.Unit) (below message.Position, freed []pending, err error) {
	done, err := s.changing(ctx)
	if err != nil {
		return 0, nil, err
	}
	defer done()
	st := s.State()
	if first < 0 || first%message.Position(st.Segment) != 0 {
		return 0, nil, fmt.Errorf("%w: reset to %d, segments have %d bytes", storage.ErrGap, first, st.Segment)
	}
	for _, letter := range []byte{keyRecord, keyUnit, keyHash, keyQueue} {
		s.ops.remove([]byte{letter}, prefixEnd(letter))
	}
	queues := make(map[message.Queue]*queue, len(ends))
	for i := range ends {
		q := &queue{q: ends[i].Queue, number: s.number, known: true, min: ends[i].Offset, max: ends[i].Offset}
		s.number++
		queues[q.q] = q
		s.ops.queue(q.q, q.number, q.min, q.max)
	}
	below = -1
	if st.Published > st.First {
		below = min(st.First, first)
	}
	st.First, st.Published, st.Durable, st.Tail, st.LastStoreTime = first, first, first, first, 0
	s.stateOp(&st, s.number)
	s.cut.Lock()
	defer s.cut.Unlock()
	if err := s.applyCut("reset", &st, nil); err != nil {
		return 0, nil, err
	}
	s.mu.Lock()
	s.queues = queues
	s.mu.Unlock()
	freed, s.pending = s.pending, nil
	return below, freed, nil
}

// Segments implements storage.Retention.
func (s *Store) Segments(ctx context.Context) ([]storage.Segment, error) {
	s.life.RLock()
	defer s.life.RUnlock()
	if err := s.check(ctx, false); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Clone(s.segs), nil
}

// expireEntries bounds how many entries one step removes. Who appends waits for one.
const expireEntries = 1024

// Expire implements storage.Retention. The entries of the key index go first,
// in small steps beside readers and appends; the rest is a few ranges.
func (s *Store) Expire(ctx context.Context, first message.Position) error {
	s.expiring.Lock()
	defer s.expiring.Unlock()
	moved, err := s.expire(ctx, first)
	if err != nil {
		s.tellFailed()
		return err
	}
	if f := s.p.Events.Expired; f != nil && moved {
		s.told.Lock()
		f(first)
		s.told.Unlock()
	}
	return nil
}

func (s *Store) expire(ctx context.Context, first message.Position) (moved bool, err error) {
	for from := message.Position(0); ; {
		done, err := s.changing(ctx)
		if err != nil {
			return false, err
		}
		var last bool
		from, last, err = s.expireStep(from, first)
		done()
		if last || err != nil {
			return last && err == nil && from >= 0, err
		}
		// Nobody is waited for, and what is half done would be done again from its
		// beginning: ctx does not end it any more.
		ctx = context.WithoutCancel(ctx)
	}
}

// expireStep removes keys of the records from a position on, and with the last ones
// everything else; then last is true, and next negative when there was nothing to do.
func (s *Store) expireStep(from, first message.Position) (next message.Position, last bool, err error) {
	st := s.State()
	if first > st.Published || first%message.Position(st.Segment) != 0 || first < 0 {
		return 0, false, fmt.Errorf("%w: expire below %d, published is %d, segments have %d bytes", storage.ErrGap, first, st.Published, st.Segment)
	}
	if first <= st.First {
		return -1, true, nil
	}
	from = max(from, st.First)
	if next, err = s.expireKeys(from, first); err != nil {
		return 0, false, err
	}
	if next < first {
		return next, false, s.apply("expire", false)
	}
	var queues []*queue
	for _, q := range s.queues {
		if !q.known || q.min == q.max {
			continue
		}
		begin, err := s.search(q.number, q.min, q.max, func(u *message.Unit) bool { return u.At >= first })
		if err != nil {
			return 0, false, err
		}
		if begin == q.min {
			continue
		}
		q.newMin, q.newMax, q.newKnown = begin, q.max, true
		s.ops.remove(unitKey(nil, q.number, q.min), unitKey(nil, q.number, begin))
		s.ops.queue(q.q, q.number, q.newMin, q.newMax)
		queues = append(queues, q)
	}
	s.ops.remove(recordKey(nil, st.First), recordKey(nil, first))
	st.First = first
	s.stateOp(&st, s.number)
	s.cut.Lock()
	defer s.cut.Unlock()
	return next, true, s.applyExpired(&st, queues)
}

func (s *Store) applyExpired(st *storage.State, queues []*queue) error {
	if err := s.apply("expire", false); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.st.First = st.First
	for _, q := range queues {
		q.min, q.max = q.newMin, q.newMax
	}
	s.segs = slices.DeleteFunc(s.segs, func(g storage.Segment) bool { return g.At < st.First })
	return nil
}

// expireKeys stages the removal of the keys of records in [from, to), of as many as
// fit into a step, and tells where to go on; to: these were all.
func (s *Store) expireKeys(from, to message.Position) (next message.Position, err error) {
	next = to
	var keys []message.Key
	err = s.records(context.Background(), from, to, func(v *message.View) bool {
		if v.Position < from { // done before
			return true
		}
		_, keys = s.deriver.Derive(v, nil, nil, keys[:0])
		for i := range keys {
			s.ops.dropKey(&keys[i])
		}
		if len(s.ops.ops) >= expireEntries {
			next = v.Position + message.Position(v.Size)
			return false
		}
		return true
	})
	return min(next, to), err
}

// Drop implements storage.Retention.
func (s *Store) Drop(ctx context.Context, names []message.Queue) error {
	err := s.drop(ctx, names)
	if err != nil {
		s.tellFailed()
	}
	return err
}

func (s *Store) drop(ctx context.Context, names []message.Queue) error {
	done, err := s.changing(ctx)
	if err != nil {
		return err
	}
	defer done()
	var gone []*queue
	for _, name := range names {
		q := s.queues[name]
		if q == nil || !q.known {
			continue
		}
		s.ops.dropQueue(name)
		s.ops.remove(be.AppendUint32([]byte{keyUnit}, q.number), be.AppendUint32([]byte{keyUnit}, q.number+1))
		gone = append(gone, q)
	}
	if len(gone) == 0 {
		return nil
	}
	s.cut.Lock()
	defer s.cut.Unlock()
	if err := s.apply("drop", false); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range gone {
		delete(s.queues, q.q)
	}
	return nil
}
