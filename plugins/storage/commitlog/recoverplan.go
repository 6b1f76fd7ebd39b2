package commitlog

import (
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// plan decides where the scan begins and up to where records may be shown.
func (s *Store) plan(r *recovery) error {
	if len(r.list) == 0 {
		r.start, r.limit, r.flushed = 0, 0, -1
		if err := s.keepFlushed(r, nil); err != nil {
			return err
		}
		return s.queues.cut(0)
	}
	rd := newLogReader(r.list)
	defer rd.close()
	rd.window = diskPage // records here and there
	first, last := message.Position(r.list[0].base), r.list[len(r.list)-1]
	r.limit = message.Position(last.base + last.size)
	if s.p.Publish == storage.Explicit && !r.foreign {
		r.limit = max(min(r.limit, message.Position(r.fields.confirm)), first)
	}
	s.trust(r)
	var err error
	seg := r.list.at(max(r.units, first))
	if seg == nil { // units beyond the log
		seg = last
	}
	r.start = message.Position(seg.base)
	if !r.clean {
		if err := s.startUnclean(r, rd); err != nil {
			return err
		}
	}
	if seg := r.list.at(r.limit); seg != nil && r.limit < r.start {
		r.start = message.Position(seg.base)
	}
	r.keysFrom = r.limit
	if s.keys != nil {
		if r.keysFrom, err = s.keys.load(r); err != nil {
			return err
		}
		if at := max(r.keysFrom, first); at < r.start {
			if r.start, err = s.startAt(r, rd, at); err != nil {
				return err
			}
		}
	}
	switch {
	case s.mend.on:
		r.again, r.units = true, 0
	case r.foreign:
	case s.queues.lost(&r.fields):
		s.p.Logger.Warn("ConsumeQueues are missing; the queues are made again from the whole log", "dir", s.path.queues,
			"present", s.queues.present.n.Load(), "at_the_last_flush", r.fields.queues)
		r.again = true
	case r.fields.confirm == 0 && r.units > 0:
		s.p.Logger.Warn("the checkpoint is missing or empty; the queues are made again from the whole log", "file", s.path.checkpoint)
		r.again = true
	}
	if r.again {
		r.start = first
	}
	if err := s.keepFlushed(r, rd); err != nil {
		return err
	}
	if err := s.remake(r); err != nil {
		return err
	}
	if r.again {
		s.queues.hideAll(first)
		return nil
	}
	return s.queues.hide(min(r.start, r.limit))
}

// startUnclean finds from where on units may be missing: the record that the checkpoint
// names. Where it names none, or there is none, it is the last segment that begins with
// a good record not younger than the checkpoint's times.
func (s *Store) startUnclean(r *recovery, rd *logReader) error {
	ok, v, err := isRecord(rd, r.flushed)
	if err != nil {
		return err
	}
	if ok {
		r.start = r.flushed
		return nil
	}
	if r.flushed >= 0 {
		s.p.Logger.Warn("the checkpoint names a record that there is not; its times are used", "file", s.path.checkpoint, "position", r.flushed)
		r.flushed = -1
	}
	since := r.fields.since()
	r.start = message.Position(r.list[0].base)
	for i := len(r.list) - 1; i > 0; i-- {
		at := message.Position(r.list[i].base)
		if ok, v, err = isRecord(rd, at); err != nil {
			return err
		}
		if ok && v.StoreTime <= since {
			r.start = at
			break
		}
	}
	return nil
}

// startAt is pos where a record begins there, and the edge of its segment otherwise.
func (s *Store) startAt(r *recovery, rd *logReader, pos message.Position) (message.Position, error) {
	ok, _, err := isRecord(rd, pos)
	if seg := r.list.at(pos); seg != nil && !ok {
		pos = message.Position(seg.base)
	}
	return pos, err
}

// isRecord tells whether a good record begins at pos, and gives it.
func isRecord(rd *logReader, pos message.Position) (bool, message.View, error) {
	var v message.View
	if rd.list.at(pos) == nil {
		return false, v, nil
	}
	err := rd.good(pos, &v, true)
	if isRecordFault(err) {
		return false, v, nil
	}
	return err == nil, v, err
}

// keepFlushed says in the checkpoint, before anything is changed, that units of records
// from r.start on may change.
func (s *Store) keepFlushed(r *recovery, rd *logReader) error {
	at := r.flushed
	switch {
	case r.again || r.flushed < 0:
		at = -1
	case r.start < r.flushed: // below it all is durable, too
		ok, _, err := isRecord(rd, r.start)
		if err != nil {
			return err
		}
		if at = r.start; !ok {
			at = -1
		}
	}
	if err := s.setFlushed(int64(at)); err != nil || at < 0 && r.fields.flushedSum == 0 {
		return err
	}
	return s.cp.sync()
}
