package commitlog

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/vfs/vfstest"
)

// TestRecoveryIsBounded counts the bytes of the log that a start reads: after a
// kill about those behind the checkpoint, however long the log is, and hardly any
// after a clean end.
func TestRecoveryIsBounded(t *testing.T) {
	const behind = 3 // segments that were written after the last flush
	read := map[int]int64{}
	for _, before := range []int{10, 60} {
		d := newDisk(1)
		f := vfstest.NewFaults(d)
		r := newRig(t, f, storage.Immediate, nil)
		upTo := func(segments int) {
			for int(r.s.State().Tail) < segments*rigSegment-1000 {
				require.NoError(t, r.send(queueN(r.n%3), 500))
			}
		}
		start := func() (n int64) {
			var bytes atomic.Int64
			f.SetHook(func(c vfstest.Call) error {
				if c.Op == vfstest.OpRead && filepath.Base(filepath.Dir(c.Name)) == "commitlog" {
					bytes.Add(c.N)
				}
				return nil
			})
			r.start()
			f.SetHook(nil)
			return bytes.Load()
		}
		upTo(before)
		r.sync()
		require.NoError(t, r.s.flushDerived(true))
		upTo(before + behind)
		prepared(r.s) // or a start finds the next segment at times and reads it
		r.kill(d)
		read[before] = start()
		// From the record that the checkpoint names on, and what is looked at to find the
		// keys that are missing.
		require.LessOrEqual(t, read[before], int64((behind+2)*rigSegment))
		require.GreaterOrEqual(t, read[before], int64(behind*rigSegment))
		r.verify()
		r.stop()
		require.LessOrEqual(t, start(), int64(2*rigSegment), "after a clean end")
		r.verify()
	}
	require.InDelta(t, read[10], read[60], rigSegment/4, "the length of the log does not matter")
}

// prepared waits until no segment is being made in the background.
func prepared(s *Store) {
	s.prep.mu.Lock()
	running := s.prep.running
	s.prep.mu.Unlock()
	if running != nil {
		<-running
	}
}

// TestRecoveryTellsProgress: whoever waits for a long recovery sees how far it is.
func TestRecoveryTellsProgress(t *testing.T) {
	for name, hurt := range map[string]func(r *rig) error{
		"scanning the log":           func(r *rig) error { return r.fs.Remove(r.s.path.checkpoint) },
		"making ConsumeQueues again": func(r *rig) error { return truncate(r, filepath.Join(r.s.path.queues, "T/0", fileName(0))) },
	} {
		t.Run(name, func(t *testing.T) {
			r, d := filled(t, 400)
			r.sync()
			require.NoError(t, r.s.flushDerived(true))
			if name == "scanning the log" {
				r.kill(d)
			} else {
				r.stop()
			}
			require.NoError(t, hurt(r))
			var log bytes.Buffer
			r.params.Logger = slog.New(slog.NewTextHandler(&log, nil))
			s := build(t, r.fs, r.params, r.change)
			s.progressEvery = 2 * rigSegment
			require.NoError(t, s.Start(t.Context()))
			segments := int(s.State().Tail) / rigSegment
			require.NoError(t, s.Shutdown(background(t)))
			lines := strings.Count(log.String(), name)
			require.GreaterOrEqual(t, lines, segments/2-1, log.String())
			require.LessOrEqual(t, lines, segments/2+1, log.String())
		})
	}
}

func truncate(r *rig, name string) error {
	f, err := r.fs.OpenFile(name, openRW, 0)
	if err != nil {
		return err
	}
	if err := f.Truncate(1); err != nil {
		return err
	}
	return f.Close()
}

// steppable is a wall clock that can be set.
type steppable struct {
	plugin.SystemClock
	now atomic.Int64
}

func (c *steppable) Now() time.Time { return time.UnixMilli(c.now.Load()) }

// TestClockSetBack: the key index is flushed all the same, so that recovery stays
// bounded.
func TestClockSetBack(t *testing.T) {
	d := newDisk(1)
	clock := &steppable{}
	clock.now.Store(1_700_000_000_000)
	r := newRig(t, d, storage.Immediate, nil)
	r.stop()
	r.params.Clock = clock
	r.start()
	flushed := func() bool {
		require.NoError(t, r.send(queueN(0), 100))
		require.NoError(t, r.s.flushDerived(false))
		return r.s.keys.mark.Load() == int64(r.s.State().Tail)
	}
	require.True(t, flushed())
	require.False(t, flushed(), "its pages lie all over: not each time")
	clock.now.Add(-24 * time.Hour.Milliseconds())
	require.True(t, flushed())
	require.False(t, flushed())
	clock.now.Add(keyFlushEvery)
	require.True(t, flushed())
}

// TestKeysFlushedByBytes: the more is written, the sooner keys are flushed, so that a start
// after a kill makes few of them again.
func TestKeysFlushedByBytes(t *testing.T) {
	d := newDisk(1)
	clock := &steppable{}
	clock.now.Store(1_700_000_000_000)
	r := newRig(t, d, storage.Immediate, nil)
	r.stop()
	r.params.Clock = clock
	r.start()
	r.s.keys.flushBytes = 3000
	flushed := func(body int) bool {
		require.NoError(t, r.send(queueN(0), body))
		require.NoError(t, r.s.flushDerived(false))
		return r.s.keys.mark.Load() == int64(r.s.State().Tail)
	}
	require.True(t, flushed(10), "the first")
	require.False(t, flushed(1000))
	require.True(t, flushed(3000))
	require.False(t, flushed(1000))
	require.True(t, flushed(2500))
	r.kill(d)
	r.start()
	r.verify()
}
