package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
)

// ErrOrder: Rewind of a Pending that is not the latest one assigned.
var ErrOrder = errors.New("only the latest assignment can be undone")

// Pending is a combined batch in the making: records of many connections, not
// yet placed. Positions in Units and Keys are relative to Buf until
// [Sequencer.Assign]. The engine owns it, fills it, and gets it back when all
// of Batches are freed and all groups answered.
type Pending struct {
	Buf    []byte
	Units  []message.Unit
	Keys   []message.Key
	Groups []Group

	// Owner is the engine's. Assign copies it and Free into the Batches.
	Owner any
	// Free is called once per Batch, see Batch.Free.
	Free func(*Batch)

	// Batches is what Assign makes of it: one, or several at segment edges.
	Batches []Batch
	// At is where the reserved lead begins, or the first record; End is behind
	// the last record.
	At, End message.Position

	// undo is what Rewind needs.
	undoTail message.Position
	undoTime int64
	assigned bool
}

// Reset empties p for reuse, keeping its capacity, Owner and Free.
func (p *Pending) Reset() {
	clear(p.Batches)
	*p = Pending{
		Buf: p.Buf[:0], Units: p.Units[:0], Keys: p.Keys[:0], Groups: p.Groups[:0],
		Batches: p.Batches[:0], Owner: p.Owner, Free: p.Free,
	}
}

// Sequencer gives positions, queue offsets and store times, and stamps them
// into the records; nobody else does. It serves one term of office and begins
// from a store whose published mark equals its tail, so that no table of queue
// ends is ever rolled back. Whoever holds the turn of the log places with it;
// others may look at any time, since an office can begin while they do. It is
// shared core code, not a contract.
type Sequencer struct {
	clock   plugin.Clock
	watch   SequencerWatcher // nil: nobody; not changed after the first use
	segment atomic.Int64     // bytes; senders ask for it without the turn

	mu     sync.Mutex // of all that follows
	term   uint64
	tail   message.Position
	last   int64 // store time of the last record: times never fall
	ends   map[message.Queue]*int64
	recent [256]recentEnd // of ends, by Queue.Slot: messages of several queues take turns
	latest *Pending
}

// recentEnd is an entry of ends; next is nil where there is none.
type recentEnd struct {
	queue message.Queue
	next  *int64
}

// SequencerWatcher is told what a Sequencer did, in order, so that one in another
// process can be made to do the same. Arguments are lent for the call. The
// Sequencer is locked meanwhile: a watcher must not call it, and must not block.
type SequencerWatcher interface {
	// Opened: an office began, with the arguments of Open.
	Opened(term uint64, st State, ends []OffsetAnswer)
	// Assigned: p was placed behind a lead of so many bytes; last is the store time
	// of its records.
	Assigned(p *Pending, lead int, last int64)
	// Undone: the batches of p from one on are about to be taken back, all of p by
	// Rewind. tail and last are what they will be.
	Undone(p *Pending, from int, rewind bool, tail message.Position, last int64)
	// Forgot: a queue begins at 0 again.
	Forgot(q message.Queue)
}

// NewSequencer makes a Sequencer that must be opened before use.
func NewSequencer(clock plugin.Clock) *Sequencer {
	if clock == nil {
		clock = plugin.SystemClock{}
	}
	return &Sequencer{clock: clock}
}

// Watch makes w the watcher; before the first use of s, once.
func (s *Sequencer) Watch(w SequencerWatcher) { s.watch = w }

// Continue tells a Sequencer that was not opened yet which office came last, where
// an earlier one served the store since it was started.
func (s *Sequencer) Continue(term uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.term = term
}

// Open begins a term of office. ends are those of all queues, as
// Store.Offsets without a query gives them.
func (s *Sequencer) Open(term uint64, st State, ends []OffsetAnswer) error {
	if st.Published != st.Tail {
		return fmt.Errorf("sequencer: the log is published up to %d but ends at %d; publish or truncate before an office begins", st.Published, st.Tail)
	}
	if st.Segment <= message.MinRecordSize+message.BlankSize {
		return fmt.Errorf("sequencer: segments of %d bytes hold no record", st.Segment)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.segment.Store(st.Segment)
	s.term, s.tail, s.last = term, st.Tail, st.LastStoreTime
	s.ends = make(map[message.Queue]*int64, len(ends))
	for i := range ends {
		v := ends[i].Max
		s.ends[ends[i].Queue] = &v
	}
	s.recent, s.latest = [256]recentEnd{}, nil
	if s.watch != nil {
		s.watch.Opened(term, st, ends)
	}
	return nil
}

// Adopt makes s what another Sequencer of the same office became by placing, or
// taking back, what s does not have: tail and last as they are now, and of ends
// the next offsets (Max) of the queues concerned.
func (s *Sequencer) Adopt(tail message.Position, last int64, ends []OffsetAnswer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tail, s.last, s.latest = tail, last, nil
	for i := range ends {
		*s.end(&ends[i].Queue) = ends[i].Max
	}
}

// Term is the office that Open began, or the one before (Continue).
func (s *Sequencer) Term() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.term
}

