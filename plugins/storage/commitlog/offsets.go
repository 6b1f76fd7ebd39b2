package commitlog

import (
	"context"
	"fmt"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// Offsets implements [storage.Store].
func (s *Store) Offsets(ctx context.Context, queries []storage.OffsetQuery, a *storage.OffsetAnswers) error {
	a.Answers, a.Published = a.Answers[:0], 0
	if !s.gate.enter() {
		return storage.ErrNotRunning
	}
	defer s.gate.leave()
	// One view: taken again when something was published meanwhile. A steady
	// stream of writers may win every time; then the ends are newer than
	// Published, which is no fault, only less exact.
	for range 100 {
		seq := s.marks.pubSeq.Load()
		a.Published = message.Position(s.marks.published.Load())
		a.Answers = a.Answers[:0]
		if len(queries) == 0 {
			for _, q := range s.queues.all() {
				if q.known.Load() {
					a.Answers = append(a.Answers, q.ends())
				}
			}
		}
		for i := range queries {
			ans := storage.OffsetAnswer{Queue: queries[i].Queue}
			if q := s.queues.get(queries[i].Queue); q != nil && q.known.Load() {
				ans = q.ends()
			}
			a.Answers = append(a.Answers, ans)
		}
		if seq&1 == 0 && s.marks.pubSeq.Load() == seq {
			break
		}
	}
	for i := range queries {
		ans := &a.Answers[i]
		if queries[i].Kind == storage.Ends || !ans.Known {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		q := s.queues.get(queries[i].Queue)
		if q == nil {
			continue
		}
		var err error
		if ans.Offset, err = s.offsetAt(q, queries[i].Kind, queries[i].Time, ans.Min, ans.Max); err != nil {
			return err
		}
	}
	return nil
}

func (q *queue) ends() storage.OffsetAnswer {
	high := q.max.Load()
	return storage.OffsetAnswer{Queue: q.key, Known: true, Min: min(q.min.Load(), high), Max: high}
}

// offsetAt searches by store time, which never falls along the log.
func (s *Store) offsetAt(q *queue, kind storage.OffsetKind, t, low, high int64) (int64, error) {
	c := &storage.Chunk{}
	defer c.Release()
	switch kind {
	case storage.FirstAt:
		return search(low, high, q.shownUnit, func(u unit) (bool, error) {
			st, err := s.storeTime(c, u)
			return st >= t, err
		})
	case storage.LastAt:
		after, err := search(low, high, q.shownUnit, func(u unit) (bool, error) {
			st, err := s.storeTime(c, u)
			return st > t, err
		})
		if err != nil {
			return 0, err
		}
		for k := after - 1; k >= low; k-- { // blanks have no time
			u, err := q.shownUnit(k)
			if err != nil {
				return 0, err
			}
			if !u.blank() {
				return k, nil
			}
		}
		return low, nil
	default:
		return 0, fmt.Errorf("%w: offset query of kind %d", storage.ErrUnsupported, kind)
	}
}

// storeTime reads a record's store time; a record that is gone counts as old.
func (s *Store) storeTime(c *storage.Chunk, u unit) (int64, error) {
	c.Reset()
	g := s.newGather(c)
	ok, err := g.enter(u.at)
	if err != nil || !ok {
		return 0, err
	}
	off := int64(u.at) - g.seg.base
	if off+message.MinRecordSize > g.seg.size {
		return 0, nil
	}
	p, err := g.bytesAt(off, message.MinRecordSize, g.resident(off, message.MinRecordSize))
	if err != nil {
		return 0, err
	}
	return message.StoreTime(p), nil
}
