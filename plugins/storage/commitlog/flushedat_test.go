package commitlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
	"github.com/hardpointmq/hardpoint/core/vfs/vfstest"
)

// manySeeds is how many seeds a random run takes: more when there is time (make
// verify-long).
func manySeeds(t *testing.T, def uint64) uint64 {
	t.Helper()
	v := os.Getenv("HARDPOINT_TEST_ROUNDS")
	if v == "" {
		return def
	}
	n, err := strconv.ParseUint(v, 10, 32)
	require.NoError(t, err)
	return n * def
}

// logReads counts the bytes of the log that do reads.
func logReads(f *vfstest.Faults, do func()) int64 {
	var n atomic.Int64
	f.SetHook(func(c vfstest.Call) error {
		if c.Op == vfstest.OpRead && filepath.Base(filepath.Dir(c.Name)) == "commitlog" {
			n.Add(c.N)
		}
		return nil
	})
	defer f.SetHook(nil)
	do()
	return n.Load()
}

// die ends the store as kill -9 does: what it wrote is in memory, and the power may
// still be lost.
func (r *rig) die() {
	r.t.Helper()
	_ = r.s.fail(errors.New("killed"))
	_ = r.s.Shutdown(background(r.t))
	r.failed = nil
}

func (r *rig) flushedAt() int64 {
	r.s.flushMu.Lock()
	defer r.s.flushMu.Unlock()
	return r.s.cp.flushedAt
}

// TestPositionOfCheckpoint: a start after a kill begins at the record that the
// checkpoint names, if that can be: not if another program had the store open since,
// and not if what stands there is damaged. Then it begins where the times lead, here at
// the log's first record.
func TestPositionOfCheckpoint(t *testing.T) {
	type store struct {
		*rig
		at, tail message.Position // what the checkpoint names, and the end
	}
	put := func(r *store, off int64, v uint64) {
		f, err := r.fs.OpenFile(r.s.path.checkpoint, openRW, 0)
		require.NoError(t, err)
		_, err = f.WriteAt(binary.BigEndian.AppendUint64(nil, v), off)
		require.NoError(t, errors.Join(err, f.Sync(), f.Close()))
	}
	get := func(r *store, off int) uint64 {
		b, err := vfs.ReadFile(r.fs, r.s.path.checkpoint)
		require.NoError(t, err)
		return binary.BigEndian.Uint64(b[off:])
	}
	abort := func(r *store, content string) {
		require.NoError(t, vfs.WriteFileAtomic(r.fs, r.s.path.abort, []byte(content)))
	}
	mark := func(r *store) string {
		b, err := vfs.ReadFile(r.fs, r.s.path.abort)
		require.NoError(t, err)
		return string(b)
	}
	name := func(r *store, at message.Position) {
		put(r, cpFlushedAt, uint64(at))
		put(r, cpFlushedSum, flushedSum(int64(at), int64(get(r, cpLogicsTime)), r.s.logID, mark(r)))
	}
	for what, test := range map[string]struct {
		change func(r *store)
		holds  bool
	}{
		"nothing":             {func(*store) {}, true},
		"an earlier record":   {func(r *store) { name(r, r.sent[len(r.sent)/2].pos) }, true},
		"the last record":     {func(r *store) { name(r, r.sent[len(r.sent)-1].pos) }, true},
		"RocketMQ 5":          {func(r *store) { abort(r, "4711") }, false},
		"RocketMQ 4.9":        {func(r *store) { put(r, cpLogicsTime, get(r, cpLogicsTime)+1) }, false},
		"another process":     {func(r *store) { abort(r, fmt.Sprintf("%d %s", os.Getpid(), newLogID())) }, false},
		"no mark":             {func(r *store) { abort(r, "") }, false},
		"another position":    {func(r *store) { put(r, cpFlushedAt, uint64(r.sent[len(r.sent)-1].pos)) }, false},
		"another sum":         {func(r *store) { put(r, cpFlushedSum, get(r, cpFlushedSum)^1) }, false},
		"no sum":              {func(r *store) { put(r, cpFlushedSum, 0) }, false},
		"zeros":               {func(r *store) { put(r, cpFlushedAt, 0); put(r, cpFlushedSum, 0) }, false},
		"inside of a record":  {func(r *store) { name(r, r.at+1) }, false},
		"the end":             {func(r *store) { name(r, r.tail) }, false},
		"behind the end":      {func(r *store) { name(r, r.tail+rigSegment/4) }, false},
		"behind the files":    {func(r *store) { name(r, 1<<40) }, false},
		"the largest integer": {func(r *store) { name(r, 1<<63-1) }, false},
		"a damaged record":    {func(r *store) { r.edit(r.at+100, flip); r.without(r.at, r.at+1) }, false},
		"a short checkpoint": {func(r *store) {
			f, err := r.fs.OpenFile(r.s.path.checkpoint, openRW, 0)
			require.NoError(t, err)
			require.NoError(t, errors.Join(f.Truncate(cpFlushedSum+3), f.Sync(), f.Close()))
		}, false},
		"no checkpoint": {func(r *store) { require.NoError(t, r.fs.Remove(r.s.path.checkpoint)) }, false},
	} {
		t.Run(what, func(t *testing.T) {
			f := vfstest.NewFaults(newDisk(1))
			r := &store{rig: newRig(t, f, storage.Immediate, nil)}
			for i := range 300 {
				require.NoError(t, r.send(queueN(i%3), 500))
			}
			r.sync()
			require.NoError(t, r.s.flushDerived(true))
			r.at = r.sent[len(r.sent)-1].pos
			require.EqualValues(t, r.at, r.flushedAt())
			for i := range 10 {
				require.NoError(t, r.send(queueN(i%3), 500))
			}
			r.tail = r.s.State().Tail
			r.die()
			test.change(r)
			read := logReads(f, r.start)
			if test.holds {
				require.Less(t, read, int64(r.tail)*2/3)
			} else {
				require.GreaterOrEqual(t, read, int64(r.tail)*9/10)
			}
			r.verify()
			require.NoError(t, r.send(queueN(0), 100))
			r.sync()
			require.NoError(t, r.s.flushDerived(true))
			require.EqualValues(t, r.sent[len(r.sent)-1].pos, r.flushedAt())
			r.die()
			require.Less(t, logReads(f, r.start), int64(r.tail)/5)
			r.verify()
		})
	}
}

