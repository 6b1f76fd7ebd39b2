package storekit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
	"github.com/hardpointmq/hardpoint/core/storage/storekit"
	"github.com/hardpointmq/hardpoint/core/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// factory declares a store over a backend made for a directory.
func factory(name string, survives storage.Survival, build func(p storage.Params, opt storekit.Options) *storekit.Store) storage.Factory {
	type config struct{}
	return storage.NewFactory(name,
		func(config) plugin.Description { return plugin.Description{Version: "1", Facets: storekit.Facets()} },
		func() config { return config{} },
		func(_ context.Context, p storage.Params, _ config) (*storekit.Store, error) {
			return build(p, storekit.Options{Survives: survives}), nil
		})
}

func logFactory() storage.Factory {
	return factory("filelog", storage.SurvivesProcessDeath, func(p storage.Params, opt storekit.Options) *storekit.Store {
		return storekit.FromLog(p, &fileLog{dir: p.Dir}, opt)
	})
}

func mapFactory() storage.Factory {
	return factory("mapkv", storage.SurvivesNothing, func(p storage.Params, opt storekit.Options) *storekit.Store {
		return storekit.FromKV(p, &mapKV{}, opt)
	})
}

func TestConformance(t *testing.T) {
	nothing := storagetest.Lacks{ProcessDeath: true, Reopen: true}
	storagetest.Run(t,
		storagetest.Harness{Factory: logFactory()},
		storagetest.Harness{Factory: mapFactory(), Lacks: nothing},
	)
}

// fileLog is a Log in one file.
type fileLog struct {
	dir  string
	lock vfs.File
	f    vfs.File
	end  int64
	full bool // Append fails after half of the bytes
	bad  error
}

