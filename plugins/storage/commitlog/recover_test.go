package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
)

// filled is a rig with records in several segments that was killed.
func filled(t *testing.T, n int) (*rig, *disk) { return filledWith(t, n, nil) }

func filledWith(t *testing.T, n int, change func(*Config)) (*rig, *disk) {
	d := newDisk(3)
	r := newRig(t, d, storage.Immediate, change)
	rng := rand.New(rand.NewPCG(5, 6))
	for range n {
		require.NoError(t, r.send(queueN(rng.IntN(3)), 200+rng.IntN(600)))
	}
	return r, d
}

func (r *rig) kill(d *disk) {
	r.t.Helper()
	d.crash(memfs.KeepAll)
	_ = r.s.Shutdown(background(r.t))
}

// without removes the records that overlap [from, to).
func (r *rig) without(from, to message.Position) (gone []record) {
	kept := r.sent[:0:0]
	for _, x := range r.sent {
		if x.pos < to && x.end() > from {
			gone = append(gone, x)
		} else {
			kept = append(kept, x)
		}
	}
	r.sent = kept
	return gone
}

// TestDamageInTheMiddle destroys bytes of records that others follow: nothing
// else is lost, the bytes stay, the range is told.
func TestDamageInTheMiddle(t *testing.T) {
	for name, hurt := range map[string]func(*rig, *record){
		"body":     func(r *rig, x *record) { r.edit(x.pos+100, flip) },
		"magic":    func(r *rig, x *record) { r.edit(x.pos+5, flip) },
		"size":     func(r *rig, x *record) { r.edit(x.pos+1, flip) },
		"position": func(r *rig, x *record) { r.edit(x.pos+35, flip) },
		"zeros": func(r *rig, x *record) {
			r.edit(x.pos, func(f vfs.File, off int64) error { return f.ZeroRange(off, int64(len(x.bytes))) })
		},
	} {
		for _, clean := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/clean=%v", name, clean), func(t *testing.T) {
				r, d := filled(t, 100)
				for _, which := range []int{40, len(r.sent) - 2} {
					x := r.sent[which]
					if clean {
						r.stop()
						if which == 40 {
							continue // looked at when it is read
						}
					} else {
						r.kill(d)
					}
					hurt(r, &x)
					r.start()
					r.without(x.pos, x.end())
					st := r.s.State()
					require.Equal(t, r.sent[len(r.sent)-1].end(), st.Tail)
					require.NotEmpty(t, st.Damaged)
					last := st.Damaged[len(st.Damaged)-1]
					require.LessOrEqual(t, last.From, x.pos)
					require.GreaterOrEqual(t, last.To, x.end())
					require.NotEmpty(t, last.File)
					r.verify()
					// The offset of the lost record is not given again.
					require.NoError(t, r.send(x.queue, 100))
					require.Greater(t, r.sent[len(r.sent)-1].offset, x.offset)
					r.verify()
				}
			})
		}
	}
}

// TestDamageFoundByReading hurts a record of an old segment while the store was
// closed in order: the start does not look at it, the read does.
func TestDamageFoundByReading(t *testing.T) {
	r, _ := filled(t, 100)
	x := r.sent[10]
	r.stop()
	r.edit(x.pos+5, flip)
	r.start()
	require.Empty(t, r.s.State().Damaged)
	var c storage.Chunk
	require.NoError(t, r.s.Read(t.Context(), storage.ReadRequest{Queue: x.queue, Offset: x.offset, Hot: storage.Limit{Count: 4}}, &c))
	require.Equal(t, storage.Found, c.Status)
	require.EqualValues(t, 1, c.Skipped)
	require.Equal(t, x.offset+1, c.Units[0].Offset)
	c.Release()
	require.Len(t, r.s.State().Damaged, 1)
	r.without(x.pos, x.end())
	r.verify()
}

// TestWholeSegmentDamaged zeroes a whole segment in the middle.
func TestWholeSegmentDamaged(t *testing.T) {
	r, d := filled(t, 100)
	r.kill(d)
	r.edit(rigSegment, func(f vfs.File, _ int64) error { return f.ZeroRange(0, rigSegment) })
	r.start()
	gone := r.without(rigSegment, 2*rigSegment)
	require.NotEmpty(t, gone)
	require.Equal(t, r.sent[len(r.sent)-1].end(), r.s.State().Tail)
	r.verify()
}

