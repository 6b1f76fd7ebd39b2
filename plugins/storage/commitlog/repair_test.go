package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
	"github.com/hardpointmq/hardpoint/core/vfs/vfstest"
)

// rewrite changes a file of a store that is closed.
func rewrite(t testing.TB, fsys vfs.FS, change func(b []byte) []byte, path ...string) {
	t.Helper()
	name := filepath.Join(path...)
	b, err := vfs.ReadFile(fsys, name)
	require.NoError(t, err)
	require.NoError(t, vfs.WriteFileAtomic(fsys, name, change(b)))
}

// damagedRig is a store with damage everywhere but in its records, closed: nothing
// that was sent is lost.
func damagedRig(t *testing.T, d *disk) *rig {
	r := newRig(t, d, storage.Immediate, func(c *Config) { c.MappedFileSizeConsumeQueue, c.MaxHashSlotNum, c.MaxIndexNum = 200, 50, 20 })
	for i := range 45 {
		require.NoError(t, r.send(queueN(i%3), 300))
	}
	tail := r.s.State().Tail
	r.stop()
	clean, err := Examine(t.Context(), examination(d, r.dir))
	require.NoError(t, err)
	require.Empty(t, clean.Findings)
	r.edit(tail, func(f vfs.File, off int64) error {
		_, err := f.WriteAt([]byte("behind the end"), off)
		return err
	})
	rewrite(t, d, flipped(25), r.dir, "consumequeue", "T", "0", fileName(0))
	rewrite(t, d, cutTo(20), r.dir, "consumequeue", "T", "1", fileName(200))
	require.NoError(t, d.RemoveAll(filepath.Join(r.dir, "consumequeue", "T", "2")))
	rewrite(t, d, flipped(500), r.dir, "checkpoint")
	names, err := d.List(filepath.Join(r.dir, "index"))
	require.NoError(t, err)
	require.Greater(t, len(names), 1)
	rewrite(t, d, flipped(300), r.dir, "index", names[1])
	d.crash(memfs.KeepAll)
	return r
}

// rigExamination knows the sizes of index files: those of a rig may all be in the
// backup of a repair that was ended.
func rigExamination(fsys vfs.FS, r *rig) Examination {
	e := examination(fsys, r.dir)
	e.Config = r.s.cfg
	return e
}

// changes are the operations that change a disk.
var changes = map[vfstest.Op]bool{
	vfstest.OpRemove: true, vfstest.OpRename: true, vfstest.OpMkdir: true, vfstest.OpSyncDir: true, vfstest.OpWrite: true, vfstest.OpTruncate: true,
	vfstest.OpReserve: true, vfstest.OpSync: true, vfstest.OpSyncData: true, vfstest.OpZero: true, vfstest.OpMapSync: true,
}

// TestRepairInterrupted ends a repair before each of its changes, by a death of the
// process, a loss of power or a full disk, and repairs again.
func TestRepairInterrupted(t *testing.T) {
	died := errors.New("the process died")
	for name, after := range map[string]struct {
		err   error
		crash bool
		keep  memfs.Keep
	}{
		"killed":     {died, true, memfs.KeepAll},
		"power lost": {died, true, memfs.KeepRandom},
		"disk full":  {vfs.ErrNoSpace, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			last := false
			for n := 1; !last; n += 1 + n/10 { // the beginning is the repair's, the rest the store's own
				d := newDisk(uint64(n))
				r := damagedRig(t, d)
				f := vfstest.NewFaults(d)
				var seen atomic.Int64 // queues are worked on side by side
				f.SetHook(func(c vfstest.Call) error {
					if !changes[c.Op] {
						return nil
					}
					if seen.Add(1) < int64(n) {
						return nil
					}
					return after.err
				})
				out, err := Repair(t.Context(), rigExamination(f, r), Repairing{Now: time.Now()})
				last = seen.Load() < int64(n)
				if err == nil { // it could do without
					require.Zero(t, out.After.Damaged(), "change %d", n)
				}
				f.SetHook(nil)
				if after.crash {
					d.crash(after.keep)
				}
				out, err = Repair(t.Context(), rigExamination(d, r), Repairing{Now: time.Now()})
				require.NoError(t, err, "after change %d", n)
				if out.After != nil {
					require.Zero(t, out.After.Damaged(), "after change %d: %s", n, findings(out.After))
				}
				r.start()
				r.verify()
				r.stop()
			}
		})
	}
}

