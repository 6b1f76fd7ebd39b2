package commitlog

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
	"github.com/hardpointmq/hardpoint/plugins/storage/commitlog/indexfile"
)

// apacheRecovers does with the key index what Apache's broker does after an
// unclean end: index files that are younger than the checkpoint are deleted, and
// keys are made from the record at from on.
func (r *rig) apacheRecovers(from int) {
	r.t.Helper()
	b := make([]byte, checkpointSize)
	f, err := r.fs.OpenFile(r.s.path.checkpoint, openRead, 0)
	require.NoError(r.t, err)
	_, err = f.ReadAt(b, 0)
	require.NoError(r.t, err)
	require.NoError(r.t, f.Close())
	young := parseCheckpoint(b).index
	names, err := r.fs.List(r.s.path.index)
	require.NoError(r.t, err)
	size := r.s.keys.size
	var last *indexfile.File
	defer func() { require.NoError(r.t, last.Close()) }()
	next := func(name string) {
		var prev *indexfile.Header
		if last != nil {
			prev = &last.H
			require.NoError(r.t, errors.Join(last.PutHeader(), last.Flush(), last.Close()))
		}
		f, err := indexfile.Create(r.fs, filepath.Join(r.s.path.index, name), size, prev)
		require.NoError(r.t, err)
		last = f
	}
	for _, name := range names {
		f, err := indexfile.Open(r.fs, filepath.Join(r.s.path.index, name), size)
		require.NoError(r.t, err)
		if f.H.EndTime > young {
			require.NoError(r.t, f.Close())
			require.NoError(r.t, r.fs.Remove(f.Path))
			continue
		}
		if last != nil {
			require.NoError(r.t, last.Close())
		}
		last = f
	}
	for n, x := range r.sent[from:] {
		if last == nil || last.Full() {
			next(fmt.Sprintf("2999010100%07d", n))
		}
		if x.pos < last.H.EndAt {
			continue
		}
		var v message.View
		require.NoError(r.t, message.Parse(x.bytes, &v))
		_, keys := r.s.deriver.Derive(&v, nil, nil, nil)
		for _, k := range keys {
			if last.Full() {
				next(fmt.Sprintf("2999010101%07d", n))
			}
			require.NoError(r.t, last.Reserve(1))
			require.NoError(r.t, last.Put(k))
		}
	}
	require.NoError(r.t, last.PutHeader())
	require.NoError(r.t, last.Flush())
}

// Apache's broker took over after a kill and lost keys: they are made again,
// whether it ended well or was killed, too.
func TestKeysThatAnotherBrokerLost(t *testing.T) {
	for name, drained := range map[string]bool{"files deleted": true, "keys in memory": false} {
		for _, flushed := range []int{20, 30, 31, 45} {
			for _, clean := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/flushed=%d/clean=%v", name, flushed, clean), func(t *testing.T) {
					d := newDisk(3)
					// Two keys a message, an odd number a file: one message has keys in both.
					r := newRig(t, d, storage.Immediate, func(c *Config) { c.MaxIndexNum = 62 })
					r.also = true
					rng := rand.New(rand.NewPCG(7, 8))
					fill := func(n int) {
						for range n {
							require.NoError(t, r.send(queueN(rng.IntN(3)), 200+rng.IntN(600)))
						}
					}
					fill(flushed)
					require.NoError(t, r.s.flushDerived(true))
					fill(60)
					if drained {
						left, err := r.s.keys.drain()
						require.NoError(t, err)
						require.False(t, left)
					}
					r.kill(d)
					r.apacheRecovers(flushed + 30)
					if clean {
						require.NoError(t, r.fs.Remove(r.s.path.abort))
					}
					r.start()
					r.verify()
					require.NoError(t, r.send(queueN(0), 100))
					d.crash(memfs.KeepAll)
					_ = r.s.Shutdown(background(t))
					r.start()
					r.verify()
					r.stop()
					report, err := Examine(t.Context(), examination(r.fs, r.dir))
					require.NoError(t, err)
					require.Zero(t, report.Damaged(), findings(report))
				})
			}
		}
	}
}

