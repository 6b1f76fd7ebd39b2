package commitlog

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/vfs"
)

// A broker may have very many queues, nearly all of them idle: start opens each
// once, many at a time, and works with what it saw.

// loaded is what recovery knows of a queue.
type loaded struct {
	end int64 // behind the last unit in the files
	// last is the last unit that is not blank, lastK its offset; a blank one and
	// −1 when there is none.
	last  unit
	lastK int64
	// low is the first offset whose record is not below the log's first; −1 when
	// the units have changed.
	low int64
	// behind: something may lie behind the end.
	behind bool
	// hidden is up to which offset there were units before recovery, which
	// shows only those again that it can confirm.
	hidden int64
	// run are units from offset runFrom on that recovery confirmed and has not
	// compared with the files yet. It ends at the queue's end.
	run     []byte
	runFrom int64
	listed  bool // in queueIndex.runs
}

// hidden is that of q.load.
func (q *queue) hidden() int64 {
	if q.load == nil {
		return 0
	}
	return q.load.hidden
}

// loading is what load has to know.
type loading struct {
	// extend is set after an unclean end of this store: files that a power loss
	// left short are made whole.
	extend bool
	// first is the log's first position.
	first message.Position
	// sized: what a file occupies on the disk tells how far it was written.
	sized bool
}

