package commitlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
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

// queueFile is one file of a ConsumeQueue. Its handles are guarded by the
// queue's mu: held for reading while they are used, for writing to change them.
type queueFile struct {
	base    int64 // byte address in the queue
	path    string
	m       vfs.Mapping
	mem     []byte
	file    vfs.File // where the file cannot be mapped, or not written through a mapping
	used    atomic.Bool
	cached  bool         // is in the fileCache, guarded by its mu
	flushed atomic.Int64 // bytes of the file that are durable
	whole   atomic.Bool  // its length is durable
}

func (f *queueFile) isOpen() bool { return f.mem != nil || f.file != nil }

func (f *queueFile) closeHandles() {
	if f.m != nil {
		_ = f.m.Close() // bytes are in the page cache; flush opens the file again
	}
	if f.file != nil {
		_ = f.file.Close()
	}
	f.m, f.mem, f.file = nil, nil, nil
}

// queue is the ConsumeQueue of one message queue. One writer at a time.
type queue struct {
	ix  *queueIndex
	key message.Queue
	dir string

	mu    sync.RWMutex
	files []*queueFile // contiguous, in order

	min, max atomic.Int64 // queue offsets
	known    atomic.Bool  // was written once
	dirty    atomic.Bool  // is on the list to be flushed
	newNames atomic.Bool  // its directory has names that are not durable

	// hidden is up to which offset there were units before recovery, which
	// shows only those again that it can confirm.
	hidden int64

	// The writer's: the file under way, and the byte addresses whose space is
	// reserved.
	cur              *queueFile
	roomFrom, roomTo int64
}

// queueIndex holds the ConsumeQueues.
type queueIndex struct {
	fs       vfs.FS
	dir      string
	fileSize int64
	// byWrite is set where space cannot be reserved: then a mapped write could
	// meet a full disk, so units are written by position.
	byWrite atomic.Bool

	mu     sync.RWMutex // byKey; the only goroutine that changes it reads it without
	byKey  map[message.Queue]*queue
	recent [256]*queue // the writer's, by recentSlot

	cache   fileCache
	dirtyMu sync.Mutex
	dirty   []*queue
}

