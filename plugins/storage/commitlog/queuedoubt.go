package commitlog

import "github.com/hardpointmq/hardpoint/core/message"

// What the queues say is derived from the log. Where both disagree at start the
// queues are made again: a record is never given up because of a queue.

// distrust finds where the queues end, behind the last record that has a unit,
// and empties those whose last unit names bytes that this log cannot have, as
// after a crash of the file system or a restored backup.
func (s *Store) distrust(r *recovery) error {
	last := r.list.last()
	first, end := message.Position(r.list[0].base), message.Position(last.base+last.size)
	for _, q := range s.queues.all() {
		if len(q.files) == 0 {
			continue
		}
		u := q.load.last
		if u.blank() {
			continue
		}
		if to := u.at + message.Position(u.size); u.at >= 0 && to <= end {
			r.units = max(r.units, to)
			continue
		}
		s.p.Logger.Warn("a ConsumeQueue points outside the log; it is made again from the log", "topic", q.key.Topic, "queue", q.key.ID,
			"position", u.at, "bytes", u.size, "log_from", first, "log_to", end)
		n := len(q.files)
		lowest := q.files[0].base / unitSize
		if err := q.cutTo(lowest, (q.files[n-1].base+s.queues.fileSize)/unitSize); err != nil {
			return err
		}
		q.load = &loaded{end: lowest, lastK: -1, low: -1}
		q.firstAt, q.lastAt = 0, -1
		r.again = true
	}
	return nil
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
		if q := s.queues.byKey[u.Queue]; q != nil {
			end = max(q.max.Load(), q.hidden())
		}
		if u.Offset > end && !s.dropped.covers(u.Queue, u.At) && len(s.damage.report()) == 0 {
			s.p.Logger.Warn("a ConsumeQueue ends before the log says; the queues are made again from the whole log", "topic", u.Queue.Topic,
				"queue", u.Queue.ID, "end", end, "offset", u.Offset, "position", v.Position)
			return true
		}
	}
	return false
}

// scanAgain begins the scan at the log's first record. Keys below pos are
// indexed already.
func (s *Store) scanAgain(r *recovery, pos message.Position) {
	r.again = true
	s.queues.hideAll(message.Position(r.first()))
	r.start = message.Position(r.first())
	r.keysFrom = max(r.keysFrom, pos)
	r.tail, r.published, r.lastEnd = r.start, min(r.start, r.limit), r.start
	r.lastTime, r.pubTime, r.records = 0, 0, 0
}