// TestRepairRefuses: a store that somebody has open, and one that can only be
// restored.
func TestRepairRefuses(t *testing.T) {
	d := newDisk(1)
	r := newRig(t, d, storage.Immediate, nil)
	require.NoError(t, r.send(queueN(0), 100))
	_, err := Repair(t.Context(), examination(d, r.dir), Repairing{})
	require.ErrorIs(t, err, vfs.ErrLocked)
	_, err = Seal(t.Context(), examination(d, r.dir), Sealing{})
	require.ErrorIs(t, err, vfs.ErrLocked)
	live := examination(d, r.dir)
	live.Deep, live.Live = false, true
	seen, err := Examine(t.Context(), live)
	require.NoError(t, err)
	require.EqualValues(t, 1, seen.Records)
	require.Zero(t, seen.Damaged(), findings(seen))
	r.stop()
	for _, name := range []string{identityFile, identityFile + copySuffix} {
		rewrite(t, d, func([]byte) []byte { return []byte("{}") }, r.dir, name)
	}
	_, err = Repair(t.Context(), examination(d, r.dir), Repairing{})
	require.ErrorContains(t, err, "remove it and its copy to adopt")
}

// TestTwoIdentities: of a file that does not agree with its copy the one is right
// that the files of the log are like.
func TestTwoIdentities(t *testing.T) {
	for _, name := range []string{identityFile, identityFile + copySuffix} {
		d := newDisk(1)
		r := newRig(t, d, storage.Immediate, nil)
		for i := range 9 {
			require.NoError(t, r.send(queueN(i%2), 200))
		}
		r.stop()
		rewrite(t, d, func(b []byte) []byte { return bytes.Replace(b, []byte("16384"), []byte("16385"), 1) }, r.dir, name)
		out, err := Repair(t.Context(), examination(d, r.dir), Repairing{Now: time.Now()})
		require.NoError(t, err)
		require.Contains(t, findings(out.Before), "damage: hardpoint.log at byte 0: it and its copy differ")
		require.Equal(t, 1, out.Before.Damaged(), findings(out.Before))
		require.Zero(t, out.After.Damaged(), findings(out.After))
		r.start()
		r.verify()
	}
}

// TestSealToPublished cuts what was written and not published.
func TestSealToPublished(t *testing.T) {
	d := newDisk(1)
	r := newRig(t, d, storage.Explicit, nil)
	require.NoError(t, r.send(queueN(0), 100))
	require.NoError(t, r.s.Publish(t.Context(), r.s.State().Tail))
	published := r.s.State().Published
	p := r.several(3, 100)
	require.NoError(t, r.s.Append(t.Context(), &p.Batches[0]))
	tail := r.s.State().Tail
	require.Greater(t, tail, published)
	r.stop()
	out, err := Seal(t.Context(), examination(d, r.dir), Sealing{})
	require.NoError(t, err)
	require.False(t, out.Changed, "without being told, what may have been answered stays")
	out, err = Seal(t.Context(), examination(d, r.dir), Sealing{ToPublished: true})
	require.NoError(t, err)
	require.Equal(t, Sealed{Before: out.Before, Changed: true, Tail: published, Cut: int64(tail - published)}, *out)
	seen, err := Examine(t.Context(), examination(d, r.dir))
	require.NoError(t, err)
	require.Empty(t, seen.Findings)
	require.Equal(t, published, seen.Tail)
	out, err = Seal(t.Context(), examination(d, r.dir), Sealing{ToPublished: true})
	require.NoError(t, err)
	require.False(t, out.Changed)
}

// TestSealRefusesDamage: what a broker would take for the end of the log is told
// before one comes to it.
func TestSealRefusesDamage(t *testing.T) {
	d := newDisk(1)
	r := newRig(t, d, storage.Immediate, nil)
	for range 8 {
		require.NoError(t, r.send(queueN(0), 200))
	}
	r.stop()
	r.edit(r.sent[3].pos+100, flip)
	_, err := Seal(t.Context(), examination(d, r.dir), Sealing{})
	require.ErrorIs(t, err, ErrDamaged)
	require.ErrorContains(t, err, "damaged in the middle of the log")
	_, err = Seal(t.Context(), examination(d, r.dir), Sealing{WithDamage: true})
	require.NoError(t, err)
}