func newQueueIndex(fsys vfs.FS, dir string, fileSize int64, maxOpen int) *queueIndex {
	return &queueIndex{fs: fsys, dir: dir, fileSize: fileSize, byKey: map[message.Queue]*queue{}, cache: fileCache{max: maxOpen}}
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

// recentSlot spreads queues over the writer's small cache.
func recentSlot(key message.Queue) uint8 {
	n := len(key.Topic)
	h := uint32(key.ID)*31 + uint32(n)*7
	if n > 1 {
		h += uint32(key.Topic[n-1]) + 3*uint32(key.Topic[n/2])
	}
	return uint8(h)
}

// writer finds or makes a queue for the writer.
func (ix *queueIndex) writer(key message.Queue) *queue {
	slot := recentSlot(key)
	if q := ix.recent[slot]; q != nil && q.key == key {
		return q
	}
	q := ix.byKey[key]
	if q == nil {
		q = &queue{ix: ix, key: key, dir: filepath.Join(ix.dir, key.Topic, strconv.Itoa(int(key.ID)))}
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

// put writes units and makes them visible to readers.
func (ix *queueIndex) put(units []message.Unit) error {
	byWrite := ix.byWrite.Load()
	for i := 0; i < len(units); {
		q := ix.writer(units[i].Queue)
		end := q.max.Load()
		q.mu.RLock()
		for ; i < len(units) && units[i].Queue == q.key; i++ {
			u := &units[i]
			addr := u.Offset * unitSize
			f := q.cur
			if f == nil || f.mem == nil || byWrite || u.Offset > end || addr < q.roomFrom || addr+unitSize > q.roomTo {
				q.mu.RUnlock()
				if err := q.putSlow(u, end); err != nil {
					return err
				}
				q.mu.RLock()
			} else {
				encodeUnit(f.mem[addr-f.base:], u.At, u.Size, u.TagsCode)
			}
			end = max(end, u.Offset+1)
		}
		q.mu.RUnlock()
		q.publish(end)
	}
	return nil
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
	f, err := q.lockFile(addr)
	if err != nil {
		return err
	}
	defer q.mu.RUnlock()
	off := addr - f.base
	if f.mem != nil && !q.ix.byWrite.Load() {
		copy(f.mem[off:], b)
		return nil
	}
	_, err = f.file.WriteAt(b, off)
	return err
}

// prepare makes the file of addr, reserves a window in it, and makes it the
// file under way. On a full disk it changes nothing that is visible.
func (q *queue) prepare(addr int64) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	size := q.ix.fileSize
	base := addr / size * size
	if len(q.files) == 0 {
		if err := q.create(base); err != nil {
			return err
		}
	}
	for q.files[len(q.files)-1].base < base {
		if err := q.create(q.files[len(q.files)-1].base + size); err != nil {
			return err
		}
	}
	f := q.file(addr)
	if f == nil {
		return fmt.Errorf("offset %d of queue %s is below its first file %s", addr/unitSize, q.key, q.files[0].path)
	}
	from, n := window(addr-base, size)
	if !q.ix.byWrite.Load() {
		if err := q.reserveIn(f, from, n); err != nil {
			return err
		}
	}
	if err := q.openFile(f); err != nil {
		return err
	}
	if f.m != nil && !q.ix.byWrite.Load() {
		_ = f.m.Advise(from, n, vfs.AdvicePopulateWrite) // only saves page faults
	}
	q.cur, q.roomFrom, q.roomTo = f, base+from, base+from+n
	return nil
}

// window is what is reserved and touched when a unit at off is to be written in a
// file of size bytes: the more, the further the queue has come in it, because
// most of many queues hold little.
func window(off, size int64) (from, n int64) {
	const page = 4096
	from = off / page * page
	n = min(max(from, page), unitWindow)
	n = (max(n, off+unitSize-from) + page - 1) / page * page
	return from, min(n, size-from)
}

func (q *queue) reserveIn(f *queueFile, from, n int64) error {
	h, err := q.ix.fs.OpenFile(f.path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	err = h.Reserve(from, n)
	if errors.Is(err, vfs.ErrReserveUnsupported) {
		q.ix.byWrite.Store(true)
		f.closeHandles() // to be opened again with a file behind it
		err = nil
	}
	return errors.Join(err, h.Close())
}

// create makes the next file, sparse at its full size. mu is held.
func (q *queue) create(base int64) error {
	if len(q.files) == 0 {
		if err := q.ix.fs.MkdirAll(q.dir); err != nil {
			return err
		}
	}
	f := &queueFile{base: base, path: filepath.Join(q.dir, fileName(base))}
	h, err := q.ix.fs.OpenFile(f.path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	if err := errors.Join(h.Truncate(q.ix.fileSize), h.Close()); err != nil {
		return err
	}
	q.newNames.Store(true)
	q.files = append(q.files, f)
	return nil
}

// file finds the file of a byte address. mu is held.
func (q *queue) file(addr int64) *queueFile {
	if len(q.files) == 0 || addr < q.files[0].base {
		return nil
	}
	if i := (addr - q.files[0].base) / q.ix.fileSize; i < int64(len(q.files)) {
		return q.files[i]
	}
	return nil
}

// lockFile finds the file of addr, opens it if need be, and returns with mu held
// for reading.
func (q *queue) lockFile(addr int64) (*queueFile, error) {
	for {
		q.mu.RLock()
		f := q.file(addr)
		if f == nil {
			q.mu.RUnlock()
			return nil, fmt.Errorf("queue %s has no file for offset %d: %w", q.key, addr/unitSize, fs.ErrNotExist)
		}
		if f.isOpen() && (f.file != nil || !q.ix.byWrite.Load()) {
			if !f.used.Load() {
				f.used.Store(true)
			}
			return f, nil
		}
		q.mu.RUnlock()
		q.mu.Lock()
		err := q.openFile(f)
		q.mu.Unlock()
		if err != nil {
			return nil, err
		}
	}
}

// openFile maps the file, or keeps it open where that is not possible. mu is
// held for writing.
func (q *queue) openFile(f *queueFile) error {
	byWrite := q.ix.byWrite.Load()
	if f.isOpen() && (f.file != nil || !byWrite) {
		return nil
	}
	f.closeHandles()
	h, err := q.ix.fs.OpenFile(f.path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if m, mErr := f.mapWhole(h, q.ix.fileSize, !byWrite); mErr == nil {
		f.m, f.mem = m, m.Bytes()
	}
	if f.mem != nil && !byWrite {
		if err := h.Close(); err != nil {
			return err
		}
	} else {
		f.file = h
	}
	f.used.Store(true)
	q.ix.cache.add(q, f)
	return nil
}

// mapWhole maps the file without read-ahead. Most files have few units and are
// sparse behind them: a fault that reads ahead, by megabytes on some systems,
// fills the page cache with zeros and takes milliseconds instead of
// microseconds, for every queue at start and for each new one.
func (f *queueFile) mapWhole(h vfs.File, size int64, writable bool) (vfs.Mapping, error) {
	m, err := h.Map(0, size, writable)
	if err == nil {
		_ = m.Advise(0, size, vfs.AdviceRandom) // only a hint
	}
	return m, err
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
	f, err := q.lockFile(addr)
	if err != nil {
		return 0, err
	}
	defer q.mu.RUnlock()
	off := addr - f.base
	b = b[:min(int64(len(b)), q.ix.fileSize-off)/unitSize*unitSize]
	if shown {
		b = b[:min(int64(len(b)), max(q.max.Load()-k, 0)*unitSize)]
	}
	if f.mem != nil {
		copy(b, f.mem[off:])
		return len(b) / unitSize, nil
	}
	if _, err = f.file.ReadAt(b, off); errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
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

// firstAtOrAbove finds the first offset in [lo, hi) whose record begins at or
// above pos; hi when there is none. Blank units count as what follows them.
func (q *queue) firstAtOrAbove(pos message.Position, lo, hi int64) (int64, error) {
	return search(lo, hi, q.unit, func(u unit) (bool, error) { return u.at >= pos, nil })
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

// fileCache bounds the open files of all queues: a clock over them.
type fileCache struct {
	mu   sync.Mutex
	max  int
	open []cached
	hand int
}

type cached struct {
	q *queue
	f *queueFile
}

// add takes a file that was opened, and closes others to make room. The lock
// of q is held; other queues that are busy are passed over.
func (c *fileCache) add(q *queue, f *queueFile) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for tries := 2 * len(c.open); len(c.open) >= c.max && tries > 0; tries-- {
		if c.hand >= len(c.open) {
			c.hand = 0
		}
		e := c.open[c.hand]
		if e.q == q || !e.q.mu.TryLock() {
			c.hand++
			continue
		}
		if e.f.used.Swap(false) && e.f.isOpen() {
			e.q.mu.Unlock()
			c.hand++
			continue
		}
		e.f.closeHandles()
		e.f.cached = false
		e.q.mu.Unlock()
		last := len(c.open) - 1
		c.open[c.hand] = c.open[last]
		c.open[last] = cached{}
		c.open = c.open[:last]
	}
	if !f.cached {
		f.cached = true
		c.open = append(c.open, cached{q, f})
	}
}