func (l *fileLog) Open(context.Context) (int64, error) {
	fs := vfs.OS{}
	if err := fs.MkdirAll(l.dir); err != nil {
		return 0, err
	}
	lock, err := fs.Lock(filepath.Join(l.dir, "lock"))
	if err != nil {
		return 0, err
	}
	f, err := fs.OpenFile(filepath.Join(l.dir, "log"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return 0, errors.Join(err, lock.Close())
	}
	l.lock, l.f = lock, f
	l.end, err = f.Size()
	return l.end, err
}

func (l *fileLog) Append(p []byte) error {
	if l.bad != nil {
		return l.bad
	}
	if l.full {
		_, _ = l.f.WriteAt(p[:len(p)/2], l.end)
		return fmt.Errorf("%w: no more", storage.ErrFull)
	}
	if _, err := l.f.WriteAt(p, l.end); err != nil {
		return err
	}
	l.end += int64(len(p))
	return nil
}

func (l *fileLog) ReadAt(p []byte, off int64) (int, error) { return l.f.ReadAt(p, off) }
func (l *fileLog) Sync() error                             { return errors.Join(l.bad, l.f.SyncData()) }
func (l *fileLog) Truncate(size int64) error               { l.end = size; return l.f.Truncate(size) }
func (l *fileLog) Close() error                            { return errors.Join(l.f.Close(), l.lock.Close()) }

// mapKV is the most naive KV there is.
type mapKV struct {
	mu   sync.Mutex
	m    map[string][]byte
	keys []string // sorted; nil after a change of keys
}

func (k *mapKV) Open(context.Context) error { k.m = map[string][]byte{}; return nil }
func (k *mapKV) Sync() error                { return nil }
func (k *mapKV) Close() error               { return nil }

func (k *mapKV) Apply(ops []storekit.Op, _ bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, op := range ops {
		if op.Until == nil {
			if _, ok := k.m[string(op.Key)]; !ok {
				k.keys = nil
			}
			k.m[string(op.Key)] = bytes.Clone(op.Value)
			continue
		}
		k.keys = nil
		maps.DeleteFunc(k.m, func(key string, _ []byte) bool { return key >= string(op.Key) && key < string(op.Until) })
	}
	return nil
}

func (k *mapKV) Get(key, dst []byte) ([]byte, bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	v, ok := k.m[string(key)]
	return append(dst, v...), ok, nil
}

func (k *mapKV) Scan(from, to []byte, reverse bool, each func(key, value []byte) bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.keys == nil {
		k.keys = slices.Sorted(maps.Keys(k.m))
	}
	i, _ := slices.BinarySearch(k.keys, string(from))
	j, _ := slices.BinarySearch(k.keys, string(to))
	keys := slices.Clone(k.keys[i:max(i, j)])
	if reverse {
		slices.Reverse(keys)
	}
	for _, key := range keys {
		if !each([]byte(key), k.m[key]) {
			break
		}
	}
	return nil
}

// TestMemKV holds MemKV against the naive one.
func TestMemKV(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for _, space := range []int{20, 3000} {
		mem, naive := &storekit.MemKV{}, &mapKV{}
		require.NoError(t, mem.Open(t.Context()))
		require.NoError(t, naive.Open(t.Context()))
		key := func() []byte { return fmt.Appendf(nil, "%06d", rnd.IntN(space)) }
		for range 1500 {
			var ops []storekit.Op
			for range rnd.IntN(30) {
				op := storekit.Op{Key: key(), Value: bytes.Repeat([]byte{byte(rnd.Uint32())}, rnd.IntN(150))}
				switch rnd.IntN(60) {
				case 0:
					op.Until = key() // may be empty
				case 1:
					op.Key, op.Until = []byte("00"), []byte("zz")
				}
				ops = append(ops, op)
			}
			require.NoError(t, mem.Apply(ops, false))
			require.NoError(t, naive.Apply(ops, false))
			for i := range ops { // what was lent may change
				clear(ops[i].Key)
				clear(ops[i].Value)
			}
			from, to := key(), key()
			reverse, most := rnd.IntN(2) == 0, rnd.IntN(400)
			require.Equal(t, scan(t, naive, from, to, reverse, most), scan(t, mem, from, to, reverse, most))
			k := key()
			want, wantOK, _ := naive.Get(k, nil)
			got, ok, err := mem.Get(k, nil)
			require.NoError(t, err)
			require.Equal(t, wantOK, ok)
			require.True(t, bytes.Equal(want, got))
		}
		require.Equal(t, scan(t, naive, []byte{}, []byte{255}, false, 1<<30), scan(t, mem, []byte{}, []byte{255}, false, 1<<30))
	}
}

func scan(t *testing.T, kv storekit.KV, from, to []byte, reverse bool, most int) []string {
	t.Helper()
	var out []string
	require.NoError(t, kv.Scan(from, to, reverse, func(k, v []byte) bool {
		out = append(out, string(k)+"="+string(v))
		return len(out) < most
	}))
	return out
}

// rig is a store over a backend that can be made to fail.
type rig struct {
	t      *testing.T
	store  *storekit.Store
	seq    *storage.Sequencer
	w      *storagetest.Writer
	failed []error
}

func newRig(t *testing.T, p storage.Params, build func(storage.Params) *storekit.Store) *rig {
	t.Helper()
	r := &rig{t: t, w: storagetest.NewWriter(message.IndexRules{})}
	p.Segment = 1 << 16
	p.Events.Failed = func(err error) { r.failed = append(r.failed, err) }
	r.store = build(p)
	require.NoError(t, r.store.Start(t.Context()))
	r.seq = storagetest.OpenSequencer(t, r.store, nil, 1)
	return r
}

func (r *rig) append() error {
	p := r.w.Pending([]storagetest.Message{{Queue: message.Queue{Topic: "T"}, Body: make([]byte, 100)}})
	require.NoError(r.t, r.seq.Assign(p, 0))
	freed := 0
	p.Batches[0].Free = func(*storage.Batch) { freed++ }
	err := r.store.Append(r.t.Context(), &p.Batches[0])
	require.Equal(r.t, 1, freed)
	if err != nil {
		require.NoError(r.t, r.seq.Rewind(p))
	}
	return err
}

func (r *rig) records() int64 {
	var a storage.OffsetAnswers
	require.NoError(r.t, r.store.Offsets(r.t.Context(), []storage.OffsetQuery{{Queue: message.Queue{Topic: "T"}}}, &a))
	return a.Answers[0].Max
}

// TestFull: a full backend keeps nothing of the batch and recovers.
func TestFull(t *testing.T) {
	log := &fileLog{dir: t.TempDir()}
	build := func(p storage.Params) *storekit.Store { return storekit.FromLog(p, log, storekit.Options{}) }
	r := newRig(t, storage.Params{}, build)
	require.NoError(t, r.append())
	log.full = true
	for range 3 {
		require.ErrorIs(t, r.append(), storage.ErrFull)
		require.Equal(t, int64(1), r.records())
	}
	log.full = false
	require.NoError(t, r.append())
	require.Equal(t, int64(2), r.records())
	require.Empty(t, r.failed)
	require.NoError(t, r.store.Shutdown(t.Context()))
	r = newRig(t, storage.Params{}, build)
	require.Equal(t, int64(2), r.records())
	require.NoError(t, r.store.Shutdown(t.Context()))
}

// TestTruncateFrees: a pending batch of which nothing remains is freed before
// Truncate returns, one that is divided when it is published.
func TestTruncateFrees(t *testing.T) {
	r := newRig(t, storage.Params{Publish: storage.Explicit}, func(p storage.Params) *storekit.Store {
		return storekit.FromKV(p, &storekit.MemKV{}, storekit.Options{})
	})
	msg := storagetest.Message{Queue: message.Queue{Topic: "T"}, Keys: "k"}
	freed := map[message.Position]int{}
	batch := func() *storage.Batch {
		p := r.w.Pending([]storagetest.Message{msg, msg})
		require.NoError(t, r.seq.Assign(p, 0))
		b := &p.Batches[0]
		b.Free = func(b *storage.Batch) { freed[b.At]++ }
		require.NoError(t, r.store.Append(t.Context(), b))
		return b
	}
	first, second, third := batch(), batch(), batch()
	require.Empty(t, freed)

	require.NoError(t, r.store.Truncate(t.Context(), third.At))
	require.Equal(t, map[message.Position]int{third.At: 1}, freed, "cut at the edge of the last batch")
	require.NoError(t, r.store.Truncate(t.Context(), second.Units[1].At))
	require.Equal(t, map[message.Position]int{third.At: 1}, freed, "cut inside a batch")
	require.NoError(t, r.store.Truncate(t.Context(), first.At))
	require.Equal(t, map[message.Position]int{third.At: 1, second.At: 1, first.At: 1}, freed)

	r.seq = storagetest.OpenSequencer(t, r.store, nil, 2)
	again := batch()
	require.NoError(t, r.store.Publish(t.Context(), again.Units[1].At))
	require.NoError(t, r.store.Truncate(t.Context(), again.Units[1].At))
	require.Equal(t, 2, freed[again.At], "published in part, the rest is cut")
	require.Equal(t, int64(1), r.records())
	require.NoError(t, r.store.Shutdown(t.Context()))
	require.Equal(t, 2, freed[again.At], "never twice")
}

// TestFailed: after the first error of unknown extent nothing is written again,
// and what was published is still read.
func TestFailed(t *testing.T) {
	broken := errors.New("broken disk")
	for name, call := range map[string]func(r *rig) error{
		"append": (*rig).append,
		"sync":   func(r *rig) error { return r.store.Sync(r.t.Context(), r.store.State().Tail) },
	} {
		t.Run(name, func(t *testing.T) {
			log := &fileLog{dir: t.TempDir()}
			r := newRig(t, storage.Params{}, func(p storage.Params) *storekit.Store { return storekit.FromLog(p, log, storekit.Options{}) })
			require.NoError(t, r.append())
			log.bad = broken
			err := call(r)
			require.ErrorIs(t, err, storage.ErrFailed)
			require.ErrorIs(t, err, broken)
			log.bad = nil
			require.ErrorIs(t, r.append(), storage.ErrFailed)
			require.ErrorIs(t, r.store.Sync(t.Context(), 0), storage.ErrFailed)
			require.ErrorIs(t, r.store.Truncate(t.Context(), 0), storage.ErrFailed)
			require.ErrorIs(t, r.store.Expire(t.Context(), 0), storage.ErrFailed)
			require.Len(t, r.failed, 1)
			require.Equal(t, int64(1), r.records())
			var c storage.Chunk
			require.NoError(t, r.store.Read(t.Context(), storage.ReadRequest{Queue: message.Queue{Topic: "T"}}, &c))
			require.Equal(t, storage.Found, c.Status)
			c.Release()
			require.NoError(t, r.store.Shutdown(t.Context()))
		})
	}
}

// TestTornFrame: half a frame at the end is cut, a bad one in the middle is not.
func TestTornFrame(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "log")
	build := func(p storage.Params) *storekit.Store {
		p.Dir = dir
		return storekit.FromLog(p, &fileLog{dir: dir}, storekit.Options{})
	}
	r := newRig(t, storage.Params{}, build)
	require.NoError(t, r.append())
	require.NoError(t, r.append())
	whole, err := os.Stat(name)
	require.NoError(t, err)
	require.NoError(t, r.append())
	require.NoError(t, r.store.Shutdown(t.Context()))
	all, err := os.ReadFile(name)
	require.NoError(t, err)
	for _, n := range []int64{int64(len(all)) - 1, whole.Size() + 20, whole.Size() + 8, whole.Size() + 3} {
		require.NoError(t, os.WriteFile(name, all[:n], 0o600))
		r = newRig(t, storage.Params{}, build)
		require.Equal(t, int64(2), r.records(), "cut at %d of %d", n, len(all))
		require.NoError(t, r.append())
		require.NoError(t, r.store.Shutdown(t.Context()))
	}
	damaged := bytes.Clone(all)
	damaged[whole.Size()-1] ^= 1
	require.NoError(t, os.WriteFile(name, damaged, 0o600))
	s := build(storage.Params{Segment: 1 << 16})
	var corrupt *storage.CorruptError
	require.ErrorAs(t, s.Start(t.Context()), &corrupt)
	require.Less(t, corrupt.Offset, whole.Size())
	require.NoError(t, os.WriteFile(name, all, 0o600))
	r = newRig(t, storage.Params{}, build) // the failed one gave the lock back
	require.Equal(t, int64(3), r.records())
	require.NoError(t, r.store.Shutdown(t.Context()))
}

