package commitlog

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
	"github.com/hardpointmq/hardpoint/core/vfs/vfstest"
)

// faulty is a rig on a disk that can be made to fail.
func faulty(t *testing.T, change func(*Config)) (*rig, *vfstest.Faults, *disk) {
	d := newDisk(1)
	f := vfstest.NewFaults(d)
	return newRig(t, f, storage.Immediate, change), f, d
}

func TestFailedSyncIsFinal(t *testing.T) {
	r, f, _ := faulty(t, nil)
	for i := range 10 {
		require.NoError(t, r.send(queueN(i%2), 100))
	}
	f.Fail(vfstest.OpSyncData, "*/commitlog/*", 1, nil)
	end := r.s.State().Tail
	require.ErrorIs(t, r.s.Sync(t.Context(), end), storage.ErrFailed)
	before := f.Count(vfstest.OpSyncData)
	require.ErrorIs(t, r.s.Sync(t.Context(), end), storage.ErrFailed)
	require.ErrorIs(t, r.send(queueN(0), 10), storage.ErrFailed)
	require.Equal(t, before, f.Count(vfstest.OpSyncData), "a failed fsync is never tried again")
	require.Len(t, r.failed, 1)
	require.ErrorIs(t, r.failed[0], vfstest.ErrInjected)
	r.verify()
	_ = r.s.Shutdown(background(t))
	f.Clear()
	r.start() // after an unclean end
	r.verify()
}

func TestFailedFlushOfIndexesIsFinal(t *testing.T) {
	r, f, _ := faulty(t, nil)
	require.NoError(t, r.send(queueN(0), 100))
	f.Fail(vfstest.OpSync, "*/consumequeue/T/0/*", 1, nil)
	require.ErrorIs(t, r.s.flushDerived(true), vfstest.ErrInjected)
}

// TestShortWriteKeepsNothing cuts the write of a batch behind its second record:
// what reached the file is wiped, whether the store goes on or dies at once.
func TestShortWriteKeepsNothing(t *testing.T) {
	for _, full := range []bool{false, true} {
		for _, dies := range []bool{false, true} {
			r, f, d := faulty(t, nil)
			for range 5 {
				require.NoError(t, r.send(queueN(0), 300))
			}
			tail := r.s.State().Tail
			p := r.several(3, 300)
			rule := vfstest.Rule{Op: vfstest.OpWrite, Path: "*/commitlog/*", Short: int(p.Units[2].At-p.At) + 50, For: 1}
			if full {
				rule.Err = vfs.ErrNoSpace
			}
			f.Add(rule)
			err := r.s.Append(t.Context(), &p.Batches[0])
			require.Error(t, err)
			require.NoError(t, r.seq.Rewind(p))
			require.NotErrorIs(t, err, storage.ErrFailed)
			require.Equal(t, full, isFull(err))
			require.Equal(t, tail, r.s.State().Tail)
			r.verify()
			if !dies {
				require.NoError(t, r.send(queueN(0), 20))
				require.NoError(t, r.send(queueN(1), 20))
				r.verify()
			}
			tail = r.s.State().Tail
			d.crash(memfs.KeepAll)
			_ = r.s.Shutdown(background(t))
			r.start()
			require.Empty(t, r.s.State().Damaged, "what the failed write left was wiped")
			require.Equal(t, tail, r.s.State().Tail)
			r.verify()
		}
	}
}

func isFull(err error) bool {
	return err != nil && errors.Is(err, storage.ErrFull)
}

func TestWriteOfUnknownExtentFails(t *testing.T) {
	r, f, d := faulty(t, nil)
	require.NoError(t, r.send(queueN(0), 300))
	f.Add(vfstest.Rule{Op: vfstest.OpWrite, Path: "*/commitlog/*", Short: 200, For: 1})
	f.Fail(vfstest.OpZero, "*/commitlog/*", 1, nil)
	require.ErrorIs(t, r.send(queueN(0), 300), storage.ErrFailed)
	require.Len(t, r.failed, 1)
	r.verify()
	d.crash(memfs.KeepAll)
	_ = r.s.Shutdown(background(t))
	f.Clear()
	r.start()
	r.verify()
	require.NoError(t, r.send(queueN(0), 300))
	r.verify()
}

// TestFullDisk fills the disk: sends are refused, reads go on, and the store
// takes sends again by itself when there is space.
func TestFullDisk(t *testing.T) {
	for _, free := range []int64{0, 3000, rigSegment - 1, rigSegment + 5000} {
		r, f, d := faulty(t, nil)
		require.NoError(t, r.send(queueN(0), 300))
		f.SetFree(free)
		refused := 0
		for i := range 200 {
			if err := r.send(queueN(i%3), 700); err != nil {
				require.ErrorIs(t, err, storage.ErrFull)
				refused++
			}
		}
		require.NotZero(t, refused)
		r.verify()
		f.SetFree(64 << 20)
		for i := range 100 {
			require.NoError(t, r.send(queueN(i%3), 700), "there is space again")
		}
		r.verify()
		require.Empty(t, r.failed)
		d.crash(memfs.KeepAll)
		_ = r.s.Shutdown(background(t))
		r.start()
		require.Empty(t, r.s.State().Damaged)
		r.verify()
	}
}

