package commitlog

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/hardpointmq/hardpoint/core/message"
)

// maxRuns bounds the units that recovery keeps in memory until it compares them
// with the files. The more, the less often each queue is opened when records of
// very many of them lie in turn in the log.
const maxRuns = 1 << 20

// cut removes all units of records at or above pos.
func (ix *queueIndex) cut(pos message.Position) error {
	return ix.each(func(q *queue) error { return q.cut(pos) })
}

// each calls do for all queues, for several at a time.
func (ix *queueIndex) each(do func(q *queue) error) error {
	all := ix.all()
	return inParallel(len(all), func(i int) error {
		if err := do(all[i]); err != nil {
			return fmt.Errorf("ConsumeQueue %s: %w", all[i].key, err)
		}
		return nil
	})
}

// cut removes the units of records at or above pos, durably.
func (q *queue) cut(pos message.Position) error {
	if len(q.files) == 0 || q.last() < pos {
		return nil
	}
	old := q.max.Load()
	end, err := q.endBelow(pos)
	if err != nil {
		return err
	}
	q.lowerLast(pos - 1)
	q.firstAt = min(q.firstAt, pos)
	return q.cutTo(end, old)
}

// endBelow is behind the last unit of a record below pos.
func (q *queue) endBelow(pos message.Position) (int64, error) {
	end := q.max.Load()
	if q.last() < pos {
		return end, nil
	}
	if o := q.load; o != nil && o.low >= 0 && pos <= q.firstAt {
		return min(o.low, end), nil
	}
	r := newUnitReader(q)
	defer r.close()
	return r.firstAtOrAbove(pos, min(q.min.Load(), end), end)
}

