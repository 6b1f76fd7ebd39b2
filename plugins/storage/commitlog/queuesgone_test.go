package commitlog

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// TestQueuesGone deletes queues that have no records where the scan of a start
// begins: they are made again all the same, also without a checkpoint.
func TestQueuesGone(t *testing.T) {
	remove := func(name string) func(*rig) error {
		return func(r *rig) error { return r.fs.RemoveAll(filepath.Join(r.s.path.queues, name)) }
	}
	for name, hurt := range map[string]func(*rig) error{
		"topic": remove("T"),
		"queue": remove("T/2"),
		"file":  remove("T/2/" + fileName(0)),
		"renamed": func(r *rig) error {
			return r.fs.Rename(filepath.Join(r.s.path.queues, "T/2"), filepath.Join(r.s.path.queues, "T/9"))
		},
	} {
		for _, clean := range []bool{true, false} {
			for _, checkpoint := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/clean=%v/checkpoint=%v", name, clean, checkpoint), func(t *testing.T) {
					d := newDisk(1)
					r := newRig(t, d, storage.Immediate, nil)
					for i := range 80 {
						require.NoError(t, r.send(queueN(1+i%2), 500))
					}
					for range 80 {
						require.NoError(t, r.send(message.Queue{Topic: "S"}, 500))
					}
					r.sync()
					require.NoError(t, r.s.flushDerived(true))
					if clean {
						r.stop()
					} else {
						r.kill(d)
					}
					if !checkpoint {
						require.NoError(t, r.fs.Remove(r.s.path.checkpoint))
					}
					require.NoError(t, hurt(r))
					r.start()
					r.verify()
					require.NoError(t, r.send(queueN(2), 10), "its numbers go on")
					r.verify()
					r.stop()
					r.start()
					r.verify()
				})
			}
		}
	}
}

// TestQueuesDropped: a queue that was dropped, before a clean end or a kill, is not
// missed, and the next start scans no more than it has to.
func TestQueuesDropped(t *testing.T) {
	for _, clean := range []bool{true, false} {
		t.Run(fmt.Sprintf("clean=%v", clean), func(t *testing.T) {
			r, d := filled(t, 60)
			require.NoError(t, r.s.flushDerived(true))
			require.NoError(t, r.s.Drop(t.Context(), []message.Queue{queueN(2)}))
			r.sent = slices.DeleteFunc(r.sent, func(x record) bool { return x.queue == queueN(2) })
			if clean {
				r.stop()
			} else {
				r.kill(d)
			}
			c, fields, err := openCheckpoint(r.fs, r.s.path.checkpoint)
			require.NoError(t, err)
			require.NoError(t, c.close())
			r.start()
			require.EqualValues(t, 2, fields.queues)
			require.False(t, r.s.queues.lost(&fields))
			a := storage.OffsetAnswers{}
			require.NoError(t, r.s.Offsets(t.Context(), nil, &a))
			require.Len(t, a.Answers, 2)
		})
	}
}
