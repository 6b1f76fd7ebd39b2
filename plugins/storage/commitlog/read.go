package commitlog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

const (
	// readUnits is how many units are copied at a time.
	readUnits = 64
	// hotBytes below the tail are taken for resident without asking.
	hotBytes = 64 << 20
	// probeBytes is how much of the log one question about residency covers.
	probeBytes = 256 << 10
)

// errUnreadable: no record where a unit points.
var errUnreadable = errors.New("no record where the index points")

// gather collects records for one chunk.
type gather struct {
	s     *Store
	c     *storage.Chunk
	lease *lease
	cuts  uint64 // marks.cuts when it began
	list  segments
	seg   *segment
	// known is the range found to be resident; next is the end of the last
	// fragment, for merging, when that lies in the mapping (inMap) or buffer.
	knownFrom, knownTo int64
	next               int64
	inMap              bool
	buf                *buffer
	hot                int64 // from here on all is resident
	bytes              int64
}

func (s *Store) newGather(c *storage.Chunk) gather {
	cuts := s.marks.cuts.Load() // before anything else of the log is looked at
	return gather{s: s, c: c, lease: s.leaseOf(c), cuts: cuts, list: *s.list.Load(), next: -1, hot: s.marks.tail.Load() - hotBytes}
}

// stale reports whether the log is being cut, or was since the gather began:
// what was read of index and marks may then speak of other records.
func (g *gather) stale() bool { return g.cuts&1 != 0 || g.s.marks.cuts.Load() != g.cuts }

// enter makes the segment of pos the current one and holds it; false when it is
// gone, or about to be. Once it is held no cut reaches into it, so what was read
// before is true if there was none until then.
func (g *gather) enter(pos message.Position) (bool, error) {
	if seg := g.seg; seg != nil && int64(pos) >= seg.base && int64(pos) < seg.base+seg.size {
		return true, nil
	}
	seg := g.list.at(pos)
	if seg == nil {
		return false, nil
	}
	if !slices.Contains(g.lease.segs, seg) {
		if !seg.acquire() {
			return false, nil
		}
		g.lease.hold(seg)
		if g.stale() {
			return false, nil
		}
	}
	if err := seg.open(); err != nil {
		return false, err
	}
	g.seg, g.knownFrom, g.knownTo = seg, 0, 0
	return true, nil
}

// resident reports whether bytes of the current segment can be read from the
// mapping without waiting.
func (g *gather) resident(off, n int64) bool {
	seg := g.seg
	if seg.mem == nil {
		return false
	}
	if seg.base+off >= g.hot || off >= g.knownFrom && off+n <= g.knownTo {
		return true
	}
	for _, probe := range [2]int64{max(n, probeBytes), n} {
		probe = min(probe, seg.size-off)
		have, err := seg.m.Resident(off, probe)
		if err != nil || have == probe { // where the system cannot tell, trust it
			g.knownFrom, g.knownTo = off, off+probe
			return true
		}
		if probe == n {
			break
		}
	}
	return false
}

// bytesAt lends n bytes of the current segment. cold tells that they were read.
func (g *gather) bytesAt(off, n int64, resident bool) ([]byte, error) {
	if resident {
		g.buf = nil
		return g.seg.mem[off : off+n : off+n], nil
	}
	b := g.lease.room(int(n))
	at := len(b.b)
	p := b.b[at : at+int(n)]
	if _, err := g.seg.file.ReadAt(p, off); err != nil {
		return nil, err
	}
	b.b = b.b[:at+int(n)]
	g.buf = b
	return p, nil
}

// add appends the bytes [off, off+len(p)) of the current segment to the
// fragments, joined with the last one where they continue it in memory.
func (g *gather) add(p []byte, off int64, resident bool) {
	pos, c := g.seg.base+off, g.c
	if k := len(c.Frags) - 1; k >= 0 {
		last := c.Frags[k]
		switch {
		case resident && g.inMap && g.next == pos && off >= int64(len(last)):
			start := off - int64(len(last))
			c.Frags[k] = g.seg.mem[start : off+int64(len(p)) : off+int64(len(p))]
			g.next = pos + int64(len(p))
			return
		case !resident && !g.inMap && g.buf != nil && len(g.buf.b) >= len(last)+len(p):
			start := len(g.buf.b) - len(p) - len(last)
			if &g.buf.b[start] == &last[0] {
				c.Frags[k] = g.buf.b[start:len(g.buf.b):len(g.buf.b)]
				g.next = pos + int64(len(p))
				return
			}
		}
	}
	c.Frags = append(c.Frags, p)
	g.next, g.inMap = pos+int64(len(p)), resident
}

