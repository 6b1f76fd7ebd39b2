package commitlog

import (
	"bytes"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/vfs"
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

// TestDamagedQueueFiles hurts files of a queue that has no record where the scan
// of a start looks: the start notices by itself, and makes the units again.
func TestDamagedQueueFiles(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for name, hurt := range map[string]func(r *rig, n int, path string) bool{
		"zeros in the first file": func(r *rig, n int, path string) bool {
			r.rewrite(path, func(b []byte) { clear(b) })
			return n == 0
		},
		"zeros in a file between": func(r *rig, n int, path string) bool {
			r.rewrite(path, func(b []byte) { clear(b) })
			return n == 1
		},
		"the first page": func(r *rig, n int, path string) bool {
			r.rewrite(path, func(b []byte) { clear(b[:len(b)/2]) })
			return n == 0
		},
		"the end of a file": func(r *rig, n int, path string) bool {
			r.rewrite(path, func(b []byte) { clear(b[len(b)/2:]) })
			return n == 1
		},
		"the first page of the last file": func(r *rig, n int, path string) bool {
			r.rewrite(path, func(b []byte) { clear(b[:5*unitSize]) })
			return n == 2
		},
		"a hole in the last file": func(r *rig, n int, path string) bool {
			r.rewrite(path, func(b []byte) { clear(b[6*unitSize : 8*unitSize]) })
			return n == 2
		},
		"garbage": func(r *rig, n int, path string) bool {
			r.rewrite(path, func(b []byte) {
				for i := range b {
					b[i] = byte(rng.Uint32())
				}
			})
			return n == 1
		},
		"all files": func(r *rig, n int, path string) bool {
			r.rewrite(path, func(b []byte) {
				for i := range b {
					b[i] = byte(rng.Uint32())
				}
			})
			return true
		},
		"missing": func(r *rig, n int, path string) bool {
			require.NoError(r.t, r.fs.Remove(path))
			return n == 1
		},
		"too short": func(r *rig, n int, path string) bool { r.resize(path, -100); return n == 1 },
		"too long":  func(r *rig, n int, path string) bool { r.resize(path, +100); return n == 0 },
		"units of another log": func(r *rig, n int, path string) bool {
			r.rewrite(path, func(b []byte) {
				for i := 0; i < len(b); i += unitSize {
					encodeUnit(b[i:], 1<<41, 200, 0)
				}
			})
			return n == 0
		},
		"files that were exchanged": func(r *rig, n int, path string) bool {
			if n > 0 {
				return false
			}
			b, err := vfs.ReadFile(r.fs, filepath.Join(filepath.Dir(path), fileName(400)))
			require.NoError(r.t, err)
			r.rewrite(path, func(to []byte) { copy(to, b) })
			return true
		},
	} {
		for _, clean := range []bool{true, false} {
			t.Run(name+"/clean="+strconv.FormatBool(clean), func(t *testing.T) {
				r, d := filledWith(t, 160, func(c *Config) { c.MappedFileSizeConsumeQueue = 400 }) // 20 units
				for range 100 {
					require.NoError(t, r.send(queueN(rng.IntN(2)*2), 400)) // not to queue 1
				}
				require.Less(t, r.s.queues.get(queueN(1)).max.Load(), int64(60))
				require.Greater(t, r.s.queues.get(queueN(1)).max.Load(), int64(48))
				require.NoError(t, r.s.flushDerived(true))
				if clean {
					r.stop()
				} else {
					r.sync()
					r.kill(d)
				}
				var hurtOne bool
				files := 0
				r.eachQueueFile(queueN(1), func(path string) {
					if files++; !hurtOne || name == "all files" {
						before, err := vfs.ReadFile(r.fs, path)
						require.NoError(t, err)
						if hurtOne = hurt(r, files-1, path); !hurtOne { // not this one
							r.restoreFile(path, before)
						}
					}
				})
				require.Equal(t, 3, files)
				require.True(t, hurtOne)
				r.start()
				require.Empty(t, r.s.State().Damaged)
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

func (r *rig) restoreFile(path string, b []byte) {
	r.t.Helper()
	f, err := r.fs.OpenFile(path, openRW|os.O_CREATE|os.O_TRUNC, 0o644)
	require.NoError(r.t, err)
	_, err = f.WriteAt(b, 0)
	require.NoError(r.t, err)
	require.NoError(r.t, f.Sync())
	require.NoError(r.t, f.Close())
}

func (r *rig) resize(path string, by int64) {
	r.t.Helper()
	f, err := r.fs.OpenFile(path, openRW, 0)
	require.NoError(r.t, err)
	size, err := f.Size()
	require.NoError(r.t, err)
	require.NoError(r.t, f.Truncate(size+by))
	require.NoError(r.t, f.Sync())
	require.NoError(r.t, f.Close())
}

// TestHoleInAFullFile zeroes units that no start looks at: readers pass them and
// say so, and what the message tells to do brings them back.
func TestHoleInAFullFile(t *testing.T) {
	r, _ := filledWith(t, 200, func(c *Config) { c.MappedFileSizeConsumeQueue = 400 })
	r.stop()
	var first string
	r.eachQueueFile(queueN(1), func(path string) {
		if first == "" {
			first = path
			r.rewrite(path, func(b []byte) { clear(b[3*unitSize : 6*unitSize]) })
		}
	})
	var logged bytes.Buffer
	r.params.Logger = slog.New(slog.NewTextHandler(&logged, nil))
	r.start()
	_, recs := readQueue(t, r.s, queueN(1))
	require.Len(t, recs, int(r.s.queues.get(queueN(1)).max.Load())-3)
	require.Equal(t, 1, strings.Count(logged.String(), "a unit is missing in a ConsumeQueue"))
	require.Contains(t, logged.String(), "offset=3 file="+first)
	r.stop()
	r.resize(first, 1-400)
	r.start()
	r.verify()
	require.Contains(t, logged.String(), "a ConsumeQueue is damaged and is made again from the log")
}
