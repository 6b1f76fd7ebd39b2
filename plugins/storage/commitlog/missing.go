package commitlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/vfs"
)

// checkEnd refuses a log whose last segments are missing: what is derived from it
// names records in segments that are not there. A segment is durable before
// anything is written to it, and it is removed after what names its records, so
// that no crash and no power loss makes a log end like this; a directory that was
// restored in part, or a volume that is not mounted, does.
func (s *Store) checkEnd(r *recovery) error {
	if r.cutting || s.mend.short {
		return nil // what names more is about to be cut
	}
	end, size := r.loading.end, message.Position(s.p.Segment)
	var named message.Position // by a queue, behind the end
	var namer *queue
	inLast := false // a queue ends in the last segment that is there
	for _, q := range s.queues.byKey {
		at, behind, err := q.namesBehind(end, s.p.Segment)
		if err != nil {
			return fmt.Errorf("ConsumeQueue %s: %w", q.key, err)
		}
		if behind && at > named {
			named, namer = at, q
		}
		inLast = inLast || !behind && at > max(end-size, 0)
	}
	confirm, indexed := message.Position(r.fields.confirm), message.Position(r.fields.indexAt)
	if r.foreign || r.fields.odd {
		confirm, indexed = -1, -1
	}
	if !endGone(namer != nil, inLast, confirm, indexed, end) {
		return nil
	}
	var who []string
	if namer != nil {
		who = append(who, fmt.Sprintf("ConsumeQueue %s names a record that ends at %d", namer.key, named))
	}
	if upTo := max(confirm, indexed); upTo > end {
		named = max(named, upTo)
		who = append(who, fmt.Sprintf("the checkpoint says that records up to %d were there", upTo))
	}
	c := &storage.CorruptError{File: s.path.log}
	ends, gone := "there are no segments", "all segments"
	if n := len(r.list); n > 0 {
		c.File = filepath.Join(s.path.log, fileName(int64(end)))
		ends = fmt.Sprintf("the log ends with the segment %s, at %d", fileName(r.list[n-1].base), end)
		gone = "the segment " + fileName(int64(end))
		if last := (int64(named) - 1) / s.p.Segment * s.p.Segment; last > int64(end) {
			gone = fmt.Sprintf("the segments %s to %s", fileName(int64(end)), fileName(last))
		}
	}
	c.Reason = fmt.Sprintf("%s, but %s; missing: %s; mount the volume they are on, or restore them from a backup or another replica. To go on without the records in them, for good, remove %s and the directories %s and %s: they are made again from what is left of the log",
		ends, strings.Join(who, ", and "), gone, s.path.checkpoint, s.path.queues, s.path.index)
	return c
}

// endGone tells whether segments are missing behind end, the end of the log's files:
// named tells that a queue names what is behind it, inLast that one ends in the last
// segment; confirm and indexed are the marks of the checkpoint. Nothing protects
// units and marks from being damaged: who names what is behind the end is believed
// when nobody else says where the log ends.
func endGone(named, inLast bool, confirm, indexed, end message.Position) bool {
	if named {
		return confirm <= 0 || max(confirm, indexed) > end
	}
	return !inLast && max(confirm, indexed) > end
}

// namesBehind gives the end of the last record that the queue names, and whether
// it lies behind end, the end of the log's files, and can be: it lies in one
// segment, and so does the one before it, in order. 0 when there is no such record.
func (q *queue) namesBehind(end message.Position, segment int64) (at message.Position, behind bool, err error) {
	o := q.load
	can := func(u unit) bool {
		return u.at >= 0 && int64(u.size) >= message.MinRecordSize && int64(u.at)%segment+int64(u.size)+message.BlankSize <= segment
	}
	if o.lastK < 0 || !can(o.last) {
		return 0, false, nil
	}
	at = o.last.at + message.Position(o.last.size)
	if o.last.at < end || at < 0 {
		return at, false, nil
	}
	per := q.ix.fileSize / unitSize
	if k := o.lastK - 1; k >= q.files[0].base/unitSize && k/per == o.lastK/per {
		r := newUnitReader(q)
		defer r.close()
		u, err := r.unit(k)
		if err != nil {
			return 0, false, err
		}
		if !u.blank() && (!can(u) || u.at+message.Position(u.size) > o.last.at) {
			return 0, false, nil
		}
	}
	return at, true, nil
}

// present tells when the files of the open store are gone from under it, deleted
// or moved away, or are somebody else's by now. An open file works on without its
// name, and what is written to it is lost when the store is closed. The caller has
// flushMu.
func (s *Store) present() error {
	var id identity
	b, err := vfs.ReadFile(s.fs, s.path.identity)
	if errors.Is(err, fs.ErrNotExist) {
		return gone(s.path.identity)
	}
	if err == nil {
		err = json.Unmarshal(b, &id)
	}
	if err != nil {
		return fmt.Errorf("%s was changed while the store was open: %w", s.path.identity, err)
	}
	if id.LogID != s.logID {
		return fmt.Errorf("%s names the log %s, this is %s: the directory was replaced while the store was open", s.path.identity, id.LogID, s.logID)
	}
	names := []string{s.path.log, s.path.lock, s.path.checkpoint, s.path.queues}
	if s.keys != nil {
		names = append(names, s.path.index)
	}
	for _, name := range names {
		if _, err := s.fs.Stat(name); errors.Is(err, fs.ErrNotExist) {
			return gone(name)
		} else if err != nil {
			return err
		}
	}
	if err := s.segmentsPresent(); err != nil {
		return err
	}
	mark := s.writer.mark.Load()
	if mark == nil {
		return nil
	}
	b, err = vfs.ReadFile(s.fs, s.path.abort)
	if errors.Is(err, fs.ErrNotExist) {
		return gone(s.path.abort)
	}
	if err == nil && string(b) != *mark {
		err = fmt.Errorf("%s holds %q where this store wrote %q: another process has opened the directory, although this one has its lock", s.path.abort, b, *mark)
	}
	return err
}

// segmentsPresent is present of the segments that were written to since it was called
// last: all from the one that was the last then. The first time, and after a cut, it is
// all there are. The caller has flushMu.
func (s *Store) segmentsPresent() error {
	list := *s.list.Load()
	last := list.last()
	if last == nil {
		return nil
	}
	for _, seg := range list {
		if seg.base < s.lookedAt {
			continue
		}
		// It may have been cut or expired meanwhile.
		if _, err := s.fs.Stat(seg.path); errors.Is(err, fs.ErrNotExist) && !seg.retiring.Load() {
			return gone(seg.path)
		}
	}
	s.lookedAt = last.base
	return nil
}

func gone(name string) error {
	return &fs.PathError{Op: "stat", Path: name, Err: fmt.Errorf("%w any more: it was deleted or moved while the store was open; what was written since may be lost. Stop, put it back if it was moved, and start again", fs.ErrNotExist)}
}