// Tail is where the next record goes.
func (s *Sequencer) Tail() message.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tail
}

// Forget makes a dropped queue begin at 0 again.
func (s *Sequencer) Forget(q message.Queue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ends, q)
	if r := &s.recent[q.Slot()]; r.queue == q {
		*r = recentEnd{}
	}
	if s.watch != nil {
		s.watch.Forgot(q)
	}
}

// Ends calls yield for each queue with the next offset to be given, in no order,
// until yield returns false. yield must not call the Sequencer.
func (s *Sequencer) Ends(yield func(q message.Queue, next int64) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for q, e := range s.ends {
		if !yield(q, *e) {
			return
		}
	}
}

// Segment is the segment size in bytes, 0 before the first Open.
func (s *Sequencer) Segment() int64 { return s.segment.Load() }

// Fits reports whether a group of n bytes fits into a segment at all.
func (s *Sequencer) Fits(n int) bool { return int64(n)+message.BlankSize <= s.Segment() }

// Assign places p's groups, each within one segment, stamps position, queue
// offset and store time into every record, completes Units and Keys, and fills
// p.Batches, p.At and p.End. With lead > 0 that many bytes are reserved before
// the first group at p.At, and everything stays in one segment; when a group has
// Edge, the lead begins a segment for all of them. The caller writes the lead as
// a batch of its own. All records of p get one store time.
//
// ErrTooLarge, with nothing changed, when a group (or the whole, with a lead)
// fits into no segment.
func (s *Sequencer) Assign(p *Pending, lead int) error {
	return s.AssignAt(p, lead, s.clock.Now().UnixMilli())
}

// AssignAt is Assign at a given time, in ms: what one Sequencer placed becomes the
// same in another one that was opened alike.
func (s *Sequencer) AssignAt(p *Pending, lead int, now int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	segment := s.Segment()
	if lead > 0 {
		if !s.Fits(lead + len(p.Buf)) {
			return fmt.Errorf("%w: %d bytes with their frame, segments have %d", ErrTooLarge, lead+len(p.Buf), segment)
		}
	} else {
		for i := range p.Groups {
			if !s.Fits(int(p.Groups[i].Len)) {
				return fmt.Errorf("%w: a group of %d bytes, segments have %d", ErrTooLarge, p.Groups[i].Len, segment)
			}
		}
	}
	p.undoTail, p.undoTime, p.assigned = s.tail, s.last, true
	s.latest = p
	s.last = max(s.last, now)
	pos := s.tail
	room := segment - int64(pos)%segment
	if lead > 0 && room < segment && (int64(lead+len(p.Buf))+message.BlankSize > room || slices.ContainsFunc(p.Groups, edge)) {
		pos += message.Position(room)
		room = segment
	}
	p.At = pos
	pos += message.Position(lead)
	room -= int64(lead)
	p.Batches = p.Batches[:0]
	start, at := 0, pos // first group of the batch under way, and its position
	for i := range p.Groups {
		g := &p.Groups[i]
		if int64(g.Len)+message.BlankSize > room || lead == 0 && g.Edge && room < segment {
			s.cut(p, start, i, at)
			pos += message.Position(room)
			room = segment
			start, at = i, pos
			if i == 0 {
				p.At = pos
			}
		}
		s.stamp(p, g, pos)
		pos += message.Position(g.Len)
		room -= int64(g.Len)
	}
	s.cut(p, start, len(p.Groups), at)
	s.tail, p.End = pos, pos
	if s.watch != nil {
		s.watch.Assigned(p, lead, s.last)
	}
	return nil
}

func edge(g Group) bool { return g.Edge }

// cut closes the batch of the groups [from, to).
func (s *Sequencer) cut(p *Pending, from, to int, at message.Position) {
	if from == to {
		return
	}
	a, z := &p.Groups[from], &p.Groups[to-1]
	b := Batch{
		Term: s.term, At: at,
		Buf:    p.Buf[a.Off : z.Off+z.Len],
		Units:  p.Units[a.Unit : z.Unit+z.Units],
		Keys:   p.Keys[a.Key : z.Key+z.Keys],
		Groups: p.Groups[from:to],
		Owner:  p.Owner, Free: p.Free,
	}
	p.Batches = append(p.Batches, b)
}

