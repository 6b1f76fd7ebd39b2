package commitlog

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

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
	// bad are units that have to be made again.
	bad []badUnits
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
	// ours: this store wrote the files, with the size that is configured.
	ours bool
	// extend is set after an unclean end then: files that a power loss left short
	// are made whole.
	extend bool
	// first and end are those of the log's files.
	first, end message.Position
	// sized: what a file occupies on the disk tells how far it was written.
	sized bool
}

// load finds the queues that the directory holds.
func (ix *queueIndex) load(l *loading) error {
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
		if err := all[i].loadFiles(*l); err != nil {
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
			if len(q.files) > 0 {
				q.count(true)
			}
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
	onDisk := make([]int64, 0, 2)
	for i, name := range names {
		path := filepath.Join(q.dir(), name)
		base, ok := parseFileName(name)
		if !ok {
			if strings.HasSuffix(name, againSuffix) { // a crash interrupted its making
				if err := q.ix.fs.Remove(path); err != nil {
					return err
				}
			}
			continue
		}
		info, err := q.ix.fs.Stat(path)
		if err != nil {
			return err
		}
		used := info.Allocated
		if !l.sized {
			used = -1
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
		case l.ours:
			used = unreadable
		default:
			return &storage.CorruptError{File: path, Offset: min(info.Size, size), Reason: fmt.Sprintf("the file has %d bytes, configured are %d (mappedFileSizeConsumeQueue); set the size with which it was written, or remove the directory consumequeue to have it rebuilt from the log", info.Size, size)}
		}
		for n := len(q.files); l.ours && n > 0 && q.files[n-1].base+size < base; n = len(q.files) { // missing
			q.files, onDisk = append(q.files, &queueFile{base: q.files[n-1].base + size}), append(onDisk, unreadable)
		}
		if n := len(q.files); base%size != 0 || n > 0 && q.files[n-1].base+size != base {
			return &storage.CorruptError{File: path, Reason: "the file does not follow the one before it; restore the missing one, or remove the directory consumequeue to have all rebuilt from the log"}
		}
		q.files, onDisk = append(q.files, &queueFile{base: base}), append(onDisk, used)
	}
	if len(q.files) == 0 {
		return nil
	}
	r := newUnitReader(q)
	defer r.close()
	return q.examine(r, l, onDisk)
}

// examine finds the ends of the queue, what lies there, and what is damaged.
// onDisk tells how many bytes a file occupies, −1 when that is not known, or
// that it is unreadable.
func (q *queue) examine(r *unitReader, l loading, onDisk []int64) error {
	o := q.load
	per := q.ix.fileSize / unitSize
	lowest := q.files[0].base / unitSize
	// Units are dense: the end is where the sizes become 0. The last file may
	// have been made ahead of need.
	o.end, o.lastK, o.low = lowest, -1, -1
	last := len(q.files) - 1
	var holes []badUnits
	var odd bool
	for ; last >= 0; last-- {
		if onDisk[last] == unreadable {
			continue
		}
		from := q.files[last].base / unitSize
		var err error
		if o.end, holes, odd, err = r.end(from, per, onDisk[last]); err != nil {
			return err
		}
		if o.end > from {
			break
		}
	}
	if err := q.doubt(r, l, onDisk, last, holes, odd); err != nil {
		return err
	}
	for k := o.end - 1; k >= lowest; k-- {
		if file := (k - lowest) / per; onDisk[file] == unreadable {
			k = lowest + file*per
			continue
		}
		u, err := r.unit(k)
		if err != nil {
			return err
		}
		if !u.blank() {
			o.last, o.lastK = u, k
			break
		}
	}
	q.firstAt = l.first
	q.lastAt.Store(int64(o.last.at))
	switch {
	case o.last.blank():
		o.low = o.end
		q.lastAt.Store(-1)
	case len(o.bad) > 0: // to be looked at again
	case o.last.at < l.first:
		o.low = o.end
	default:
		u, err := r.unit(lowest)
		if err != nil {
			return err
		}
		if o.low = lowest; !u.blank() && u.at >= l.first {
			q.firstAt = u.at
		} else if o.low, err = r.firstAtOrAbove(l.first, lowest, o.end); err != nil {
			return err
		}
	}
	q.min.Store(lowest)
	q.max.Store(o.end)
	q.known.Store(o.end > 0)
	for _, f := range q.files {
		f.flushed.Store(min(max(o.end*unitSize-f.base, 0), q.ix.fileSize))
	}
	return nil
}

// unitReader reads the units of a queue, with a file at a time open and a page of it
// in memory. Where somebody writes behind them, files and limit are set.
type unitReader struct {
	q     *queue
	files []*queueFile // nil: the queue's
	limit int64        // an offset; nothing is read from there on. 0: there is no such
	file  int          // index of the open file
	h     vfs.File
	buf   *buffer
	addr  int64 // byte address of buf in the queue
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
	q, files, size := r.q, r.files, r.q.ix.fileSize
	if files == nil {
		files = q.files
	}
	file := int((addr - files[0].base) / size)
	r.buf.b = r.buf.b[:0]
	if r.h == nil || r.file != file {
		if r.h != nil {
			_ = r.h.Close()
		}
		var err error
		if r.h, err = q.ix.fs.OpenFile(q.path(files[file]), openRead, 0); err != nil {
			r.h = nil
			return err
		}
		r.file = file
	}
	base := files[file].base
	off := (addr - base) / diskPage * diskPage
	n := min(diskPage+unitSize, size-off)
	if r.limit > 0 {
		n = min(n, r.limit*unitSize-base-off)
	}
	b := r.buf.b[:n]
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

// end finds where the units of the file end that begins at offset from and holds
// per of them, and the holes before that: zeros where there are units behind. odd
// tells of bytes that are neither. onDisk is what the file occupies.
func (r *unitReader) end(from, per, onDisk int64) (end int64, holes []badUnits, odd bool, err error) {
	n, err := r.count(from, per)
	if err != nil || n == per {
		return from + n, nil, false, err
	}
	dense := from + n
	if end, err = r.used(dense, onDisk); err != nil {
		return 0, nil, false, err
	}
	for hole := true; dense < end; hole = !hole {
		k := dense
		for ; k < end; k++ {
			u, err := r.unit(k)
			if err != nil {
				return 0, nil, false, err
			}
			if odd = odd || u.size <= 0 && u != (unit{}) && !r.torn(k); (u.size <= 0) != hole {
				break
			}
		}
		switch {
		case hole && k == end:
			return dense, holes, odd, nil
		case hole:
			h := badUnits{from: dense, to: k}
			if h.from > from && r.torn(h.from-1) {
				h.from--
			}
			if h.to < end-1 && r.torn(h.to) {
				h.to++
			}
			holes = append(holes, h)
		}
		dense = max(k, dense+1)
	}
	return end, holes, odd, nil
}

// torn reports whether a power loss may leave a part of the unit at offset k: it
// lies on two pages.
func (r *unitReader) torn(k int64) bool {
	off := k * unitSize % r.q.ix.fileSize
	return off/diskPage != (off+unitSize-1)/diskPage
}

// used gives the offset behind the last byte that is not zero, from offset k on,
// of its file, of which a part may be on the disk; k when there is none.
func (r *unitReader) used(k, onDisk int64) (int64, error) {
	size := r.q.ix.fileSize
	off := k * unitSize % size
	base := k*unitSize - off
	limit := size
	if onDisk >= 0 {
		limit = min(size, max(onDisk, (off+diskPage-1)/diskPage*diskPage))
	}
	if off >= limit {
		return k, nil
	}
	if _, err := r.unit(k); err != nil { // opens the file
		return 0, err
	}
	end := k
	w := getBuffer(unitWindow)
	defer w.free()
	for empty := 0; off < limit && (empty < 2 || onDisk >= 0); {
		b := w.b[:min(unitWindow, limit-off)]
		if err := readAt(r.h, b, off); err != nil {
			return 0, err
		}
		empty++
		if !bytes.Equal(b, zeros[:len(b)]) {
			empty = 0
			end = (base+off+int64(len(bytes.TrimRight(b, "\x00")))-1)/unitSize + 1
		}
		off += int64(len(b))
	}
	return min(end, (base+size)/unitSize), nil
}

// firstAtOrAbove finds the first offset in [lo, hi) whose record begins at or
// above pos; hi when there is none. Blank units count as what follows them.
func (r *unitReader) firstAtOrAbove(pos message.Position, lo, hi int64) (int64, error) {
	return search(lo, hi, r.unit, func(u unit) (bool, error) { return u.at >= pos, nil })
}
