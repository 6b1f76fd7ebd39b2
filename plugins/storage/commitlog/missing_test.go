package commitlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
	"github.com/hardpointmq/hardpoint/core/vfs/vfstest"
)

// files are names and contents of everything below dir, but for the lock.
func files(t *testing.T, fsys vfs.FS, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	names, err := fsys.List(dir)
	require.NoError(t, err)
	for _, name := range names {
		path := filepath.Join(dir, name)
		info, err := fsys.Stat(path)
		require.NoError(t, err)
		if info.IsDir {
			for k, v := range files(t, fsys, path) {
				out[k] = v
			}
			continue
		}
		b, err := vfs.ReadFile(fsys, path)
		require.NoError(t, err)
		out[path] = string(b)
	}
	return out
}

// refused starts the store, which has to refuse its directory.
func (r *rig) refused() *storage.CorruptError {
	r.t.Helper()
	s := build(r.t, r.fs, r.params, r.change)
	err := s.Start(r.t.Context())
	var c *storage.CorruptError
	require.ErrorAs(r.t, err, &c)
	require.NoError(r.t, s.Shutdown(background(r.t)))
	return c
}

// TestLastSegmentsMissing takes segments from the end of the log: it is refused by
// name and nothing is changed, so that putting them back is all there is to do. Who
// wants to go on without them removes what names them.
func TestLastSegmentsMissing(t *testing.T) {
	for _, gone := range []int{1, 2, 99} {
		for _, clean := range []bool{true, false} {
			for _, left := range []string{"all", "checkpoint", "consumequeue"} {
				t.Run(fmt.Sprintf("%d/clean=%v/named by %s", gone, clean, left), func(t *testing.T) {
					r, d := filled(t, 150)
					require.NoError(t, r.s.flushDerived(true))
					if clean {
						r.stop()
					} else {
						r.kill(d)
					}
					names, err := r.fs.List(r.s.path.log)
					require.NoError(t, err)
					if r.sent[len(r.sent)-1].pos < message.Position((len(names)-1)*rigSegment) {
						names = names[:len(names)-1] // prepared, and never used
					}
					switch left {
					case "checkpoint":
						require.NoError(t, r.fs.RemoveAll(r.s.path.queues))
					case "consumequeue":
						require.NoError(t, r.fs.Remove(r.s.path.checkpoint))
					}
					all, err := r.fs.List(r.s.path.log)
					require.NoError(t, err)
					gone := min(gone, len(names))
					kept := map[string]string{}
					for _, name := range all[len(names)-gone:] {
						path := filepath.Join(r.s.path.log, name)
						b, err := vfs.ReadFile(r.fs, path)
						require.NoError(t, err)
						kept[path] = string(b)
						require.NoError(t, r.fs.Remove(path))
					}
					first := names[len(names)-gone]
					before := files(t, r.fs, r.dir)
					for range 2 {
						c := r.refused()
						if gone < len(names) {
							require.Equal(t, filepath.Join(r.s.path.log, first), c.File)
						} else {
							require.Equal(t, r.s.path.log, c.File)
						}
						for _, want := range []string{"missing: ", r.s.path.checkpoint, r.s.path.queues} {
							require.Contains(t, c.Reason, want)
						}
					}
					if left == "all" {
						require.Equal(t, before, files(t, r.fs, r.dir), "a refused start changes nothing")
						for path, b := range kept {
							require.NoError(t, vfs.WriteFileAtomic(r.fs, path, []byte(b)))
						}
						r.start()
						r.verify()
						r.stop()
						for path := range kept {
							require.NoError(t, r.fs.Remove(path))
						}
						_ = r.refused()
					}
					for _, name := range []string{r.s.path.checkpoint, r.s.path.queues, r.s.path.index} {
						require.NoError(t, r.fs.RemoveAll(name))
					}
					r.start()
					r.without(message.Position((len(names)-gone)*rigSegment), 1<<60)
					r.verify()
					require.NoError(t, r.send(queueN(0), 100))
					r.verify()
				})
			}
		}
	}
}

