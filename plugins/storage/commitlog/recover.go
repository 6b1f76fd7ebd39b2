package commitlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/vfs"
)

var (
	errPosition = errors.New("record states another position than its own")
	errLostPage = errors.New("record has a page of zeros in its properties")
	errOffset   = errors.New("record has a queue offset that cannot be")
	errTopic    = errors.New("record has a topic that cannot be the name of a directory")
)

// isRecordFault tells bytes that are no record from a failure to read them.
func isRecordFault(err error) bool {
	for _, e := range []error{message.ErrShort, message.ErrMagic, message.ErrBlank, message.ErrLength, message.ErrCRC, errPosition, errLostPage, errOffset, errTopic} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// recovery is what Start knows of the directory.
type recovery struct {
	clean   bool // the last end was in order
	foreign bool // RocketMQ wrote it: no identity of ours
	fields  checkpointFields
	list    segments
	loading loading
	// flushed is a record that is durable with all before it and their units, -1 where
	// that is not known.
	flushed message.Position
	// start is where the scan begins, a segment's edge or a record; limit is up to
	// where records may be shown.
	start, limit message.Position
	// units is where the queues ended: behind the last record that has a unit.
	units message.Position
	// keysFrom is the position from which keys have to be indexed again.
	keysFrom message.Position

	tail, published message.Position
	lastEnd         message.Position // behind the last good record
	lastTime        int64
	times           recordTimes
	pubTime         int64
	lastAt, pubAt   int64 // the last good record, and the last published one with a unit; -1 for none
	wipeAll         bool  // not every byte behind the tail was looked at
	cutting         bool  // a crash interrupted a truncation
	records         int64
	// again is set when the queues do not describe this log: all of it is
	// scanned, so that they are made again.
	again bool
	// damages is how many damaged ranges were known before the scan.
	damages int
}

// recover opens the directory; the lock is held.
func (s *Store) recover(ctx context.Context) error {
	var r recovery
	id, err := readIdentity(s.fs, s.path.identity, s.p.Logger)
	if err != nil {
		return err
	}
	if r.list, err = s.loadSegments(id); err != nil {
		return err
	}
	r.foreign = id == nil && len(r.list) > 0
	named := id != nil && id.QueueFile == s.queues.fileSize
	if id == nil {
		id = &identity{LogID: s.p.LogID, Segment: s.p.Segment, QueueFile: s.queues.fileSize}
		if id.LogID == "" {
			id.LogID = newLogID()
		}
	}
	if s.p.LogID != "" && s.p.LogID != id.LogID {
		return fmt.Errorf("%w: the directory holds log %s, expected is %s", storage.ErrIdentity, id.LogID, s.p.LogID)
	}
	s.logID = id.LogID
	s.list.Store(&r.list)

	_, err = s.fs.Stat(s.path.abort)
	r.clean = errors.Is(err, fs.ErrNotExist)
	if err != nil && !r.clean {
		return err
	}
	unmarked := r.clean
	mark := ""
	if !unmarked {
		b, err := vfs.ReadFile(s.fs, s.path.abort)
		if err != nil {
			return err
		}
		mark = string(b)
	}
	if s.cp, r.fields, err = openCheckpoint(s.fs, s.path.checkpoint); err != nil {
		return err
	}
	r.flushed = message.Position(r.fields.flushed(id.LogID, mark))
	if err := s.dropped.load(s.fs, s.path.droppedFile, s.p.Logger); err != nil {
		return err
	}
	if err := s.finishCut(&r); err != nil {
		return err
	}
	if err := s.loadDamage(&r); err != nil {
		return err
	}
	ours := s.mend.on || !r.foreign && id.QueueFile == s.queues.fileSize
	r.loading = loading{ours: ours, extend: !r.clean && ours, first: message.Position(r.first())}
	if n := len(r.list); n > 0 {
		r.loading.end = message.Position(r.list[n-1].base + r.list[n-1].size)
	}
	s.queues.unsure = !r.clean
	if err := s.queues.load(&r.loading); err != nil {
		return err
	}
	// Up to here a start that is refused leaves the directory as it was.
	if err := s.checkEnd(&r); err != nil {
		return err
	}
	switch err := s.writeAbort(); {
	case err == nil:
	case !errors.Is(err, vfs.ErrNoSpace):
		return err
	case unmarked:
		s.p.Logger.Warn("the disk is full: the store serves reads, and takes no writes until there is space", "file", s.path.abort)
	default: // the mark of the process that was killed does as well
		s.writer.mark.Store(&mark)
	}
	if !named { // all files have the size that is configured
		id.QueueFile = s.queues.fileSize
		if err := writeIdentity(s.fs, s.path.identity, id); err != nil {
			return err
		}
	}
	if err := s.plan(&r); err != nil {
		return err
	}
	if err := s.scan(ctx, &r); err != nil {
		return err
	}
	if r.published == r.lastEnd && r.tail <= r.limit {
		r.published = r.tail // only a blank may lie between
	}
	// First nothing derived names what is behind the end, then that is removed: a
	// crash in between would leave a log that ends before its queues do.
	if err := s.settle(&r); err != nil {
		return err
	}
	if s.dropped.cut(r.tail) {
		if err := s.dropped.save(s.fs, s.path.droppedFile, message.Position(r.first())); err != nil {
			return err
		}
	}
	if s.keys != nil {
		if err := s.keys.cut(r.published); err != nil {
			return err
		}
	}
	if err := s.cutTail(&r); err != nil {
		return err
	}
	if r.cutting {
		if err := errors.Join(s.fs.Remove(s.path.cut), s.fs.SyncDir(s.path.root)); err != nil {
			return err
		}
	}
	switch err := s.saveDamage(r.list, r.tail); {
	case errors.Is(err, vfs.ErrNoSpace):
		s.damage.unsaved.Store(true) // the next start looks for it again
	case err != nil:
		return err
	}
	s.setMarks(&r)
	return nil
}

func (r *recovery) first() int64 {
	if len(r.list) == 0 {
		return 0
	}
	return r.list[0].base
}

// loadSegments lists the files of the log and checks names, sizes and identity.
func (s *Store) loadSegments(id *identity) (segments, error) {
	names, err := s.fs.List(s.path.log)
	if err != nil {
		return nil, err
	}
	var bases []int64
	for _, name := range names {
		base, ok := parseFileName(name)
		if !ok {
			s.p.Logger.Warn("a file that is no segment lies in the log's directory and is left alone", "file", filepath.Join(s.path.log, name))
			continue
		}
		bases = append(bases, base)
	}
	want := s.p.Segment
	if id != nil && id.Segment != want {
		return nil, fmt.Errorf("%w: its segments have %d bytes, configured are %d (mappedFileSizeCommitLog); the size of an existing log cannot change", storage.ErrIdentity, id.Segment, want)
	}
	var list segments
	for i, base := range bases {
		path := filepath.Join(s.path.log, fileName(base))
		info, err := s.fs.Stat(path)
		if err != nil {
			return nil, err
		}
		switch {
		case info.Size == 0 && i == len(bases)-1:
			s.p.Logger.Warn("the last segment is empty, as after a crash while it was made; it is removed", "file", path)
			if err := errors.Join(s.fs.Remove(path), s.fs.SyncDir(s.path.log)); err != nil {
				return nil, err
			}
			continue
		case id == nil && info.Size != want:
			return nil, fmt.Errorf("%w: %s has %d bytes, configured are segments of %d (mappedFileSizeCommitLog); the size of an existing log cannot change", storage.ErrIdentity, path, info.Size, want)
		case info.Size < want && s.unwritten(bases[i+1:]):
			// Truncated from outside, or made by a process that died: the rest
			// reads as zeros and is what recovery looks for.
			s.p.Logger.Warn("the last segment with records is too short; it is extended with zeros", "file", path, "bytes", info.Size, "segment_bytes", want)
			if err := extendFile(s.fs, path, want); err != nil {
				return nil, err
			}
		case info.Size != want:
			return nil, &storage.CorruptError{File: path, Offset: min(info.Size, want), Reason: fmt.Sprintf("the file has %d bytes, segments of this log have %d; restore it from a backup or another replica", info.Size, want)}
		}
		if base%want != 0 {
			return nil, &storage.CorruptError{File: path, Reason: fmt.Sprintf("its name is no multiple of the segment size %d", want)}
		}
		if n := len(list); n > 0 && list[n-1].base+want != base {
			return nil, &storage.CorruptError{File: filepath.Join(s.path.log, fileName(list[n-1].base+want)), Reason: fmt.Sprintf("the segment is missing between %s and %s; restore it. To go on without its records, for good, run hardpoint store repair %s --without-missing", fileName(list[n-1].base), fileName(base), s.path.root)}
		}
		list = append(list, newSegment(s.fs, s.path.log, base, want))
	}
	return list, nil
}

// unwritten reports whether nothing was ever written to the segments: they were
// prepared ahead of need.
func (s *Store) unwritten(bases []int64) bool {
	for _, base := range bases {
		f, err := s.fs.OpenFile(filepath.Join(s.path.log, fileName(base)), os.O_RDONLY, 0)
		if err != nil {
			return false
		}
		var head [message.BlankSize]byte
		_, err = f.ReadAt(head[:], 0)
		if cErr := f.Close(); err != nil && !errors.Is(err, io.EOF) || cErr != nil || head != [message.BlankSize]byte{} {
			return false
		}
	}
	return true
}

// extendFile makes a file that is too short whole with zeros.
func extendFile(fsys vfs.FS, path string, size int64) error {
	f, err := fsys.OpenFile(path, openRW, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(size), f.Sync(), f.Close())
}

// writeAbort leaves the mark that the store is open: whoever finds it knows that
// the end was not clean, and by what follows the process id, which one it was. In
// containers process ids are always the same.
func (s *Store) writeAbort() error {
	mark := fmt.Sprintf("%d %s", os.Getpid(), newLogID())
	if err := vfs.WriteFileAtomic(s.fs, s.path.abort, []byte(mark)); err != nil {
		return err
	}
	s.writer.mark.Store(&mark)
	return nil
}

// ownMark tells that this store wrote the mark, no other program.
func ownMark(mark string) bool { return strings.Contains(mark, " ") }

// changeable returns nil when the files may be changed: the store has not failed,
// and a crash would be noticed at the next start. The caller has the turn of the
// log.
func (s *Store) changeable() error {
	if err := s.failure(); err != nil || s.writer.mark.Load() != nil {
		return err
	}
	if err := s.writeAbort(); err != nil {
		return s.refused("mark the store as open", err)
	}
	return nil
}

// finishCut repeats a truncation that a crash interrupted.
func (s *Store) finishCut(r *recovery) error {
	at, err := readCut(s.fs, s.path.cut)
	if err != nil || at < 0 {
		return err
	}
	s.p.Logger.Warn("a truncation was interrupted and is finished now", "position", at)
	r.clean, r.cutting = false, true
	if r.flushed >= at {
		r.flushed = -1
	}
	if r.list, err = s.cutFiles(r.list, at); err != nil {
		return err
	}
	s.list.Store(&r.list)
	if r.fields.confirm > int64(at) {
		r.fields.confirm = int64(at)
		return errors.Join(s.cp.set(cpConfirm, int64(at)), s.cp.sync())
	}
	return nil
}

// cutFiles makes every byte of the log from at on zero or removes its file,
// durably.
func (s *Store) cutFiles(list segments, at message.Position) (segments, error) {
	keep := slices.Clone(list)
	for n := len(keep); n > 0 && keep[n-1].base > int64(at); n = len(keep) {
		seg := keep[n-1]
		keep = keep[:n-1]
		seg.retiring.Store(true)
		seg.release()
		if err := s.fs.Remove(seg.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return list, err
		}
	}
	if err := s.fs.SyncDir(s.path.log); err != nil {
		return keep, err
	}
	if seg := keep.at(at); seg != nil {
		if err := seg.open(); err != nil {
			return keep, err
		}
		if err := errors.Join(seg.file.ZeroRange(int64(at)-seg.base, seg.base+seg.size-int64(at)), seg.file.SyncData()); err != nil {
			return keep, err
		}
		seg.end.Store(-1)
		seg.walked.Store(0)
	}
	return keep, nil
}

// progressEvery is how many bytes are scanned between two lines in the log.
const progressEvery = 1 << 30

// scan walks the log from r.start to its end, and from its beginning when it turns
// out that r.start was chosen by what is not so.
func (s *Store) scan(ctx context.Context, r *recovery) error {
	if err := s.scanOnce(ctx, r); err != nil {
		return err
	}
	if r.clean || r.again || r.fields.since() <= r.lastTime || r.start <= message.Position(r.first()) {
		return nil
	}
	s.p.Logger.Warn("the checkpoint claims a later time than the last record has; the queues are made again from the whole log",
		"file", s.path.checkpoint, "claims", r.fields.since()+checkpointSlack, "last", r.lastTime)
	if err := s.scanAgain(r, r.tail); err != nil {
		return err
	}
	return s.scanOnce(ctx, r)
}

// scanOnce walks the log from r.start to its end, rebuilds what is missing of
// queues and keys, and finds damage.
func (s *Store) scanOnce(ctx context.Context, r *recovery) error {
	r.tail, r.published, r.lastEnd = r.start, min(r.start, r.limit), r.start
	r.lastAt, r.pubAt = -1, -1
	if len(r.list) == 0 {
		return nil
	}
	rd := newAheadReader(r.list, s.cfg.CheckCRCOnRecover)
	defer rd.close()
	var (
		v     message.View
		units []message.Unit
		keys  []message.Key
		told  = r.start
	)
	for pos := r.start; ; {
		seg := r.list.at(pos)
		if seg == nil { // the last segment ends with a blank
			r.tail = pos
			break
		}
		if int64(pos-told) >= s.progressEvery {
			told = pos
			s.p.Logger.Info("scanning the log", "position", pos, "end", r.list.last().base+seg.size, "records", r.records)
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		err := rd.good(pos, &v)
		if err == nil && s.stale(r, &v) {
			err = errStale
		}
		if err == nil {
			if err = s.checkOffset(&v); err != nil && !isRecordFault(err) {
				return err
			}
		}
		switch {
		case err == nil:
			units, keys = s.deriver.Derive(&v, nil, units[:0], keys[:0])
			if s.gap(r, &v, units) {
				if err := s.scanAgain(r, pos); err != nil {
					return err
				}
				pos, told = r.start, r.start
				continue
			}
			if err := s.recovered(r, &v, units, keys); err != nil {
				return err
			}
			if pos == message.Position(seg.base) {
				seg.firstTime.Store(v.StoreTime)
			}
			seg.lastTime.Store(v.StoreTime)
			pos += message.Position(v.Size)
			r.tail = pos
			continue
		case errors.Is(err, message.ErrBlank):
			seg.end.Store(int64(pos) - seg.base)
			edge := message.Position(seg.base + seg.size)
			if r.published == pos && edge <= r.limit {
				r.published = edge // a mark behind the blank
			}
			pos, r.tail = edge, edge
			continue
		case !isRecordFault(err) && !errors.Is(err, errStale):
			return err
		}
		next, more, err := s.afterFault(r, rd.reader(), pos, err)
		if err != nil {
			return err
		}
		if !more {
			r.tail = pos
			break
		}
		pos = next
	}
	return nil
}

var errStale = errors.New("record is older than what precedes it and uses a taken queue offset")

// stale tells records that RocketMQ left behind a cut of its own from those
// that belong to the log: they are older, and their queue offsets are taken.
func (s *Store) stale(r *recovery, v *message.View) bool {
	return v.StoreTime < r.lastTime && s.taken(r, v)
}

// taken reports whether another record has the queue offset of v.
func (s *Store) taken(r *recovery, v *message.View) bool {
	if tx := v.SysFlag & message.SysTxMask; tx == message.SysTxPrepared || tx == message.SysTxRollback {
		return false
	}
	key := message.Queue{Topic: string(v.Topic), ID: v.QueueID}
	q := s.queues.find(key)
	return q != nil && v.QueueOffset < q.max.Load() && v.Position >= r.units && !s.dropped.covers(key, v.Position)
}

// checkOffset is [recordFault] with what the queues know.
func (s *Store) checkOffset(v *message.View) error {
	if err := recordFault(v); err != nil {
		return err
	}
	key := message.Queue{Topic: string(v.Topic), ID: v.QueueID}
	q := s.queues.find(key)
	if q == nil || len(q.files) == 0 || s.dropped.covers(key, v.Position) {
		return nil
	}
	end := q.max.Load()
	if v.QueueOffset <= end || end <= q.files[0].base/unitSize {
		return nil
	}
	last, err := q.beforeEnd()
	if err != nil {
		return err
	}
	if tooFar(v, end, last.at) {
		return errOffset
	}
	return nil
}

// recordFault refuses queue offsets, which no CRC covers, that are so high that
// the records before them have no place in the log: blanks up to a wild offset
// would fill the disk. No CRC covers topics either, which become directories.
func recordFault(v *message.View) error {
	if !nameable(string(v.Topic)) {
		return errTopic
	}
	if v.QueueOffset < 0 || v.QueueOffset > int64(v.Position)/message.MinRecordSize {
		return errOffset
	}
	return nil
}

// tooFar tells that the records between end, the queue's end whose last record is
// at last, and that of v have no place between the two.
func tooFar(v *message.View, end int64, last message.Position) bool {
	return v.QueueOffset > end && (v.QueueOffset-end)*message.MinRecordSize > int64(v.Position-last)
}

// afterFault decides what a bad place is. more is true for damage in the
// middle, and next where the log goes on.
func (s *Store) afterFault(r *recovery, rd *logReader, pos message.Position, fault error) (next message.Position, more bool, err error) {
	seg := r.list.at(pos)
	head, err := rd.bytes(seg, int64(pos)-seg.base, message.BlankSize)
	if err != nil {
		return 0, false, err
	}
	unused := strings.Trim(string(head), "\x00") == ""
	if r.clean && !s.mend.on && unused && r.units <= pos && seg == r.list.last() {
		return 0, false, nil
	}
	next, more, used, open, err := rd.findGood(pos+1, func(v *message.View) bool {
		return v.StoreTime >= r.times.latest() && !s.taken(r, v) && s.checkOffset(v) == nil
	})
	if err != nil {
		return 0, false, err
	}
	d := storage.Damage{From: pos, To: next, File: seg.path, Reason: "damaged in the middle of the log: " + fault.Error()}
	if !more {
		r.wipeAll = open
		if used <= pos+1 && unused {
			return 0, false, nil
		}
		d.To, d.Reason = max(used, pos+1), "torn end of the log, cut: "+fault.Error()
	}
	if s.damage.add(d, more) {
		s.p.Logger.Warn("damage in the log", "from", d.From, "to", d.To, "file", d.File, "reason", d.Reason, "kept", more)
	}
	return next, more, nil
}

// recovered takes a record that the scan found good.
func (s *Store) recovered(r *recovery, v *message.View, units []message.Unit, keys []message.Key) error {
	r.records++
	r.lastTime = max(r.lastTime, v.StoreTime)
	r.times.add(v.StoreTime)
	end := v.Position + message.Position(v.Size)
	r.lastEnd, r.lastAt = end, int64(v.Position)
	if end > r.limit {
		return nil
	}
	r.published = end
	if len(units) > 0 {
		r.pubTime, r.pubAt = v.StoreTime, int64(v.Position)
	}
	for i := range units {
		if s.dropped.covers(units[i].Queue, units[i].At) {
			continue
		}
		if err := s.queues.restore(&units[i], &s.damage); err != nil {
			return fmt.Errorf("rebuild ConsumeQueue %s: %w", units[i].Queue, err)
		}
	}
	if s.keys != nil && v.Position >= r.keysFrom && len(keys) > 0 {
		if err := s.keys.restore(keys); err != nil {
			return fmt.Errorf("rebuild the key index: %w", err)
		}
	}
	return nil
}

// cutTail leaves nothing behind the end of the log that could be taken for a
// record, and prepares the last segment for writing.
func (s *Store) cutTail(r *recovery) error {
	if len(r.list) == 0 {
		return nil
	}
	if !r.clean || s.hasBytesBehind(r) {
		// Bytes behind the tail: only then are there files to change.
		if r.fields.confirm > int64(r.published) && r.list.last().base > int64(r.tail) {
			if err := errors.Join(s.cp.set(cpConfirm, int64(r.published)), s.cp.sync()); err != nil {
				return err
			}
		}
		list, err := s.wipe(r)
		if err != nil {
			return err
		}
		r.list = list
		s.list.Store(&r.list)
	}
	seg := r.list.last()
	if seg == nil {
		return nil
	}
	s.writer.cur = seg
	if seg.base+seg.size == int64(r.tail) {
		return nil
	}
	if s.cfg.CommitLogWrite == WriteMap {
		seg.writable = true
		seg.close()
		seg.opened.Store(false)
	}
	if err := seg.open(); err != nil {
		return err
	}
	// RocketMQ leaves files sparse. Without reserved space writes report a full
	// disk themselves, but a mapped write would be fatal.
	if err := seg.file.Reserve(0, seg.size); err != nil {
		if !errors.Is(err, vfs.ErrReserveUnsupported) && !errors.Is(err, vfs.ErrNoSpace) {
			return err
		}
		seg.writable = false
	}
	return nil
}

// hasBytesBehind reports whether recovery found a torn end or later segments.
func (s *Store) hasBytesBehind(r *recovery) bool {
	for _, d := range s.damage.report() {
		if d.To > r.tail {
			return true
		}
	}
	return r.list.last().base > int64(r.tail)
}

// wipe removes segments behind the tail and zeroes what was found behind it.
func (s *Store) wipe(r *recovery) (segments, error) {
	used := r.tail
	for _, d := range s.damage.report() {
		used = max(used, d.To)
	}
	list := slices.Clone(r.list)
	removed := false
	for n := len(list); n > 1 && list[n-1].base > int64(r.tail) || n == 1 && list[0].base > int64(r.tail); n = len(list) {
		seg := list[n-1]
		list = list[:n-1]
		seg.retiring.Store(true)
		seg.release()
		if err := s.fs.Remove(seg.path); err != nil {
			return nil, err
		}
		removed = true
	}
	if removed {
		if err := s.fs.SyncDir(s.path.log); err != nil {
			return nil, err
		}
	}
	seg := list.at(r.tail)
	if seg != nil && r.wipeAll {
		used = message.Position(seg.base + seg.size)
	}
	if seg == nil || used <= r.tail {
		return list, nil
	}
	if err := seg.open(); err != nil {
		return nil, err
	}
	n := min(int64(used), seg.base+seg.size) - int64(r.tail)
	return list, errors.Join(seg.file.ZeroRange(int64(r.tail)-seg.base, n), seg.file.SyncData())
}

// setMarks publishes what recovery found.
func (s *Store) setMarks(r *recovery) {
	first := r.first()
	if len(r.list) == 0 {
		r.tail, r.published = 0, 0
	}
	m := &s.marks
	m.first.Store(first)
	m.tail.Store(int64(r.tail))
	m.published.Store(int64(r.published))
	m.lastTime.Store(r.times.latest())
	if r.pubAt < 0 && r.flushed >= 0 { // what the checkpoint says of them holds
		r.pubTime = min(r.fields.logics, r.times.latest())
	}
	m.pubTime.Store(max(r.pubTime, 0))
	m.lastAt.Store(r.lastAt)
	m.pubAt.Store(r.pubAt)
	m.syncedAt.Store(-1)
	if r.clean {
		m.durable.Store(int64(r.tail))
		m.syncedAt.Store(r.lastAt)
	} else {
		m.durable.Store(first) // what the page cache held may not be on the disk
	}
	_ = s.cp.set(cpConfirm, int64(r.published)) // written again with each Publish; a fault shows there
}
