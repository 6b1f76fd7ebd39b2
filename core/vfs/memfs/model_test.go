package memfs_test

import (
	"bytes"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
)

// modelFile is a file as a child would draw it: what is seen and what is safe.
type modelFile struct{ seen, safe []byte }

func (f *modelFile) resize(n int) {
	f.seen = append(f.seen[:min(n, len(f.seen)):min(n, len(f.seen))], make([]byte, max(n-len(f.seen), 0))...)
}

func (f *modelFile) write(p []byte, off int) {
	if off+len(p) > len(f.seen) {
		f.resize(off + len(p))
	}
	copy(f.seen[off:], p)
}

func (f *modelFile) syncRange(lo, hi int) {
	lo -= lo % page
	if len(f.safe) < hi {
		f.safe = append(f.safe, make([]byte, hi-len(f.safe))...)
	}
	hi = min((hi+page-1)/page*page, len(f.seen), len(f.safe))
	copy(f.safe[lo:hi], f.seen[lo:hi])
}

// machine runs random operations on a Crash, on the real file system and on the model. What is seen must be the same
// on all three at any time, and after a crash the Crash must hold what the model says is safe.
type machine struct {
	t          *rapid.T
	crash      *memfs.FS
	osDir      string
	seen, safe map[string]*modelFile // by path below /data; the two directories are durable
	changed    map[string]bool       // names created, removed or renamed since their directory was synced
}

var modelNames = []string{"d/a", "d/b", "e/a", "e/b"}

func (m *machine) name(label string) string { return rapid.SampledFrom(modelNames).Draw(m.t, label) }

// existing draws a name of a file that exists, or skips the step.
func (m *machine) existing() string {
	if len(m.seen) == 0 {
		m.t.Skip("no file")
	}
	return rapid.SampledFrom(slices.Sorted(maps.Keys(m.seen))).Draw(m.t, "name")
}

// both runs a step on both file systems, with the name in each of them.
func (m *machine) both(step func(fsys vfs.FS, path func(string) string) error) {
	require.NoError(m.t, step(m.crash, func(n string) string { return "/data/" + n }))
	require.NoError(m.t, step(vfs.OS{}, func(n string) string { return filepath.Join(m.osDir, n) }))
}

