package commitlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/plugins/storage/commitlog/indexfile"
)

const (
	// maxPendingKeys bounds what waits for the goroutine that writes keys; a
	// writer that is further ahead helps.
	maxPendingKeys = 1 << 20
	// wakeKeys is how many keys wait before that goroutine is woken, which costs
	// a writer of single messages more than the rest of its work. Who looks for a
	// key looks at those that wait, too.
	wakeKeys = 4096
	// keyFlushEvery is the time in ms between flushes of the key index, whose
	// pages are written all over: it bounds what is rebuilt after a power loss.
	keyFlushEvery = 10_000
	// keyFlushBytes is how much log comes between two flushes at most: after a kill, keys of
	// what was not flushed are made again from the log, which is most of what such a start
	// does when much was written in those seconds.
	keyFlushBytes = 512 << 20
	// indexNameLayout is RocketMQ's name of an index file, with milliseconds
	// behind it.
	indexNameLayout = "20060102150405"
	// asideDir is where index files go that cannot be read. It is not below
	// index: RocketMQ takes everything there for an index file.
	asideDir = "index.aside"
)

// keyIndex is the key index: files, and in front of them keys in memory that
// are not in the files yet.
type keyIndex struct {
	s    *Store
	dir  string
	size indexfile.Sizes

	mu       sync.RWMutex // the two lists
	pending  []message.Key
	inflight []message.Key // being written to the files
	promised int           // entries that batches may still need
	room     int           // entries that are reserved in the files

	filesMu   sync.RWMutex // the files and their content
	files     []*indexfile.File
	newNames  bool
	lastFlush int64
	mark      atomic.Int64 // below it keys are durable, as the checkpoint says
	// flushBytes is keyFlushBytes; tests lower it.
	flushBytes int64
	last       int64 // name of the last file with keys, as the checkpoint says

	wake chan struct{}
}

func newKeyIndex(s *Store) *keyIndex {
	return &keyIndex{
		s: s, dir: s.path.index, wake: make(chan struct{}, 1),
		size:       indexfile.Sizes{Slots: s.cfg.MaxHashSlotNum, Entries: s.cfg.MaxIndexNum},
		flushBytes: keyFlushBytes,
	}
}

// reserve makes sure that n more keys can be written.
func (k *keyIndex) reserve(n int) error {
	if n == 0 {
		return nil
	}
	k.mu.Lock()
	k.promised += n
	enough := k.promised <= k.room
	k.mu.Unlock()
	if enough {
		return nil
	}
	k.filesMu.Lock()
	defer k.filesMu.Unlock()
	err := k.extend()
	if err != nil {
		k.giveBack(n)
	}
	return err
}

// giveBack undoes reserve for keys that will not come.
func (k *keyIndex) giveBack(n int) {
	k.mu.Lock()
	k.promised -= n
	k.mu.Unlock()
}

// extend reserves what is promised, in the last file and in new ones. filesMu
// is held.
func (k *keyIndex) extend() error {
	k.mu.RLock()
	need := k.promised
	k.mu.RUnlock()
	for i := k.firstOpen(); i < len(k.files); i++ {
		if err := k.files[i].Reserve(need); err != nil {
			return err
		}
		need -= k.files[i].Room()
	}
	for need > 0 {
		f, err := k.create()
		if err != nil {
			return err
		}
		if err := f.Reserve(need); err != nil {
			return err
		}
		need -= f.Room()
	}
	k.count()
	return nil
}

// firstOpen is the index of the file that takes the next key: the last one with keys, or
// behind it when that is full. One before it may not be full either: an Apache broker puts keys into
// the last file that there is, also where the one before still waited for keys that a killed broker
// did not write. filesMu is held.
func (k *keyIndex) firstOpen() int {
	i := len(k.files)
	for i > 0 && !k.files[i-1].Full() {
		if i--; k.files[i].H.Count > 1 {
			break
		}
	}
	return i
}

// count sums what is reserved. filesMu is held.
func (k *keyIndex) count() {
	room := 0
	for _, f := range k.files[k.firstOpen():] {
		room += f.Room()
	}
	k.mu.Lock()
	k.room = room
	k.mu.Unlock()
}