// TestNoSpaceForKeys starts on a full disk without the key index: keys are found
// in memory, and in the files when there is space.
func TestNoSpaceForKeys(t *testing.T) {
	r, f, d := faulty(t, func(c *Config) { c.MaxIndexNum = 40 })
	for i := range 100 {
		require.NoError(t, r.send(queueN(i%3), 200))
	}
	r.kill(d)
	require.NoError(t, r.fs.RemoveAll(r.s.path.index))
	full := func() {
		f.Add(vfstest.Rule{Op: vfstest.OpReserve, Path: "*/index/*", Err: vfs.ErrNoSpace})
		f.Add(vfstest.Rule{Op: vfstest.OpWrite, Path: "*/abort.tmp", Err: vfs.ErrNoSpace})
	}
	full()
	for range 2 { // after a kill, and after a clean end
		r.start()
		r.verify()
		require.ErrorIs(t, r.send(queueN(0), 10), storage.ErrFull)
		require.NoError(t, r.s.flushDerived(true))
		r.verify()
		r.stop()
	}
	r.start()
	f.Clear()
	for i := range 50 {
		require.NoError(t, r.send(queueN(i%3), 200))
	}
	require.NoError(t, r.s.flushDerived(true))
	require.Empty(t, r.s.keys.pending)
	require.Empty(t, r.s.keys.inflight)
	r.verify()
	require.Empty(t, r.failed)
	r.kill(d)
	r.start()
	r.verify()
}

// TestNoMappings runs where files cannot be mapped.
func TestNoMappings(t *testing.T) {
	r, f, d := faulty(t, nil)
	r.stop()
	f.Add(vfstest.Rule{Op: vfstest.OpMap, Err: vfs.ErrMapUnsupported})
	r.start()
	for i := range 300 {
		require.NoError(t, r.send(queueN(i%3), i*5%900))
	}
	r.verify()
	r.stop()
	r.start()
	r.verify()
	d.crash(memfs.KeepAll)
	_ = r.s.Shutdown(background(t))
	r.start()
	r.verify()
}

// TestCopyOnWrite runs where reserving space protects nothing.
func TestCopyOnWrite(t *testing.T) {
	r, f, _ := faulty(t, nil)
	r.stop()
	f.Add(vfstest.Rule{Op: vfstest.OpReserve, Err: vfs.ErrReserveUnsupported, After: true})
	r.start()
	for i := range 300 {
		require.NoError(t, r.send(queueN(i%3), i*5%900))
	}
	r.verify()
	r.stop()
	r.start()
	r.verify()
}

// hasty has short timers that fire at once: those of who waits for a lock.
type hasty struct {
	plugin.SystemClock
	waited time.Duration
}

func (c *hasty) NewTimer(d time.Duration) plugin.Timer {
	if d >= time.Second {
		return c.SystemClock.NewTimer(d)
	}
	c.waited += d
	return c.SystemClock.NewTimer(0)
}

// TestOpenTwice: the lock of another process is waited for, which may be ending.
func TestOpenTwice(t *testing.T) {
	r, f, _ := faulty(t, nil)
	clock := &hasty{}
	r.params.Clock = clock
	second := build(t, r.fs, r.params, r.change)
	require.ErrorIs(t, second.Start(t.Context()), vfs.ErrLocked)
	require.Equal(t, 5*time.Second, clock.waited)
	require.NoError(t, second.Shutdown(background(t)))
	require.NoError(t, r.send(queueN(0), 10))
	r.verify()
	r.stop()
	clock.waited = 0
	f.Add(vfstest.Rule{Op: vfstest.OpLock, For: 7, Err: vfs.ErrLocked})
	r.start()
	require.Equal(t, 350*time.Millisecond, clock.waited)
	r.verify()
}

// TestManyQueues has more queues than files may be open.
func TestManyQueues(t *testing.T) {
	r, _, d := faulty(t, func(c *Config) { c.MaxMappedFiles = 16 })
	for i := range 400 {
		require.NoError(t, r.send(queueN(i*7%60), 20))
	}
	r.verify()
	require.NoError(t, r.s.flushDerived(true))
	d.crash(memfs.KeepAll)
	_ = r.s.Shutdown(background(t))
	r.start()
	r.verify()
	open := 0
	for _, q := range r.s.queues.all() {
		for _, f := range q.files {
			if f.isOpen() {
				open++
			}
		}
	}
	require.LessOrEqual(t, open, 16)
}