// stamp walks the records of a group that begins at pos.
func (s *Sequencer) stamp(p *Pending, g *Group, pos message.Position) {
	u, uEnd := g.Unit, g.Unit+g.Units
	k, kEnd := g.Key, g.Key+g.Keys
	end := g.Off + g.Len
	for off := g.Off; off < end; {
		rec := p.Buf[off:end]
		size := int32(binary.BigEndian.Uint32(rec))
		if size < message.MinRecordSize || size > int32(len(rec)) {
			panic(fmt.Sprintf("sequencer: a record of %d bytes in a group with %d left", size, len(rec)))
		}
		at := pos + message.Position(off-g.Off)
		first := int64(0)
		for n := 0; u < uEnd && p.Units[u].At == message.Position(off); u++ {
			unit := &p.Units[u]
			e := s.end(&unit.Queue)
			unit.Offset, unit.At, unit.StoreTime = *e, at, s.last
			if unit.Queue.Topic == message.ScheduleTopic && delayed(rec) {
				unit.TagsCode += s.last
			}
			*e++
			if n == 0 {
				first = unit.Offset
			}
			n++
		}
		for ; k < kEnd && p.Keys[k].At == message.Position(off); k++ {
			p.Keys[k].At, p.Keys[k].StoreTime = at, s.last
		}
		message.Stamp(rec, at, first, s.last)
		off += size
	}
	if u != uEnd || k != kEnd {
		panic(fmt.Sprintf("sequencer: a group's units or keys do not point at its records (%d of %d units, %d of %d keys placed)", u-g.Unit, g.Units, k-g.Key, g.Keys))
	}
}

// delayed reports whether the tags code of a record in ScheduleTopic is a time:
// the same rule as the Deriver's.
func delayed(rec []byte) bool {
	var v message.View
	if message.Parse(rec, &v) != nil {
		return false
	}
	var f message.Facts
	f.Scan(v.Properties)
	return f.Delay > 0
}

func (s *Sequencer) end(q *message.Queue) *int64 {
	r := &s.recent[q.Slot()]
	if r.next == nil || r.queue != *q {
		r.queue, r.next = *q, s.endOf(*q)
	}
	return r.next
}

func (s *Sequencer) endOf(q message.Queue) *int64 {
	e := s.ends[q]
	if e == nil {
		e = new(int64)
		s.ends[q] = e
	}
	return e
}

// Rewind undoes the latest Assign, for a proposal that was dropped before
// anything was written. p's Units and Keys are relative again, so that it can
// be assigned anew. ErrOrder for any but the latest.
func (s *Sequencer) Rewind(p *Pending) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p != s.latest || !p.assigned {
		return ErrOrder
	}
	if s.watch != nil {
		s.watch.Undone(p, 0, true, p.undoTail, p.undoTime)
	}
	for i := len(p.Groups) - 1; i >= 0; i-- {
		g := &p.Groups[i]
		base := p.baseOf(i)
		for u := g.Unit + g.Units - 1; u >= g.Unit; u-- {
			unit := &p.Units[u]
			*s.end(&unit.Queue) = unit.Offset
			unit.At -= base
			if unit.Queue.Topic == message.ScheduleTopic && delayed(p.Buf[unit.At:]) {
				unit.TagsCode -= unit.StoreTime
			}
			unit.Offset, unit.StoreTime = 0, 0
		}
		for k := g.Key; k < g.Key+g.Keys; k++ {
			p.Keys[k].At -= base
			p.Keys[k].StoreTime = 0
		}
	}
	s.tail, s.last = p.undoTail, p.undoTime
	p.Batches, p.assigned = p.Batches[:0], false
	p.At, p.End = 0, 0
	s.latest = nil
	return nil
}

// Abandon undoes part of the latest Assign: the groups of p.Batches[from:], none
// of which is in the log, while those before are. Their queue offsets and
// positions will be given again. p is left as it is, since its groups are still
// to be answered; it must not be assigned again. ErrOrder for any but the
// latest.
func (s *Sequencer) Abandon(p *Pending, from int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p != s.latest || !p.assigned || from >= len(p.Batches) {
		return ErrOrder
	}
	tail, last := p.undoTail, p.undoTime
	if from > 0 {
		tail, last = p.Batches[from-1].End(), s.last
	}
	if s.watch != nil {
		s.watch.Undone(p, from, false, tail, last)
	}
	for n := len(p.Batches) - 1; n >= from; n-- {
		units := p.Batches[n].Units
		for i := len(units) - 1; i >= 0; i-- {
			*s.end(&units[i].Queue) = units[i].Offset
		}
	}
	s.tail, s.last = tail, last
	p.assigned, s.latest = false, nil
	return nil
}

// baseOf is what Assign added to the relative positions of group i.
func (p *Pending) baseOf(i int) message.Position {
	for n := range p.Batches {
		b := &p.Batches[n]
		if i < len(b.Groups) {
			return b.At - message.Position(b.Groups[0].Off)
		}
		i -= len(b.Groups)
	}
	panic("sequencer: a group outside of all batches")
}
