package storekit

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"sync"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// lease is a buffer that a Chunk borrows.
type lease struct {
	buf []byte
	key []byte
}

var leases = sync.Pool{New: func() any { return new(lease) }}

// maxKept keeps single huge answers from staying in memory for ever.
const maxKept = 4 << 20

// Release implements storage.Lease.
func (l *lease) Release() {
	if cap(l.buf) > maxKept {
		l.buf = nil
	}
	leases.Put(l)
}

func lend(c *storage.Chunk) *lease {
	l := leases.Get().(*lease)
	l.buf = l.buf[:0]
	c.Lease = l
	return l
}

// close hands what was gathered to the chunk.
func (l *lease) close(c *storage.Chunk) {
	if len(l.buf) > 0 {
		c.Frags = append(c.Frags, l.buf)
	}
}

// view is a queue at one moment.
type view struct {
	number   uint32
	known    bool
	min, max int64
}

// look is called with mu held.
func (s *Store) look(name message.Queue) view {
	q := s.queues[name]
	if q == nil || !q.known {
		return view{}
	}
	return view{q.number, true, q.min, q.max}
}

// enter begins a call that reads; leave ends it.
func (s *Store) enter(ctx context.Context) error {
	s.life.RLock()
	if err := s.check(ctx, false); err != nil {
		s.life.RUnlock()
		return err
	}
	s.cut.RLock()
	return nil
}

func (s *Store) leave() {
	s.cut.RUnlock()
	s.life.RUnlock()
}

// Read implements storage.Store.
func (s *Store) Read(ctx context.Context, r storage.ReadRequest, c *storage.Chunk) error {
	c.Reset()
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	s.mu.RLock()
	q := s.look(r.Queue)
	s.mu.RUnlock()
	c.Min, c.Max = q.min, q.max
	switch {
	case !q.known:
		c.Status = storage.NoMatchedLogicQueue
	case q.max == 0:
		c.Status = storage.NoMessageInQueue
	case r.Offset < q.min:
		c.Status, c.Next = storage.OffsetTooSmall, q.min
	case r.Offset > q.max:
		c.Status, c.Next = storage.OffsetOverflowBadly, q.max
	case r.Offset == q.max:
		c.Status, c.Next = storage.OffsetOverflowOne, q.max
	default:
		return s.gather(r, q, c)
	}
	return nil
}

// gather selects units by a scan, then fetches their records.
func (s *Store) gather(r storage.ReadRequest, q view, c *storage.Chunk) error {
	var (
		l       = lend(c)
		looked  int32
		bytes   int64
		next    = r.Offset
		missing = false
	)
	l.key = unitKey(l.key[:0], q.number, r.Offset)
	err := s.scan(l.key, unitKey(nil, q.number, q.max), false, func(k, v []byte) bool {
		off := unitOffset(k)
		if off != next { // a gap: it ends the answer, or is one
			if missing = next == r.Offset; missing {
				next = off
			}
			return false
		}
		if r.Hot.Count > 0 && len(c.Units) >= int(r.Hot.Count) {
			return false
		}
		if len(r.Tags) > 0 && r.Scan > 0 && looked >= r.Scan {
			return false
		}
		u := message.Unit{Queue: r.Queue, Offset: off}
		parseUnit(v, &u)
		if looked++; len(r.Tags) > 0 {
			if _, match := slices.BinarySearch(r.Tags, u.TagsCode); !match {
				next++
				return true
			}
		}
		if bytes += int64(u.Size); r.Hot.Bytes > 0 && bytes > int64(r.Hot.Bytes) && len(c.Units) > 0 {
			return false
		}
		next++
		c.Units = append(c.Units, u)
		return true
	})
	if err != nil {
		return err
	}
	c.Next = next
	switch {
	case missing, looked == 0:
		c.Status = storage.OffsetFoundNull
		if looked == 0 && !missing {
			c.Next = q.max // nothing but a gap up to the end
		}
		return nil
	case len(c.Units) == 0:
		c.Status = storage.NoMatchedMessage
		return nil
	}
	return s.fetch(l, c)
}

// fetch copies the records of c.Units.
func (s *Store) fetch(l *lease, c *storage.Chunk) (err error) {
	kept := c.Units[:0]
	for i := range c.Units {
		u := c.Units[i]
		n := len(l.buf)
		var found bool
		l.key = recordKey(l.key[:0], u.At)
		if l.buf, found, err = s.kv.Get(l.key, l.buf); err != nil {
			return err
		}
		if !found || len(l.buf)-n != int(u.Size) {
			l.buf = l.buf[:n]
			c.Skipped++
			continue
		}
		kept = append(kept, u)
	}
	c.Units = kept
	if len(kept) == 0 {
		c.Status = storage.MessageWasRemoving
		return nil
	}
	c.Status = storage.Found
	l.close(c)
	return nil
}