// TestPositionIsDurable: the checkpoint names no record of which not everything is
// durable.
func TestPositionIsDurable(t *testing.T) {
	d := newDisk(1)
	r := newRig(t, d, storage.Explicit, func(c *Config) { c.FlushIntervalConsumeQueue = 60_000 })
	at := r.flushedAt
	flush := func() { require.NoError(t, r.s.flushDerived(true)) }
	flush()
	require.EqualValues(t, -1, at(), "no record")
	require.NoError(t, r.send(queueN(0), 10))
	flush()
	require.EqualValues(t, -1, at(), "the log is not durable")
	r.sync()
	require.EqualValues(t, -1, at(), "the units are not")
	require.NoError(t, r.send(queueN(0), 10))
	flush()
	require.EqualValues(t, r.sent[0].pos, at(), "the second record is not")
	r.sync()
	p := r.several(1, 10)
	require.NoError(t, r.s.Append(t.Context(), &p.Batches[0]))
	r.sync()
	flush()
	require.EqualValues(t, r.sent[1].pos, at(), "the third is not published")
	require.NoError(t, r.s.Truncate(t.Context(), p.Batches[0].At))
	require.EqualValues(t, r.sent[1].pos, at())
	require.NoError(t, r.s.Truncate(t.Context(), r.sent[1].pos))
	require.EqualValues(t, r.sent[0].pos, at(), "it is gone")
	require.NoError(t, r.s.Truncate(t.Context(), 0))
	require.EqualValues(t, -1, at())
	r.sent = nil
	r.open()
	require.NoError(t, r.send(queueN(1), 10))
	flush()
	require.EqualValues(t, -1, at(), "what was durable was another one")
	r.sync()
	flush()
	require.EqualValues(t, 0, at())
	require.NoError(t, r.s.Reset(t.Context(), rigSegment, nil))
	require.EqualValues(t, -1, at())
	d.crash(memfs.KeepNone)
	_ = r.s.Shutdown(background(t))
	r.sent = nil
	r.start()
	r.verify()
}