func (m *machine) onFile(name string, step func(f vfs.File) error) {
	m.both(func(fsys vfs.FS, path func(string) string) error {
		f, err := fsys.OpenFile(path(name), os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		return step(f)
	})
}

func (m *machine) offset(label string, limit int) int {
	return rapid.IntRange(0, limit).Draw(m.t, label)
}

func (m *machine) Create(t *rapid.T) {
	m.t = t
	name := m.name("name")
	m.both(func(fsys vfs.FS, path func(string) string) error {
		f, err := fsys.OpenFile(path(name), os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return err
		}
		return f.Close()
	})
	if m.seen[name] == nil {
		m.seen[name] = &modelFile{}
		m.changed[name] = true
	}
}

func (m *machine) Write(t *rapid.T) {
	m.t = t
	name, off := m.existing(), m.offset("off", 4*page)
	data := bytes.Repeat([]byte{rapid.Byte().Draw(t, "byte")}, m.offset("len", 2*page))
	m.onFile(name, func(f vfs.File) error {
		_, err := f.WriteAt(data, int64(off))
		return err
	})
	if len(data) > 0 {
		m.seen[name].write(data, off)
	}
}

func (m *machine) Truncate(t *rapid.T) {
	m.t = t
	name, size := m.existing(), m.offset("size", 5*page)
	m.onFile(name, func(f vfs.File) error { return f.Truncate(int64(size)) })
	m.seen[name].resize(size)
}

func (m *machine) Reserve(t *rapid.T) {
	m.t = t
	name, off, size := m.existing(), m.offset("off", 2*page), m.offset("size", 2*page)
	m.onFile(name, func(f vfs.File) error { return f.Reserve(int64(off), int64(size)) })
	if size > 0 && off+size > len(m.seen[name].seen) {
		m.seen[name].resize(off + size)
	}
}

func (m *machine) Zero(t *rapid.T) {
	m.t = t
	name, off, size := m.existing(), m.offset("off", 4*page), m.offset("size", 4*page)
	m.onFile(name, func(f vfs.File) error { return f.ZeroRange(int64(off), int64(size)) })
	if seen := m.seen[name].seen; off < len(seen) {
		clear(seen[off:min(off+size, len(seen))])
	}
}

func (m *machine) Sync(t *rapid.T) {
	m.t = t
	name, data := m.existing(), rapid.Bool().Draw(t, "data")
	m.onFile(name, func(f vfs.File) error {
		if data {
			return f.SyncData()
		}
		return f.Sync()
	})
	m.seen[name].safe = bytes.Clone(m.seen[name].seen)
}

func (m *machine) Mapped(t *rapid.T) {
	m.t = t
	name := m.existing()
	file := m.seen[name]
	if len(file.seen) == 0 {
		t.Skip("nothing to map")
	}
	off := m.offset("off", len(file.seen)-1)
	size := 1 + m.offset("size", len(file.seen)-off-1)
	at := m.offset("at", size-1)
	b := rapid.Byte().Draw(t, "byte")
	syncAt := m.offset("sync at", size)
	syncLen := m.offset("sync len", size-syncAt)
	m.onFile(name, func(f vfs.File) error {
		mapping, err := f.Map(int64(off), int64(size), true)
		if err != nil {
			return err
		}
		mapping.Bytes()[at] = b
		if err := mapping.Sync(int64(syncAt), int64(syncLen)); err != nil {
			return err
		}
		return mapping.Close()
	})
	file.seen[off+at] = b
	if syncLen > 0 {
		file.syncRange(off+syncAt, off+syncAt+syncLen)
	}
}

func (m *machine) Remove(t *rapid.T) {
	m.t = t
	name := m.existing()
	m.both(func(fsys vfs.FS, path func(string) string) error { return fsys.Remove(path(name)) })
	delete(m.seen, name)
	m.changed[name] = true
}

// Rename stays in one directory; moves between two are in TestCrashNames and TestCrashRandomOutcomes.
func (m *machine) Rename(t *rapid.T) {
	m.t = t
	from := m.existing()
	to := path.Join(path.Dir(from), rapid.SampledFrom([]string{"a", "b"}).Draw(t, "to"))
	m.both(func(fsys vfs.FS, path func(string) string) error { return fsys.Rename(path(from), path(to)) })
	file := m.seen[from]
	delete(m.seen, from)
	m.seen[to] = file
	m.changed[from], m.changed[to] = true, true
}

func (m *machine) SyncDir(t *rapid.T) {
	m.t = t
	dir := rapid.SampledFrom([]string{"d", "e"}).Draw(t, "dir")
	m.both(func(fsys vfs.FS, path func(string) string) error { return fsys.SyncDir(path(dir)) })
	maps.DeleteFunc(m.safe, func(name string, _ *modelFile) bool { return path.Dir(name) == dir })
	maps.DeleteFunc(m.changed, func(name string, _ bool) bool { return path.Dir(name) == dir })
	for name, file := range m.seen {
		if path.Dir(name) == dir {
			m.safe[name] = file
		}
	}
}

// Crash replaces the file system, and the real directory and the model by what it holds.
func (m *machine) Crash(t *rapid.T) {
	m.t = t
	keep := rapid.SampledFrom([]memfs.Keep{memfs.KeepNone, memfs.KeepRandom, memfs.KeepAll}).Draw(t, "keep")
	m.crash = m.crash.Crash(keep)
	after := m.contents(m.crash, "/data")
	switch keep {
	case memfs.KeepNone:
		want := map[string][]byte{}
		for name, file := range m.safe {
			want[name] = file.safe
		}
		m.equal(want, after)
	case memfs.KeepAll:
		m.equal(m.seenContents(), after)
	case memfs.KeepRandom:
		m.checkRandom(after)
	}
	m.seen, m.safe, m.changed = map[string]*modelFile{}, map[string]*modelFile{}, map[string]bool{}
	for _, name := range modelNames {
		require.NoError(t, vfs.OS{}.RemoveAll(filepath.Join(m.osDir, name)))
	}
	for name, data := range after {
		file := &modelFile{seen: data, safe: bytes.Clone(data)}
		m.seen[name], m.safe[name] = file, file
		require.NoError(t, os.WriteFile(filepath.Join(m.osDir, name), data, 0o644))
	}
}

// checkRandom accepts pages from either state. Files whose names were not touched must be there; about the others
// TestCrashRandomOutcomes says more.
func (m *machine) checkRandom(after map[string][]byte) {
	for name, file := range m.safe {
		if m.changed[name] {
			continue
		}
		data, there := after[name]
		require.True(m.t, there, "%s is lost", name)
		require.Contains(m.t, []int{len(file.safe), len(file.seen)}, len(data), name)
		at := func(b []byte, lo, hi int) []byte { // zeros beyond the end
			p := make([]byte, hi-lo)
			if lo < len(b) {
				copy(p, b[lo:])
			}
			return p
		}
		for lo := 0; lo < len(data); lo += page {
			hi := min(lo+page, len(data))
			if got := data[lo:hi]; !bytes.Equal(got, at(file.safe, lo, hi)) {
				// The end of the file may cut the new page, and the old one goes on behind it.
				cut := max(min(hi, len(file.seen)), lo)
				want := append(at(file.seen, lo, cut), at(file.safe, cut, hi)...)
				require.True(m.t, bytes.Equal(want, got), "%s: page at %d is neither old nor new", name, lo)
			}
		}
	}
}

func (m *machine) seenContents() map[string][]byte {
	want := map[string][]byte{}
	for name, file := range m.seen {
		want[name] = file.seen
	}
	return want
}

func (m *machine) contents(fsys vfs.FS, root string) map[string][]byte {
	got := map[string][]byte{}
	for _, dir := range []string{"d", "e"} {
		names, err := fsys.List(filepath.Join(root, dir))
		require.NoError(m.t, err)
		for _, name := range names {
			data, err := vfs.ReadFile(fsys, filepath.Join(root, dir, name))
			require.NoError(m.t, err)
			got[path.Join(dir, name)] = data
		}
	}
	return got
}

func (m *machine) equal(want, got map[string][]byte) {
	require.Equal(m.t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)))
	for name := range want {
		require.True(m.t, bytes.Equal(want[name], got[name]), "%s differs (%d and %d bytes)", name, len(want[name]), len(got[name]))
	}
}

// Check runs after every step.
func (m *machine) Check(t *rapid.T) {
	m.t = t
	m.equal(m.seenContents(), m.contents(m.crash, "/data"))
	m.equal(m.seenContents(), m.contents(vfs.OS{}, m.osDir))
}

func TestModel(t *testing.T) {
	root := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{
			t: t, osDir: root,
			crash: memfs.New(rapid.Uint64().Draw(t, "seed")),
			seen:  map[string]*modelFile{}, safe: map[string]*modelFile{}, changed: map[string]bool{},
		}
		for _, dir := range []string{"d", "e"} {
			require.NoError(t, os.RemoveAll(filepath.Join(root, dir)))
			require.NoError(t, os.Mkdir(filepath.Join(root, dir), 0o755))
			require.NoError(t, vfs.EnsureDir(m.crash, "/data/"+dir))
		}
		t.Repeat(rapid.StateMachineActions(m))
	})
}