// TestTornEnd hurts the last record: it is cut, told, and never comes back.
func TestTornEnd(t *testing.T) {
	for name, hurt := range map[string]func(*rig, *record){
		"body":  func(r *rig, x *record) { r.edit(x.pos+100, flip) },
		"magic": func(r *rig, x *record) { r.edit(x.pos+5, flip) },
		"half": func(r *rig, x *record) {
			r.edit(x.pos+150, func(f vfs.File, off int64) error { return f.ZeroRange(off, int64(len(x.bytes))) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, d := filled(t, 60)
			x := r.sent[len(r.sent)-1]
			r.kill(d)
			hurt(r, &x)
			r.start()
			r.without(x.pos, x.end())
			st := r.s.State()
			require.Equal(t, x.pos, st.Tail)
			require.Len(t, st.Damaged, 1)
			require.Equal(t, x.pos, st.Damaged[0].From)
			r.verify()
			// The bytes behind the cut are zeros, and the place is used again.
			require.NoError(t, r.send(x.queue, 90))
			y := r.sent[len(r.sent)-1]
			require.Equal(t, x.pos, y.pos)
			require.Equal(t, x.offset, y.offset)
			r.verify()
			r.kill(d)
			r.edit(y.end(), func(f vfs.File, off int64) error {
				b := make([]byte, rigSegment-off)
				_, err := f.ReadAt(b, off)
				require.Equal(t, make([]byte, len(b)), b)
				return err
			})
			r.start()
			require.Empty(t, r.s.State().Damaged)
			r.verify()
		})
	}
}

// TestStaleBytesEndTheLog leaves old records behind the end, as RocketMQ does
// when it cuts: they are not taken for damage in the middle.
func TestStaleBytesEndTheLog(t *testing.T) {
	r, d := filled(t, 12)
	at := r.sent[6]
	old := make([]byte, rigSegment)
	r.edit(0, func(f vfs.File, _ int64) error { _, err := f.ReadAt(old, 0); return err })
	require.NoError(t, r.s.Truncate(t.Context(), at.pos))
	r.sent = r.sent[:6]
	r.open()
	require.NoError(t, r.send(at.queue, 64)) // shorter than what stood there
	end := r.sent[6].end()
	r.kill(d)
	r.edit(end, func(f vfs.File, off int64) error { _, err := f.WriteAt(old[off:], off); return err })
	r.start()
	require.Equal(t, end, r.s.State().Tail)
	r.verify()
}

// resizeIndex makes the second index file longer or shorter.
func (r *rig) resizeIndex(by int64) error {
	names, err := r.fs.List(r.s.path.index)
	require.NoError(r.t, err)
	require.Greater(r.t, len(names), 1)
	f, err := r.fs.OpenFile(filepath.Join(r.s.path.index, names[1]), openRW, 0)
	require.NoError(r.t, err)
	size, err := f.Size()
	require.NoError(r.t, err)
	return errors.Join(f.Truncate(size+by), f.Sync(), f.Close())
}

// TestIndexesRebuilt removes what is derived from the log.
func TestIndexesRebuilt(t *testing.T) {
	for name, remove := range map[string]func(*rig) error{
		"consumequeue": func(r *rig) error { return r.fs.RemoveAll(r.s.path.queues) },
		"index":        func(r *rig) error { return r.fs.RemoveAll(r.s.path.index) },
		"checkpoint":   func(r *rig) error { return r.fs.Remove(r.s.path.checkpoint) },
		"all of them": func(r *rig) error {
			for _, name := range []string{r.s.path.queues, r.s.path.index, r.s.path.checkpoint} {
				if err := r.fs.RemoveAll(name); err != nil {
					return err
				}
			}
			return nil
		},
		"empty last index file": func(r *rig) error {
			f, err := r.fs.OpenFile(filepath.Join(r.s.path.index, "29990101000000000"), openRW|0o100, 0o644)
			if err != nil {
				return err
			}
			return f.Close()
		},
		"index file that is too long":  func(r *rig) error { return r.resizeIndex(+8) },
		"index file that is too short": func(r *rig) error { return r.resizeIndex(-8) },
		"damaged index file": func(r *rig) error {
			names, err := r.fs.List(r.s.path.index)
			require.NoError(t, err)
			require.NotEmpty(t, names)
			f, err := r.fs.OpenFile(filepath.Join(r.s.path.index, names[len(names)/2]), openRW, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteAt([]byte{0xFF, 0xFF, 0xFF, 0xFF}, 36)
			require.NoError(t, err)
			return f.Close()
		},
	} {
		for _, clean := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/clean=%v", name, clean), func(t *testing.T) {
				r, d := filledWith(t, 100, func(c *Config) { c.MaxIndexNum = 30 })
				require.NoError(t, r.s.flushDerived(true))
				if clean {
					r.stop()
				} else {
					r.kill(d)
				}
				require.NoError(t, remove(r))
				r.start()
				require.Empty(t, r.s.State().Damaged)
				r.verify()
			})
		}
	}
}

