package commitlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/hardpointmq/hardpoint/core/message"
)

// Units of the log are gathered until there are this many, and then compared queue
// by queue with the files.
const examinedUnits = 1 << 19

// maxSpans bounds the runs of offsets that are remembered of a queue; there is one
// where the log is whole.
const maxSpans = 256

// maxFileGap bounds the files that are taken for missing between two of a queue;
// a file behind more of them has a wrong name.
const maxFileGap = 4096

// examinedQueue is what is known of a queue from its files and from the log.
type examinedQueue struct {
	key   message.Queue
	names []queueFileSize
	q     *queue // nil without files
	gone  []int64
	// low and end are the bounds of its units in the files.
	low, end int64
	size     int64
	// odd are bytes that are no units.
	odd bool

	// From the log: behind the last offset, and where its record is.
	next   int64
	lastAt message.Position
	spans  []offsetSpan // offsets of records that are there
	older  offsetSpan   // and before the queue was numbered anew

	run     []byte // units to be compared, from offset runFrom on
	runFrom int64
	listed  bool

	differ, hole, orphan, behind badPlace
	absent                       int64 // records, of a queue without files
	late                         int64 // records that are not published
	// named is the end of the last record that it names; past tells that it lies
	// behind the log's files.
	named message.Position
	past  bool
	bad   bool // there is damage in its files
}

type queueFileSize struct{ base, size, allocated int64 }

type offsetSpan struct{ from, to int64 }

// badPlace counts units with a fault and knows the first.
type badPlace struct {
	n, k    int64
	is, was unit // in the file, and by the log
}

func (p *badPlace) add(k int64, is, was unit) {
	if p.n == 0 {
		p.k, p.is, p.was = k, is, was
	}
	p.n++
}

