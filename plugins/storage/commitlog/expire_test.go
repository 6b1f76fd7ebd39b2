package commitlog

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
	"github.com/hardpointmq/hardpoint/core/vfs/vfstest"
)

// expired forgets what lies below the first position.
func (r *rig) expired() {
	first := r.s.State().First
	kept := r.sent[:0]
	for _, x := range r.sent {
		if x.pos >= first {
			kept = append(kept, x)
		}
	}
	r.sent = kept
}

func (r *rig) ends(q message.Queue) storage.OffsetAnswer {
	r.t.Helper()
	var a storage.OffsetAnswers
	require.NoError(r.t, r.s.Offsets(r.t.Context(), []storage.OffsetQuery{{Queue: q}}, &a))
	return a.Answers[0]
}

// step leaves out more and more of many steps, unless there is time (make verify-long).
func step(after int) int {
	if os.Getenv("HARDPOINT_TEST_ROUNDS") != "" {
		return 1
	}
	return 1 + after/12
}

// TestCrashWhileExpiring ends Expire after its changes of the disk. The log
// begins at an edge then, nothing is damaged, what stayed is readable, and numbers go
// on, also those of queues that lost all of their messages; Expire can be done again.
func TestCrashWhileExpiring(t *testing.T) {
	changes := map[vfstest.Op]bool{
		vfstest.OpRemove: true, vfstest.OpRename: true, vfstest.OpSyncDir: true, vfstest.OpWrite: true, vfstest.OpZero: true, vfstest.OpTruncate: true,
		vfstest.OpSync: true, vfstest.OpSyncData: true, vfstest.OpMapSync: true, vfstest.OpReserve: true, vfstest.OpOpen: true,
	}
	dead := errors.New("the power is off")
	rare, all := message.Queue{Topic: "rare"}, message.Queue{Topic: "all"}
	for _, keep := range []memfs.Keep{memfs.KeepAll, memfs.KeepNone, memfs.KeepRandom} {
		t.Run(fmt.Sprintf("keep=%v", keep), func(t *testing.T) {
			for after := 0; ; after += step(after) {
				d := newDisk(uint64(after))
				f := vfstest.NewFaults(d)
				r := newRig(t, f, storage.Immediate, func(c *Config) {
					c.MappedFileSizeConsumeQueue, c.MaxHashSlotNum, c.MaxIndexNum = 200, 10, 30
				})
				for range 3 {
					require.NoError(t, r.send(rare, 100))
				}
				for i := 0; r.s.State().Tail < 4*rigSegment; i++ {
					require.NoError(t, r.send(queueN(i%3), 500))
					if r.s.State().Tail < 2*rigSegment {
						require.NoError(t, r.send(all, 10))
					}
				}
				r.sync()
				synced := r.s.State().Tail
				for i := range 10 { // not durable
					require.NoError(t, r.send(queueN(i%3), 500))
				}
				end := r.ends(all).Max
				var left atomic.Int64
				left.Store(int64(after))
				f.SetHook(func(c vfstest.Call) error {
					if changes[c.Op] && left.Add(-1) < 0 {
						return dead
					}
					return nil
				})
				const first = 3 * rigSegment
				over := r.s.Expire(t.Context(), first) == nil
				d.crash(keep)
				_ = r.s.Shutdown(background(t))
				f.SetHook(nil)
				for range 2 { // the second time there is nothing left to repair
					r.start()
					st := r.s.State()
					for _, x := range st.Damaged {
						require.GreaterOrEqual(t, x.From, synced, "damage where all was synced")
					}
					require.Zero(t, st.First%rigSegment)
					require.LessOrEqual(t, st.First, message.Position(first))
					if over {
						require.Equal(t, message.Position(first), st.First)
					}
					r.expired()
					r.forget(func(x *record) bool { return !x.synced })
					r.verify()
					require.Equal(t, int64(3), r.ends(rare).Max, "after %d", after)
					require.Equal(t, end, r.ends(all).Max)
					r.stop()
				}
				r.start()
				require.NoError(t, r.send(rare, 10))
				require.Equal(t, int64(3), r.sent[len(r.sent)-1].offset)
				require.NoError(t, r.s.Expire(t.Context(), first))
				r.expired()
				r.verify()
				require.Equal(t, storage.OffsetAnswer{Queue: all, Known: true, Min: end, Max: end}, r.ends(all))
				r.stop()
				if over {
					t.Logf("%d changes of the disk", after)
					return
				}
			}
		})
	}
}

// TestExpireBeside: while Expire waits for the disk, whatever for, records are appended,
// also behind a log that expires as a whole.
func TestExpireBeside(t *testing.T) {
	slow := map[vfstest.Op]bool{
		vfstest.OpSync: true, vfstest.OpSyncData: true, vfstest.OpMapSync: true, vfstest.OpSyncDir: true, vfstest.OpRemove: true,
	}
	type waiting struct {
		vfstest.Call
		over chan struct{}
	}
	const edge = 4 * rigSegment
	for name, c := range map[string]struct {
		whole   bool // the log ends where it begins then
		appends func(vfstest.Op) bool
	}{
		"a part":                       {appends: func(vfstest.Op) bool { return true }},
		"all, the segment is Expire's": {whole: true, appends: func(op vfstest.Op) bool { return op == vfstest.OpRemove }},
		"all, it is Append's":          {whole: true, appends: func(vfstest.Op) bool { return true }},
	} {
		t.Run(name, func(t *testing.T) {
			f := vfstest.NewFaults(newDisk(1))
			r := newRig(t, f, storage.Immediate, func(c *Config) { c.MappedFileSizeConsumeQueue = 10 * unitSize })
			require.True(t, r.s.Capabilities().ExpiresBeside)
			for i := 0; r.s.State().Tail < edge; i++ {
				require.NoError(t, r.send(queueN(i%3), 500))
			}
			if c.whole {
				require.NoError(t, r.s.Truncate(t.Context(), edge))
				r.sent = r.sent[:len(r.sent)-1]
				r.open()
			}
			beside := message.Queue{Topic: "beside"}
			calls, over := make(chan waiting), make(chan struct{})
			f.SetHook(func(c vfstest.Call) error {
				if slow[c.Op] && (c.Op == vfstest.OpRemove || !strings.Contains(c.Name, "commitlog")) { // Append makes segments
					w := waiting{c, make(chan struct{})}
					select {
					case calls <- w:
						<-w.over
					case <-over:
					}
				}
				return nil
			})
			done := make(chan error, 1)
			go func() { done <- r.s.Expire(t.Context(), edge) }()
			seen := map[vfstest.Op]int{}
			for waits := true; waits; {
				select {
				case w := <-calls:
					if seen[w.Op]++; c.appends(w.Op) {
						require.NoError(t, r.send(beside, 10), "while %s of %s takes its time", w.Op, w.Name)
					}
					close(w.over)
				case err := <-done:
					require.NoError(t, err)
					waits = false
				}
			}
			close(over)
			f.SetHook(nil)
			require.NotZero(t, seen[vfstest.OpRemove], seen)
			require.NotZero(t, seen[vfstest.OpMapSync]+seen[vfstest.OpSync], seen)
			require.Equal(t, message.Position(edge), r.s.State().First)
			r.expired()
			r.verify()
			r.stop()
			r.start()
			r.verify()
		})
	}
}