// checkRecord reports whether rec can be the record of size bytes at pos.
func checkRecord(rec []byte, pos message.Position, size int32) bool {
	be := binary.BigEndian
	if len(rec) < message.MinRecordSize || int32(be.Uint32(rec)) != size || message.Position(be.Uint64(rec[28:])) != pos {
		return false
	}
	m := be.Uint32(rec[4:])
	return m == message.MagicV1 || m == message.MagicV2
}

// damaged notes a record that cannot be read.
func (s *Store) damaged(pos message.Position, size int32, seg *segment, reason string) {
	d := storage.Damage{From: pos, To: pos + message.Position(max(size, 1)), Reason: reason}
	if seg != nil {
		d.File = seg.path
	}
	if s.damage.add(d, false) {
		s.p.Logger.Warn("damage in the log, the record is passed over", "from", d.From, "to", d.To, "file", d.File, "reason", reason)
	}
}

// Read implements [storage.Store].
func (s *Store) Read(_ context.Context, r storage.ReadRequest, c *storage.Chunk) error {
	c.Reset()
	if !s.gate.enter() {
		return storage.ErrNotRunning
	}
	defer s.gate.leave()
	q := s.queues.get(r.Queue)
	if q == nil || !q.known.Load() {
		c.Status = storage.NoMatchedLogicQueue
		return nil
	}
	c.Max = q.max.Load()
	c.Min = min(q.min.Load(), c.Max)
	switch {
	case c.Max == 0:
		c.Status = storage.NoMessageInQueue
	case r.Offset < c.Min:
		c.Status, c.Next = storage.OffsetTooSmall, c.Min
	case r.Offset == c.Max:
		c.Status, c.Next = storage.OffsetOverflowOne, c.Max
	case r.Offset > c.Max:
		c.Status, c.Next = storage.OffsetOverflowBadly, c.Max
	default:
		return s.readUnits(q, &r, c)
	}
	return nil
}

// readUnits goes along the units from r.Offset on.
func (s *Store) readUnits(q *queue, r *storage.ReadRequest, c *storage.Chunk) error {
	g := s.newGather(c)
	b := &g.lease.units
	c.Next = r.Offset
	gone, filtered, scanned := false, false, int32(0)
	want := int64(readUnits)
	if len(r.Tags) == 0 && r.Hot.Count > 0 {
		want = min(want, int64(r.Hot.Count))
	}
units:
	for c.Next < c.Max {
		n, err := q.readShown(c.Next, b[:min(want, c.Max-c.Next)*unitSize])
		if errors.Is(err, fs.ErrNotExist) { // expired or dropped meanwhile
			gone = true
			if low := min(q.min.Load(), c.Max); low > c.Next {
				c.Next = low
				continue
			}
			break
		}
		if err != nil {
			if len(c.Units) > 0 {
				break
			}
			c.Release()
			return fmt.Errorf("read the index of queue %s: %w", q.key, err)
		}
		if n == 0 { // cut meanwhile: the same offset again
			gone = true
			break
		}
		for i := range n {
			u := decodeUnit(b[i*unitSize:])
			if u.blank() {
				if u.size <= 0 {
					q.hole(c.Next)
					c.Skipped++
				}
				c.Next++
				continue
			}
			if len(r.Tags) > 0 {
				if r.Scan > 0 && scanned >= r.Scan {
					break units
				}
				scanned++
				if _, ok := slices.BinarySearch(r.Tags, u.tags); !ok {
					filtered = true
					c.Next++
					continue
				}
			}
			more, err := g.record(u, c.Next, r)
			if errors.Is(err, errGone) {
				if g.outside(u.at) {
					s.damaged(u.at, 1, nil, "the ConsumeQueue of "+q.key.String()+" points outside the log")
					c.Skipped++
					c.Next++
					continue
				}
				gone = true
				if int64(u.at) >= s.marks.first.Load() {
					break units // being cut or expired now: the same offset again
				}
				c.Next++
				continue
			}
			if err != nil {
				if len(c.Units) > 0 {
					break units
				}
				c.Release()
				return err
			}
			if !more {
				break units
			}
			c.Next++
		}
	}
	switch {
	case len(c.Units) > 0:
		c.Status = storage.Found
	case gone:
		c.Status = storage.MessageWasRemoving
	case filtered || c.Skipped > 0:
		c.Status = storage.NoMatchedMessage
	default:
		c.Status = storage.OffsetFoundNull
	}
	if len(c.Units) == 0 {
		c.Release()
	}
	return nil
}

