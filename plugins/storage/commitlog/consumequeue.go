package commitlog

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/vfs"
)

const (
	// blankUnitSize is the size field of a unit that is no message: what stands
	// before the first unit of a queue that begins above 0.
	blankUnitSize = 1<<31 - 1
	// unitWindow is how far ahead ConsumeQueue files are reserved and touched at
	// most.
	unitWindow = 64 << 10
)

// unit is a decoded ConsumeQueue unit.
type unit struct {
	at   message.Position
	size int32
	tags int64
}

func (u unit) blank() bool { return u.size <= 0 || u.size == blankUnitSize && u.at == 0 }

func decodeUnit(b []byte) unit {
	_ = b[unitSize-1]
	be := binary.BigEndian
	return unit{message.Position(be.Uint64(b)), int32(be.Uint32(b[8:])), int64(be.Uint64(b[12:]))}
}

func encodeUnit(b []byte, at message.Position, size int32, tags int64) {
	_ = b[unitSize-1]
	be := binary.BigEndian
	be.PutUint64(b, uint64(at))
	be.PutUint32(b[8:], uint32(size))
	be.PutUint64(b[12:], uint64(tags))
}

// queue is the ConsumeQueue of one message queue. One writer at a time.
type queue struct {
	ix  *queueIndex
	key message.Queue

	mu    sync.RWMutex
	files []*queueFile // contiguous, in order

	min, max atomic.Int64  // queue offsets
	uses     atomic.Uint32 // without an open file
	known    atomic.Bool   // was written once
	dirty    atomic.Bool   // is on the list to be flushed
	newNames atomic.Bool   // its directory has names that are not durable
	holey    atomic.Bool   // a hole was told
	counted  atomic.Bool   // in queueIndex.present
	held     int32         // the writer's: its place in queueIndex.held, from 1

	// The writer's: the file under way, and the byte addresses whose space is
	// reserved.
	cur              *queueFile
	roomFrom, roomTo int64
	// No record of the queue below max lies above lastAt, and none of those from min on
	// below firstAt, which is of those that cut or expire: with them most queues need not
	// be opened for that.
	firstAt message.Position
	lastAt  atomic.Int64

	load *loaded // until recovery is over
}

// queueIndex holds the ConsumeQueues.
type queueIndex struct {
	fs       vfs.FS
	log      *slog.Logger
	dir      string
	fileSize int64
	// byWrite is set where space cannot be reserved: then a mapped write could
	// meet a full disk, so units are written by position.
	byWrite atomic.Bool

	mu     sync.RWMutex // byKey; the only goroutine that changes it reads it without
	byKey  map[message.Queue]*queue
	recent [256]*queue // the writer's, by Queue.Slot
	held   []heldQueue // the writer's: what put has locked

	// Recovery's: queues with a run, and how many units these have. unsure: the last end
	// was not clean, and names of files may not be durable.
	runs     []*queue
	runUnits int
	unsure   bool

	// present are the queues whose files are durable: how many, and the sum of
	// the hashes of their names.
	present struct {
		n    atomic.Int64
		hash atomic.Uint64
	}

	cache   fileCache
	dirtyMu sync.Mutex
	dirty   []*queue
}

// last is lastAt as a position.
func (q *queue) last() message.Position { return message.Position(q.lastAt.Load()) }

// raiseLast makes lastAt at or above at, lowerLast at or below it. Nobody else changes
// it meanwhile.
func (q *queue) raiseLast(at message.Position) {
	if at > q.last() {
		q.lastAt.Store(int64(at))
	}
}

func (q *queue) lowerLast(at message.Position) {
	if at < q.last() {
		q.lastAt.Store(int64(at))
	}
}

// heldQueue is a queue that put has locked, where it will end, and the last record.
type heldQueue struct {
	q    *queue
	end  int64
	last message.Position
}

func newQueueIndex(fsys vfs.FS, log *slog.Logger, dir string, fileSize int64, maxOpen int) *queueIndex {
	ix := &queueIndex{fs: fsys, log: log, dir: dir, fileSize: fileSize, byKey: map[message.Queue]*queue{}}
	ix.cache.max.Store(int64(maxOpen))
	return ix
}