func TestSegmentTooSmall(t *testing.T) {
	s := storekit.FromKV(storage.Params{Segment: 50}, &storekit.MemKV{}, storekit.Options{})
	require.ErrorContains(t, s.Start(t.Context()), "50 bytes")
}

// TestGapInIndex: a follower of a damaged leader may get units with a hole.
func TestGapInIndex(t *testing.T) {
	r := newRig(t, storage.Params{}, func(p storage.Params) *storekit.Store {
		return storekit.FromKV(p, &storekit.MemKV{}, storekit.Options{})
	})
	q := message.Queue{Topic: "T"}
	at := message.Position(0)
	for _, off := range []int64{0, 1, 5, 6} {
		p := r.w.Pending([]storagetest.Message{{Queue: q}})
		message.Stamp(p.Buf, at, off, 9)
		p.Units[0].At, p.Units[0].Offset, p.Units[0].StoreTime = at, off, 9
		b := storage.Batch{At: at, Buf: p.Buf, Units: p.Units, Groups: p.Groups}
		require.NoError(t, r.store.Append(t.Context(), &b))
		at = b.End()
	}
	var c storage.Chunk
	for _, tc := range []struct {
		offset, next int64
		status       storage.ReadStatus
		units        int
	}{
		{0, 2, storage.Found, 2},
		{2, 5, storage.OffsetFoundNull, 0},
		{4, 5, storage.OffsetFoundNull, 0},
		{5, 7, storage.Found, 2},
	} {
		require.NoError(t, r.store.Read(t.Context(), storage.ReadRequest{Queue: q, Offset: tc.offset}, &c))
		require.Equal(t, tc.status, c.Status, "offset %d", tc.offset)
		require.Equal(t, tc.next, c.Next, "offset %d", tc.offset)
		require.Len(t, c.Units, tc.units)
	}
	c.Release()
	require.NoError(t, r.store.Shutdown(t.Context()))
}

func BenchmarkFileLog(b *testing.B) {
	storagetest.Benchmark(b, storagetest.Harness{Factory: logFactory()})
}
