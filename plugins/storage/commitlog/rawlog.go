package commitlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// zeros are what stands behind the head of a blank, and where nothing was
// written yet.
var zeros [64 << 10]byte

// ReadLog implements [storage.RawLog]. One call gives the bytes of one segment
// at most, and nothing across the published mark.
func (s *Store) ReadLog(_ context.Context, from message.Position, maxBytes int, c *storage.Chunk) error {
	c.Reset()
	if !s.gate.enter() {
		return storage.ErrNotRunning
	}
	defer s.gate.leave()
	published, tail := s.marks.published.Load(), s.marks.tail.Load()
	if int64(from) < s.marks.first.Load() || int64(from) > tail {
		return fmt.Errorf("%w: %d is outside of the log [%d, %d]", storage.ErrGap, from, s.marks.first.Load(), tail)
	}
	c.Next = int64(from)
	if int64(from) == tail || maxBytes <= 0 {
		return nil
	}
	g := s.newGather(c)
	ok, err := g.enter(from)
	if err == nil && !ok {
		err = fmt.Errorf("%w: the segment of %d is being removed", storage.ErrGap, from)
	}
	if err == nil {
		err = g.raw(int64(from)-g.seg.base, int64(maxBytes), published, tail)
	}
	if err != nil {
		c.Reset()
		return err
	}
	for _, f := range c.Frags {
		c.Next += int64(len(f))
	}
	return nil
}

// raw adds log bytes of the current segment from off on.
func (g *gather) raw(off, n, published, tail int64) error {
	seg, c := g.seg, g.c
	end := tail - seg.base
	if end >= seg.size {
		end = g.s.dataEnd(seg, min(off+n, seg.size))
	}
	if off >= end {
		g.blank(off, min(n, seg.size-off), end)
		return nil
	}
	n = min(n, end-off)
	if pos := seg.base + off; pos < published {
		n = min(n, published-pos)
		resident := g.resident(off, n)
		p, err := g.bytesAt(off, n, resident)
		if err != nil {
			return err
		}
		g.add(p, off, resident)
		c.Cold = !resident && seg.mem != nil
		return nil
	}
	p, err := g.bytesAt(off, n, false) // a copy: what is not published may be cut
	if err != nil {
		return err
	}
	c.Frags = append(c.Frags, p)
	g.lease.drop(seg)
	return nil
}

// blank adds n bytes from off on of the blank that begins at end.
func (g *gather) blank(off, n, end int64) {
	if k := off - end; k < message.BlankSize {
		var head [message.BlankSize]byte
		message.PutBlank(head[:], int32(g.seg.size-end))
		b := g.lease.room(message.BlankSize)
		at := len(b.b)
		b.b = append(b.b, head[k:min(k+n, message.BlankSize)]...)
		g.c.Frags = append(g.c.Frags, b.b[at:len(b.b):len(b.b)])
		n -= int64(len(b.b) - at)
	}
	for n > 0 {
		z := zeros[:min(n, int64(len(zeros)))]
		g.c.Frags = append(g.c.Frags, z)
		n -= int64(len(z))
	}
	g.lease.drop(g.seg)
}

// drop lets go of a segment of which nothing is lent.
func (l *lease) drop(seg *segment) {
	for i := len(l.segs) - 1; i >= 0; i-- {
		if l.segs[i] == seg {
			seg.release()
			l.segs = append(l.segs[:i], l.segs[i+1:]...)
			return
		}
	}
}

// dataEnd gives the end of the records of a sealed segment if that is below
// upTo, and at least upTo otherwise. It walks the records up to there once.
// Where damage hides their edges, the bytes are lent as they are.
func (s *Store) dataEnd(seg *segment, upTo int64) int64 {
	if end := seg.end.Load(); end >= 0 {
		return end
	}
	edge := seg.walked.Load()
	if edge >= upTo {
		return edge
	}
	r := newLogReader(*s.list.Load())
	defer r.close()
	r.window = int(min(upTo-edge+4096, readWindow))
	var v message.View
	for edge < upTo {
		pos := message.Position(seg.base + edge)
		if to, ok := s.damage.end(pos); ok {
			edge = min(int64(to)-seg.base, seg.size)
			continue
		}
		err := r.record(pos, &v)
		if errors.Is(err, message.ErrBlank) {
			seg.end.Store(edge)
			return edge
		}
		if err != nil || v.Position != pos {
			edge = seg.size
			break
		}
		edge += int64(v.Size)
	}
	if edge >= seg.size {
		seg.end.Store(seg.size)
	}
	seg.walked.Store(edge)
	return edge
}

