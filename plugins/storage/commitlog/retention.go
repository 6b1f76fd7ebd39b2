package commitlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// exactTimes is up to which size a segment is read to find the store time of
// its last record after a start. For larger ones the first time of the next
// segment is given, which is never earlier.
const exactTimes = 16 << 20

// Segments implements [storage.Retention].
func (s *Store) Segments(ctx context.Context) ([]storage.Segment, error) {
	if !s.gate.enter() {
		return nil, storage.ErrNotRunning
	}
	defer s.gate.leave()
	tail := s.marks.tail.Load()
	list := *s.list.Load()
	out := make([]storage.Segment, len(list))
	var later int64 // first store time of the segment behind
	for i := len(list) - 1; i >= 0; i-- {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		seg := list[i]
		if err := s.times(seg, tail, later); err != nil {
			return nil, err
		}
		out[i] = storage.Segment{
			At: message.Position(seg.base), Bytes: seg.size, Leases: seg.leases(),
			FirstStoreTime: seg.firstTime.Load(), LastStoreTime: seg.lastTime.Load(),
		}
		if t := seg.firstTime.Load(); t != 0 {
			later = t
		}
	}
	return out, nil
}

// times finds the store times of a segment that are not known.
func (s *Store) times(seg *segment, tail, later int64) error {
	if seg.base >= tail || seg.firstTime.Load() != 0 && seg.lastTime.Load() != 0 {
		return nil
	}
	r := newLogReader(*s.list.Load())
	defer r.close()
	var v message.View
	if err := r.good(message.Position(seg.base), &v, false); err == nil {
		seg.firstTime.CompareAndSwap(0, v.StoreTime)
	} else if !isRecordFault(err) {
		return err
	}
	if seg.lastTime.Load() != 0 {
		return nil
	}
	if seg.base+seg.size >= tail { // the last one: what is appended meanwhile counts as well
		seg.lastTime.CompareAndSwap(0, s.marks.lastTime.Load())
		return nil
	}
	if seg.size > exactTimes && later != 0 {
		seg.lastTime.CompareAndSwap(0, later)
		return nil
	}
	var t int64
	err := s.walk(message.Position(seg.base), message.Position(min(seg.base+seg.size, tail)), func(v *message.View) error {
		t = v.StoreTime
		return nil
	})
	if err != nil {
		t = max(t, later) // damaged: what is known
	}
	seg.lastTime.CompareAndSwap(0, t)
	return nil
}

// Expire implements [storage.Retention].
func (s *Store) Expire(ctx context.Context, first message.Position) error {
	if !s.gate.enter() {
		return storage.ErrNotRunning
	}
	defer s.gate.leave()
	if err := s.failure(); err != nil {
		return err
	}
	old, published := s.marks.first.Load(), s.marks.published.Load()
	if int64(first)%s.p.Segment != 0 || int64(first) > published {
		return fmt.Errorf("%w: expire below %d, which is no edge of segments of %d bytes at or below %d", storage.ErrGap, first, s.p.Segment, published)
	}
	if int64(first) <= old {
		return nil
	}
	// The ends of queues outlive the records: units must be durable first.
	if err := s.Sync(ctx, first); err != nil {
		return err
	}
	if err := s.flushDerived(false); err != nil {
		return s.fail(err)
	}
	var gone, kept segments
	for _, seg := range *s.list.Load() {
		if seg.base < int64(first) {
			gone = append(gone, seg)
		} else {
			kept = append(kept, seg)
		}
	}
	if err := drain(ctx, gone); err != nil {
		return err
	}
	if len(kept) == 0 { // the log is empty at an edge; its place is kept by a file
		seg, err := s.prep.take(int64(first))
		if err != nil {
			for _, seg := range gone {
				seg.retiring.Store(false)
			}
			return s.refused("make the next segment", err)
		}
		kept = segments{seg}
		s.writer.cur = seg
	}
	s.marks.first.Store(int64(first))
	s.list.Store(&kept)
	if err := s.expire(gone, first); err != nil {
		return s.fail(fmt.Errorf("expire the log below %d: %w", first, err))
	}
	if f := s.p.Events.Expired; f != nil {
		s.events.begin()
		f(first)
		s.events.end()
	}
	return nil
}