// create makes the next file. filesMu is held.
func (k *keyIndex) create() (*indexfile.File, error) {
	now := k.s.p.Clock.Now()
	var name string
	for {
		name = now.Format(indexNameLayout) + fmt.Sprintf("%03d", now.Nanosecond()/int(time.Millisecond))
		if n := len(k.files); n == 0 || name > filepath.Base(k.files[n-1].Path) {
			break
		}
		now = now.Add(time.Millisecond) // made within one, or the clock went back
		if last, err := time.ParseInLocation(indexNameLayout, filepath.Base(k.files[len(k.files)-1].Path)[:14], now.Location()); err == nil && now.Before(last) {
			now = last
		}
	}
	var prev *indexfile.Header
	if n := len(k.files); n > 0 {
		prev = &k.files[n-1].H
	}
	f, err := indexfile.Create(k.s.fs, filepath.Join(k.dir, name), k.size, prev)
	if err != nil {
		return nil, err
	}
	k.files, k.newNames = append(k.files, f), true
	return f, nil
}

// add hands over the keys of published records; they are found from now on.
func (k *keyIndex) add(keys []message.Key) error {
	k.mu.Lock()
	k.pending = append(k.pending, keys...)
	n := len(k.pending)
	k.mu.Unlock()
	if n > maxPendingKeys {
		_, err := k.drain()
		return err
	}
	if n < wakeKeys {
		return nil
	}
	select {
	case k.wake <- struct{}{}:
	default:
	}
	return nil
}

// run writes keys into the files.
func (k *keyIndex) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
		}
		if _, err := k.drain(); err != nil {
			_ = k.s.fail(fmt.Errorf("write the key index: %w", err))
			return
		}
	}
}

// drain writes everything that is pending when it is called. Only after a start
// on a full disk may there be no space for it; then left is true, and the keys
// stay in memory.
func (k *keyIndex) drain() (left bool, err error) {
	k.filesMu.Lock()
	defer k.filesMu.Unlock()
	for range 2 { // what a drain before left, and what came then
		k.mu.Lock()
		if len(k.inflight) == 0 {
			k.inflight, k.pending = k.pending, k.inflight
		}
		k.mu.Unlock()
		if len(k.inflight) == 0 {
			return false, nil
		}
		n, err := k.write(k.inflight)
		if left = errors.Is(err, vfs.ErrNoSpace); err != nil && !left {
			return false, err
		}
		k.count()
		k.mu.Lock()
		k.promised -= n
		k.inflight = k.inflight[:copy(k.inflight, k.inflight[n:])]
		k.mu.Unlock()
		if left {
			return true, nil
		}
	}
	return false, nil
}

// write puts keys into the files and returns how many. filesMu is held.
func (k *keyIndex) write(keys []message.Key) (n int, err error) {
	var f *indexfile.File
	defer func() {
		if f != nil {
			err = errors.Join(err, f.PutHeader())
		}
	}()
	for n = range keys {
		if f == nil || f.Full() {
			if f != nil {
				if err := f.PutHeader(); err != nil {
					return n, err
				}
			}
			next, err := k.target()
			if err != nil {
				return n, err
			}
			f = next
		}
		if f.Room() == 0 { // recovery did not ask before
			if err := f.Reserve(len(keys) - n); err != nil {
				return n, err
			}
		}
		if err := f.Put(keys[n]); err != nil {
			return n, err
		}
	}
	return len(keys), nil
}

// target is the file for the next key.
func (k *keyIndex) target() (*indexfile.File, error) {
	if i := k.firstOpen(); i < len(k.files) {
		return k.files[i], nil
	}
	return k.create()
}

// restore indexes keys that recovery read from the log. On a full disk they stay
// in memory until there is space.
func (k *keyIndex) restore(keys []message.Key) error {
	if len(k.pending) == 0 {
		n, err := k.write(keys)
		if !errors.Is(err, vfs.ErrNoSpace) {
			return err
		}
		k.s.p.Logger.Warn("the disk is full: keys that are missing in the key index stay in memory until there is space", "error", err)
		keys = keys[n:]
	}
	k.pending = append(k.pending, keys...)
	k.promised += len(keys)
	return nil
}