// TestInterruptedTruncate leaves the intent of a truncation and opens again.
func TestInterruptedTruncate(t *testing.T) {
	r, d := filled(t, 60)
	at := r.sent[20].pos
	require.NoError(t, writeCut(r.fs, r.s.path.cut, at))
	r.kill(d)
	r.start()
	r.sent = r.sent[:20]
	require.Equal(t, at, r.s.State().Tail)
	r.verify()
	_, err := r.fs.Stat(r.s.path.cut)
	require.Error(t, err)
}

func TestIdentity(t *testing.T) {
	r, _ := filled(t, 3)
	r.stop()
	other := r.params
	other.Segment = 2 * rigSegment
	s := build(t, r.fs, other, nil)
	err := s.Start(t.Context())
	require.ErrorIs(t, err, storage.ErrIdentity)
	require.ErrorContains(t, err, "16384")
	require.ErrorContains(t, err, "32768")
	other = r.params
	other.LogID = "another"
	require.ErrorIs(t, build(t, r.fs, other, nil).Start(t.Context()), storage.ErrIdentity)
	// A foreign directory takes the size from its files.
	require.NoError(t, errors.Join(r.fs.Remove(s.path.identity), r.fs.Remove(s.path.identity+copySuffix)))
	other = r.params
	other.Segment = 2 * rigSegment
	require.ErrorIs(t, build(t, r.fs, other, nil).Start(t.Context()), storage.ErrIdentity)
	r.start()
	r.verify()
}

// TestDamagedStateFiles is BC-36 for the small files of the log that nothing else
// could replace: whatever becomes of one, its copy serves and makes it whole.
func TestDamagedStateFiles(t *testing.T) {
	damages := map[string]func(b []byte) []byte{
		"empty":     func([]byte) []byte { return nil },
		"half":      func(b []byte) []byte { return b[:len(b)/2] },
		"over-long": func(b []byte) []byte { return append(bytes.Clone(b), b[:min(100, len(b))]...) },
		"zeros":     func(b []byte) []byte { return make([]byte, len(b)) },
		"removed":   nil,
	}
	for _, name := range []string{identityFile, droppedFile} {
		for how, damage := range damages {
			t.Run(name+"/"+how, func(t *testing.T) {
				d := newDisk(3)
				r := newRig(t, d, storage.Immediate, nil)
				for i := range 30 {
					require.NoError(t, r.send(queueN(i%3), 100))
				}
				require.NoError(t, r.s.Drop(t.Context(), []message.Queue{queueN(1)}))
				r.sent = slices.DeleteFunc(r.sent, func(x record) bool { return x.queue == queueN(1) })
				id := r.s.State().LogID
				seen := func() {
					t.Helper()
					require.Equal(t, id, r.s.State().LogID)
					for _, x := range r.sent {
						units, _ := readQueue(t, r.s, x.queue)
						require.Len(t, units, 10)
					}
					units, _ := readQueue(t, r.s, queueN(1))
					require.Empty(t, units, "what was dropped stays so")
				}
				path := filepath.Join(r.dir, name)
				harm := func(path string) {
					t.Helper()
					b, err := vfs.ReadFile(r.fs, path)
					require.NoError(t, err)
					if damage == nil {
						require.NoError(t, r.fs.Remove(path))
					} else {
						require.NoError(t, vfs.WriteFileAtomic(r.fs, path, damage(b)))
					}
				}
				for _, first := range []string{path, path + copySuffix} {
					r.kill(d)
					harm(first)
					// The queues are made again from the log, so that it shows.
					require.NoError(t, r.fs.RemoveAll(r.s.path.queues))
					r.start()
					seen()
					a, err := vfs.ReadFile(r.fs, path)
					require.NoError(t, err)
					b, err := vfs.ReadFile(r.fs, path+copySuffix)
					require.NoError(t, err)
					require.Equal(t, a, b, "both are whole again")
				}
				if damage == nil {
					return
				}
				r.kill(d)
				harm(path)
				harm(path + copySuffix)
				var corrupt *storage.CorruptError
				require.ErrorAs(t, build(t, r.fs, r.params, r.change).Start(t.Context()), &corrupt)
				require.ErrorContains(t, corrupt, "and its copy")
			})
		}
	}
}