// TestFlushBesideTruncate: what a flush claims is there when it says so, although the
// log is cut meanwhile.
func TestFlushBesideTruncate(t *testing.T) {
	r := newRig(t, newDisk(1), storage.Immediate, nil)
	var wg sync.WaitGroup
	quit := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-quit:
				return
			default:
			}
			if err := r.s.flushDerived(true); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 300 {
		for i := range 5 {
			require.NoError(t, r.send(queueN(i%2), 100))
		}
		r.sync()
		at := r.sent[len(r.sent)-3].pos
		require.NoError(t, r.s.Truncate(t.Context(), at))
		r.s.flushMu.Lock()
		flushed, keys := r.s.cp.flushedAt, r.s.keys.mark.Load()
		r.s.flushMu.Unlock()
		require.Less(t, flushed, int64(at))
		require.LessOrEqual(t, keys, int64(at))
		r.sent = r.sent[:len(r.sent)-3]
		r.open()
	}
	close(quit)
	wg.Wait()
	r.verify()
}

// TestKillAndPowerLoss is TestPowerLoss with processes that die before the power is
// lost, so that what one of them flushed was written by another, and with cuts.
func TestKillAndPowerLoss(t *testing.T) {
	for seed := range manySeeds(t, 24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			keep := []memfs.Keep{memfs.KeepRandom, memfs.KeepRandom, memfs.KeepNone}[seed%3]
			mode := []storage.PublishMode{storage.Immediate, storage.Explicit}[seed/3%2]
			d := newDisk(seed)
			r := newRig(t, d, mode, nil)
			rng := rand.New(rand.NewPCG(seed, 8))
			for range 12 {
				for range rng.IntN(60) {
					require.NoError(t, r.send(queueN(rng.IntN(4)), rng.IntN(1200)))
					switch rng.IntN(24) {
					case 0, 1:
						r.sync()
					case 2, 3:
						require.NoError(t, r.s.flushDerived(rng.IntN(2) == 0))
					case 4:
						if len(r.sent) == 0 {
							continue
						}
						n := len(r.sent) - min(len(r.sent), 1+rng.IntN(30))
						require.NoError(t, r.s.Truncate(t.Context(), r.sent[n].pos))
						r.sent = r.sent[:n]
						r.open()
					}
				}
				published := r.s.State().Published
				lost := false
				switch rng.IntN(5) {
				case 0:
					lost = true
					d.crash(keep)
					_ = r.s.Shutdown(background(t))
				case 1:
					r.stop()
				default:
					r.die()
				}
				r.start()
				st := r.s.State()
				require.LessOrEqual(t, st.Published, published)
				if mode == storage.Explicit {
					require.NoError(t, r.s.Publish(t.Context(), st.Tail))
					r.open()
				}
				r.forget(func(x *record) bool { return lost && !x.synced })
				r.verify()
			}
		})
	}
}

// TestNamesAfterAKill: the ConsumeQueues of a process that was killed are durable after
// the next one's flush, names of files and directories, too.
func TestNamesAfterAKill(t *testing.T) {
	d := newDisk(1)
	r := newRig(t, d, storage.Immediate, nil)
	for i := range 100 {
		require.NoError(t, r.send(message.Queue{Topic: fmt.Sprint("T", i%5), ID: int32(i % 3)}, 300))
	}
	r.die()
	r.start()
	r.sync()
	require.NoError(t, r.s.flushDerived(true))
	d.crash(memfs.KeepNone)
	_ = r.s.Shutdown(background(t))
	for i := range 15 {
		path := filepath.Join(r.s.path.queues, fmt.Sprint("T", i%5), fmt.Sprint(i%3), fileName(0))
		b, err := vfs.ReadFile(d, path)
		require.NoError(t, err)
		require.NotZero(t, decodeUnit(b).size, path)
	}
	r.start()
	r.verify()
}

// TestKillAfterTruncate: the segment that was made ahead of need goes before those that a
// truncation removes; a start refuses a log with a gap.
func TestKillAfterTruncate(t *testing.T) {
	d := newDisk(1)
	r := newRig(t, d, storage.Immediate, nil)
	for r.s.State().Tail < 4*rigSegment+rigSegment*3/4 {
		require.NoError(t, r.send(queueN(0), 500))
	}
	n := len(r.sent) / 4
	at := r.sent[n].pos
	require.NoError(t, r.s.Truncate(t.Context(), at))
	r.sent = r.sent[:n]
	names, err := d.List(r.s.path.log)
	require.NoError(t, err)
	require.Len(t, names, int(at)/rigSegment+1)
	r.kill(d)
	r.start()
	r.verify()
	require.NoError(t, r.send(queueN(0), 500))
	r.verify()
}