// flush makes the keys of records below upTo durable, from time to time or when
// forced.
func (k *keyIndex) flush(upTo, t int64, force bool) error {
	now := k.s.p.Clock.Now().UnixMilli()
	// The clock may have been set back.
	if since := now - k.lastFlush; !force && since >= 0 && since < keyFlushEvery && upTo-k.mark.Load() < k.flushBytes {
		return nil
	}
	k.lastFlush = now
	if left, err := k.drain(); err != nil || left { // what is durable goes no further
		return err
	}
	// Readers may go on; writers wait, but they have memory to write to.
	k.filesMu.RLock()
	defer k.filesMu.RUnlock()
	for _, f := range k.files {
		if err := f.Flush(); err != nil {
			return err
		}
	}
	if k.newNames {
		if err := k.s.fs.SyncDir(k.dir); err != nil {
			return err
		}
		k.newNames = false
	}
	if err := k.s.cp.set(cpIndexTime, t); err != nil {
		return err
	}
	if len(k.files) > 0 {
		if err := k.s.cp.set(cpIndexUsed, 1); err != nil {
			return err
		}
	}
	if err := k.noteLast(); err != nil {
		return err
	}
	k.mark.Store(upTo)
	return k.s.cp.setIndexAt(upTo)
}

// noteLast writes the name of the last file with keys into the checkpoint: Apache's
// broker deletes that first, and may keep empty ones behind it. filesMu is held.
func (k *keyIndex) noteLast() error {
	k.last = 0
	for i := len(k.files) - 1; i >= 0 && k.last == 0; i-- {
		if k.files[i].H.Count > 1 {
			k.last = fileNumber(k.files[i])
		}
	}
	return k.s.cp.set(cpIndexLast, k.last)
}

// fileNumber is the name of a file as a number.
func fileNumber(f *indexfile.File) int64 {
	n, err := strconv.ParseInt(filepath.Base(f.Path), 10, 64)
	if err != nil {
		return 0 // open takes no such name
	}
	return n
}

func (k *keyIndex) close() error {
	k.filesMu.Lock()
	defer k.filesMu.Unlock()
	var errs []error
	for _, f := range k.files {
		errs = append(errs, f.Close())
	}
	k.files = nil
	return errors.Join(errs...)
}

// load opens the files and says from which position on keys have to be indexed
// again.
func (k *keyIndex) load(r *recovery) (message.Position, error) {
	first := message.Position(r.first())
	whole, err := k.open(r)
	if err != nil {
		return 0, err
	}
	known := message.Position(r.fields.indexAt)
	k.mark.Store(int64(known)) // cut lowers what the checkpoint says
	k.last = r.fields.indexLast
	if r.foreign || !whole {
		known = -1
	}
	if len(k.files) == 0 {
		if known >= 0 && !r.fields.indexUsed {
			return max(known, first), nil // there were no keys so far
		}
		return first, k.cut(first)
	}
	if !r.clean {
		if err := k.repair(r, known); err != nil {
			return 0, err
		}
	}
	if apart, err := k.dropOverlaps(); err != nil {
		return 0, err
	} else if !apart {
		known, whole = -1, false
	}
	if err := k.cut(r.limit); err != nil {
		return 0, err
	}
	if len(k.files) == 0 {
		return first, k.cut(first)
	}
	end := k.files[len(k.files)-1].H.EndAt
	for i := len(k.files) - 1; i > 0 && k.files[i].H.Count <= 1; i-- {
		end = k.files[i-1].H.EndAt
	}
	if known >= 0 {
		lost, err := k.lostFrom(r, min(known, r.limit), end)
		if err != nil {
			return 0, err
		}
		if lost {
			k.s.p.Logger.Warn("another broker has lost keys that were not in the files of the key index; keys are made again from the log", "from", known)
			return max(known, first), k.cut(known)
		}
	}
	switch {
	case r.clean && whole:
		end++ // the record there has all its keys
		if known >= 0 {
			end = max(end, known)
		}
	case known >= 0 && known > end:
		end = known
	}
	if err := k.cut(end); err != nil { // never twice
		return 0, err
	}
	return max(end, first), nil
}

// lostFrom reports whether keys are missing of the first record in [pos, end]
// that has any; end is the last record with keys in the files. Keys are written in the order of the log, so when it has its keys
// none are missing between it and the end of the files, unless another broker was
// here: after an unclean end Apache's indexes from where its own recovery began.
func (k *keyIndex) lostFrom(r *recovery, pos, end message.Position) (bool, error) {
	rd := newLogReader(r.list)
	defer rd.close()
	var v message.View
	var keys []message.Key
	for pos <= end {
		seg := r.list.at(pos)
		if seg == nil {
			return false, nil
		}
		switch err := rd.good(pos, &v, false); {
		case errors.Is(err, message.ErrBlank):
			pos = message.Position(seg.base + seg.size)
			continue
		case isRecordFault(err):
			return false, nil // the scan deals with it
		case err != nil:
			return false, err
		}
		if _, keys = k.s.deriver.Derive(&v, nil, nil, keys[:0]); len(keys) > 0 {
			break
		}
		pos += message.Position(v.Size)
	}
	for i := range keys {
		found, err := k.has(&keys[i])
		if !found || err != nil {
			return true, err
		}
	}
	return false, nil
}