// cutTo makes end the queue's end; units up to old were written.
func (q *queue) cutTo(end, old int64) error {
	q.max.Store(end)
	q.known.Store(end > 0)
	if q.min.Load() > end {
		q.min.Store(end)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.cur, q.roomFrom, q.roomTo = nil, 0, 0
	removed := false
	for n := len(q.files); n > 1 && q.files[n-1].base > end*unitSize; n = len(q.files) {
		f := q.files[n-1]
		f.closeHandles()
		if err := q.ix.fs.Remove(q.path(f)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		q.files, removed = q.files[:n-1], true
	}
	if removed {
		if err := q.ix.fs.SyncDir(q.dir()); err != nil {
			return err
		}
	}
	if o := q.load; o != nil {
		o.end = min(o.end, end)
	}
	f := q.file(end * unitSize)
	if f == nil {
		return nil
	}
	return q.wipe(f, end*unitSize-f.base, min(old*unitSize-f.base, q.ix.fileSize))
}

// wipe makes the bytes of f from off on zero: those below known, and what is
// found above until two windows are empty. mu is held.
func (q *queue) wipe(f *queueFile, off, known int64) error {
	h, err := q.ix.fs.OpenFile(q.path(f), openRW, 0)
	if err != nil {
		return err
	}
	w := getBuffer(unitWindow)
	defer w.free()
	q.notDurable(f.base + off) // others come to stand there
	changed := false
	for empty := 0; off < q.ix.fileSize && (empty < 2 || off < known); {
		b := w.b[:min(unitWindow, q.ix.fileSize-off)]
		if _, err = h.ReadAt(b, off); err != nil && !errors.Is(err, io.EOF) {
			break
		}
		err = nil
		if used := len(bytes.TrimRight(b, "\x00")); used > 0 {
			clear(b)
			if _, err = h.WriteAt(b[:used], off); err != nil {
				break
			}
			changed, empty = true, 0
		} else {
			empty++
		}
		off += int64(len(b))
	}
	if err == nil && changed {
		err = h.SyncData()
	}
	return errors.Join(err, h.Close())
}

// notDurable says of what is at addr and behind it in the queue that it may not be on
// the disk: the next flush has it. mu is held, or recovery is under way.
func (q *queue) notDurable(addr int64) {
	for _, f := range q.files {
		if at := max(addr-f.base, 0); at < f.flushed.Load() {
			f.flushed.Store(at)
		}
	}
}

// hide is cut without touching the files, for recovery: the units behind are
// needed to know which offsets damaged records had, and most of them are found
// to be right.
func (ix *queueIndex) hide(pos message.Position) error {
	return ix.each(func(q *queue) error {
		if len(q.files) == 0 {
			return nil
		}
		end, err := q.endBelow(pos)
		if err != nil {
			return err
		}
		q.hideFrom(end)
		q.lowerLast(pos - 1)
		return nil
	})
}

// hideAll hides the units of all records that the log, which begins at first,
// still has.
func (ix *queueIndex) hideAll(first message.Position) {
	for _, q := range ix.byKey {
		if len(q.files) == 0 {
			continue
		}
		low := q.load.low
		if low < 0 {
			low = q.files[0].base / unitSize
		}
		q.hideFrom(min(low, q.max.Load()))
		q.lowerLast(first - 1)
	}
}

func (q *queue) hideFrom(end int64) {
	o := q.load
	o.hidden, o.run = max(o.hidden, o.end), o.run[:0]
	q.max.Store(end)
	q.known.Store(end > 0)
	q.notDurable(end * unitSize) // what is shown again may be of a process that was killed
	if q.ix.unsure {
		q.newNames.Store(true)
	}
}

// keepDamaged shows hidden units from the queue's end up to offset to again when
// their records lie in damaged ranges, so that their offsets stay taken. Others
// become blank; with stop it ends at the first of them.
func (q *queue) keepDamaged(to int64, d *damageList, stop bool) error {
	if q.load == nil || q.max.Load() >= min(to, q.load.hidden) {
		return nil
	}
	if err := q.putRun(); err != nil {
		return err
	}
	for k := q.max.Load(); k < min(to, q.load.hidden); k++ {
		u, err := q.unit(k)
		if err != nil {
			return err
		}
		if u.blank() || !d.covers(u.at) || !d.covers(u.at+message.Position(u.size)-1) {
			if stop {
				return nil
			}
			var b [unitSize]byte
			encodeUnit(b[:], 0, blankUnitSize, 0)
			if err := q.write(k*unitSize, b[:]); err != nil {
				return err
			}
		} else {
			q.raiseLast(u.at)
		}
		q.publish(k + 1)
	}
	return nil
}

// restore takes the unit of a record that recovery found.
func (ix *queueIndex) restore(u *message.Unit, d *damageList) error {
	q := ix.writer(u.Queue)
	if u.Offset < 0 {
		return nil
	}
	if q.load == nil {
		q.load = &loaded{low: -1}
	}
	if u.Offset > q.max.Load() {
		if err := q.keepDamaged(u.Offset, d, false); err != nil {
			return err
		}
	}
	if u.Offset == q.max.Load() {
		return ix.extendRun(q, u)
	}
	if err := q.putRun(); err != nil {
		return err
	}
	if u.Offset < q.max.Load() {
		if len(q.files) > 0 && u.Offset*unitSize < q.files[0].base {
			return nil // below what the queue still has
		}
		have, err := q.unit(u.Offset)
		if err != nil {
			return err
		}
		if have == (unit{u.At, u.Size, u.TagsCode}) {
			return nil
		}
	}
	q.load.low = -1
	one := [1]message.Unit{*u}
	if err := ix.reserve(one[:]); err != nil {
		return err
	}
	q.notDurable(u.Offset * unitSize)
	return ix.put(one[:])
}

// extendRun shows a unit that continues the queue; the files follow later.
func (ix *queueIndex) extendRun(q *queue, u *message.Unit) error {
	o := q.load
	if len(o.run) == 0 {
		o.runFrom = u.Offset
	}
	if !o.listed {
		o.listed = true
		ix.runs = append(ix.runs, q)
	}
	n := len(o.run)
	o.run = append(o.run, make([]byte, unitSize)...)
	encodeUnit(o.run[n:], u.At, u.Size, u.TagsCode)
	q.raiseLast(u.At)
	q.max.Store(u.Offset + 1)
	q.known.Store(true)
	if ix.runUnits++; ix.runUnits < maxRuns {
		return nil
	}
	return ix.putRuns()
}

// putRuns brings the files to where the runs are.
func (ix *queueIndex) putRuns() error {
	list := ix.runs
	ix.runs, ix.runUnits = ix.runs[:0], 0
	return inParallel(len(list), func(i int) error {
		list[i].load.listed = false
		if err := list[i].putRun(); err != nil {
			return fmt.Errorf("ConsumeQueue %s: %w", list[i].key, err)
		}
		return nil
	})
}

// putRun writes what the files do not have of the queue's run.
func (q *queue) putRun() error {
	o := q.load
	if o == nil || len(o.run) == 0 {
		return nil
	}
	b, k := o.run, o.runFrom
	o.run = o.run[:0]
	r := newUnitReader(q)
	defer r.close()
	// After a kill the files have all of it, but not durably.
	for len(b) > 0 && k < min(o.hidden, o.end) {
		u, err := r.unit(k)
		if err != nil {
			return err
		}
		if u != decodeUnit(b) {
			break
		}
		b, k = b[unitSize:], k+1
	}
	if k < o.low { // cannot be, unless the files say what is not so
		o.low = -1
	}
	for from := k; len(b) > 0; {
		// As much as one call may write: a few units within one file.
		n := min(int64(len(b)), 64*unitSize, q.ix.fileSize-from*unitSize%q.ix.fileSize)
		if err := q.write(from*unitSize, b[:n]); err != nil {
			return err
		}
		b, from = b[n:], from+n/unitSize
	}
	o.end = max(o.end, q.max.Load())
	q.notDurable(o.runFrom * unitSize)
	q.touch()
	return nil
}

// beforeEnd is the unit before the queue's end, which is not its beginning.
func (q *queue) beforeEnd() (unit, error) {
	if o := q.load; o != nil && len(o.run) > 0 {
		return decodeUnit(o.run[len(o.run)-unitSize:]), nil
	}
	return q.unit(q.max.Load() - 1)
}

// settle fixes the ends of queues when the end of the log is known.
func (s *Store) settle(r *recovery) error {
	if err := s.queues.putRuns(); err != nil {
		return err
	}
	err := s.queues.each(func(q *queue) error { return s.settleEnd(r, q) })
	if err == nil && !r.clean {
		err = s.checkLast(r)
	}
	if err != nil {
		return err
	}
	first := message.Position(r.first())
	return s.queues.each(func(q *queue) error {
		if len(q.files) > 0 {
			if err := q.settleMin(first); err != nil {
				return err
			}
		}
		q.load = nil
		return nil
	})
}

// settleEnd ends a queue behind the last unit that recovery confirmed.
func (s *Store) settleEnd(r *recovery, q *queue) error {
	if len(q.files) == 0 {
		return nil
	}
	if o := q.load; o != nil {
		if err := q.keepDamaged(o.hidden, &s.damage, true); err != nil {
			return err
		}
		if end := q.max.Load(); end < o.end || s.mend.on { // behind the end there may be bytes that are no units
			if err := q.cutTo(end, max(o.end, end)); err != nil {
				return err
			}
			o.end = end
		}
	}
	return q.cut(r.published)
}

// settleMin finds where the queue begins, as the log does at first.
func (q *queue) settleMin(first message.Position) error {
	low, end := int64(-1), q.max.Load()
	if q.load != nil {
		low = q.load.low
	}
	if low < 0 {
		r := newUnitReader(q)
		defer r.close()
		var err error
		if low, err = r.firstAtOrAbove(first, q.files[0].base/unitSize, end); err != nil {
			return err
		}
	}
	q.min.Store(min(low, end))
	return nil
}

// checkLast cuts units off the ends of queues that are left over from before a
// power loss. Those that the scan confirmed are right; the records of the others
// are looked at in the order of the log.
func (s *Store) checkLast(r *recovery) error {
	var idle []*queue
	for _, q := range s.queues.byKey {
		if len(q.files) > 0 && q.last() >= 0 && q.last() < r.start && q.max.Load() > q.files[0].base/unitSize {
			idle = append(idle, q)
		}
	}
	slices.SortFunc(idle, func(a, b *queue) int { return cmp.Compare(a.last(), b.last()) })
	return inParallel(len(idle), func(i int) error {
		q := idle[i]
		rd := newLogReader(r.list)
		defer rd.close()
		rd.window = diskPage
		old := q.max.Load()
		end, lowest := old, q.files[0].base/unitSize
		for ; end > lowest; end-- {
			ok, err := s.backed(rd, q, end-1)
			if err != nil {
				return fmt.Errorf("ConsumeQueue %s: %w", q.key, err)
			}
			if ok {
				break
			}
		}
		if end == old {
			return nil
		}
		return q.cutTo(end, old)
	})
}

// backed reports whether a unit's record is there, gone by age, or known to be
// damaged.
func (s *Store) backed(rd *logReader, q *queue, k int64) (bool, error) {
	var u unit
	var err error
	if o := q.load; o != nil && k == o.lastK && k < o.end {
		u = o.last
	} else if u, err = q.unit(k); err != nil {
		return false, err
	}
	if u.at == 0 && u.size == blankUnitSize {
		return true, nil
	}
	if u.size <= 0 {
		return false, nil
	}
	if len(rd.list) == 0 || int64(u.at) < rd.list[0].base || s.damage.covers(u.at) {
		return true, nil
	}
	var v message.View
	err = rd.good(u.at, &v, false)
	if err == nil {
		return v.Size == u.size && v.QueueID == q.key.ID && string(v.Topic) == q.key.Topic, nil
	}
	if isRecordFault(err) || errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return false, err
}
