package commitlog

import (
	"errors"
	"path/filepath"

	"github.com/hardpointmq/hardpoint/core/message"
)

// What the queues say is derived from the log. Where both disagree at start the
// queues are made again: a record is never given up because of a queue.

// badUnits is a run of units that cannot be right.
type badUnits struct {
	from, to int64 // offsets
	// keep is up to which offset there were units, as far as can be told.
	keep int64
	// Their records lie in [lo, hi); hi is −1 where no good unit follows.
	lo, hi message.Position
	why    string
}

// unreadable stands for what a file occupies that is missing or has another size.
const unreadable = -2

// doubt looks whether the first and the last unit of each file can be: they lie
// in the log and in its order. last is the last file with units, holes are what
// is missing in it, and odd tells of bytes in it that cannot be.
func (q *queue) doubt(r *unitReader, l loading, onDisk []int64, last int, holes []badUnits, odd bool) error {
	o, per := q.load, q.ix.fileSize/unitSize
	can := func(u unit) bool {
		return u.blank() && u.size > 0 || u.size >= message.MinRecordSize && u.at >= 0 && u.at+message.Position(u.size) <= l.end
	}
	var end message.Position // of the record of the last good unit
	open := 0                // from here on bad has no hi
	for i, f := range q.files {
		from := f.base / unitSize
		if onDisk[i] == unreadable {
			o.bad = append(o.bad, badUnits{from: from, to: from + per, keep: from, lo: max(end, l.first), hi: -1, why: "the file is missing or has another size"})
			continue
		}
		if i > last {
			continue
		}
		to := from + per
		if i == last {
			to = o.end
		}
		a, err := r.unit(from)
		if err != nil {
			return err
		}
		z, err := r.unit(to - 1)
		if err != nil {
			return err
		}
		if i == last {
			for h := range holes {
				b := &holes[h]
				b.lo, b.hi = max(end, l.first), -1
				if b.from > from {
					u, err := r.unit(b.from - 1)
					if err != nil {
						return err
					}
					if odd = odd || !can(u); !u.blank() {
						b.lo = u.at + message.Position(u.size)
					}
				}
				u, err := r.unit(b.to)
				if err != nil {
					return err
				}
				if odd = odd || !can(u); !u.blank() {
					b.hi = u.at
				}
				odd = odd || b.hi >= 0 && b.hi < b.lo
				b.keep, b.why = b.to, "units are missing in the middle of the file"
			}
			if len(holes) > 0 && holes[0].from == from {
				if a, err = r.unit(holes[0].to); err != nil {
					return err
				}
			}
		}
		b := badUnits{from: from, to: from + per, keep: from, lo: max(end, l.first), hi: -1, why: "its first or last unit points outside the log"}
		switch {
		case !can(a) || !can(z) || i == last && odd:
			if i == last && can(z) {
				b.keep = to
			}
			o.bad = append(o.bad, b)
			if i == last {
				holes = nil
			}
			continue
		case !a.blank() && a.at < end || !z.blank() && z.at < a.at:
			// Which file is wrong cannot be told.
			o.bad = []badUnits{{from: q.files[0].base / unitSize, to: q.files[len(q.files)-1].base/unitSize + per, keep: o.end, lo: l.first, hi: -1, why: "its files are not in the order of the log"}}
			return nil
		}
		for ; open < len(o.bad) && !a.blank(); open++ {
			o.bad[open].hi = a.at
		}
		if !z.blank() && i < last {
			end = z.at + message.Position(z.size)
		}
	}
	o.bad = append(o.bad, holes...)
	return nil
}

// hole is told that a reader found no unit below the queue's end: zeros in the
// middle of a file, which a start does not look at.
func (q *queue) hole(k int64) {
	if q.holey.Load() || q.holey.Swap(true) {
		return
	}
	q.ix.log.Warn("a unit is missing in a ConsumeQueue, and readers pass it over; to have the queue made again from the log, stop the broker and run hardpoint store repair",
		"topic", q.key.Topic, "queue", q.key.ID, "offset", k, "file", filepath.Join(q.dir(), fileName(k*unitSize/q.ix.fileSize*q.ix.fileSize)))
}

// trust finds where the queues end that can be trusted, behind the last record
// that has a unit.
func (s *Store) trust(r *recovery) {
	for _, q := range s.queues.byKey {
		if o := q.load; len(o.bad) == 0 && !o.last.blank() {
			r.units = max(r.units, o.last.at+message.Position(o.last.size))
		}
	}
}

// gap reports whether units are missing before those of a record, with nothing
// known that explains it: files of the queue were lost or zeroed, and its older
// records lie before where the scan began.
func (s *Store) gap(r *recovery, v *message.View, units []message.Unit) bool {
	if r.start == message.Position(r.first()) || v.Position+message.Position(v.Size) > r.limit {
		return false
	}
	for i := range units {
		u := &units[i]
		var end int64
		if q := s.queues.find(u.Queue); q != nil {
			end = max(q.max.Load(), q.hidden())
		}
		if u.Offset > end && !s.dropped.covers(u.Queue, u.At) && len(s.damage.report()) == r.damages {
			s.p.Logger.Warn("a ConsumeQueue ends before the log says; the queues are made again from the whole log", "topic", u.Queue.Topic,
				"queue", u.Queue.ID, "end", end, "offset", u.Offset, "position", v.Position)
			return true
		}
	}
	return false
}

// scanAgain begins the scan at the log's first record. Keys below pos are
// indexed already.
func (s *Store) scanAgain(r *recovery, pos message.Position) error {
	r.again, r.flushed = true, -1
	if err := errors.Join(s.setFlushed(-1), s.cp.sync()); err != nil {
		return err
	}
	s.queues.hideAll(message.Position(r.first()))
	r.start = message.Position(r.first())
	r.keysFrom = max(r.keysFrom, pos)
	r.tail, r.published, r.lastEnd = r.start, min(r.start, r.limit), r.start
	r.lastTime, r.times, r.pubTime, r.records = 0, recordTimes{}, 0, 0
	r.lastAt, r.pubAt = -1, -1
	return nil
}
