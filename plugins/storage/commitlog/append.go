package commitlog

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/vfs"
)

// writer is what only the holder of the turn of the log touches.
type writer struct {
	term    uint64
	cur     *segment // nil until the first record
	waiting []*storage.Batch
	head    int // of waiting
	touched chan *segment
	// mark is what the file holds that marks the store as open; nil when there was
	// no space for it.
	mark atomic.Pointer[string]
}

// take empties the queue of unpublished batches.
func (w *writer) take() []*storage.Batch {
	b := w.waiting[w.head:]
	w.waiting, w.head = nil, 0
	return b
}

// Append implements [storage.Store].
func (s *Store) Append(_ context.Context, b *storage.Batch) error {
	if !s.gate.enter() {
		b.Done()
		return storage.ErrNotRunning
	}
	err := s.append(b)
	s.gate.leave()
	return err
}

func (s *Store) append(b *storage.Batch) error {
	if err := s.write(b); err != nil {
		b.Done()
		return err
	}
	if s.p.Publish == storage.Explicit {
		s.writer.waiting = append(s.writer.waiting, b)
		return nil
	}
	err := s.show(b.End(), b.Units, b.Keys)
	b.Done()
	return err
}

// write puts the bytes of b into the log. With an error nothing of it is there.
func (s *Store) write(b *storage.Batch) error {
	if err := s.changeable(); err != nil {
		return err
	}
	w := &s.writer
	if b.Term < w.term {
		return fmt.Errorf("%w: the batch is of term %d, the log has seen %d", storage.ErrFenced, b.Term, w.term)
	}
	size := s.p.Segment
	tail, at, n := s.marks.tail.Load(), int64(b.At), int64(len(b.Buf))
	if n == 0 {
		return fmt.Errorf("%w: a batch without records", storage.ErrUnsupported)
	}
	if n+message.BlankSize > size {
		return fmt.Errorf("%w: %d bytes, segments have %d of which %d stay free", storage.ErrTooLarge, n, size, message.BlankSize)
	}
	edge := (tail + size - 1) / size * size // the next one, or the tail if that is one
	if at != tail && at != edge {
		return fmt.Errorf("%w: batch at %d, the log ends at %d", storage.ErrGap, at, tail)
	}
	if at%size+n+message.BlankSize > size {
		return fmt.Errorf("%w: %d bytes at %d cross the edge of a segment", storage.ErrGap, n, at)
	}
	if err := s.queues.reserve(b.Units); err != nil {
		return s.refused("reserve space for ConsumeQueues", err)
	}
	if s.keys == nil {
		return s.writeAt(b, tail)
	}
	if err := s.keys.reserve(len(b.Keys)); err != nil {
		return s.refused("reserve space for the key index", err)
	}
	err := s.writeAt(b, tail)
	if err != nil {
		s.giveBackKeys(b)
	}
	return err
}

// writeAt writes a batch that was found to fit; tail is the end of the log.
func (s *Store) writeAt(b *storage.Batch, tail int64) error {
	seg := s.writer.cur
	if seg != nil && int64(b.At) < seg.base+s.p.Segment {
		return s.writeTo(b, tail, seg)
	}
	s.growMu.Lock()
	defer s.growMu.Unlock()
	next := s.list.Load().at(b.At) // Expire may have made it
	if next == nil {
		var err error
		if next, err = s.prep.take(int64(b.At) / s.p.Segment * s.p.Segment); err != nil {
			return s.refused("make the next segment", err)
		}
	}
	return s.writeTo(b, tail, next)
}