// expire removes files, oldest first, so that a crash leaves no hole.
func (s *Store) expire(gone segments, first message.Position) error {
	for _, seg := range gone {
		seg.release()
		if err := s.fs.Remove(seg.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := s.fs.SyncDir(s.path.log); err != nil {
		return err
	}
	if err := s.queues.each(func(q *queue) error { return q.expire(first) }); err != nil {
		return err
	}
	if s.keys != nil {
		if err := s.keys.expire(first); err != nil {
			return err
		}
	}
	s.damage.within(first, message.Position(s.marks.tail.Load()))
	return nil
}

// expire moves the queue's minimum and removes its files below it, but never
// the last one: it keeps the queue's end.
func (q *queue) expire(first message.Position) error {
	if len(q.files) == 0 {
		return nil
	}
	low := q.max.Load()
	switch {
	case q.firstAt >= first:
		return nil
	case q.lastAt < first: // none is left
		q.firstAt = first
	default:
		r := newUnitReader(q)
		defer r.close()
		var err error
		if low, err = r.firstAtOrAbove(first, min(q.min.Load(), low), low); err != nil {
			return err
		}
		if low < q.max.Load() {
			u, err := r.unit(low)
			if err != nil {
				return err
			}
			q.firstAt = u.at
		}
	}
	q.min.Store(low)
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for n < len(q.files)-1 && q.files[n].base+q.ix.fileSize <= low*unitSize {
		f := q.files[n]
		f.closeHandles()
		if err := q.ix.fs.Remove(q.path(f)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		n++
	}
	if n == 0 {
		return nil
	}
	q.files = append([]*queueFile(nil), q.files[n:]...)
	return q.ix.syncDir(q.dir())
}

// Drop implements [storage.Retention].
func (s *Store) Drop(_ context.Context, list []message.Queue) error {
	if !s.gate.enter() {
		return storage.ErrNotRunning
	}
	defer s.gate.leave()
	if err := s.changeable(); err != nil {
		return err
	}
	published := message.Position(s.marks.published.Load())
	for _, key := range list {
		s.dropped.Queues = append(s.dropped.Queues, droppedQueue{key.Topic, key.ID, published})
	}
	if err := s.dropped.save(s.fs, s.path.droppedFile, message.Position(s.marks.first.Load())); err != nil {
		return s.refused("remember dropped queues", err)
	}
	for _, key := range list {
		if err := s.queues.drop(key); err != nil {
			return s.fail(fmt.Errorf("drop queue %s: %w", key, err))
		}
	}
	s.flushMu.Lock()
	defer s.flushMu.Unlock()
	if err := s.cp.setQueues(s.queues.present.n.Load(), s.queues.present.hash.Load()); err != nil {
		return s.fail(fmt.Errorf("count the queues: %w", err))
	}
	return nil
}

// drop forgets a queue and removes its files.
func (ix *queueIndex) drop(key message.Queue) error {
	q := ix.byKey[key]
	if q == nil {
		return nil
	}
	ix.mu.Lock()
	delete(ix.byKey, key)
	ix.mu.Unlock()
	if slot := key.Slot(); ix.recent[slot] == q {
		ix.recent[slot] = nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.known.Store(false)
	q.count(false)
	q.min.Store(0)
	q.max.Store(0)
	for _, f := range q.files {
		f.closeHandles()
	}
	q.files, q.cur, q.roomFrom, q.roomTo = nil, nil, 0, 0
	dir := q.dir()
	if err := ix.fs.RemoveAll(dir); err != nil {
		return err
	}
	topic := parentOf(dir)
	if names, err := ix.fs.List(topic); err == nil && len(names) == 0 {
		if err := ix.fs.Remove(topic); err != nil {
			return err
		}
		return ix.fs.SyncDir(ix.dir)
	}
	return ix.syncDir(topic)
}

// reset drops all queues and gives those named their ends.
func (ix *queueIndex) reset(ends []message.Unit) error {
	for _, q := range ix.all() {
		if err := ix.drop(q.key); err != nil {
			return err
		}
	}
	for i := range ends {
		end := ends[i].Offset
		if end <= 0 {
			continue
		}
		q := ix.writer(ends[i].Queue)
		// The file that holds the last unit, so that the end can be read off it.
		from := (end - 1) * unitSize / ix.fileSize * ix.fileSize / unitSize
		q.known.Store(true)
		if err := q.fill(from, end); err != nil {
			return err
		}
		q.min.Store(end)
		q.publish(end)
	}
	return ix.flush()
}
