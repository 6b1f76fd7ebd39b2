package commitlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"path/filepath"
	"strconv"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/vfs"
)

// Examination says what [Examine] and [Repair] are to look at, and how.
type Examination struct {
	FS vfs.FS
	// Dir is the store's directory, RocketMQ's storePathRootDir.
	Dir string
	// Config has the sizes of files where the directory does not tell them, and
	// storePathCommitLog. Sizes that it tells win.
	Config Config
	// Segment is the size of segments where neither the directory's identity nor its
	// files tell it; 0: they have to.
	Segment int64
	// Rules are those with which queues were made; with other delay levels the tags
	// codes of delayed messages look wrong.
	Rules message.IndexRules
	// Deep compares every record, unit and key with the others. Else only the log is
	// read, and of what is derived the bounds.
	Deep bool
	// Live: a broker has the store open. What it is about to write is not taken for
	// damage, and queues and keys may be ahead of what was read of the log.
	Live bool
	// HasTopic tells whether a topic exists; nil: all do. Records of others have no
	// queue, and nobody misses it.
	HasTopic func(topic string) bool
	// Progress is told from time to time how many of the log's bytes were read; nil:
	// nobody is.
	Progress func(done, total int64)
	// Log is told what a repair does; nil: nobody is.
	Log *slog.Logger
}

// progressStep is how many bytes of the log are read between two calls of
// Progress.
const progressStep = 64 << 20

// examiner is an examination under way.
type examiner struct {
	Examination
	path   paths
	report Report
	id     *identity
	// twoIdentities: hardpoint.log and its copy differ; id is the better one.
	twoIdentities bool
	fields        checkpointFields
	// cutting: a truncation was interrupted.
	cutting bool
	// published is the mark of the checkpoint, where there is one.
	published message.Position

	files []segmentFile
	total int64 // bytes of the log's files
	told  int64

	deriver  *message.Deriver
	dropped  dropped
	damage   damageList
	lastTime int64
	times    recordTimes
	torn     *Finding // the end of the log
	tornAt   message.Position

	ix     *queueIndex
	queues map[message.Queue]*examinedQueue
	runs   []*examinedQueue
	units  int // in runs

	keys *keyCheck
}

// segmentFile is a file of the log as it is.
type segmentFile struct {
	base, size int64
	report     int // its place in Report.Segments
}

// Examine reads a store's directory and changes nothing. Memory is bounded by the
// number of queues (about 1.5 KiB each), not by the log; with Deep and key index
// files, by 4 bytes for each slot of one file beside that. It may be called beside
// a broker that has the store open (Live), without Deep. An error means that the
// directory could not be read; what is wrong with it is in the report.
func Examine(ctx context.Context, e Examination) (*Report, error) {
	x, err := examine(ctx, e)
	if err != nil {
		return nil, fmt.Errorf("examine %s: %w", e.Dir, err)
	}
	return &x.report, nil
}

func examine(ctx context.Context, e Examination) (*examiner, error) {
	if e.Log == nil {
		e.Log = slog.New(slog.DiscardHandler)
	}
	x := &examiner{
		Examination: e, path: newPaths(e.Dir, e.Config.StorePathCommitLog), deriver: message.NewDeriver(e.Rules),
		queues: map[message.Queue]*examinedQueue{},
		report: Report{Segments: []SegmentReport{}, Queues: []QueueReport{}, Index: []IndexReport{}, Findings: []Finding{}},
	}
	for _, step := range []func() error{x.small, x.listSegments, x.listQueues, x.listKeys} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	if err := x.log(ctx); err != nil {
		return nil, err
	}
	if err := x.settleQueues(ctx); err != nil {
		return nil, err
	}
	if x.torn != nil {
		x.report.Add(*x.torn)
	}
	x.checkpoint()
	x.report.sort()
	return x, nil
}

