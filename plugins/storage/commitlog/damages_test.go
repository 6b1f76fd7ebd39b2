package commitlog

import (
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/vfs"
)

// hurt is a store, closed in order or killed, in which a start found a record whose body
// is damaged, and that goes on long after it.
func hurt(t *testing.T, clean bool) (r *rig, x record, end func()) {
	r, d := filled(t, 100)
	r.sync()
	require.NoError(t, r.s.flushDerived(true))
	r.kill(d)
	x = r.sent[len(r.sent)-2]
	require.NoError(t, r.fs.Remove(r.s.path.checkpoint)) // all of the log is looked at
	r.edit(x.pos+100, flip)
	r.start()
	r.without(x.pos, x.end())
	end = func() {
		t.Helper()
		for range 60 {
			require.NoError(t, r.send(queueN(0), 600))
		}
		r.sync()
		require.NoError(t, r.s.flushDerived(true))
		require.Greater(t, r.flushedAt(), int64(x.end()))
		if clean {
			r.stop()
		} else {
			r.die()
		}
	}
	return r, x, end
}

// TestDamageIsRemembered: reads pass over what a start found to be damaged after later
// starts, too, which do not come to it, until it is not damaged any more.
func TestDamageIsRemembered(t *testing.T) {
	for name, clean := range map[string]bool{"clean": true, "killed": false} {
		t.Run(name, func(t *testing.T) {
			r, x, end := hurt(t, clean)
			before := r.s.State().Damaged
			require.Len(t, before, 1)
			for range 3 {
				end()
				r.start()
				require.Equal(t, before, r.s.State().Damaged)
				r.verify()
				var c storage.Chunk
				require.NoError(t, r.s.Read(t.Context(), storage.ReadRequest{Queue: x.queue, Offset: x.offset, Hot: storage.Limit{Count: 1}}, &c))
				require.EqualValues(t, 1, c.Skipped)
				require.NoError(t, r.s.Get(t.Context(), []message.Position{x.pos}, &c))
				require.Zero(t, c.Units[0].Size)
				c.Release()
			}
			end()
			r.edit(x.pos+100, flip) // restored
			r.start()
			require.Empty(t, r.s.State().Damaged)
			_, recs := readQueue(t, r.s, x.queue)
			require.Contains(t, recs, x.bytes)
			_, err := r.fs.Stat(r.s.path.damaged)
			require.ErrorIs(t, err, fs.ErrNotExist)
		})
	}
}

// TestDamageIsForgotten with the bytes: what comes to stand there is another record.
func TestDamageIsForgotten(t *testing.T) {
	for name, forget := range map[string]func(r *rig, x *record){
		"truncate": func(r *rig, x *record) {
			at := r.sent[len(r.sent)-10]
			require.Less(t, at.pos, x.pos)
			require.NoError(t, r.s.Truncate(t.Context(), at.pos))
			r.sent = r.sent[:len(r.sent)-10]
		},
		"reset": func(r *rig, _ *record) {
			require.NoError(t, r.s.Reset(t.Context(), 0, nil))
			r.sent = nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, x, _ := hurt(t, false)
			forget(r, &x)
			_, err := r.fs.Stat(r.s.path.damaged)
			require.ErrorIs(t, err, fs.ErrNotExist)
			r.open()
			for r.s.State().Tail < x.end() {
				require.NoError(t, r.send(queueN(1), 333))
			}
			r.die()
			r.start()
			require.Empty(t, r.s.State().Damaged)
			r.verify()
		})
	}
}

// TestDamageThatIsNone: what the file says is not believed against the log.
func TestDamageThatIsNone(t *testing.T) {
	for name, content := range map[string]string{
		"garbage":          "}",
		"empty":            "",
		"good record":      `{"damaged":[{"from":0,"to":16384}]}`,
		"another's":        `{"damaged":[{"from":16400,"to":16500,"head":77}]}`,
		"no range":         `{"damaged":[{"from":16400,"to":16400}]}`,
		"behind the files": `{"damaged":[{"from":16400,"to":1099511627776},{"from":1099511627776,"to":1099511627777}]}`,
	} {
		for _, clean := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				r, d := filled(t, 100)
				if clean {
					r.stop()
				} else {
					r.kill(d)
				}
				require.NoError(t, vfs.WriteFileAtomic(r.fs, r.s.path.damaged, []byte(content)))
				r.start()
				require.Empty(t, r.s.State().Damaged)
				r.verify()
				_, err := r.fs.Stat(r.s.path.damaged)
				require.ErrorIs(t, err, fs.ErrNotExist, "it is put right")
			})
		}
	}
}