// outside tells a unit that points where the log never was, as in a damaged
// file, from one whose record was cut: a reader must get past it.
func (g *gather) outside(at message.Position) bool {
	last := g.s.list.Load().last()
	if g.stale() {
		return false
	}
	return at < 0 || last == nil || int64(at) >= last.base+last.size
}

// errGone: the record has been expired or is being cut.
var errGone = errors.New("record is gone")

// record adds the record of a unit; false when the limit is reached. Damaged
// records are counted and passed over.
func (g *gather) record(u unit, offset int64, r *storage.ReadRequest) (bool, error) {
	c, s := g.c, g.s
	ok, err := g.enter(u.at)
	if err != nil {
		return false, err
	}
	if !ok {
		return true, errGone
	}
	seg := g.seg
	off, size := int64(u.at)-seg.base, int64(u.size)
	if size < message.MinRecordSize || off+size > seg.size {
		s.damaged(u.at, u.size, seg, "the index states a size that cannot be")
		c.Skipped++
		return true, nil
	}
	if s.damage.covers(u.at) {
		c.Skipped++
		return true, nil
	}
	if seg.base+off < g.hot {
		seg.readAhead(off, size)
	}
	resident := g.resident(off, size)
	cold := c.Cold || !resident && seg.mem != nil
	limit := r.Hot
	if cold {
		limit = r.Cold
	}
	if n := len(c.Units); n > 0 && (limit.Count > 0 && n >= int(limit.Count) || limit.Bytes > 0 && g.bytes+size > int64(limit.Bytes)) {
		return false, nil
	}
	p, err := g.bytesAt(off, size, resident)
	if err != nil {
		return false, fmt.Errorf("read the record at %d: %w", u.at, err)
	}
	if !checkRecord(p, u.at, u.size) {
		s.damaged(u.at, u.size, seg, errUnreadable.Error())
		c.Skipped++
		return true, nil
	}
	g.add(p, off, resident)
	g.bytes += size
	c.Cold = cold
	c.Units = append(c.Units, message.Unit{Queue: r.Queue, At: u.at, Size: u.size, Offset: offset, TagsCode: u.tags, StoreTime: message.StoreTime(p)})
	return true, nil
}

// Get implements [storage.Store].
func (s *Store) Get(_ context.Context, at []message.Position, c *storage.Chunk) error {
	c.Reset()
	if !s.gate.enter() {
		return storage.ErrNotRunning
	}
	defer s.gate.leave()
	g := s.newGather(c)
	published := message.Position(s.marks.published.Load())
	for _, pos := range at {
		c.Units = append(c.Units, message.Unit{At: pos})
		if pos < 0 || pos >= published {
			continue
		}
		if err := g.get(pos, published, &c.Units[len(c.Units)-1]); err != nil {
			c.Reset()
			return err
		}
	}
	c.Status = storage.Found
	return nil
}

// get adds the record at pos if one begins there.
func (g *gather) get(pos, published message.Position, u *message.Unit) error {
	ok, err := g.enter(pos)
	if err != nil || !ok {
		return err
	}
	seg := g.seg
	off := int64(pos) - seg.base
	if g.s.damage.covers(pos) || off+message.MinRecordSize > seg.size {
		return nil
	}
	head := g.lease.units[:message.BlankSize]
	resident := g.resident(off, message.MinRecordSize)
	if resident {
		copy(head, seg.mem[off:])
	} else if _, err := seg.file.ReadAt(head, off); err != nil {
		return fmt.Errorf("read the record at %d: %w", pos, err)
	}
	size := message.Size(head)
	if m := binary.BigEndian.Uint32(head[4:]); m != message.MagicV1 && m != message.MagicV2 {
		return nil
	}
	if size < message.MinRecordSize || pos+message.Position(size) > published || off+int64(size) > seg.size {
		return nil
	}
	resident = resident && g.resident(off, int64(size))
	p, err := g.bytesAt(off, int64(size), resident)
	if err != nil {
		return fmt.Errorf("read the record at %d: %w", pos, err)
	}
	var v message.View
	if !checkRecord(p, pos, size) || message.Parse(p, &v) != nil {
		return nil
	}
	g.add(p, off, resident)
	g.c.Cold = g.c.Cold || !resident && seg.mem != nil
	u.Queue.ID, u.Size, u.Offset, u.StoreTime = v.QueueID, size, v.QueueOffset, v.StoreTime
	return nil
}