// has reports whether a key is in the files.
func (k *keyIndex) has(key *message.Key) (found bool, err error) {
	for i := len(k.files) - 1; i >= 0 && !found && err == nil; i-- {
		if h := &k.files[i].H; h.Count > 1 && h.EndAt < key.At {
			break
		}
		err = k.files[i].Find(key.Hash, 0, math.MaxInt64, func(at message.Position) bool {
			found = at == key.At
			return !found
		})
	}
	return found, err
}

// open opens all files. The first that is damaged and those after it are to be
// made again from the log: then whole is false. So are those after a file that is
// gone: after an unclean end Apache's broker deletes what is younger than its
// checkpoint.
func (k *keyIndex) open(r *recovery) (whole bool, err error) {
	names, err := k.s.fs.List(k.dir)
	if err != nil {
		return false, err
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		_, err := strconv.ParseUint(name, 10, 63)
		return err != nil || len(name) != 17
	})
	whole = true
	last := r.fields.indexLast
	if gone := fmt.Sprintf("%017d", last); last > 0 && !r.foreign && r.fields.indexAt > int64(r.first()) {
		if i, there := slices.BinarySearch(names, gone); !there {
			whole = false
			if err := k.removeFrom(names[i:], filepath.Join(k.dir, gone), fs.ErrNotExist); err != nil {
				return false, err
			}
			names = names[:i]
		}
	}
	for i, name := range names {
		path := filepath.Join(k.dir, name)
		info, err := k.s.fs.Stat(path)
		if err != nil {
			return false, err
		}
		if want := k.size.FileSize(); info.Size < want && (info.Size == 0 && i == len(names)-1 || !r.clean && !r.foreign) {
			// An empty file was being made in a crash: no key can be in it.
			return whole && info.Size == 0, k.removeFrom(names[i:], path, errors.New("it is too short"))
		} else if info.Size != want {
			return false, k.setAside(names[i:], info.Size)
		}
		f, err := indexfile.Open(k.s.fs, path, k.size)
		if errors.Is(err, indexfile.ErrHeader) {
			return false, errors.Join(f.Close(), k.removeFrom(names[i:], path, err))
		}
		if err != nil {
			return false, err
		}
		k.files = append(k.files, f)
	}
	return whole, nil
}