// listQueues finds the files of all queues.
func (x *examiner) listQueues() error {
	ix := newQueueIndex(x.FS, x.Log, x.path.queues, unitSize, x.Config.MaxMappedFiles)
	x.ix = ix
	topics, err := ix.dirsOf(ix.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	found := make([][]*examinedQueue, len(topics))
	err = inParallel(len(topics), func(i int) error {
		names, err := ix.dirsOf(filepath.Join(ix.dir, topics[i]))
		if err != nil {
			return err
		}
		for _, name := range names {
			id, err := strconv.ParseInt(name, 10, 32)
			if err != nil || strconv.FormatInt(id, 10) != name {
				continue
			}
			q := &examinedQueue{key: message.Queue{Topic: topics[i], ID: int32(id)}}
			dir := filepath.Join(ix.dir, topics[i], name)
			files, err := ix.dirsOf(dir)
			if err != nil {
				return err
			}
			for _, file := range files {
				base, ok := parseFileName(file)
				if !ok {
					continue
				}
				info, err := x.FS.Stat(filepath.Join(dir, file))
				if err != nil {
					return err
				}
				q.names = append(q.names, queueFileSize{base, info.Size, info.Allocated})
			}
			found[i] = append(found[i], q)
		}
		return nil
	})
	if err != nil {
		return err
	}
	all := slices.Concat(found...)
	x.queueFileSizeOf(all)
	if len(all) > 0 {
		u, err := x.FS.Usage(ix.dir)
		if err != nil {
			return err
		}
		// Each of the looks below is at one queue's files only.
		err = inParallel(len(all), func(i int) error {
			if err := x.look(all[i], !u.CopyOnWrite); err != nil {
				return fmt.Errorf("ConsumeQueue %s: %w", all[i].key, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	for _, q := range all {
		x.queues[q.key] = q
		x.fileFindings(q)
	}
	return nil
}

// queueFileSizeOf finds the size of queue files: that of the identity, of most of
// them, or the configured one.
func (x *examiner) queueFileSizeOf(all []*examinedQueue) {
	size := x.Config.queueFileSize()
	sizes := map[int64]int{}
	for _, q := range all {
		for _, f := range q.names {
			if f.size >= unitSize && f.size%unitSize == 0 {
				sizes[f.size]++
			}
		}
	}
	for n, often := range sizes {
		if often > sizes[size] || often == sizes[size] && n > size {
			size = n
		}
	}
	if x.id != nil && x.id.QueueFile >= unitSize && x.id.QueueFile%unitSize == 0 {
		size = x.id.QueueFile
	}
	x.ix.fileSize, x.report.QueueFileSize = size, size
	if len(all) == 0 && x.id == nil {
		x.report.QueueFileSize = 0
	}
}

// look opens the queue's files and finds its bounds.
func (x *examiner) look(e *examinedQueue, sized bool) error {
	size := x.ix.fileSize
	e.q = &queue{ix: x.ix, key: e.key}
	var allocated int64
	for i, f := range e.names {
		if e.size += f.size; f.size == 0 && i == len(e.names)-1 {
			break // what is missing of it tells itself
		}
		n := len(e.q.files)
		if f.base%size != 0 || n > 0 && (f.base-e.q.files[n-1].base)/size > maxFileGap {
			continue
		}
		for ; n > 0 && e.q.files[n-1].base+size < f.base; n++ {
			base := e.q.files[n-1].base + size
			e.q.files, e.gone = append(e.q.files, &queueFile{base: base}), append(e.gone, base)
		}
		e.q.files = append(e.q.files, &queueFile{base: f.base})
		if allocated = f.allocated; f.size != size {
			e.gone = append(e.gone, f.base)
		}
	}
	if len(e.q.files) == 0 {
		e.q = nil
		return nil
	}
	if !sized {
		allocated = -1
	}
	r := newUnitReader(e.q)
	defer r.close()
	per := size / unitSize
	e.low = e.q.files[0].base / unitSize
	e.end = e.low
	for i, last := len(e.q.files)-1, true; i >= 0; i, last = i-1, false {
		from := e.q.files[i].base / unitSize
		if slices.Contains(e.gone, e.q.files[i].base) {
			continue
		}
		if !last {
			allocated = -1
		}
		end, _, odd, err := r.end(from, per, allocated)
		if err != nil {
			return err
		}
		e.odd = e.odd || odd
		if e.end = end; end > from {
			break
		}
	}
	return nil
}

// fileOf names the file of an offset and the byte in it.
func (x *examiner) fileOf(e *examinedQueue, k int64) (string, int64) {
	addr := k * unitSize
	base := addr / x.ix.fileSize * x.ix.fileSize
	return x.rel(filepath.Join(x.ix.dir, e.key.Topic, strconv.Itoa(int(e.key.ID)), fileName(base))), addr - base
}

const (
	queueMeans  = "consumers of this queue do not get what was sent to it"
	queueRepair = "the queue is made again from the log; its files are put into the backup before"
)

// fileFindings tells of files that are missing or have a wrong size or name.
func (x *examiner) fileFindings(e *examinedQueue) {
	if x.Live {
		return
	}
	size := x.ix.fileSize
	dir := filepath.Join(x.ix.dir, e.key.Topic, strconv.Itoa(int(e.key.ID)))
	for i, f := range e.names {
		d := Finding{Level: Damage, part: ofQueue, File: x.rel(filepath.Join(dir, fileName(f.base))), Means: queueMeans, Repair: queueRepair}
		switch {
		case f.base%size != 0 || i > 0 && (f.base-e.names[i-1].base)/size > maxFileGap:
			d.What, d.Repair = fmt.Sprintf("its name cannot be that of a file of this queue, which have %d bytes", size), "it is put into the backup"
		case f.size == 0 && i == len(e.names)-1:
			d.Level, d.What, d.Means, d.Repair = Note, "the file is empty, as after a crash while it was made", "the next start removes it", ""
		case f.size != size:
			d.Offset = min(f.size, size)
			d.What = fmt.Sprintf("the file has %d bytes, those of this store have %d", f.size, size)
		default:
			continue
		}
		e.bad = e.bad || d.Level == Damage
		x.report.Add(d)
	}
	e.bad = e.bad || len(e.gone) > 0
	for _, base := range e.gone {
		if !slices.ContainsFunc(e.names, func(f queueFileSize) bool { return f.base == base }) {
			x.report.Add(Finding{Level: Damage, part: ofQueue, File: x.rel(filepath.Join(dir, fileName(base))), What: "the file is missing between others of the queue", Means: queueMeans, Repair: queueRepair})
		}
	}
}

// expect takes the unit of a record, to be compared with the files.
func (x *examiner) expect(u *message.Unit) error {
	e := x.queues[u.Queue]
	if e == nil {
		e = &examinedQueue{key: u.Queue}
		x.queues[u.Queue] = e
	}
	if n := len(e.spans); n > 0 && u.Offset < e.spans[n-1].to {
		// The queue was made anew since: what is in the files is of the newer one.
		x.units -= len(e.run) / unitSize
		if e.older.to == 0 {
			e.older.from = e.spans[0].from
		}
		e.older = offsetSpan{min(e.older.from, e.spans[0].from), max(e.older.to, e.spans[n-1].to)}
		e.spans, e.run = e.spans[:0], e.run[:0]
		e.differ, e.hole, e.behind, e.absent, e.late = badPlace{}, badPlace{}, badPlace{}, 0, 0
	}
	switch n := len(e.spans); {
	case n > 0 && (e.spans[n-1].to == u.Offset || n == maxSpans):
		e.spans[n-1].to = u.Offset + 1
	default:
		e.spans = append(e.spans, offsetSpan{u.Offset, u.Offset + 1})
	}
	e.next, e.lastAt = u.Offset+1, u.At
	if u.At >= x.published {
		e.late++
	}
	switch {
	case e.q == nil:
		e.absent++
		return nil
	case !x.Deep || x.Live:
		return nil
	}
	if n := int64(len(e.run)) / unitSize; n > 0 && e.runFrom+n != u.Offset {
		x.units -= int(n)
		if err := x.compare(e); err != nil {
			return err
		}
	}
	if len(e.run) == 0 {
		e.runFrom = u.Offset
	}
	if !e.listed {
		e.listed = true
		x.runs = append(x.runs, e)
	}
	n := len(e.run)
	e.run = append(e.run, make([]byte, unitSize)...)
	encodeUnit(e.run[n:], u.At, u.Size, u.TagsCode)
	if x.units++; x.units < examinedUnits {
		return nil
	}
	return x.flushRuns()
}

// flushRuns compares what is gathered.
func (x *examiner) flushRuns() error {
	list := x.runs
	x.runs, x.units = x.runs[:0], 0
	return inParallel(len(list), func(i int) error {
		list[i].listed = false
		return x.compare(list[i])
	})
}

// compare looks for the units of the run in the queue's files.
func (x *examiner) compare(e *examinedQueue) error {
	b, k := e.run, e.runFrom
	e.run = nil // very many queues may have one
	if len(b) == 0 {
		return nil
	}
	r := newUnitReader(e.q)
	defer r.close()
	for ; len(b) > 0; b, k = b[unitSize:], k+1 {
		want := decodeUnit(b)
		is, ok, err := e.unit(r, k)
		switch {
		case err != nil:
			return fmt.Errorf("ConsumeQueue %s: %w", e.key, err)
		case !ok: // told of the file
		case k >= e.end:
			e.behind.add(k, is, want)
		case k < e.low || is.size <= 0:
			e.hole.add(k, is, want)
		case is != want:
			e.differ.add(k, is, want)
		}
	}
	return nil
}

// unit reads one; a zero one where there is no file for it, and false where that
// was told already.
func (e *examinedQueue) unit(r *unitReader, k int64) (unit, bool, error) {
	f := e.q.file(k * unitSize)
	if f == nil {
		return unit{}, true, nil
	}
	if slices.Contains(e.gone, f.base) {
		return unit{}, false, nil
	}
	u, err := r.unit(k)
	return u, true, err
}

// headless tells that the log has records of the queue that belong before its first
// file.
func (e *examinedQueue) headless() bool {
	return e.q != nil && e.hole.n > 0 && e.hole.k < e.q.files[0].base/unitSize
}

// settleQueues compares the other way round, when all of the log was read, and
// tells of each queue.
func (x *examiner) settleQueues(ctx context.Context) error {
	all := make([]*examinedQueue, 0, len(x.queues))
	for _, e := range x.queues {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *examinedQueue) int {
		return slices.Compare([]string{a.key.Topic, fmt.Sprintf("%010d", a.key.ID)}, []string{b.key.Topic, fmt.Sprintf("%010d", b.key.ID)})
	})
	ahead := false
	err := inParallel(len(all), func(i int) error {
		e := all[i]
		if err := ctx.Err(); err != nil {
			return err
		}
		if e.q == nil {
			return nil
		}
		r := newUnitReader(e.q)
		defer r.close()
		if err := errors.Join(x.orphans(r, e), x.names(r, e)); err != nil {
			return fmt.Errorf("ConsumeQueue %s: %w", e.key, err)
		}
		if e.low < e.end && len(e.gone) == 0 {
			low, err := r.firstAtOrAbove(x.report.First, e.low, e.end)
			if err != nil {
				return fmt.Errorf("ConsumeQueue %s: %w", e.key, err)
			}
			e.low = low
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, e := range all {
		if e.q != nil {
			x.report.Queues = append(x.report.Queues, QueueReport{Topic: e.key.Topic, ID: e.key.ID, Min: e.low, Max: e.end, Files: len(e.names), Size: e.size})
		}
		ahead = ahead || e.orphan.n > 0
		if !x.Live {
			x.queueFindings(e)
		}
	}
	if !x.Live {
		x.endGone(all)
	}
	if x.torn != nil && x.report.Closed && x.id == nil && !ahead && x.damage.skip.Load() == nil {
		x.torn.Level, x.torn.Means = Note, "nothing names a record there: an Apache broker leaves such bytes behind a cut of its own"
	}
	if x.keys != nil {
		return x.keys.settle()
	}
	return nil
}

// names looks at the last unit of a queue.
func (x *examiner) names(r *unitReader, e *examinedQueue) error {
	if len(x.files) == 0 || x.Live {
		return nil
	}
	e.q.load = &loaded{lastK: -1}
	for k := e.end - 1; k >= max(e.low, e.end-2); k-- {
		u, ok, err := e.unit(r, k)
		if err != nil {
			return err
		}
		if ok && !u.blank() {
			e.q.load.last, e.q.load.lastK = u, k
			break
		}
	}
	var err error
	e.named, e.past, err = e.q.namesBehind(x.filesEnd(), x.Segment)
	return err
}

func (x *examiner) filesEnd() message.Position {
	if len(x.files) == 0 {
		return 0
	}
	return message.Position(x.files[len(x.files)-1].base + x.Segment)
}

// endGone tells when the last segments are missing, by the rule of a start.
func (x *examiner) endGone(all []*examinedQueue) {
	end := x.filesEnd()
	var namer *examinedQueue
	inLast := false
	for _, e := range all {
		if e.past && (namer == nil || e.named > namer.named) {
			namer = e
		}
		inLast = inLast || !e.past && e.named > max(end-message.Position(x.Segment), 0)
	}
	confirm, indexed := message.Position(x.fields.confirm), message.Position(x.fields.indexAt)
	if x.id == nil || x.fields.odd {
		confirm, indexed = -1, -1
	}
	if len(x.files) == 0 && x.id == nil || !endGone(namer != nil, inLast, confirm, indexed, end) {
		return
	}
	who := fmt.Sprintf("the checkpoint says that records up to %d were there", max(confirm, indexed))
	if namer != nil {
		who = fmt.Sprintf("ConsumeQueue %s names a record that ends at %d", namer.key, namer.named)
	}
	x.report.Add(Finding{Level: Damage, part: ofLog, File: x.rel(filepath.Join(x.path.log, fileName(int64(end)))), What: "the last segments are missing: " + who,
		Means:  "their records are lost unless they are restored from a backup or another replica, and no broker starts on this directory",
		Repair: "the log ends where its files do", lost: true})
}

// orphans looks at the units that no record of the log has confirmed.
func (x *examiner) orphans(r *unitReader, e *examinedQueue) error {
	if x.Live {
		return nil
	}
	k := e.low
	if !x.Deep {
		k = max(e.low, e.end-1) // the last one tells whether the log is shorter
		if e.end < e.next {
			e.behind = badPlace{n: e.next - e.end, k: e.end}
		}
	}
	spans := e.spans
	for ; k < e.end; k++ {
		for len(spans) > 0 && k >= spans[0].to {
			spans = spans[1:]
		}
		if len(spans) > 0 && k >= spans[0].from {
			k = min(spans[0].to, e.end) - 1
			continue
		}
		u, ok, err := e.unit(r, k)
		if err != nil {
			return err
		}
		switch {
		case !ok:
			k += x.ix.fileSize/unitSize - k%(x.ix.fileSize/unitSize) - 1
		case k >= e.older.from && k < e.older.to: // of a record that has its place
		case u.size <= 0:
			if x.Deep {
				e.hole.add(k, u, unit{})
			}
		case u.blank() || u.at >= 0 && u.at < x.report.First || x.damage.covers(u.at):
		case x.dropped.covers(e.key, u.at) && u.at < x.report.Tail: // removed with the queue
		case !x.Deep && u.at < x.report.Tail:
		default:
			e.orphan.add(k, u, unit{})
		}
	}
	return nil
}

// queueFindings tells what is wrong with the units of a queue.
func (x *examiner) queueFindings(e *examinedQueue) {
	const (
		unpublished = "they are written and not published: what has the log decides on them"
		unwritten   = "the broker ended before it had written them; the next start does"
	)
	missing := "files"
	if len(e.names) > 0 {
		missing = "entries"
	}
	exists := x.HasTopic == nil || message.IsInternal(e.key.Topic) || x.HasTopic(e.key.Topic)
	of := func(p badPlace, what string) Finding {
		f := Finding{Level: Damage, part: ofQueue, Bytes: unitSize * p.n, What: what, Means: queueMeans, Repair: queueRepair}
		f.File, f.Offset = x.fileOf(e, p.k)
		return f
	}
	switch {
	case e.q == nil && e.absent > e.late && exists:
		f := of(badPlace{k: e.spans[0].from}, fmt.Sprintf("the queue has no %s, and the log has %s of it", missing, count(e.absent, "record")))
		f.Offset, e.bad = 0, true
		if len(e.names) > 0 && !x.report.Closed {
			f.Level, f.Means, f.Repair, e.bad = Note, unwritten, "", false
		}
		x.report.Add(f)
	case e.q == nil && e.absent > e.late && x.Deep:
		f := of(badPlace{k: e.spans[0].from}, fmt.Sprintf("the queue has no %s, and the log has %s of it", missing, count(e.absent, "record")))
		f.Level, f.Offset, f.Means, f.Repair = Note, 0, "there is no such topic in topics.json: it was deleted", ""
		x.report.Add(f)
	}
	e.bad = e.bad || e.q != nil && (e.differ.n+e.hole.n+e.orphan.n > 0 || e.odd || x.report.Closed && e.behind.n > e.late)
	if p := e.differ; p.n > 0 {
		how := fmt.Sprintf("names position %d and %d bytes, its record is at %d and has %d", p.is.at, p.is.size, p.was.at, p.was.size)
		if p.is.at == p.was.at && p.is.size == p.was.size {
			how = fmt.Sprintf("has tags code %d, its record %d", p.is.tags, p.was.tags)
		}
		x.report.Add(of(p, fmt.Sprintf("%s of the log; the first, of offset %d, %s", counted(p.n, "entry is not that", "entries are not those"), p.k, how)))
	}
	if p := e.hole; p.n > 0 {
		x.report.Add(of(p, fmt.Sprintf("%s, from offset %d on", counted(p.n, "entry is missing", "entries are missing"), p.k)))
	}
	if p := e.behind; p.n > 0 && exists {
		f := of(p, fmt.Sprintf("the queue ends at offset %d, the log has records up to %d", e.end, e.next-1))
		switch {
		case p.n <= e.late:
			f.Level, f.Means, f.Repair = Note, unpublished, ""
		case !x.report.Closed:
			f.Level, f.Means, f.Repair = Note, unwritten, ""
		}
		x.report.Add(f)
	}
	if p := e.orphan; p.n > 0 {
		f := of(p, fmt.Sprintf("%s that the log does not have; the first, of offset %d, names position %d", counted(p.n, "entry names a record", "entries name records"), p.k, p.is.at))
		f.Means, f.Repair = "these records are lost, or the entries are wrong", "the entries are put into the backup and removed"
		x.report.Add(f)
	}
	if e.odd && e.differ.n+e.hole.n+e.orphan.n == 0 && x.Deep {
		f := of(badPlace{k: e.end}, "behind its entries there are bytes that are none")
		f.Bytes = 0
		x.report.Add(f)
	}
}

func count(n int64, noun string) string { return counted(n, noun, noun+"s") }

// counted is a number with what follows it.
func counted(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