// TestDamagedQueueIsNoWitness: a unit, or a mark, that points behind the log's end
// by itself does not make a whole log a short one.
func TestDamagedQueueIsNoWitness(t *testing.T) {
	put := func(r *rig, name string, off int64, v uint64) {
		f, err := r.fs.OpenFile(name, openRW, 0)
		require.NoError(t, err)
		_, err = f.WriteAt(binary.BigEndian.AppendUint64(nil, v), off)
		require.NoError(t, errors.Join(err, f.Sync(), f.Close()))
	}
	for name, hurt := range map[string]func(r *rig, v uint64){
		"last unit": func(r *rig, v uint64) {
			last := r.sent[len(r.sent)-1]
			put(r, filepath.Join(r.s.path.queues, "T", fmt.Sprint(last.queue.ID), fileName(0)), last.offset*unitSize, v)
		},
		"published mark":     func(r *rig, v uint64) { put(r, r.s.path.checkpoint, cpConfirm, v) },
		"time of the log":    func(r *rig, v uint64) { put(r, r.s.path.checkpoint, cpPhysicTime, v) },
		"time of the queues": func(r *rig, v uint64) { put(r, r.s.path.checkpoint, cpLogicsTime, v) },
		"both times": func(r *rig, v uint64) {
			put(r, r.s.path.checkpoint, cpPhysicTime, v)
			put(r, r.s.path.checkpoint, cpLogicsTime, v)
		},
		"time of the keys":     func(r *rig, v uint64) { put(r, r.s.path.checkpoint, cpIndexTime, v) },
		"position of the keys": func(r *rig, v uint64) { put(r, r.s.path.checkpoint, cpIndexAt, v) },
		"last index file":      func(r *rig, v uint64) { put(r, r.s.path.checkpoint, cpIndexLast, v) },
	} {
		for _, v := range []uint64{1 << 20, 1<<63 - 1, 1 << 63, 1<<64 - 1, 0xDAA320A7DAA320A7} {
			for _, clean := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%x/clean=%v", name, v, clean), func(t *testing.T) {
					r, d := filled(t, 100)
					require.NoError(t, r.s.flushDerived(true))
					if clean {
						r.stop()
					} else {
						r.kill(d)
					}
					hurt(r, v)
					r.start()
					require.Empty(t, r.s.State().Damaged)
					r.verify()
				})
			}
		}
	}
}

// TestCrashWhileRecovering ends a recovery, or a truncation and then its recovery,
// after each of its first changes of the disk: what the next start finds is never
// taken for a log whose end is missing, and everything that was synced is there.
func TestCrashWhileRecovering(t *testing.T) {
	changes := map[vfstest.Op]bool{
		vfstest.OpRemove: true, vfstest.OpRename: true, vfstest.OpSyncDir: true, vfstest.OpWrite: true, vfstest.OpZero: true, vfstest.OpTruncate: true,
		vfstest.OpSync: true, vfstest.OpSyncData: true, vfstest.OpMapSync: true, vfstest.OpReserve: true, vfstest.OpOpen: true,
	}
	dead := errors.New("the power is off")
	for _, truncates := range []bool{false, true} {
		for _, keep := range []memfs.Keep{memfs.KeepAll, memfs.KeepNone, memfs.KeepRandom} {
			t.Run(fmt.Sprintf("truncates=%v/keep=%v", truncates, keep), func(t *testing.T) {
				for after := 0; ; after += 1 + after/16 {
					d := newDisk(uint64(after))
					f := vfstest.NewFaults(d)
					r := newRig(t, f, storage.Immediate, nil)
					for i := range 40 {
						require.NoError(t, r.send(queueN(i%3), 500))
					}
					r.sync()
					for i := range 80 {
						require.NoError(t, r.send(queueN(i%3), 500))
					}
					require.NoError(t, r.s.flushDerived(true)) // the log is not durable
					var left atomic.Int64                      // a segment is prepared in the background
					left.Store(int64(after))
					off := func(c vfstest.Call) error {
						if changes[c.Op] {
							if left.Add(-1) < 0 {
								return dead
							}
						}
						return nil
					}
					over := false
					if truncates {
						f.SetHook(off)
						at := r.sent[50].pos
						over = r.s.Truncate(t.Context(), at) == nil
						if over {
							r.sent = r.sent[:50]
						} else {
							for i := range r.sent[50:] {
								r.sent[50+i].synced = false
							}
						}
					}
					d.crash(keep)
					_ = r.s.Shutdown(background(t))
					if !truncates {
						f.SetHook(off)
						s := build(t, f, r.params, nil)
						over = s.Start(t.Context()) == nil
						d.crash(keep)
						_ = s.Shutdown(background(t))
					}
					f.SetHook(nil)
					r.start()
					r.forget(func(x *record) bool { return !x.synced })
					r.verify()
					r.stop()
					if over {
						return
					}
				}
			})
		}
	}
}