// get finds a queue for a reader.
func (ix *queueIndex) get(key message.Queue) *queue {
	ix.mu.RLock()
	q := ix.byKey[key]
	ix.mu.RUnlock()
	return q
}

// all lists the queues.
func (ix *queueIndex) all() []*queue {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	out := make([]*queue, 0, len(ix.byKey))
	for _, q := range ix.byKey {
		out = append(out, q)
	}
	return out
}

// find is get for the only goroutine that changes byKey.
func (ix *queueIndex) find(key message.Queue) *queue {
	if q := ix.recent[key.Slot()]; q != nil && q.key == key {
		return q
	}
	return ix.byKey[key]
}

// writer finds or makes a queue for the writer.
func (ix *queueIndex) writer(key message.Queue) *queue {
	slot := key.Slot()
	if q := ix.recent[slot]; q != nil && q.key == key {
		return q
	}
	q := ix.byKey[key]
	if q == nil {
		q = &queue{ix: ix, key: key}
		ix.mu.Lock()
		ix.byKey[key] = q
		ix.mu.Unlock()
	}
	ix.recent[slot] = q
	return q
}

// reserve makes sure that the units can be written without running out of
// space. Nothing is visible of it.
func (ix *queueIndex) reserve(units []message.Unit) error {
	for i := range units {
		q := ix.writer(units[i].Queue)
		if addr := units[i].Offset * unitSize; addr < q.roomFrom || addr+unitSize > q.roomTo {
			if err := q.prepare(addr); err != nil {
				return err
			}
		}
	}
	return nil
}

// put writes units and makes them visible to readers. Each queue of a batch is
// locked and published once, however the records of several queues take turns.
func (ix *queueIndex) put(units []message.Unit) (err error) {
	byWrite := ix.byWrite.Load()
	for i := range units {
		u := &units[i]
		q := ix.writer(u.Queue)
		if q.held == 0 {
			q.mu.RLock()
			ix.held = append(ix.held, heldQueue{q: q, end: q.max.Load(), last: -1})
			q.held = int32(len(ix.held))
		}
		h := &ix.held[q.held-1]
		addr := u.Offset * unitSize
		f := q.cur
		if f == nil || f.mem == nil || byWrite || u.Offset > h.end || addr < q.roomFrom || addr+unitSize > q.roomTo {
			q.mu.RUnlock()
			err = q.putSlow(u, h.end)
			q.mu.RLock()
			if err != nil {
				break
			}
		} else {
			encodeUnit(f.mem[addr-f.base:], u.At, u.Size, u.TagsCode)
		}
		h.end = max(h.end, u.Offset+1)
		h.last = max(h.last, u.At)
	}
	for i := range ix.held {
		h := &ix.held[i]
		h.q.held = 0
		h.q.mu.RUnlock()
		h.q.raiseLast(h.last) // before max
		if err == nil {
			h.q.publish(h.end)
		}
		h.q = nil
	}
	ix.held = ix.held[:0]
	return err
}

// publish shows the units below end.
func (q *queue) publish(end int64) {
	q.max.Store(end)
	if !q.known.Load() {
		q.known.Store(true)
	}
	q.touch()
}

// touch puts the queue on the list to be flushed.
func (q *queue) touch() {
	if q.dirty.Load() || q.dirty.Swap(true) {
		return
	}
	q.ix.dirtyMu.Lock()
	q.ix.dirty = append(q.ix.dirty, q)
	q.ix.dirtyMu.Unlock()
}

// putSlow writes one unit where the fast path cannot: gaps, files that were
// closed meanwhile, or no mappings.
func (q *queue) putSlow(u *message.Unit, end int64) error {
	if u.Offset > end {
		if err := q.fill(end, u.Offset); err != nil {
			return err
		}
	}
	var b [unitSize]byte
	encodeUnit(b[:], u.At, u.Size, u.TagsCode)
	return q.write(u.Offset*unitSize, b[:])
}