// removeFrom removes a damaged file and those after it; recovery makes them
// again from the log.
func (k *keyIndex) removeFrom(names []string, path string, why error) error {
	k.s.p.Logger.Warn("a file of the key index is damaged; it and those after it are made again as far as the log goes back", "file", path, "reason", why)
	for _, name := range names {
		if err := k.s.fs.Remove(filepath.Join(k.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// setAside moves a file that was not written with the sizes that are configured
// out of the way, and those after it that it stands before in the order of the
// log. Nothing is lost: they are made again.
func (k *keyIndex) setAside(names []string, size int64) error {
	aside := filepath.Join(k.s.path.root, asideDir)
	if err := vfs.EnsureDir(k.s.fs, aside); err != nil {
		return err
	}
	for _, name := range names {
		if err := k.s.fs.Rename(filepath.Join(k.dir, name), filepath.Join(aside, name)); err != nil {
			return err
		}
	}
	k.s.p.Logger.Warn("a file of the key index has not the size that is configured (maxHashSlotNum, maxIndexNum); it and those after it are set aside, to be deleted by hand, and made again from the log",
		"file", filepath.Join(k.dir, names[0]), "bytes", size, "configured_bytes", k.size.FileSize(), "slots", k.size.Slots, "entries", k.size.Entries,
		"files", len(names), "set_aside_in", aside)
	return errors.Join(k.s.fs.SyncDir(aside), k.s.fs.SyncDir(k.dir))
}

// repair keeps of the files what is known to be durable.
func (k *keyIndex) repair(r *recovery, known message.Position) error {
	for i := len(k.files) - 1; i >= 0; i-- {
		f := k.files[i]
		if f.H.Count > 1 && f.H.EndTime <= r.fields.index && (known < 0 || f.Full() && f.H.EndAt < known) {
			return nil // whole, and so are those before it
		}
		// A file that was not full may have slots that point at entries that are
		// lost.
		keep := false
		if known >= 0 {
			var err error
			if keep, err = f.Rebuild(known); err != nil {
				return err
			}
		}
		if !keep {
			k.files = slices.Delete(k.files, i, i+1) // one behind an empty one may have keys: firstOpen
			if err := k.remove(f); err != nil {
				return err
			}
		}
	}
	return nil
}

func (k *keyIndex) remove(f *indexfile.File) error {
	if err := errors.Join(f.Close(), k.s.fs.Remove(f.Path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return k.s.fs.SyncDir(k.dir)
}

// cut forgets the keys of records at or above pos.
func (k *keyIndex) cut(pos message.Position) error {
	left, err := k.drain()
	if err != nil {
		return err
	}
	if err := k.lowerMark(pos); err != nil { // what comes to stand there has no durable keys
		return err
	}
	k.filesMu.Lock()
	defer k.filesMu.Unlock()
	if left {
		k.forget(pos)
	}
	changed := false
	for i := len(k.files) - 1; i >= 0; i-- {
		f := k.files[i]
		if f.H.Count > 1 && f.H.EndAt < pos {
			break
		}
		keep, err := f.Cut(pos)
		if err != nil {
			return err
		}
		changed = true
		if keep {
			break
		}
		k.files = k.files[:i]
		if err := k.remove(f); err != nil {
			return err
		}
	}
	if !changed {
		return nil
	}
	k.count()
	for _, f := range k.files {
		if err := f.Flush(); err != nil {
			return err
		}
	}
	return k.noteLast()
}

// forget drops the keys in memory of records at or above pos. filesMu is held.
func (k *keyIndex) forget(pos message.Position) {
	k.mu.Lock()
	defer k.mu.Unlock()
	old := len(k.pending) + len(k.inflight)
	above := func(x message.Key) bool { return x.At >= pos }
	k.pending, k.inflight = slices.DeleteFunc(k.pending, above), slices.DeleteFunc(k.inflight, above)
	k.promised -= old - len(k.pending) - len(k.inflight)
}

// expire removes files whose records are all gone, never the last one or the one
// that the checkpoint names.
func (k *keyIndex) expire(first message.Position) error {
	for _, f := range k.takeOld(first) { // writers do not wait for that
		if err := k.remove(f); err != nil {
			return err
		}
	}
	return nil
}

func (k *keyIndex) takeOld(first message.Position) []*indexfile.File {
	k.filesMu.Lock()
	defer k.filesMu.Unlock()
	n := 0
	for n < len(k.files)-1 && k.files[n].H.EndAt < first && fileNumber(k.files[n]) != k.last {
		n++
	}
	gone := k.files[:n:n]
	k.files = k.files[n:]
	return gone
}

// Find implements [storage.KeyIndex]. Files keep times in seconds, so that a
// candidate may be up to a second outside of the times asked for.
func (s *Store) Find(ctx context.Context, q storage.KeyQuery, at []message.Position) ([]message.Position, error) {
	at = at[:0]
	if !s.gate.enter() {
		return at, storage.ErrNotRunning
	}
	defer s.gate.leave()
	if s.keys == nil {
		return at, fmt.Errorf("%w: the key index is switched off (messageIndexEnable)", storage.ErrUnsupported)
	}
	k := s.keys
	hash := message.KeyHash([]byte(q.Topic), []byte(q.Key))
	first := message.Position(s.marks.first.Load())
	published := message.Position(s.marks.published.Load())
	full := func() bool { return q.Max > 0 && len(at) >= int(q.Max) }
	// take reports whether more are wanted. A record with a key twice comes once.
	take := func(pos message.Position) bool {
		if pos >= first && pos < published && (len(at) == 0 || at[len(at)-1] > pos) {
			at = append(at, pos)
		}
		return !full()
	}
	k.mu.RLock()
	for _, list := range [2][]message.Key{k.pending, k.inflight} {
		for i := len(list) - 1; i >= 0 && !full(); i-- {
			if x := &list[i]; x.Hash == hash && x.StoreTime >= q.From && x.StoreTime <= q.To {
				take(x.At)
			}
		}
	}
	k.mu.RUnlock()
	k.filesMu.RLock()
	defer k.filesMu.RUnlock()
	for i := len(k.files) - 1; i >= 0 && !full(); i-- {
		if err := ctx.Err(); err != nil {
			return at, err
		}
		if err := k.files[i].Find(hash, q.From, q.To, take); err != nil {
			return at, fmt.Errorf("read %s: %w", k.files[i].Path, err)
		}
	}
	return at, nil
}
