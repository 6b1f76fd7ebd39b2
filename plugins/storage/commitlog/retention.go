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

// Expire implements [storage.Retention]. Records are appended and published meanwhile;
// what waits for the disk is done before the turn of those that make the log shorter, as
// far as that is possible.
func (s *Store) Expire(ctx context.Context, first message.Position) error {
	if !s.gate.enter() {
		return storage.ErrNotRunning
	}
	defer s.gate.leave()
	for {
		cuts := s.marks.cuts.Load()
		if over, err := s.expired(first); over || err != nil {
			return err
		}
		// The ends of queues outlive the records: units must be durable first.
		if err := s.Sync(ctx, first); err != nil {
			return err
		}
		if err := s.flushDerived(false); err != nil {
			return s.fail(err)
		}
		if err := s.takeCut(ctx); err != nil {
			return err
		}
		if s.marks.cuts.Load() == cuts {
			break
		}
		s.giveCut() // other records may lie there now
	}
	defer s.giveCut()
	if over, err := s.expired(first); over || err != nil {
		return err
	}
	return s.expireInTurn(ctx, first)
}

// expired reports whether nothing is left to expire below first, which it checks.
func (s *Store) expired(first message.Position) (bool, error) {
	if err := s.failure(); err != nil {
		return false, err
	}
	if published := s.marks.published.Load(); int64(first)%s.p.Segment != 0 || int64(first) > published {
		return false, fmt.Errorf("%w: expire below %d, which is no edge of segments of %d bytes at or below %d", storage.ErrGap, first, s.p.Segment, published)
	}
	return int64(first) <= s.marks.first.Load(), nil
}

func (s *Store) expireInTurn(ctx context.Context, first message.Position) error {
	gone, _ := s.list.Load().split(first)
	if err := drain(ctx, gone); err != nil {
		return err
	}
	if err := s.beginAt(first); err != nil {
		for _, seg := range gone {
			seg.retiring.Store(false)
		}
		return s.refused("make the next segment", err)
	}
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

// split divides the list at an edge.
func (l segments) split(at message.Position) (below, above segments) {
	n := 0
	for n < len(l) && l[n].base < int64(at) {
		n++
	}
	return l[:n:n], l[n:]
}

// beginAt makes the log begin at first.
func (s *Store) beginAt(first message.Position) error {
	s.growMu.Lock()
	defer s.growMu.Unlock()
	_, kept := s.list.Load().split(first)
	if len(kept) == 0 { // the log is empty at an edge; its place is kept by a file
		seg, err := s.prep.take(int64(first))
		if err != nil {
			return err
		}
		kept = segments{seg}
	}
	s.marks.first.Store(int64(first))
	s.list.Store(&kept)
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
// the last one: it keeps the queue's end. The queue may be written meanwhile.
func (q *queue) expire(first message.Position) error {
	q.mu.RLock()
	files := q.files
	q.mu.RUnlock()
	if len(files) == 0 || q.firstAt >= first {
		return nil
	}
	low, err := q.lowFrom(first, files)
	if err != nil {
		return err
	}
	if low > q.min.Load() { // one without units, whose minimum its writer sets, ends at 0
		q.min.Store(low)
	}
	n := 0
	for n < len(files)-1 && files[n].base+q.ix.fileSize <= low*unitSize {
		n++
	}
	if n == 0 {
		return nil
	}
	q.mu.Lock()
	for _, f := range files[:n] {
		f.closeHandles()
	}
	q.files = append([]*queueFile(nil), q.files[n:]...)
	q.mu.Unlock()
	for _, f := range files[:n] {
		if err := q.ix.fs.Remove(q.path(f)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return q.ix.syncDir(q.dir())
}

// lowFrom is the offset of the queue's first published record at or above first, or of
// its end.
func (q *queue) lowFrom(first message.Position, files []*queueFile) (int64, error) {
	end := q.max.Load()
	if q.last() < first { // none is left; read after max
		q.firstAt = first
		return end, nil
	}
	r := newUnitReader(q)
	defer r.close()
	r.files, r.limit = files, end
	low, err := r.firstAtOrAbove(first, min(q.min.Load(), end), end)
	if err != nil || low == end {
		return low, err
	}
	u, err := r.unit(low)
	if err == nil {
		q.firstAt = u.at
	}
	return low, err
}

// Drop implements [storage.Retention].
func (s *Store) Drop(ctx context.Context, list []message.Queue) error {
	if !s.gate.enter() {
		return storage.ErrNotRunning
	}
	defer s.gate.leave()
	if err := s.changeable(); err != nil {
		return err
	}
	if err := s.takeCut(ctx); err != nil {
		return err
	}
	defer s.giveCut()
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