// small reads the small files.
func (x *examiner) small() error {
	r := &x.report
	_, err := x.FS.Stat(x.path.abort)
	r.Closed = errors.Is(err, fs.ErrNotExist)
	if err != nil && !r.Closed {
		return err
	}
	if x.id, err = x.readIdentity(); err != nil {
		return err
	}
	if x.id != nil {
		r.LogID = x.id.LogID
	}
	var b []byte
	b, err = vfs.ReadFile(x.FS, x.path.checkpoint)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		r.Checkpoint.Present = true
	}
	x.fields = parseCheckpoint(b)
	c := &x.fields
	if x.published = math.MaxInt64; x.id != nil && c.confirm > 0 && !c.odd {
		x.published = message.Position(c.confirm)
	}
	r.Checkpoint.PhysicTime, r.Checkpoint.LogicsTime, r.Checkpoint.IndexTime = c.physic, c.logics, c.index
	r.Checkpoint.Published, r.Checkpoint.IndexAt = c.confirm, c.indexAt
	if c.odd {
		x.report.Add(Finding{Level: Damage, part: ofCheckpoint, File: "checkpoint", Offset: cpConfirm + 8, What: "there are bytes where no broker writes any",
			Means: "the checkpoint cannot be trusted", Repair: "the checkpoint is put into the backup and made again"})
	}
	switch cut, err := vfs.ReadFile(x.FS, x.path.cut); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		x.cutting = true
		if _, err := strconv.ParseInt(string(trimLine(cut)), 10, 64); err != nil {
			x.report.Add(Finding{Level: Damage, part: ofOther, File: cutFile, What: fmt.Sprintf("it holds %q and not a position", clipped(cut)), Means: "a truncation that was interrupted cannot be finished, and no broker starts", lost: true,
				Repair: "it is put into the backup, and the truncation is not finished"})
		} else {
			x.report.Add(Finding{Level: Note, part: ofOther, File: cutFile, What: "a truncation was interrupted", Means: "the next start finishes it, from position " + string(trimLine(cut)) + " on"})
		}
	}
	return x.readDropped()
}

func trimLine(b []byte) []byte {
	for len(b) > 0 && (b[len(b)-1] == '\n' || b[len(b)-1] == '\r') {
		b = b[:len(b)-1]
	}
	return b
}

// clipped is the beginning of b, for a message.
func clipped(b []byte) string {
	const most = 40
	if len(b) > most {
		return string(b[:most]) + "…"
	}
	return string(b)
}

// readIdentity is that of a start, but that nothing is written, and that of a pair
// which does not agree that one is believed which the files are like.
func (x *examiner) readIdentity() (*identity, error) {
	var id *identity
	err := x.eitherOf(x.path.identity, func(b []byte) (err error) {
		id, err = parseIdentity(b)
		return err
	}, "no broker starts on this directory: restore it, or remove it and its copy to adopt the directory as a new log id")
	if err != nil || id == nil {
		return nil, err
	}
	b, err := vfs.ReadFile(x.FS, x.path.identity+copySuffix)
	if err != nil {
		return id, nil // told by eitherOf
	}
	other, err := parseIdentity(b)
	if err != nil || *other == *id {
		return id, nil
	}
	fits := func(id *identity) (n int) {
		names, err := x.FS.List(x.path.log)
		if err != nil {
			return 0 // told by who lists them for good
		}
		for _, name := range names {
			if info, err := x.FS.Stat(filepath.Join(x.path.log, name)); err == nil && info.Size == id.Segment {
				n++
			}
		}
		return n
	}
	f := Finding{Level: Damage, part: ofOther, File: identityFile, What: fmt.Sprintf("it and its copy differ: %+v and %+v", *id, *other), Means: "a start believes this one", Repair: "the copy is made like it; both are put into the backup before"}
	if fits(other) > fits(id) {
		id = other
		f.Means, f.Repair = "a start believes this one, and refuses the files; they are like what the copy says", "it is made like the copy; both are put into the backup before"
	}
	x.twoIdentities = true
	x.report.Add(f)
	return id, nil
}

func (x *examiner) readDropped() error {
	return x.eitherOf(x.path.droppedFile, x.dropped.parse, "no broker starts on this directory: remove it and its copy if no queue that was deleted matters")
}

// eitherOf reads a file or, where that is damaged, its copy.
func (x *examiner) eitherOf(name string, parse func([]byte) error, means string) error {
	type copied struct {
		there bool
		err   error
	}
	var is [2]copied
	used := false
	for i, name := range []string{name, name + copySuffix} {
		b, err := vfs.ReadFile(x.FS, name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return err
		}
		is[i].there = true
		if !used {
			is[i].err = parse(b)
			used = is[i].err == nil
		}
	}
	for i, c := range is {
		if c.err == nil && (c.there || !is[1-i].there) {
			continue
		}
		f := Finding{Level: Damage, part: ofOther, File: x.rel(name), What: "it is missing", Means: "its copy is used", Repair: "it is made again from its copy"}
		if i == 1 {
			f.File, f.Means, f.Repair = x.rel(name+copySuffix), "there is no second copy", "it is made again"
		}
		if c.err != nil {
			f.What = "it cannot be read: " + c.err.Error()
		}
		if !used {
			f.Means, f.Repair = means, ""
		}
		x.report.Add(f)
	}
	return nil
}