// Truncate implements [storage.RawLog].
func (s *Store) Truncate(ctx context.Context, at message.Position) error {
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
	first, tail, published := s.marks.first.Load(), s.marks.tail.Load(), s.marks.published.Load()
	if int64(at) < first || int64(at) > tail {
		return fmt.Errorf("%w: truncate at %d, the log is [%d, %d]", storage.ErrGap, at, first, tail)
	}
	if int64(at) == tail {
		return nil
	}
	last, err := s.recordBefore(at)
	if err != nil {
		return err
	}
	select { // nothing becomes durable meanwhile
	case <-s.syncTurn:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { s.syncTurn <- struct{}{} }()
	var above segments
	for _, seg := range *s.list.Load() {
		if seg.base+seg.size > int64(at) {
			above = append(above, seg)
		}
	}
	if int64(at) < published {
		if err := drain(ctx, above); err != nil {
			return err
		}
	}
	s.flushMu.Lock() // what a flush under way is about to claim may be cut
	err = s.truncate(at, last)
	s.lookedAt = 0
	s.flushMu.Unlock()
	if err != nil {
		return s.fail(fmt.Errorf("truncate the log at %d: %w", at, err))
	}
	for _, seg := range above {
		if seg.base <= int64(at) {
			seg.retiring.Store(false)
		}
	}
	if f := s.p.Events.Truncated; f != nil && int64(at) < published {
		s.events.begin()
		f(at)
		s.events.end()
	}
	return nil
}

// drain waits until no chunk holds the segments, and lets nobody take them any
// more. When ctx ends first everything is as before.
func drain(ctx context.Context, list segments) error {
	for _, seg := range list {
		seg.retiring.Store(true)
	}
	for _, seg := range list {
		for seg.refs.Load() > 1 {
			select {
			case <-seg.drained:
			case <-ctx.Done():
				for _, seg := range list {
					seg.retiring.Store(false)
				}
				return fmt.Errorf("wait for readers of %s: %w", seg.path, ctx.Err())
			}
		}
	}
	return nil
}

// lastRecord is the position of a record, -1 for none, and its store time.
type lastRecord struct{ at, time int64 }

// recordBefore checks that at is a record edge and gives the record before it.
func (s *Store) recordBefore(at message.Position) (lastRecord, error) {
	list := *s.list.Load()
	pos := at
	for {
		seg := list.at(pos)
		if seg == nil || message.Position(seg.base) == at {
			if seg = list.at(pos - 1); seg == nil {
				return lastRecord{at: -1}, nil
			}
		}
		last, any := lastRecord{}, false
		err := s.walk(message.Position(seg.base), min(pos, message.Position(seg.base+seg.size)), func(v *message.View) error {
			last, any = lastRecord{int64(v.Position), v.StoreTime}, true
			return nil
		})
		if any || err != nil {
			return last, err
		}
		pos = message.Position(seg.base)
		at = pos
	}
}

// truncate does the work; leases are gone.
func (s *Store) truncate(at message.Position, last lastRecord) error {
	m, w := &s.marks, &s.writer
	if err := writeCut(s.fs, s.path.cut, at); err != nil {
		return err
	}
	below := int64(at) < m.published.Load()
	m.pubSeq.Add(1)
	defer m.pubSeq.Add(1)
	m.cuts.Add(1)
	defer m.cuts.Add(1)
	if below {
		m.published.Store(int64(at))
		m.pubTime.Store(min(m.pubTime.Load(), last.time))
		m.pubAt.Store(min(m.pubAt.Load(), last.at))
		err := s.setFlushed(min(s.cp.flushedAt, last.at))
		if err := errors.Join(err, s.cp.set(cpConfirm, int64(at)), s.cp.sync()); err != nil {
			return err
		}
		if err := s.queues.cut(at); err != nil {
			return err
		}
		if s.keys != nil {
			if err := s.keys.cut(at); err != nil {
				return err
			}
		}
	}
	kept := w.waiting[:0]
	for _, b := range w.waiting[w.head:] {
		if b.End() <= at {
			kept = append(kept, b)
		} else {
			s.giveBackKeys(b)
			b.Done()
		}
	}
	clear(w.waiting[len(kept):])
	w.waiting, w.head = kept, 0
	m.tail.Store(int64(at))
	m.durable.Store(min(m.durable.Load(), int64(at)))
	m.lastTime.Store(last.time)
	m.lastAt.Store(last.at)
	m.syncedAt.Store(min(m.syncedAt.Load(), last.at))
	if s.dropped.cut(at) {
		if err := s.dropped.save(s.fs, s.path.droppedFile, message.Position(m.first.Load())); err != nil {
			return err
		}
	}
	s.prep.drop() // it may not lie behind a gap
	list, err := s.cutFiles(*s.list.Load(), at)
	if err != nil {
		return err
	}
	s.list.Store(&list)
	w.cur = list.last()
	if w.cur != nil {
		w.cur.lastTime.Store(last.time)
		if w.cur.base == int64(at) {
			w.cur.firstTime.Store(0)
			w.cur.lastTime.Store(0)
		}
	}
	s.damage.within(message.Position(m.first.Load()), at)
	if err := s.saveDamage(list, at); err != nil {
		return err
	}
	return errors.Join(s.fs.Remove(s.path.cut), s.fs.SyncDir(s.path.root))
}

// Reset implements [storage.RawLog].
func (s *Store) Reset(ctx context.Context, first message.Position, ends []message.Unit) error {
	if !s.gate.enter() {
		return storage.ErrNotRunning
	}
	defer s.gate.leave()
	if err := s.changeable(); err != nil {
		return err
	}
	if first < 0 || int64(first)%s.p.Segment != 0 {
		return fmt.Errorf("%w: reset to %d, which is no edge of segments of %d bytes", storage.ErrGap, first, s.p.Segment)
	}
	if err := s.takeCut(ctx); err != nil {
		return err
	}
	defer s.giveCut()
	select {
	case <-s.syncTurn:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { s.syncTurn <- struct{}{} }()
	if err := drain(ctx, *s.list.Load()); err != nil {
		return err
	}
	old, published := message.Position(s.marks.first.Load()), message.Position(s.marks.published.Load())
	s.flushMu.Lock()
	err := s.reset(old, first, ends)
	s.lookedAt = 0
	s.flushMu.Unlock()
	if err != nil {
		return s.fail(fmt.Errorf("reset the log to %d: %w", first, err))
	}
	if f := s.p.Events.Truncated; f != nil && old < published {
		s.events.begin()
		f(min(old, first))
		s.events.end()
	}
	return nil
}

func (s *Store) reset(old, first message.Position, ends []message.Unit) error {
	m := &s.marks
	m.pubSeq.Add(1)
	defer m.pubSeq.Add(1)
	m.cuts.Add(1)
	defer m.cuts.Add(1)
	// A crash from here on leaves an empty log.
	if err := writeCut(s.fs, s.path.cut, old); err != nil {
		return err
	}
	m.published.Store(min(m.published.Load(), int64(old)))
	for _, b := range s.writer.take() {
		s.giveBackKeys(b)
		b.Done()
	}
	s.prep.drop()
	list, err := s.cutFiles(*s.list.Load(), old)
	if err != nil {
		return err
	}
	for _, seg := range list {
		seg.retiring.Store(true)
		seg.release()
		if err := s.fs.Remove(seg.path); err != nil {
			return err
		}
	}
	if err := s.queues.reset(ends); err != nil {
		return err
	}
	if s.keys != nil {
		if err := s.keys.cut(0); err != nil {
			return err
		}
	}
	s.dropped.Queues = nil
	if err := s.dropped.save(s.fs, s.path.droppedFile, first); err != nil {
		return err
	}
	seg, err := s.prep.take(int64(first))
	if err != nil {
		return err
	}
	s.list.Store(&segments{seg})
	s.writer.cur = seg
	err = errors.Join(s.setFlushed(-1), s.cp.setLogics(0), s.cp.set(cpPhysicTime, 0), s.cp.set(cpIndexTime, 0))
	if err := errors.Join(err, s.cp.set(cpConfirm, int64(first)), s.cp.sync()); err != nil {
		return err
	}
	m.first.Store(int64(first))
	m.tail.Store(int64(first))
	m.published.Store(int64(first))
	m.durable.Store(int64(first))
	m.lastTime.Store(0)
	m.pubTime.Store(0)
	m.lastAt.Store(-1)
	m.syncedAt.Store(-1)
	m.pubAt.Store(-1)
	s.damage.within(first, first)
	if err := s.saveDamage(nil, first); err != nil {
		return err
	}
	return errors.Join(s.fs.Remove(s.path.cut), s.fs.SyncDir(s.path.root))
}