// FuzzExamine looks at a store in whose files bytes were changed, and repairs it:
// nothing panics, and what was sent and is whole is found.
func FuzzExamine(f *testing.F) {
	base := newDisk(1)
	fuzzLogOn(f, base)
	var names []string
	var walk func(dir string)
	walk = func(dir string) {
		list, err := base.List(dir)
		require.NoError(f, err)
		for _, name := range list {
			path := filepath.Join(dir, name)
			if info, err := base.Stat(path); err == nil && info.IsDir {
				walk(path)
			} else if name != "lock" {
				names = append(names, path)
			}
		}
	}
	walk("/s")
	content := map[string][]byte{}
	for i, name := range names {
		b, err := vfs.ReadFile(base, name)
		require.NoError(f, err)
		content[name] = b
		f.Add(uint8(i), uint16(0), []byte{0xFF, 1, 2, 3})
		f.Add(uint8(i), uint16(20), make([]byte, 200))
		f.Add(uint8(i), uint16(7), []byte{})
	}
	f.Fuzz(func(t *testing.T, which uint8, at uint16, change []byte) {
		d := memfs.New(1)
		for i, name := range names {
			b := bytes.Clone(content[name])
			if i == int(which)%len(names) {
				if at := int(at) % (len(b) + 1); len(change) == 0 {
					b = b[:at]
				} else {
					copy(b[at:], change)
				}
			}
			require.NoError(t, vfs.EnsureDir(d, filepath.Dir(name)))
			require.NoError(t, vfs.WriteFileAtomic(d, name, b))
		}
		// Files of an identity with large sizes would be in memory.
		for _, name := range []string{identityFile, identityFile + copySuffix} {
			b, err := vfs.ReadFile(d, "/s/"+name)
			require.NoError(t, err)
			if id, err := parseIdentity(b); err == nil && max(id.Segment, id.QueueFile) > 1<<16 {
				return
			}
		}
		e := examination(d, "/s")
		e.Config.MappedFileSizeConsumeQueue, e.Config.MaxHashSlotNum, e.Config.MaxIndexNum = 4000, 500, 1000
		out, err := Repair(t.Context(), e, Repairing{Now: time.UnixMilli(1), WithoutLost: true})
		if err != nil || out.After == nil {
			return // said why, or there was nothing
		}
		for _, x := range out.After.Findings {
			require.True(t, x.Level == Note || x.part == ofLog, "%s\nbefore:\n%s", x.String(), findings(out.Before)+"\nafter\n"+findings(out.After))
		}
		require.LessOrEqual(t, out.After.Records, int64(14), fmt.Sprint(out.Done))
	})
}

// twoDisks refuses to rename from one directory to another, as file systems do between
// each other.
type twoDisks struct {
	vfs.FS
	refused atomic.Int64
}

func (d *twoDisks) Rename(from, to string) error {
	if filepath.Dir(from) != filepath.Dir(to) {
		d.refused.Add(1)
		return errors.New("invalid cross-device link")
	}
	return d.FS.Rename(from, to)
}

// TestRepairBesideTheBackup: what is put away may lie on another disk than the backup.
func TestRepairBesideTheBackup(t *testing.T) {
	d := newDisk(1)
	r := damagedRig(t, d)
	before, err := vfs.ReadFile(d, filepath.Join(r.dir, "checkpoint"))
	require.NoError(t, err)
	two := &twoDisks{FS: d}
	out, err := Repair(t.Context(), rigExamination(two, r), Repairing{Now: time.Now()})
	require.NoError(t, err)
	require.Zero(t, out.After.Damaged(), findings(out.After))
	require.Positive(t, two.refused.Load())
	kept, err := vfs.ReadFile(d, filepath.Join(r.dir, out.Backup, "checkpoint"))
	require.NoError(t, err)
	require.Equal(t, before, kept)
	r.start()
	r.verify()
	r.stop()
}