// fill writes blank units [from, to); a queue that begins above 0 is filled
// from the beginning of its first file, and begins at to.
func (q *queue) fill(from, to int64) error {
	size := q.ix.fileSize
	if from == 0 && !q.known.Load() {
		from = to * unitSize / size * size / unitSize
		q.min.Store(to)
	}
	var blanks [64 * unitSize]byte
	for i := 0; i < len(blanks); i += unitSize {
		encodeUnit(blanks[i:], 0, blankUnitSize, 0)
	}
	for from < to {
		n := min(to-from, 64, (size-from*unitSize%size)/unitSize)
		if err := q.write(from*unitSize, blanks[:n*unitSize]); err != nil {
			return err
		}
		from += n
	}
	return nil
}

// write writes whole units that lie in one file.
func (q *queue) write(addr int64, b []byte) error {
	if addr < q.roomFrom || addr+int64(len(b)) > q.roomTo {
		if err := q.prepare(addr); err != nil {
			return err
		}
		if addr+int64(len(b)) > q.roomTo { // b spans windows
			if err := q.prepare(addr + int64(len(b)) - unitSize); err != nil {
				return err
			}
		}
	}
	f, opened, err := q.lockFile(addr)
	if err != nil {
		return err
	}
	defer q.mu.RUnlock()
	off := addr - f.base
	switch {
	case opened != nil:
		_, err = opened.WriteAt(b, off)
		err = errors.Join(err, opened.Close())
	case f.mem != nil && !q.ix.byWrite.Load():
		copy(f.mem[off:], b)
	default:
		_, err = f.file.WriteAt(b, off)
	}
	return err
}

// readShown copies the units from offset k on that readers may see into b and
// returns how many: those of one file at most, none when a cut has made the
// queue end at or below k.
func (q *queue) readShown(k int64, b []byte) (int, error) {
	return q.read(k, b, true)
}

// read is readShown, or without regard for the queue's end when shown is not
// set. The end is looked up with mu held: a cut lowers it before it takes mu, so
// that no unit is written again below a reader that saw the end before the cut.
func (q *queue) read(k int64, b []byte, shown bool) (int, error) {
	addr := k * unitSize
	f, opened, err := q.lockFile(addr)
	if err != nil {
		return 0, err
	}
	defer q.mu.RUnlock()
	off := addr - f.base
	b = b[:min(int64(len(b)), q.ix.fileSize-off)/unitSize*unitSize]
	if shown {
		b = b[:min(int64(len(b)), max(q.max.Load()-k, 0)*unitSize)]
	}
	switch {
	case opened != nil:
		err = errors.Join(readAt(opened, b, off), opened.Close())
	case f.mem != nil:
		copy(b, f.mem[off:])
	default:
		err = readAt(f.file, b, off)
	}
	return len(b) / unitSize, err
}

// unit reads one unit, also at or behind the queue's end: for the writer,
// recovery and retention, beside which nothing is cut.
func (q *queue) unit(k int64) (unit, error) {
	var b [unitSize]byte
	if _, err := q.read(k, b[:], false); err != nil {
		return unit{}, err
	}
	return decodeUnit(b[:]), nil
}

// shownUnit reads one unit for a reader: a blank one when a cut has removed it.
func (q *queue) shownUnit(k int64) (unit, error) {
	var b [unitSize]byte
	if _, err := q.readShown(k, b[:]); err != nil {
		return unit{}, err
	}
	return decodeUnit(b[:]), nil
}

// search finds the first offset in [lo, hi) for which ok, which is false and
// then true along the queue; hi when there is none. Blank units are passed over
// and never found.
func search(lo, hi int64, get func(int64) (unit, error), ok func(unit) (bool, error)) (int64, error) {
	found := hi
	for lo < hi {
		mid := lo + (hi-lo)/2
		k := mid
		var u unit
		var err error
		for ; k < hi; k++ {
			if u, err = get(k); err != nil {
				return 0, err
			}
			if !u.blank() {
				break
			}
		}
		if k == hi { // only blanks from mid on
			hi = mid
			continue
		}
		yes, err := ok(u)
		switch {
		case err != nil:
			return 0, err
		case yes:
			hi, found = mid, k
		default:
			lo = k + 1
		}
	}
	return found, nil
}