// Apache's broker put keys into the last file, which a killed broker had made before
// the one in front of it was full: that one stays as it is. When its header is older
// than the last keys in front of it, Apache's broker makes those again.
func TestKeysBehindAFileThatIsNotFull(t *testing.T) {
	for _, again := range []int{0, 10} {
		for i := range 4 {
			clean, more, files := i&1 == 0, 15+i/2*30, 2+i/2 // perhaps with an empty file between them
			t.Run(fmt.Sprintf("again=%d/more=%d/clean=%v", again, more, clean), func(t *testing.T) {
				d := newDisk(3)
				r := newRig(t, d, storage.Immediate, func(c *Config) { c.MaxIndexNum = 62 })
				r.also = true
				fill := func(n int) {
					for range n {
						require.NoError(t, r.send(queueN(n%3), 200))
					}
				}
				fill(20)
				require.NoError(t, r.s.flushDerived(true))
				fill(more)
				require.Len(t, r.s.keys.files, files, "those behind the first are made for keys that are in memory")
				path := r.s.keys.files[files-1].Path
				r.kill(d)
				if again > 0 {
					r.edited(path, func(f *indexfile.File) { f.H.BeginAt, f.H.EndAt = r.sent[19-again].pos, r.sent[19-again].pos })
				}
				r.apacheRecovers(19 - again)
				if clean {
					require.NoError(t, r.fs.Remove(r.s.path.abort))
				}
				behind := r.indexFiles(files - 1)
				r.start()
				r.verify()
				if clean {
					require.Equal(t, behind, r.indexFiles(files-1), "what Apache's broker wrote stays as it is")
				}
				fill(40)
				r.verify()
				r.stop()
				report, err := Examine(t.Context(), examination(r.fs, r.dir))
				require.NoError(t, err)
				require.Zero(t, report.Damaged(), findings(report))
				r.start()
				r.verify()
			})
		}
	}
}

// editCheckpoint changes fields of the checkpoint while no store is open.
func (r *rig) editCheckpoint(fields map[int]int64) {
	r.t.Helper()
	f, err := r.fs.OpenFile(r.s.path.checkpoint, openRW, 0)
	require.NoError(r.t, err)
	for off, v := range fields {
		_, err := f.WriteAt(binary.BigEndian.AppendUint64(nil, uint64(v)), int64(off))
		require.NoError(r.t, err)
	}
	require.NoError(r.t, errors.Join(f.Sync(), f.Close()))
}

// indexFiles are the files of the key index from the one with number from on: what
// their bytes hash to, by name.
func (r *rig) indexFiles(from int) map[string]string {
	r.t.Helper()
	names, err := r.fs.List(r.s.path.index)
	require.NoError(r.t, err)
	out := map[string]string{}
	for _, name := range names[from:] {
		f, err := r.fs.OpenFile(filepath.Join(r.s.path.index, name), openRead, 0)
		require.NoError(r.t, err)
		b := make([]byte, r.s.keys.size.FileSize())
		_, err = f.ReadAt(b, 0)
		require.NoError(r.t, errors.Join(err, f.Close()))
		out[name] = fmt.Sprintf("%x", sha256.Sum256(b))
	}
	return out
}

// edited changes a file of the key index while no store is open.
func (r *rig) edited(path string, change func(f *indexfile.File)) {
	r.t.Helper()
	f, err := indexfile.Open(r.fs, path, r.s.keys.size)
	require.NoError(r.t, err)
	change(f)
	require.NoError(r.t, errors.Join(f.PutHeader(), f.Flush(), f.Close()))
}