func TestWrongFileSizes(t *testing.T) {
	r, _ := filled(t, 60)
	r.stop()
	var corrupt *storage.CorruptError
	require.ErrorAs(t, build(t, r.fs, r.params, func(c *Config) { c.MappedFileSizeConsumeQueue = 8000 }).Start(t.Context()), &corrupt)
	require.Equal(t, filepath.Join(r.s.path.queues, "T", "0", fileName(0)), corrupt.File)
	require.ErrorContains(t, corrupt, "mappedFileSizeConsumeQueue")
	name := filepath.Join(r.s.path.log, fileName(0))
	f, err := r.fs.OpenFile(name, openRW, 0)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(3000))
	require.NoError(t, f.Close())
	require.ErrorAs(t, build(t, r.fs, r.params, nil).Start(t.Context()), &corrupt)
	require.Equal(t, name, corrupt.File)
}

func TestEmptyLastSegmentIsRemoved(t *testing.T) {
	r, d := filled(t, 60)
	next := (int64(r.s.State().Tail)/rigSegment + 1) * rigSegment
	r.kill(d)
	f, err := r.fs.OpenFile(filepath.Join(r.s.path.log, fileName(next)), openRW|0o100|0o1000, 0o644)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	r.start()
	require.Empty(t, r.s.State().Damaged)
	r.verify()
}

// TestRandomDamageOfTheEnd is BC-27: random kills, and between them the end of
// the log or the key index is damaged.
func TestRandomDamageOfTheEnd(t *testing.T) {
	d := newDisk(11)
	r := newRig(t, d, storage.Immediate, nil)
	rng := rand.New(rand.NewPCG(11, 12))
	for round := range 30 {
		for range 5 + rng.IntN(40) {
			room := rigSegment - int64(r.s.State().Tail)%rigSegment
			body := rng.IntN(700)
			switch spare := int(room) - len("T") - len("KEYS\x01k0001\x02") - message.FixedSize; rng.IntN(4) {
			case 0: // exactly to the edge, less the blank
				body = max(min(spare-message.BlankSize, 3000), 1)
			case 1: // leaves less than a blank
				body = max(min(spare-rng.IntN(message.BlankSize), 3000), 1)
			}
			require.NoError(t, r.send(queueN(rng.IntN(4)), body))
		}
		tail := r.s.State().Tail
		r.kill(d)
		safe := tail
		last := r.sent[len(r.sent)-1]
		switch rng.IntN(6) {
		case 0: // the file is shorter
			k := message.Position(1 + rng.IntN(3000))
			if base := tail / rigSegment * rigSegment; tail-base > k {
				safe = tail - k
				r.edit(tail-1, func(f vfs.File, _ int64) error { return f.Truncate(int64(safe - base)) })
			}
		case 1: // its last 4 KiB are zeros
			if base := tail / rigSegment * rigSegment; tail > base {
				safe = max(tail-4096, base)
				r.edit(safe, func(f vfs.File, off int64) error { return f.ZeroRange(off, 4096) })
			}
		case 2:
			at := last.pos + message.Position(rng.IntN(len(last.bytes)))
			if rec := int(at - last.pos); rec < 20 || rec >= 28 && rec < 36 || rec >= 88 && rec < len(last.bytes)-20 {
				safe = last.pos
				r.edit(at, flip)
			}
		case 3:
			f, err := r.fs.OpenFile(filepath.Join(r.s.path.index, "29990101000000000"), openRW|0o100, 0o644)
			require.NoError(t, err)
			require.NoError(t, f.Close())
		case 4:
			require.NoError(t, r.fs.RemoveAll(r.s.path.index))
		}
		r.start()
		r.forget(func(x *record) bool { return x.end() > safe })
		st := r.s.State()
		if len(r.sent) > 0 {
			require.GreaterOrEqual(t, st.Tail, r.sent[len(r.sent)-1].end())
		}
		r.verify()
		if t.Failed() {
			t.Logf("round %d, %+v", round, st)
			return
		}
	}
}
