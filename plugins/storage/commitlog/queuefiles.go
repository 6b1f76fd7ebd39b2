package commitlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/vfs"
)

// queueFile is one file of a ConsumeQueue. Its handles are guarded by the
// queue's mu: held for reading while they are used, for writing to change them.
// There may be very many: what can be computed is not kept.
type queueFile struct {
	base    int64 // byte address in the queue
	m       vfs.Mapping
	mem     []byte
	file    vfs.File     // where the file cannot be mapped, or not written through a mapping
	flushed atomic.Int64 // bytes of the file that are durable
	used    atomic.Bool
	cached  bool        // is in the fileCache, guarded by its mu
	whole   atomic.Bool // its length is durable
	// blank is the writer's: where that is known, 1 more than the offset from
	// which on nothing was ever written.
	blank int32
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

// dir is the directory of the queue's files.
func (q *queue) dir() string {
	return filepath.Join(q.ix.dir, q.key.Topic, strconv.Itoa(int(q.key.ID)))
}

// maxName is how long the name of a directory may be.
const maxName = 255

// nameable tells whether a topic can be the name of a directory and of nothing
// else. What the engine accepts and RocketMQ has is; a damaged record may have
// anything.
func nameable(topic string) bool {
	return topic != "" && topic != "." && topic != ".." && len(topic) <= maxName && !strings.ContainsAny(topic, "/\\\x00")
}

func (q *queue) path(f *queueFile) string { return filepath.Join(q.dir(), fileName(f.base)) }

// prepare makes the file of addr, reserves a window in it, and makes it the
// file under way. On a full disk it changes nothing that is visible.
func (q *queue) prepare(addr int64) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	size := q.ix.fileSize
	base := addr / size * size
	if len(q.files) == 0 {
		if !nameable(q.key.Topic) {
			return fmt.Errorf("%w: the topic %q of a record cannot be the name of a directory", storage.ErrUnsupported, q.key.Topic)
		}
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
		return fmt.Errorf("offset %d of queue %s is below its first file %s", addr/unitSize, q.key, q.path(q.files[0]))
	}
	from, n := window(addr-base, size)
	h, err := q.ix.fs.OpenFile(q.path(f), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if !q.ix.byWrite.Load() {
		err = h.Reserve(from, n)
		if errors.Is(err, vfs.ErrNoSpace) { // perhaps there is enough for the unit, or it is reserved already
			n = min((addr-base-from+unitSize+diskPage-1)/diskPage*diskPage, size-from)
			err = h.Reserve(from, n)
		}
		if errors.Is(err, vfs.ErrReserveUnsupported) {
			q.ix.byWrite.Store(true)
			q.ix.cache.holdFiles()
			f.closeHandles() // to be opened again with a file behind it
			err = nil
		} else if err == nil {
			err = f.writeZeros(h, from, n)
		}
	}
	if err != nil {
		return errors.Join(err, h.Close())
	}
	if q.usable(f) || !q.ix.cache.admits(q) {
		err = h.Close()
	} else {
		err = q.adopt(f, h)
	}
	if err != nil {
		return err
	}
	if f.m != nil && !q.ix.byWrite.Load() {
		_ = f.m.Advise(from, n, vfs.AdvicePopulateWrite) // only saves page faults
	}
	q.cur, q.roomFrom, q.roomTo = f, base+from, base+from+n
	return nil
}

// writeZeros writes zeros where nothing was written yet in [from, from+n), in
// files that this process has made: the system makes pages in a third of the time
// that faults of the mapping take.
func (f *queueFile) writeZeros(h vfs.File, from, n int64) error {
	if f.blank == 0 {
		return nil
	}
	for off := max(from, int64(f.blank)-1); off < from+n; off = int64(f.blank) - 1 {
		end := min(off+int64(len(zeros)), from+n)
		f.blank = int32(end + 1)
		if _, err := h.WriteAt(zeros[:end-off], off); err != nil {
			return err
		}
	}
	return nil
}

// window is what is reserved and touched when a unit at off is to be written in a
// file of size bytes: the more, the further the queue has come in it, because
// most of many queues hold little.
func window(off, size int64) (from, n int64) {
	from = off / diskPage * diskPage
	n = min(max(from, diskPage), unitWindow)
	n = (max(n, off+unitSize-from) + diskPage - 1) / diskPage * diskPage
	return from, min(n, size-from)
}

// create makes the next file, sparse at its full size. mu is held.
func (q *queue) create(base int64) error {
	if len(q.files) == 0 {
		if err := q.ix.fs.MkdirAll(q.dir()); err != nil {
			return err
		}
	}
	f := &queueFile{base: base}
	h, err := q.ix.fs.OpenFile(q.path(f), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	if size, err := h.Size(); err == nil && size == 0 {
		f.blank = 1
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

// usable reports whether the file is open in the way it is to be used.
func (q *queue) usable(f *queueFile) bool {
	return f.isOpen() && (f.file != nil || !q.ix.byWrite.Load())
}

// lockFile finds the file of addr and returns with mu held for reading. The file
// is open then, or too seldom used to take the place of another one: opened is
// what the caller uses and closes.
func (q *queue) lockFile(addr int64) (f *queueFile, opened vfs.File, err error) {
	for {
		q.mu.RLock()
		if f = q.file(addr); f == nil {
			q.mu.RUnlock()
			return nil, nil, fmt.Errorf("queue %s has no file for offset %d: %w", q.key, addr/unitSize, fs.ErrNotExist)
		}
		if q.usable(f) {
			if !f.used.Load() {
				f.used.Store(true)
			}
			return f, nil, nil
		}
		if !q.ix.cache.admits(q) {
			if opened, err = q.ix.fs.OpenFile(q.path(f), os.O_RDWR, 0); err != nil {
				q.mu.RUnlock()
			}
			return f, opened, err
		}
		q.mu.RUnlock()
		q.mu.Lock()
		err = q.openFile(f)
		q.mu.Unlock()
		if err != nil {
			return nil, nil, err
		}
	}
}

// openFile opens the file for longer. mu is held for writing.
func (q *queue) openFile(f *queueFile) error {
	if q.usable(f) {
		return nil
	}
	h, err := q.ix.fs.OpenFile(q.path(f), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return q.adopt(f, h)
}

// adopt maps the file, or keeps the handle where that is not possible. mu is
// held for writing.
func (q *queue) adopt(f *queueFile, h vfs.File) error {
	f.closeHandles()
	byWrite := q.ix.byWrite.Load()
	if m, mErr := mapWhole(h, q.ix.fileSize, !byWrite); mErr == nil {
		f.m, f.mem = m, m.Bytes()
	}
	if f.mem != nil && !byWrite {
		if err := h.Close(); err != nil {
			return err
		}
	} else {
		f.file = h
		q.ix.cache.holdFiles()
	}
	f.used.Store(true)
	q.ix.cache.add(q, f)
	return nil
}

// mapWhole maps the file without read-ahead. Most files have few units and are
// sparse behind them: a fault that reads ahead, by megabytes on some systems,
// fills the page cache with zeros and takes milliseconds instead of
// microseconds, for every queue at start and for each new one.
func mapWhole(h vfs.File, size int64, writable bool) (vfs.Mapping, error) {
	m, err := h.Map(0, size, writable)
	if err == nil {
		_ = m.Advise(0, size, vfs.AdviceRandom) // only a hint
	}
	return m, err
}

// readAt fills b from an open file.
func readAt(h vfs.File, b []byte, off int64) error {
	_, err := h.ReadAt(b, off)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

const (
	// heldFiles bounds the files that are kept open by a descriptor: where units
	// cannot be written through mappings, or nothing can be mapped. A process has
	// far fewer descriptors than mappings.
	heldFiles = 512
	// seldom is how many uses of a queue without an open file go by until it takes
	// the place of another one, when there is no room. A use costs three system
	// calls then; opening and closing a mapping costs much more, and when more
	// queues take turns than can be open, each use would do so.
	seldom = 8
)

// fileCache bounds the open files of all queues: a clock over them.
type fileCache struct {
	max  atomic.Int64
	size atomic.Int64 // len(open)

	mu   sync.Mutex
	open []cached
	hand int
}

type cached struct {
	q *queue
	f *queueFile
}

// holdFiles is told that files are kept by descriptors.
func (c *fileCache) holdFiles() {
	if c.max.Load() > heldFiles {
		c.max.Store(heldFiles)
	}
}

// admits reports whether a file of the queue is to be opened for longer than
// this use.
func (c *fileCache) admits(q *queue) bool {
	return c.size.Load() < c.max.Load() || q.uses.Add(1)%seldom == 0
}

// add takes a file that was opened, and closes others to make room. The lock
// of q is held; other queues that are busy are passed over.
func (c *fileCache) add(q *queue, f *queueFile) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for tries := 2 * len(c.open); int64(len(c.open)) >= c.max.Load() && tries > 0; tries-- {
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
	c.size.Store(int64(len(c.open)))
}