// writeTo writes a batch into next, which is the segment under way or follows it; then
// growMu is held.
func (s *Store) writeTo(b *storage.Batch, tail int64, next *segment) error {
	w, size := &s.writer, s.p.Segment
	seg, at, n := w.cur, int64(b.At), int64(len(b.Buf))
	if at > tail { // here seg is the segment that ends at the edge
		var head [message.BlankSize]byte
		message.PutBlank(head[:], int32(at-tail))
		if err := s.put(seg, head[:], tail-seg.base); err != nil {
			s.keepNext(next)
			return err
		}
	}
	if err := s.put(next, b.Buf, at-next.base); err != nil {
		if next != seg {
			s.keepNext(next)
		}
		if at > tail && s.failure() == nil { // the blank belongs to this batch
			if zErr := zero(seg, tail-seg.base, message.BlankSize); zErr != nil {
				return s.fail(errors.Join(err, zErr))
			}
		}
		return err
	}
	if next != seg {
		s.enterSegment(seg, next, tail)
	}
	w.term = b.Term
	end := at + n
	s.marks.tail.Store(end)
	t := message.StoreTime(b.Buf)
	if at == next.base {
		next.firstTime.Store(t)
	}
	if k := len(b.Units); k > 0 {
		t = max(t, b.Units[k-1].StoreTime)
	}
	next.lastTime.Store(t)
	s.marks.lastTime.Store(t)
	s.marks.lastAt.Store(at)
	if end-next.base > size/2 {
		s.prep.ask(next.base + size)
	}
	return nil
}

// enterSegment makes next the segment under way; seg, which may be nil, ends at
// tail. growMu is held.
func (s *Store) enterSegment(seg, next *segment, tail int64) {
	if seg != nil {
		seg.end.Store(tail - seg.base)
	}
	s.writer.cur = next
	old := *s.list.Load()
	if old.last() == next {
		return
	}
	list := make(segments, 0, len(old)+1)
	list = append(append(list, old...), next)
	s.list.Store(&list)
}

// keepNext gives an unused segment back; growMu is held.
func (s *Store) keepNext(seg *segment) {
	if s.list.Load().last() == seg {
		return
	}
	p := &s.prep
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seg == nil && p.running == nil {
		p.seg, p.base = seg, seg.base
		return
	}
	path := seg.path
	seg.release()
	_ = s.fs.Remove(path)
}

// refused turns an error of making room into the contract's.
func (s *Store) refused(what string, err error) error {
	if errors.Is(err, vfs.ErrNoSpace) {
		return fmt.Errorf("%w: %s: %w", storage.ErrFull, what, err)
	}
	if errors.Is(err, storage.ErrUnsupported) { // nothing has changed
		return err
	}
	return s.fail(fmt.Errorf("%s: %w", what, err))
}

// put writes bytes into a segment. When that fails, what may have been written
// is made zero again; if that fails too, the store is failed.
func (s *Store) put(seg *segment, b []byte, off int64) error {
	end := off + int64(len(b))
	if seg.writable && seg.mem != nil && end <= seg.populated.Load() {
		copy(seg.mem[off:end], b)
		s.populate(seg, end)
		return nil
	}
	_, err := seg.file.WriteAt(b, off)
	if err == nil {
		s.populate(seg, end)
		return nil
	}
	if zErr := zero(seg, off, int64(len(b))); zErr != nil {
		return s.fail(errors.Join(err, zErr))
	}
	if errors.Is(err, vfs.ErrNoSpace) {
		return fmt.Errorf("%w: %w", storage.ErrFull, err)
	}
	return fmt.Errorf("write %d bytes to the log, nothing of them was kept: %w", len(b), err)
}

// zero makes bytes of a segment zeros. Bytes that were never written are.
func zero(seg *segment, off, n int64) error { return seg.file.ZeroRange(off, min(n, seg.size-off)) }

// populateAhead is how much of a mapping is touched ahead of the tail.
const populateAhead = 4 << 20

// populate touches the mapping ahead of end, in the background.
func (s *Store) populate(seg *segment, end int64) {
	if !seg.writable || seg.mem == nil {
		return
	}
	have := seg.populated.Load()
	if have >= seg.size || have-end > populateAhead/2 {
		return
	}
	select {
	case s.writer.touched <- seg:
	default: // it is busy with that already; until then bytes go by WriteAt
	}
}

// populator touches mappings ahead of the tail.
func (s *Store) populator(ctx context.Context) {
	for {
		var seg *segment
		select {
		case <-ctx.Done():
			return
		case seg = <-s.writer.touched:
		}
		if !seg.acquire() {
			continue
		}
		off := max(s.marks.tail.Load()-seg.base, 0)
		from := max(seg.populated.Load(), off&^4095)
		if n := min(off+populateAhead, seg.size) - from; n > 0 && off < seg.size {
			if err := seg.m.Advise(from, n, vfs.AdvicePopulateWrite); err == nil {
				seg.populated.Store(from + n)
			}
		}
		seg.release()
	}
}
