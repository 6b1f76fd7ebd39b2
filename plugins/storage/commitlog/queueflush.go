package commitlog

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// flush makes the units below each queue's maximum durable, and the names of
// its files.
func (ix *queueIndex) flush() error {
	ix.dirtyMu.Lock()
	list := ix.dirty
	ix.dirty = nil
	ix.dirtyMu.Unlock()
	dirs := map[string]struct{}{}
	for _, q := range list {
		q.dirty.Store(false)
		if q.newNames.Swap(false) {
			dir := q.dir()
			dirs[dir] = struct{}{}
			dirs[parentOf(dir)] = struct{}{}
			dirs[ix.dir] = struct{}{}
		}
	}
	if err := flushAllOf(list); err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(dirs))
	if err := inParallel(len(names), func(i int) error { return ix.syncDir(names[i]) }); err != nil {
		return err
	}
	for _, q := range list {
		q.mu.RLock() // a queue that is dropped has no files any more
		if len(q.files) > 0 {
			q.count(true)
		}
		q.mu.RUnlock()
	}
	return nil
}

// count takes the queue into those that are present, or out of them.
func (q *queue) count(present bool) {
	if q.counted.Swap(present) == present {
		return
	}
	n, hash := int64(1), q.hash()
	if !present {
		n, hash = -1, -hash
	}
	q.ix.present.n.Add(n)
	q.ix.present.hash.Add(hash)
}

// hash is that of the queue's name, the same in every process.
func (q *queue) hash() uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s\x00%d", q.key.Topic, q.key.ID) // never fails
	return h.Sum64()
}

// lost reports whether queues are not there any more that the checkpoint counts.
// More may be there: those since, or another broker's.
func (ix *queueIndex) lost(c *checkpointFields) bool {
	n := ix.present.n.Load()
	return c.queues >= 0 && (n < c.queues || n == c.queues && ix.present.hash.Load() != c.queuesHash)
}

func flushAllOf(list []*queue) error {
	return inParallel(len(list), func(i int) error { return list[i].flush() })
}

func (q *queue) flush() error {
	q.mu.RLock()
	defer q.mu.RUnlock()
	end := q.max.Load() * unitSize
	for _, f := range q.files {
		from, to := f.flushed.Load(), min(end-f.base, q.ix.fileSize)
		if to <= from {
			continue
		}
		// An open file, or a mapping, works on without its name.
		_, err := q.ix.fs.Stat(q.path(f))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return gone(q.path(f))
		case err != nil:
			return err
		case f.file != nil:
			err = f.file.Sync()
		case f.m != nil && f.whole.Load():
			err = f.m.Sync(from, to-from)
		default:
			h, oErr := q.ix.fs.OpenFile(q.path(f), openRW, 0)
			if oErr != nil {
				return oErr
			}
			err = errors.Join(h.Sync(), h.Close())
		}
		if err != nil {
			return err
		}
		f.whole.Store(true)
		f.flushed.Store(to)
	}
	return nil
}

// syncDir makes names durable; a directory that was dropped meanwhile needs
// none.
func (ix *queueIndex) syncDir(dir string) error {
	if err := ix.fs.SyncDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// workers is how many queues are worked on at a time: disks serve many reads at
// once, and file systems serve syncs that wait together with one commit of their
// journal.
const workers = 32

// inParallel calls do for 0 … n−1, several at a time, and returns the error of the
// lowest number, so that the same damage is told by the same error each time.
// After an error not all that are higher are called.
func inParallel(n int, do func(i int) error) error {
	var (
		wg     sync.WaitGroup
		next   atomic.Int64
		mu     sync.Mutex
		lowest = n
		err    error
	)
	work := func() {
		for {
			i := int(next.Add(1)) - 1
			if i >= n {
				return
			}
			if e := do(i); e != nil {
				next.Store(int64(n)) // those below i have been taken
				mu.Lock()
				if i < lowest {
					lowest, err = i, e
				}
				mu.Unlock()
				return
			}
		}
	}
	for range min(workers, n) - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
	return err
}
