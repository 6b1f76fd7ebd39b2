package commitlog

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
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
			defer last.Close()
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
					f, err := indexfile.Open(r.fs, path, r.s.keys.size)
					require.NoError(t, err)
					f.H.BeginAt, f.H.EndAt = r.sent[19-again].pos, r.sent[19-again].pos
					require.NoError(t, f.PutHeader())
					require.NoError(t, f.Flush())
					require.NoError(t, f.Close())
				}
				r.apacheRecovers(19 - again)
				if clean {
					require.NoError(t, r.fs.Remove(r.s.path.abort))
				}
				r.start()
				r.verify()
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