// load finds the queues that the directory holds.
func (ix *queueIndex) load(l loading) error {
	u, err := ix.fs.Usage(ix.dir)
	if err != nil {
		return err
	}
	l.sized = !u.CopyOnWrite // those may compress
	topics, err := ix.fs.List(ix.dir)
	if err != nil {
		return err
	}
	queues := make([][]message.Queue, len(topics))
	err = inParallel(len(topics), func(i int) error {
		names, err := ix.dirsOf(filepath.Join(ix.dir, topics[i]))
		for _, name := range names {
			if id, err := strconv.ParseInt(name, 10, 32); err == nil && strconv.FormatInt(id, 10) == name { // else none of ours
				queues[i] = append(queues[i], message.Queue{Topic: topics[i], ID: int32(id)})
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	var all []*queue
	for _, keys := range queues {
		for _, key := range keys {
			all = append(all, &queue{ix: ix, key: key, load: &loaded{}})
		}
	}
	err = inParallel(len(all), func(i int) error {
		if err := all[i].loadFiles(l); err != nil {
			return fmt.Errorf("ConsumeQueue %s: %w", all[i].key, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	ix.byKey = make(map[message.Queue]*queue, len(all))
	for _, q := range all {
		if q.load != nil { // else its name is that of a file
			ix.byKey[q.key] = q
		}
	}
	return nil
}

// dirsOf lists a directory; nothing when dir is something else.
func (ix *queueIndex) dirsOf(dir string) ([]string, error) {
	names, err := ix.fs.List(dir)
	if err == nil {
		return names, nil
	}
	if info, sErr := ix.fs.Stat(dir); sErr == nil && !info.IsDir {
		return nil, nil
	}
	return nil, err
}

// loadFiles lists the files of the queue and looks into them.
func (q *queue) loadFiles(l loading) error {
	names, err := q.ix.dirsOf(q.dir())
	if err != nil {
		return err
	}
	if names == nil {
		if info, err := q.ix.fs.Stat(q.dir()); err != nil || !info.IsDir {
			q.load = nil
			return err
		}
	}
	size := q.ix.fileSize
	onDisk := make([]int64, 0, 2) // what each file occupies
	for i, name := range names {
		base, ok := parseFileName(name)
		if !ok {
			continue
		}
		path := filepath.Join(q.dir(), name)
		info, err := q.ix.fs.Stat(path)
		if err != nil {
			return err
		}
		switch {
		case info.Size == size:
		case info.Size < size && l.extend:
			if err := extendFile(q.ix.fs, path, size); err != nil {
				return err
			}
		case info.Size == 0 && i == len(names)-1:
			if err := q.ix.fs.Remove(path); err != nil {
				return err
			}
			continue
		default:
			return &storage.CorruptError{File: path, Offset: min(info.Size, size), Reason: fmt.Sprintf("the file has %d bytes, configured are %d (mappedFileSizeConsumeQueue); set the size with which it was written, or remove the directory consumequeue to have it rebuilt from the log", info.Size, size)}
		}
		if n := len(q.files); base%size != 0 || n > 0 && q.files[n-1].base+size != base {
			return &storage.CorruptError{File: path, Reason: "the file does not follow the one before it; restore the missing one, or remove the directory consumequeue to have all rebuilt from the log"}
		}
		q.files = append(q.files, &queueFile{base: base})
		if !l.sized {
			info.Allocated = -1
		}
		onDisk = append(onDisk, info.Allocated)
	}
	if len(q.files) == 0 {
		return nil
	}
	r := newUnitReader(q)
	defer r.close()
	return q.examine(r, l.first, onDisk)
}

// examine finds the ends of the queue and what lies there. onDisk tells how many
// bytes a file occupies, -1 when that is not known.
func (q *queue) examine(r *unitReader, first message.Position, onDisk []int64) error {
	o := q.load
	per := q.ix.fileSize / unitSize
	lowest := q.files[0].base / unitSize
	// Units are dense: the end is where the sizes become 0. The last file may
	// have been made ahead of need.
	end := lowest
	for i := len(q.files) - 1; i >= 0; i-- {
		from := q.files[i].base / unitSize
		n, err := r.count(from, per)
		if err != nil {
			return err
		}
		rest, err := r.restOfPage(from + n)
		if err != nil {
			return err
		}
		pageEnd := (n*unitSize + diskPage - 1) / diskPage * diskPage
		o.behind = o.behind || rest || n < per && (onDisk[i] < 0 || onDisk[i] > pageEnd)
		if end = from + n; n > 0 {
			break
		}
	}
	o.end, o.low, o.lastK = end, end, -1
	for k := end - 1; k >= lowest; k-- {
		u, err := r.unit(k)
		if err != nil {
			return err
		}
		if !u.blank() {
			o.last, o.lastK = u, k
			break
		}
	}
	q.firstAt, q.lastAt = first, -1
	if !o.last.blank() {
		q.lastAt = o.last.at
		u, err := r.unit(lowest)
		switch {
		case err != nil:
			return err
		case !u.blank() && u.at >= first:
			o.low, q.firstAt = lowest, u.at
		case o.last.at >= first:
			if o.low, err = r.firstAtOrAbove(first, lowest, end); err != nil {
				return err
			}
		}
	}
	q.min.Store(lowest)
	q.max.Store(end)
	q.known.Store(end > 0)
	for _, f := range q.files {
		f.flushed.Store(min(max(end*unitSize-f.base, 0), q.ix.fileSize))
	}
	return nil
}

// unitReader reads the units of a queue that nobody changes, with a file at a
// time open and a page of it in memory.
type unitReader struct {
	q    *queue
	file int // index of the open file
	h    vfs.File
	buf  *buffer
	addr int64 // byte address of buf in the queue
}

func newUnitReader(q *queue) *unitReader {
	return &unitReader{q: q, buf: getBuffer(diskPage + unitSize)}
}

func (r *unitReader) close() {
	if r.h != nil {
		_ = r.h.Close() // was only read
	}
	r.h = nil
	r.buf.free()
}

// unit gives the unit at offset k, for which there is a file.
func (r *unitReader) unit(k int64) (unit, error) {
	addr := k * unitSize
	if addr < r.addr || addr+unitSize > r.addr+int64(len(r.buf.b)) {
		if err := r.read(addr); err != nil {
			return unit{}, err
		}
	}
	return decodeUnit(r.buf.b[addr-r.addr:]), nil
}

// read brings the page of addr, and what of its last unit lies in the next one.
func (r *unitReader) read(addr int64) error {
	q, size := r.q, r.q.ix.fileSize
	file := int((addr - q.files[0].base) / size)
	r.buf.b = r.buf.b[:0]
	if r.h == nil || r.file != file {
		if r.h != nil {
			_ = r.h.Close()
		}
		var err error
		if r.h, err = q.ix.fs.OpenFile(q.path(q.files[file]), openRead, 0); err != nil {
			r.h = nil
			return err
		}
		r.file = file
	}
	base := q.files[file].base
	off := (addr - base) / diskPage * diskPage
	b := r.buf.b[:min(diskPage+unitSize, size-off)]
	if err := readAt(r.h, b, off); err != nil {
		return err
	}
	r.buf.b, r.addr = b, base+off
	return nil
}

// count counts the units from offset from on, of at most n. Most queues of a
// broker with very many have few units: steps that double stay on the first
// page, halves would touch one each.
func (r *unitReader) count(from, n int64) (int64, error) {
	lo, hi := from, from+n
	for step, found := int64(1), false; lo < hi; {
		at := lo + (hi-lo)/2
		if !found {
			at = min(lo+step-1, hi-1)
			step *= 2
		}
		u, err := r.unit(at)
		if err != nil {
			return 0, err
		}
		if u.at >= 0 && u.size > 0 {
			lo = at + 1
		} else {
			hi, found = at, true
		}
	}
	return lo - from, nil
}

// restOfPage reports whether not all bytes from offset k to the end of its page
// are zero.
func (r *unitReader) restOfPage(k int64) (bool, error) {
	if k*unitSize%r.q.ix.fileSize%diskPage == 0 { // none
		return false, nil
	}
	if _, err := r.unit(k); err != nil {
		return false, err
	}
	b := r.buf.b[:min(diskPage, len(r.buf.b))]
	if at := k*unitSize - r.addr; at < int64(len(b)) {
		return !bytes.Equal(b[at:], zeros[:len(b)-int(at)]), nil
	}
	return false, nil
}

// firstAtOrAbove finds the first offset in [lo, hi) whose record begins at or
// above pos; hi when there is none. Blank units count as what follows them.
func (r *unitReader) firstAtOrAbove(pos message.Position, lo, hi int64) (int64, error) {
	return search(lo, hi, r.unit, func(u unit) (bool, error) { return u.at >= pos, nil })
}
