package commitlog

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/hardpointmq/hardpoint/core/message"
)

const (
	// againSuffix marks a file that is being made again.
	againSuffix = ".again"
	// remakeUnits bounds the units that are kept in memory while files are made
	// again; more of them take several walks along the log.
	remakeUnits = 1 << 24
)

// remaking is a queue some of whose units are made again.
type remaking struct {
	q     *queue
	bad   []badUnits
	units map[int64]unit // found in the log
}

// remake makes bad units of queues again from the log, as far as the scan, which
// begins at r.start, does not. A file is replaced as a whole, so that a crash
// leaves either.
func (s *Store) remake(r *recovery) error {
	var list []*remaking
	for _, q := range s.queues.byKey {
		m := &remaking{q: q, units: map[int64]unit{}}
		for _, b := range q.load.bad {
			if b.to == b.keep && b.lo >= r.start && b.hi >= 0 {
				continue // a hole, which the scan fills
			}
			if b.hi < 0 || b.hi > r.start {
				b.hi = max(r.start, b.lo)
			}
			m.bad = append(m.bad, b)
		}
		if len(m.bad) == 0 {
			continue
		}
		list = append(list, m)
		if len(list) <= maxDamage {
			b := m.bad[0]
			s.p.Logger.Warn("a ConsumeQueue is damaged and is made again from the log", "topic", q.key.Topic, "queue", q.key.ID,
				"file", q.path(q.file(b.from*unitSize)), "reason", b.why, "from_offset", b.from, "log_from", b.lo, "log_to", b.hi, "places", len(m.bad))
		}
	}
	slices.SortFunc(list, func(a, b *remaking) int { return cmp.Compare(a.bad[0].lo, b.bad[0].lo) })
	for len(list) > 0 {
		n, units := 0, int64(0)
		for ; n < len(list) && (n == 0 || units < remakeUnits); n++ {
			for _, b := range list[n].bad {
				units += b.to - b.from
			}
		}
		if err := s.remakeSome(r, list[:n]); err != nil {
			return err
		}
		list = list[n:]
	}
	return nil
}

func (s *Store) remakeSome(r *recovery, list []*remaking) error {
	byKey := map[message.Queue]*remaking{}
	type span struct{ lo, hi message.Position }
	var spans []span
	for _, m := range list {
		byKey[m.q.key] = m
		for _, b := range m.bad {
			spans = append(spans, span{b.lo, b.hi})
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.lo, b.lo) })
	rd := newLogReader(r.list)
	defer rd.close()
	var units []message.Unit
	at, told := message.Position(0), spans[0].lo
	for _, sp := range spans {
		if at = max(at, sp.lo); at >= sp.hi {
			continue
		}
		err := rd.each(at, sp.hi, func(v *message.View) error {
			at = v.Position + message.Position(v.Size)
			if int64(at-told) >= s.progressEvery {
				told = at
				s.p.Logger.Info("making ConsumeQueues again", "position", at, "end", spans[len(spans)-1].hi, "queues", len(list))
			}
			units, _ = s.deriver.Derive(v, nil, units[:0], nil)
			for i := range units {
				u := &units[i]
				if m := byKey[u.Queue]; m != nil && !s.dropped.covers(u.Queue, u.At) {
					m.found(u)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		at = max(at, sp.hi)
	}
	return inParallel(len(list), func(i int) error {
		if err := list[i].write(r); err != nil {
			return fmt.Errorf("ConsumeQueue %s: %w", list[i].q.key, err)
		}
		return nil
	})
}

func (m *remaking) found(u *message.Unit) {
	for i := range m.bad {
		if b := &m.bad[i]; b.from <= u.Offset && u.Offset < b.to && u.At >= b.lo {
			m.units[u.Offset] = unit{u.At, u.Size, u.TagsCode}
			b.keep = max(b.keep, u.Offset+1)
			return
		}
	}
}

// write replaces the files with bad units, and looks at the queue anew.
func (m *remaking) write(r *recovery) error {
	q, per := m.q, m.q.ix.fileSize/unitSize
	rd := newUnitReader(q)
	defer rd.close()
	last := q.files[len(q.files)-1]
	for i := len(m.bad) - 1; i >= 0; i-- { // what stands before units is no end
		if b := &m.bad[i]; b.to < last.base/unitSize+per || i < len(m.bad)-1 {
			b.keep = b.to
		}
	}
	for _, f := range q.files {
		from := f.base / unitSize
		for _, b := range m.bad {
			if b.from < from+per && from < b.to {
				if err := m.writeFile(rd, r, f); err != nil {
					return err
				}
				break
			}
		}
	}
	if err := q.ix.fs.SyncDir(q.dir()); err != nil {
		return err
	}
	q.files, q.load = nil, &loaded{}
	err := q.loadFiles(r.loading)
	if q.load != nil {
		q.load.bad = nil // what the log does not have cannot be mended
	}
	return err
}

// writeFile makes a file again: units that the log has, and else those that are
// there and not bad.
func (m *remaking) writeFile(rd *unitReader, r *recovery, f *queueFile) error {
	q, size := m.q, m.q.ix.fileSize
	h, err := q.ix.fs.OpenFile(q.path(f)+againSuffix, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	if err = h.Truncate(size); err == nil {
		w := getBuffer(unitWindow)
		for off := int64(0); off < size && err == nil; {
			b := w.b[:min(unitWindow/unitSize*unitSize, size-off)]
			for i := 0; i < len(b) && err == nil; i += unitSize {
				err = m.unit(rd, r, (f.base+off+int64(i))/unitSize, b[i:i+unitSize])
			}
			if err == nil && len(trimZeros(b)) > 0 {
				_, err = h.WriteAt(b, off)
			}
			off += int64(len(b))
		}
		w.free()
	}
	if err == nil {
		err = h.Sync()
	}
	if err = errors.Join(err, h.Close()); err != nil {
		return err
	}
	return q.ix.fs.Rename(q.path(f)+againSuffix, q.path(f))
}

// unit writes into p what is to stand at offset k.
func (m *remaking) unit(rd *unitReader, r *recovery, k int64, p []byte) error {
	clear(p)
	if u, ok := m.units[k]; ok {
		encodeUnit(p, u.at, u.size, u.tags)
		return nil
	}
	var b *badUnits
	for i := range m.bad {
		if m.bad[i].from <= k && k < m.bad[i].to {
			b = &m.bad[i]
		}
	}
	u, err := rd.unit(k)
	switch {
	case err != nil && b == nil:
		return err
	case err == nil && u.size > 0 && (b == nil || !u.blank() && u.at >= r.start && u.at+message.Position(u.size) <= r.loading.end):
		encodeUnit(p, u.at, u.size, u.tags) // that of a record which the scan comes to is compared then
	case b != nil && k < b.keep:
		encodeUnit(p, 0, blankUnitSize, 0)
	}
	return nil
}
