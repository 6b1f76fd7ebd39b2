package commitlog

import (
	"errors"
	"fmt"
	"os"
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