// listSegments finds the files of the log and the size that they should have.
func (x *examiner) listSegments() error {
	names, err := x.FS.List(x.path.log)
	if err != nil {
		return err
	}
	sizes := map[int64]int{}
	for _, name := range names {
		base, ok := parseFileName(name)
		path := filepath.Join(x.path.log, name)
		if !ok {
			x.report.Add(Finding{Level: Note, part: ofLog, File: x.rel(path), What: "it is no segment", Means: "nobody reads it"})
			continue
		}
		info, err := x.FS.Stat(path)
		if err != nil {
			return err
		}
		x.files = append(x.files, segmentFile{base: base, size: info.Size})
		if info.Size > 0 {
			sizes[info.Size]++
		}
	}
	size := x.Segment
	for n, often := range sizes {
		if x.Segment == 0 && n > message.MinRecordSize+message.BlankSize && n <= maxSegment && (often > sizes[size] || often == sizes[size] && n > size) {
			size = n
		}
	}
	if x.id != nil {
		size = x.id.Segment
	}
	x.Segment, x.report.SegmentSize = size, size
	keep := x.files[:0]
	for i, f := range x.files {
		if x.segment(&f, i == len(x.files)-1) {
			x.total += size
			f.report = len(x.report.Segments)
			x.report.Segments = append(x.report.Segments, SegmentReport{File: fileName(f.base), From: message.Position(f.base), To: message.Position(f.base), Size: f.size})
			keep = append(keep, f)
		}
	}
	x.files = keep
	return nil
}

// segment tells whether a file of the log can be read, and what is wrong with it.
func (x *examiner) segment(f *segmentFile, last bool) bool {
	d := Finding{Level: Damage, part: ofLog, File: x.rel(filepath.Join(x.path.log, fileName(f.base))), Offset: min(f.size, x.Segment)}
	switch {
	case f.size == 0 && last:
		d.Level, d.What, d.Means = Note, "the file is empty, as after a crash while it was made", "the next start removes it"
		x.report.Add(d)
		return false
	case x.Segment == 0 || f.base%x.Segment != 0:
		d.Offset, d.What, d.Means = 0, fmt.Sprintf("its name is no multiple of the segment size %d", x.Segment), "no broker starts on this directory"
		d.Repair, d.lost = "the file is put into the backup", true
		x.report.Add(d)
		return false
	case f.size < x.Segment:
		d.What, d.Means = fmt.Sprintf("the file has %d bytes, segments of this log have %d", f.size, x.Segment), "the records that were behind its end are lost, unless it is restored"
		d.Bytes, d.Repair = x.Segment-f.size, "it is extended with zeros"
		d.lost = !last
		if last && x.id != nil && !x.report.Closed { // what is missing of it tells itself
			d.Level, d.What, d.Means = Note, d.What+", as after a crash while it was made", "the next start extends it with zeros"
		}
		x.report.Add(d)
	case f.size > x.Segment:
		d.What, d.Means = fmt.Sprintf("the file has %d bytes, segments of this log have %d", f.size, x.Segment), "no broker starts on this directory"
		d.Bytes, d.Repair = f.size-x.Segment, "what is too much is put into the backup and cut off"
		x.report.Add(d)
	}
	return true
}

// checkpoint looks whether what it says can be.
func (x *examiner) checkpoint() {
	r, c := &x.report, &x.fields
	if !r.Checkpoint.Present {
		if r.Records > 0 {
			r.Add(Finding{Level: Damage, part: ofCheckpoint, File: "checkpoint", What: "it is missing",
				Means: "nothing is lost; the next start reads the whole log", Repair: "it is made again"})
		}
		return
	}
	if x.Live {
		return
	}
	const repair = "the checkpoint is put into the backup and made again"
	last := x.times.latest()
	for _, f := range []struct {
		at    int64
		time  int64
		what  string
		means string
	}{
		{cpPhysicTime, c.physic, "records are", "a start after a crash would not look at all that has to be looked at"},
		{cpLogicsTime, c.logics, "ConsumeQueues are", "a start after a crash would leave units out"},
		{cpIndexTime, c.index, "the key index is", "a start after a crash would keep keys of records that there are not"},
	} {
		if f.time > last+checkpointSlack {
			r.Add(Finding{Level: Damage, part: ofCheckpoint, File: "checkpoint", Offset: f.at, Bytes: 8,
				What: fmt.Sprintf("it says that %s flushed up to the time %d, the last record has %d", f.what, f.time, last), Means: f.means, Repair: repair})
		}
	}
	if x.id == nil {
		return // RocketMQ writes there in other modes only
	}
	for _, f := range []struct {
		at   int64
		pos  int64
		what string
	}{{cpConfirm, c.confirm, "records are published"}, {cpIndexAt, c.indexAt, "keys are flushed"}} {
		if f.pos > int64(r.Tail) {
			r.Add(Finding{Level: Damage, part: ofCheckpoint, File: "checkpoint", Offset: f.at, Bytes: 8,
				What: fmt.Sprintf("it says that %s up to position %d, the log ends at %d", f.what, f.pos, r.Tail), Means: "the checkpoint is wrong, or the end of the log is lost", Repair: repair})
		}
	}
}
