package commitlog

import (
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// eachQueueFile changes every file of a queue while no store is open.
func (r *rig) eachQueueFile(key message.Queue, change func(path string)) {
	r.t.Helper()
	dir := filepath.Join(r.dir, "consumequeue", key.Topic, strconv.Itoa(int(key.ID)))
	names, err := r.fs.List(dir)
	require.NoError(r.t, err)
	require.NotEmpty(r.t, names)
	for _, name := range names {
		change(filepath.Join(dir, name))
	}
}

func (r *rig) rewrite(path string, fill func(b []byte)) {
	r.t.Helper()
	info, err := r.fs.Stat(path)
	require.NoError(r.t, err)
	f, err := r.fs.OpenFile(path, openRW, 0)
	require.NoError(r.t, err)
	b := make([]byte, info.Size)
	_, err = f.ReadAt(b, 0)
	require.NoError(r.t, err)
	fill(b)
	_, err = f.WriteAt(b, 0)
	require.NoError(r.t, err)
	require.NoError(r.t, f.Sync())
	require.NoError(r.t, f.Close())
}

// TestQueuesThatDoNotDescribeTheLog hurts the files of one queue: the log has
// all of it, so nothing may be missing afterwards and nothing in the log be
// taken for damage.
func TestQueuesThatDoNotDescribeTheLog(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 9))
	garbage := func(b []byte) {
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
	}
	for name, hurt := range map[string]func(r *rig, key message.Queue){
		"garbage": func(r *rig, key message.Queue) {
			r.eachQueueFile(key, func(path string) { r.rewrite(path, garbage) })
		},
		"garbage at the beginning": func(r *rig, key message.Queue) {
			r.eachQueueFile(key, func(path string) { r.rewrite(path, func(b []byte) { garbage(b[:len(b)/3]) }) })
		},
		"ones": func(r *rig, key message.Queue) {
			r.eachQueueFile(key, func(path string) {
				r.rewrite(path, func(b []byte) {
					for i := range b {
						b[i] = 1
					}
				})
			})
		},
		"zeros": func(r *rig, key message.Queue) {
			r.eachQueueFile(key, func(path string) { r.rewrite(path, func(b []byte) { clear(b) }) })
		},
		"gone": func(r *rig, key message.Queue) {
			r.eachQueueFile(key, func(path string) { require.NoError(r.t, r.fs.Remove(path)) })
		},
		"a record far behind the log": func(r *rig, key message.Queue) {
			r.eachQueueFile(key, func(path string) {
				r.rewrite(path, func(b []byte) {
					for i := 0; i < len(b); i += unitSize {
						if decodeUnit(b[i:]).size > 0 {
							encodeUnit(b[i:], 1<<40, 300, 0)
						}
					}
				})
			})
		},
	} {
		for _, clean := range []bool{true, false} {
			t.Run(name+"/clean="+strconv.FormatBool(clean), func(t *testing.T) {
				r, d := filled(t, 300)
				if clean {
					r.stop()
				} else {
					r.kill(d)
				}
				hurt(r, queueN(1))
				r.start()
				require.Empty(t, r.s.State().Damaged)
				require.Equal(t, r.sent[len(r.sent)-1].end(), r.s.State().Tail)
				r.verify()
				require.NoError(t, r.send(queueN(1), 300))
				r.verify()
				r.stop()
				r.start()
				r.verify()
			})
		}
	}
}

// TestUnitsThatPointNowhere hurts an old file of a queue, which no start looks
// at: a reader passes what cannot be and gets everything after it.
func TestUnitsThatPointNowhere(t *testing.T) {
	for name, u := range map[string]unit{
		"behind the log": {1 << 40, 300, 0},
		"no size":        {0, 1 << 30, 0},
		"no record":      {17, 300, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := filled(t, 300)
			r.stop()
			const hurt = 3
			first := true
			r.eachQueueFile(queueN(1), func(path string) {
				if first {
					r.rewrite(path, func(b []byte) {
						for k := range hurt {
							encodeUnit(b[(k+1)*unitSize:], u.at, u.size, u.tags)
						}
					})
				}
				first = false
			})
			r.start()
			var c storage.Chunk
			defer c.Release()
			got := map[int64]bool{}
			end := int64(1)
			for next, rounds := int64(0), 0; next < end; rounds++ {
				require.Less(t, rounds, 1000, "the reader is stuck at offset %d", next)
				require.NoError(t, r.s.Read(t.Context(), storage.ReadRequest{Queue: queueN(1), Offset: next, Hot: storage.Limit{Count: 1}}, &c))
				for i := range c.Units {
					got[c.Units[i].Offset] = true
				}
				next, end = c.Next, c.Max
			}
			require.Len(t, got, int(end)-hurt)
			require.NotEmpty(t, r.s.State().Damaged)
		})
	}
}