// Get implements storage.Store.
func (s *Store) Get(ctx context.Context, at []message.Position, c *storage.Chunk) (err error) {
	c.Reset()
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	st := s.State()
	l := lend(c)
	for _, p := range at {
		u := message.Unit{At: p}
		if p >= st.First && p < st.Published {
			n := len(l.buf)
			l.key = recordKey(l.key[:0], p)
			if l.buf, _, err = s.kv.Get(l.key, l.buf); err != nil {
				return err
			}
			if size := len(l.buf) - n; p+message.Position(size) <= st.Published && size >= message.MinRecordSize {
				u.Size, u.StoreTime = int32(size), message.StoreTime(l.buf[n:])
			} else {
				l.buf = l.buf[:n]
			}
		}
		c.Units = append(c.Units, u)
	}
	l.close(c)
	return nil
}

// Offsets implements storage.Store.
func (s *Store) Offsets(ctx context.Context, q []storage.OffsetQuery, a *storage.OffsetAnswers) error {
	a.Answers = a.Answers[:0]
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	var numbers []uint32
	s.mu.RLock()
	a.Published = s.st.Published
	if len(q) == 0 {
		for name, e := range s.queues {
			if e.known {
				a.Answers = append(a.Answers, storage.OffsetAnswer{Queue: name, Known: true, Min: e.min, Max: e.max})
			}
		}
	}
	for i := range q {
		v := s.look(q[i].Queue)
		a.Answers = append(a.Answers, storage.OffsetAnswer{Queue: q[i].Queue, Known: v.known, Min: v.min, Max: v.max})
		if q[i].Kind != storage.Ends {
			numbers = append(numbers, v.number)
		}
	}
	s.mu.RUnlock()
	for i := range q {
		if q[i].Kind == storage.Ends {
			continue
		}
		number := numbers[0]
		numbers = numbers[1:]
		if err := s.byTime(number, q[i], &a.Answers[i]); err != nil {
			return err
		}
	}
	return nil
}

// byTime answers FirstAt and LastAt.
func (s *Store) byTime(number uint32, q storage.OffsetQuery, a *storage.OffsetAnswer) error {
	later := func(u *message.Unit) bool { return u.StoreTime >= q.Time }
	if q.Kind == storage.LastAt {
		later = func(u *message.Unit) bool { return u.StoreTime > q.Time }
	}
	off, err := s.search(number, a.Min, a.Max, later)
	if err != nil {
		return err
	}
	if q.Kind == storage.LastAt && off > a.Min {
		off--
	}
	a.Offset = off
	return nil
}

// search finds the first offset in [from, to) whose unit is beyond; to when
// there is none. Where the index has gaps the next unit counts.
func (s *Store) search(number uint32, from, to int64, beyond func(*message.Unit) bool) (int64, error) {
	var failed error
	n := sort.Search(int(to-from), func(i int) bool {
		if failed != nil {
			return true
		}
		yes := true // beyond the last unit
		failed = s.scan(unitKey(nil, number, from+int64(i)), unitKey(nil, number, to), false, func(_, v []byte) bool {
			var u message.Unit
			parseUnit(v, &u)
			yes = beyond(&u)
			return false
		})
		return yes
	})
	return from + int64(n), failed
}

// Find implements storage.KeyIndex.
func (s *Store) Find(ctx context.Context, q storage.KeyQuery, at []message.Position) ([]message.Position, error) {
	at = at[:0]
	if err := s.enter(ctx); err != nil {
		return at, err
	}
	defer s.leave()
	st := s.State()
	hash := message.KeyHash([]byte(q.Topic), []byte(q.Key))
	from := hashKey(nil, hash, st.Published-1)
	to := be.AppendUint32([]byte{keyHash}, uint32(hash)+1)
	err := s.scan(from, to, false, func(k, v []byte) bool {
		p, ms := hashAt(k), int64(be.Uint64(v))
		if len(at) >= int(q.Max) || ms < q.From || p < st.First {
			return false
		}
		if ms <= q.To {
			at = append(at, p)
		}
		return true
	})
	return at, err
}

// ReadLog implements storage.RawLog.
func (s *Store) ReadLog(ctx context.Context, from message.Position, most int, c *storage.Chunk) error {
	c.Reset()
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	st := s.State()
	if from < st.First || from > st.Tail {
		return fmt.Errorf("%w: read at %d, the log has %d to %d", storage.ErrGap, from, st.First, st.Tail)
	}
	c.Next = int64(from)
	end := min(st.Tail, from+message.Position(max(most, 0)))
	if from == end {
		return nil
	}
	start, err := s.recordBefore(from)
	if err != nil {
		return err
	}
	l := lend(c)
	l.buf = slices.Grow(l.buf, int(end-from))[:end-from]
	clear(l.buf)
	pos := start // everything below is done
	put := func(at message.Position, b []byte) {
		if at < from {
			b = b[min(int(from-at), len(b)):]
			at = from
		}
		if at < end {
			copy(l.buf[at-from:], b)
		}
	}
	gap := func(to message.Position) {
		if to > pos {
			var head [message.BlankSize]byte
			message.PutBlank(head[:], int32(to-pos))
			put(pos, head[:])
		}
	}
	err = s.scan(recordKey(nil, start), recordKey(nil, end), false, func(k, rec []byte) bool {
		at := recordAt(k)
		gap(at)
		put(at, rec)
		pos = at + message.Position(len(rec))
		return true
	})
	if err != nil {
		return err
	}
	if pos < end {
		seg := message.Position(st.Segment)
		gap(pos + seg - pos%seg)
	}
	c.Next = int64(end)
	l.close(c)
	return nil
}
