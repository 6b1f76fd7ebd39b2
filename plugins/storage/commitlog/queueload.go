package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strconv"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// load finds the queues that the directory holds. extend is set after an unclean
// end of this store: files that a power loss left short are made whole.
func (ix *queueIndex) load(extend bool) error {
	topics, err := ix.dirs(ix.dir)
	if err != nil {
		return err
	}
	for _, topic := range topics {
		ids, err := ix.dirs(filepath.Join(ix.dir, topic))
		if err != nil {
			return err
		}
		for _, id := range ids {
			n, err := strconv.ParseInt(id, 10, 32)
			if err != nil {
				continue // none of ours
			}
			if err := ix.loadQueue(message.Queue{Topic: topic, ID: int32(n)}, extend); err != nil {
				return err
			}
		}
	}
	return nil
}

func (ix *queueIndex) dirs(dir string) ([]string, error) {
	names, err := ix.fs.List(dir)
	if err != nil {
		return nil, err
	}
	dirs := names[:0]
	for _, n := range names {
		info, err := ix.fs.Stat(filepath.Join(dir, n))
		if err != nil {
			return nil, err
		}
		if info.IsDir {
			dirs = append(dirs, n)
		}
	}
	return dirs, nil
}

func (ix *queueIndex) loadQueue(key message.Queue, extend bool) error {
	q := &queue{ix: ix, key: key, dir: filepath.Join(ix.dir, key.Topic, strconv.Itoa(int(key.ID)))}
	names, err := ix.fs.List(q.dir)
	if err != nil {
		return err
	}
	for i, name := range names {
		base, ok := parseFileName(name)
		if !ok {
			continue
		}
		path := filepath.Join(q.dir, name)
		info, err := ix.fs.Stat(path)
		if err != nil {
			return err
		}
		switch {
		case info.Size == ix.fileSize:
		case info.Size < ix.fileSize && extend:
			if err := extendFile(ix.fs, path, ix.fileSize); err != nil {
				return err
			}
		case info.Size == 0 && i == len(names)-1:
			if err := ix.fs.Remove(path); err != nil {
				return err
			}
			continue
		default:
			return &storage.CorruptError{File: path, Offset: min(info.Size, ix.fileSize), Reason: fmt.Sprintf("the file has %d bytes, configured are %d (mappedFileSizeConsumeQueue); set the size with which it was written, or remove the directory consumequeue to have it rebuilt from the log", info.Size, ix.fileSize)}
		}
		if n := len(q.files); base%ix.fileSize != 0 || n > 0 && q.files[n-1].base+ix.fileSize != base {
			return &storage.CorruptError{File: path, Reason: "the file does not follow the one before it; restore the missing one, or remove the directory consumequeue to have all rebuilt from the log"}
		}
		q.files = append(q.files, &queueFile{base: base, path: path})
	}
	ix.byKey[key] = q
	if len(q.files) == 0 {
		return nil
	}
	// Units are dense: the end is where the sizes become 0. The last file may
	// have been made ahead of need.
	lowest := q.files[0].base / unitSize
	end := lowest
	for i := len(q.files) - 1; i >= 0; i-- {
		from := q.files[i].base / unitSize
		lo, hi := from, from+ix.fileSize/unitSize
		// Most queues of a broker with very many have few units: steps that
		// double stay on the first page, halves would touch one each.
		for step, found := int64(1), false; lo < hi; {
			at := lo + (hi-lo)/2
			if !found {
				at = min(lo+step-1, hi-1)
				step *= 2
			}
			u, err := q.unit(at)
			if err != nil {
				return err
			}
			if u.at >= 0 && u.size > 0 {
				lo = at + 1
			} else {
				hi, found = at, true
			}
		}
		if end = lo; lo > from {
			break
		}
	}
	q.min.Store(lowest)
	q.max.Store(end)
	q.known.Store(end > 0)
	for _, f := range q.files {
		f.flushed.Store(min(max(end*unitSize-f.base, 0), ix.fileSize))
	}
	return nil
}