// Files that overlap in other ways than one killed broker leaves behind: keys that only
// one of them has are kept or made again.
func TestKeysThatOverlap(t *testing.T) {
	// file is the messages from one on to below another.
	type file struct{ from, to int }
	for name, c := range map[string]struct {
		files []file
		// lies is the number of messages that the header of the first claims and that are not there.
		lies int
		same []int // files that stay as they are
	}{
		"of two files":              {files: []file{{0, 15}, {15, 25}, {10, 35}, {35, 45}}, same: []int{2, 3}},
		"of all in front":           {files: []file{{5, 15}, {15, 25}, {0, 30}, {30, 45}}, same: []int{2, 3}},
		"inside, last":              {files: []file{{0, 30}, {10, 20}}},
		"inside, a key lacks":       {files: []file{{0, 31}, {10, 30}}}, // of two of the last message
		"inside, others go on":      {files: []file{{0, 20}, {10, 15}, {20, 30}, {30, 45}}, same: []int{2, 3}},
		"inside, others behind":     {files: []file{{0, 20}, {10, 15}, {15, 30}, {30, 45}}, same: []int{2, 3}},
		"to the same end, last":     {files: []file{{0, 30}, {10, 30}}},
		"to the same end, others":   {files: []file{{0, 30}, {10, 30}, {30, 45}}, same: []int{1, 2}},
		"one after the other":       {files: []file{{0, 20}, {10, 30}, {25, 45}}, same: []int{2}},
		"with a hole":               {files: []file{{0, 20}, {10, 30}, {30, 45}}, lies: 15},
		"with a hole, one in front": {files: []file{{0, 10}, {10, 30}, {20, 35}, {35, 45}}, lies: 15},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDisk(4)
			r := newRig(t, d, storage.Immediate, func(c *Config) { c.MaxIndexNum = 62 })
			r.also = true
			for n := range 45 {
				require.NoError(t, r.send(queueN(n%3), 200))
			}
			require.NoError(t, r.s.flushDerived(true))
			r.kill(d)
			names, err := r.fs.List(r.s.path.index)
			require.NoError(t, err)
			for _, name := range names {
				require.NoError(t, r.fs.Remove(filepath.Join(r.s.path.index, name)))
			}
			names = names[:0]
			liar := slices.IndexFunc(c.files, func(f file) bool { return f.to-f.from > c.lies })
			for i, part := range c.files {
				name := fmt.Sprintf("2999010100%07d", i)
				names = append(names, name)
				f, err := indexfile.Create(r.fs, filepath.Join(r.s.path.index, name), r.s.keys.size, nil)
				require.NoError(t, err)
				for _, x := range r.sent[part.from:part.to] {
					var v message.View
					require.NoError(t, message.Parse(x.bytes, &v))
					_, keys := r.s.deriver.Derive(&v, nil, nil, nil)
					for _, k := range keys {
						if f.Full() {
							break
						}
						require.NoError(t, f.Reserve(1))
						require.NoError(t, f.Put(k))
					}
				}
				require.NoError(t, errors.Join(f.PutHeader(), f.Flush(), f.Close()))
			}
			if c.lies > 0 {
				r.edited(filepath.Join(r.s.path.index, names[liar]), func(f *indexfile.File) {
					h := f.H
					_, err := f.Cut(r.sent[c.files[liar].to-c.lies].pos)
					require.NoError(t, err)
					f.H.EndAt, f.H.EndTime = h.EndAt, h.EndTime
				})
			}
			require.NoError(t, r.fs.Remove(r.s.path.abort))
			r.editCheckpoint(map[int]int64{cpIndexLast: 0, cpIndexAt: int64(r.sent[12].pos), cpIndexSum: ^int64(r.sent[12].pos)})
			before := r.indexFiles(0)
			r.start()
			r.verify()
			after := r.indexFiles(0)
			for _, i := range c.same {
				require.Equal(t, before[names[i]], after[names[i]], "file %d of %v", i, c.files)
			}
			r.stop()
			report, err := Examine(t.Context(), examination(r.fs, r.dir))
			require.NoError(t, err)
			require.Zero(t, report.Damaged(), findings(report))
			r.start()
			r.verify()
		})
	}
}

// An empty file that was made ahead outlives the last one with keys: Apache's broker
// deletes that one, which is younger than its checkpoint, and keeps the empty one.
func TestKeysInFrontOfAnEmptyFile(t *testing.T) {
	for _, from := range []int{20, 23} { // where Apache's recovery begins
		for _, clean := range []bool{true, false} {
			t.Run(fmt.Sprintf("from=%d/clean=%v", from, clean), func(t *testing.T) {
				d := newDisk(3)
				r := newRig(t, d, storage.Immediate, func(c *Config) { c.MaxIndexNum = 62 })
				r.also = true
				fill := func(n int) {
					for range n {
						require.NoError(t, r.send(queueN(n%3), 200))
					}
				}
				fill(20)
				require.NoError(t, r.s.keys.reserve(50)) // of a batch that is not stored in the end
				require.NoError(t, r.s.flushDerived(true))
				r.s.keys.giveBack(50)
				fill(5)
				_, err := r.s.keys.drain()
				require.NoError(t, err)
				require.Len(t, r.s.keys.files, 2)
				require.Equal(t, int32(51), r.s.keys.files[0].H.Count)
				require.Equal(t, int32(1), r.s.keys.files[1].H.Count)
				r.kill(d)
				r.apacheRecovers(from)
				names, err := r.fs.List(r.s.path.index)
				require.NoError(t, err)
				require.Len(t, names, 1, "the empty one")
				if clean {
					require.NoError(t, r.fs.Remove(r.s.path.abort))
				}
				r.start()
				r.verify()
				fill(40)
				r.stop()
				r.start()
				r.verify()
			})
		}
	}
}