// TestFilesGoneUnderOpenStore deletes, moves and replaces what an open store works
// on: the next flush says which and fails the store; what is published stays
// readable from the files that are open.
func TestFilesGoneUnderOpenStore(t *testing.T) {
	for name, hurt := range map[string]func(r *rig) (string, error){
		"all":   func(r *rig) (string, error) { return "hardpoint.log", r.fs.RemoveAll(r.dir) },
		"moved": func(r *rig) (string, error) { return "hardpoint.log", r.fs.Rename(r.dir, "/data/away") },
		"log":   func(r *rig) (string, error) { return "commitlog", r.fs.RemoveAll(r.s.path.log) },
		"segment": func(r *rig) (string, error) {
			seg := r.s.list.Load().last()
			return filepath.Base(seg.path), r.fs.Remove(seg.path)
		},
		"a segment that is full by now": func(r *rig) (string, error) {
			seg := r.s.list.Load().last()
			err := r.fs.Remove(seg.path)
			for r.s.list.Load().last() == seg {
				require.NoError(r.t, r.send(queueN(1), 500))
			}
			return filepath.Base(seg.path), err
		},
		"a segment of after a cut": func(r *rig) (string, error) {
			end := r.s.list.Load().last().base
			require.NoError(r.t, r.s.Truncate(r.t.Context(), r.sent[10].pos))
			r.sent = r.sent[:10]
			r.open()
			seg := r.s.list.Load().last()
			err := r.fs.Remove(seg.path)
			for r.s.list.Load().last().base <= end {
				require.NoError(r.t, r.send(queueN(1), 500))
			}
			return filepath.Base(seg.path), err
		},
		"queues": func(r *rig) (string, error) { return "consumequeue", r.fs.RemoveAll(r.s.path.queues) },
		"a queue": func(r *rig) (string, error) {
			return filepath.Join("T", "1"), r.fs.RemoveAll(filepath.Join(r.s.path.queues, "T", "1"))
		},
		"keys":       func(r *rig) (string, error) { return "index", r.fs.RemoveAll(r.s.path.index) },
		"lock":       func(r *rig) (string, error) { return "lock", r.fs.Remove(r.s.path.lock) },
		"checkpoint": func(r *rig) (string, error) { return "checkpoint", r.fs.Remove(r.s.path.checkpoint) },
		"abort":      func(r *rig) (string, error) { return "abort", r.fs.Remove(r.s.path.abort) },
		"opened by another": func(r *rig) (string, error) {
			return "another process", vfs.WriteFileAtomic(r.fs, r.s.path.abort, []byte("1"))
		},
		"replaced": func(r *rig) (string, error) {
			return "was replaced", writeIdentity(r.fs, r.s.path.identity, &identity{LogID: "another", Segment: rigSegment, QueueFile: 4000})
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := filled(t, 60)
			require.NoError(t, r.s.flushDerived(true))
			require.NoError(t, r.send(queueN(1), 100))
			want, err := hurt(r)
			require.NoError(t, err)
			err = r.s.flushDerived(false)
			require.ErrorContains(t, err, want)
			if name != "replaced" && name != "opened by another" {
				require.ErrorIs(t, err, fs.ErrNotExist)
				require.ErrorContains(t, err, "while the store was open")
			}
			_, marked := r.fs.Stat(r.s.path.abort)
			require.ErrorIs(t, r.s.fail(err), storage.ErrFailed) // as the goroutine that flushes does
			require.ErrorIs(t, r.send(queueN(1), 100), storage.ErrFailed)
			require.Len(t, r.failed, 1)
			require.ErrorIs(t, r.s.Shutdown(background(t)), storage.ErrFailed)
			_, still := r.fs.Stat(r.s.path.abort)
			require.Equal(t, marked == nil, still == nil, "no clean end")
		})
	}
}

// TestTimesOfCheckpointInTheFuture loses the last units of a queue that has no
// records in the last segment, under a checkpoint that claims later times than the
// log has: they are made again all the same.
func TestTimesOfCheckpointInTheFuture(t *testing.T) {
	for _, wild := range []uint64{0, 1 << 62} {
		d := newDisk(1)
		r := newRig(t, d, storage.Immediate, nil)
		for i := range 20 {
			require.NoError(t, r.send(queueN(1+i%2), 500))
		}
		when := uint64(r.s.State().LastStoreTime)
		for range 20 {
			require.NoError(t, r.send(queueN(2), 500)) // its units are not durable
		}
		for range 80 {
			require.NoError(t, r.send(queueN(0), 500))
		}
		r.sync()
		require.NoError(t, r.s.flushDerived(true))
		r.kill(d)
		edit := func(name string, change func(f vfs.File) error) {
			f, err := r.fs.OpenFile(name, openRW, 0)
			require.NoError(t, err)
			require.NoError(t, errors.Join(change(f), f.Sync(), f.Close()))
		}
		edit(filepath.Join(r.s.path.queues, "T/2", fileName(0)), func(f vfs.File) error { return f.ZeroRange(10*unitSize, 20*unitSize) })
		edit(r.s.path.checkpoint, func(f vfs.File) error {
			for _, off := range []int64{cpPhysicTime, cpLogicsTime} {
				if _, err := f.WriteAt(binary.BigEndian.AppendUint64(nil, max(wild, when)), off); err != nil {
					return err
				}
			}
			return nil
		})
		r.start()
		r.verify()
	}
}