// cut removes all units of records at or above pos.
func (ix *queueIndex) cut(pos message.Position) error {
	for _, q := range ix.all() {
		if err := q.cut(pos); err != nil {
			return fmt.Errorf("cut ConsumeQueue %s: %w", q.key, err)
		}
	}
	return nil
}

// cut removes the units of records at or above pos, durably, and what may lie
// behind the queue's end.
func (q *queue) cut(pos message.Position) error {
	if len(q.files) == 0 {
		return nil
	}
	old := q.max.Load()
	end, err := q.firstAtOrAbove(pos, min(q.min.Load(), old), old)
	if err != nil {
		return err
	}
	return q.cutTo(end, old)
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
		if err := q.ix.fs.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		q.files, removed = q.files[:n-1], true
	}
	if removed {
		if err := q.ix.fs.SyncDir(q.dir); err != nil {
			return err
		}
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
	h, err := q.ix.fs.OpenFile(f.path, openRW, 0)
	if err != nil {
		return err
	}
	w := getBuffer(unitWindow)
	defer w.free()
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
	if flushed := f.flushed.Load(); flushed > off {
		f.flushed.Store(off)
	}
	return errors.Join(err, h.Close())
}

// hide is cut without touching the files, for recovery after an unclean end:
// the units behind are needed to know which offsets damaged records had.
func (ix *queueIndex) hide(pos message.Position) error {
	for _, q := range ix.all() {
		if len(q.files) == 0 {
			continue
		}
		old := q.max.Load()
		end, err := q.firstAtOrAbove(pos, min(q.min.Load(), old), old)
		if err != nil {
			return err
		}
		q.hidden = old
		q.max.Store(end)
		q.known.Store(end > 0)
	}
	return nil
}

// keepDamaged shows hidden units from the queue's end up to offset to again when
// their records lie in damaged ranges, so that their offsets stay taken. Others
// become blank; with stop it ends at the first of them.
func (q *queue) keepDamaged(to int64, d *damageList, stop bool) error {
	for k := q.max.Load(); k < min(to, q.hidden); k++ {
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
		}
		q.publish(k + 1)
	}
	return nil
}

// restore writes the unit of a record that recovery found, unless it is there.
func (ix *queueIndex) restore(u *message.Unit, d *damageList) error {
	q := ix.writer(u.Queue)
	if u.Offset < 0 {
		return nil
	}
	if u.Offset > q.max.Load() {
		if err := q.keepDamaged(u.Offset, d, false); err != nil {
			return err
		}
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
	one := [1]message.Unit{*u}
	if err := ix.reserve(one[:]); err != nil {
		return err
	}
	return ix.put(one[:])
}

// settle fixes the ends of queues when the end of the log is known.
func (s *Store) settle(r *recovery) error {
	rd := newLogReader(r.list)
	defer rd.close()
	first := message.Position(r.first())
	for _, q := range s.queues.all() {
		if len(q.files) == 0 {
			continue
		}
		if !r.clean {
			if err := q.keepDamaged(q.hidden, &s.damage, true); err != nil {
				return err
			}
			if err := q.cutTo(q.max.Load(), max(q.hidden, q.max.Load())); err != nil {
				return err
			}
			q.hidden = 0
		}
		if err := q.cut(r.published); err != nil {
			return err
		}
		end := q.max.Load()
		lowest := q.files[0].base / unitSize
		if !r.clean {
			// The last unit may be left over from before a power loss.
			old := end
			for ; end > lowest; end-- {
				ok, err := s.backed(rd, q, end-1)
				if err != nil {
					return err
				}
				if ok {
					break
				}
			}
			if end < old {
				if err := q.cutTo(end, old); err != nil {
					return err
				}
			}
		}
		low, err := q.firstAtOrAbove(first, lowest, end)
		if err != nil {
			return err
		}
		q.min.Store(low)
	}
	return nil
}

// backed reports whether a unit's record is there, gone by age, or known to be
// damaged.
func (s *Store) backed(rd *logReader, q *queue, k int64) (bool, error) {
	u, err := q.unit(k)
	if err != nil {
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

// syncDir makes names durable; a directory that was dropped meanwhile needs
// none.
func (ix *queueIndex) syncDir(dir string) error {
	if err := ix.fs.SyncDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
