package memfs_test

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
	"github.com/hardpointmq/hardpoint/core/vfs/vfstest"
)

const page = 4096

func mustOpen(t require.TestingT, fsys vfs.FS, name string) vfs.File {
	f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	require.NoError(t, err)
	return f
}

func mustWrite(t require.TestingT, f vfs.File, data string, off int64) {
	_, err := f.WriteAt([]byte(data), off)
	require.NoError(t, err)
}

// durableFile returns a file whose name and content survive.
func durableFile(t *testing.T, c *memfs.FS, name, content string) vfs.File {
	t.Helper()
	f := mustOpen(t, c, name)
	mustWrite(t, f, content, 0)
	require.NoError(t, f.Sync())
	require.NoError(t, c.SyncDir("/data"))
	return f
}

func newFS(t *testing.T, seed uint64) *memfs.FS {
	t.Helper()
	c := memfs.New(seed)
	require.NoError(t, vfs.EnsureDir(c, "/data"))
	return c
}

func TestSuite(t *testing.T) {
	vfstest.Run(t, vfstest.Harness{New: func(t *testing.T) (vfs.FS, string) { return newFS(t, 1), "/data" }})
}

func content(t require.TestingT, fsys vfs.FS, name string) string {
	data, err := vfs.ReadFile(fsys, name)
	require.NoError(t, err)
	return string(data)
}

func TestCrashContent(t *testing.T) {
	old := strings.Repeat("o", 3*page)
	for name, test := range map[string]struct {
		do                func(*testing.T, vfs.File)
		wantNone, wantAll string
	}{
		"nothing": {func(*testing.T, vfs.File) {}, old, old},
		"write": {func(t *testing.T, f vfs.File) {
			mustWrite(t, f, "new", 0)
		}, old, "new" + old[3:]},
		"write and fsync": {func(t *testing.T, f vfs.File) {
			mustWrite(t, f, "new", 0)
			require.NoError(t, f.Sync())
			mustWrite(t, f, "lost", 10)
		}, "new" + old[3:], "new" + old[3:10] + "lost" + old[14:]},
		"write and fdatasync": {func(t *testing.T, f vfs.File) {
			mustWrite(t, f, "tail", 3*page)
			require.NoError(t, f.SyncData())
		}, old + "tail", old + "tail"},
		"append": {func(t *testing.T, f vfs.File) {
			mustWrite(t, f, "tail", 3*page)
		}, old, old + "tail"},
		"truncate": {func(t *testing.T, f vfs.File) {
			require.NoError(t, f.Truncate(5))
		}, old, old[:5]},
		"truncate and sync": {func(t *testing.T, f vfs.File) {
			require.NoError(t, f.Truncate(5))
			require.NoError(t, f.Sync())
			require.NoError(t, f.Truncate(7))
		}, old[:5], old[:5] + "\x00\x00"},
		"shrink and grow": {func(t *testing.T, f vfs.File) {
			require.NoError(t, f.Truncate(5))
			require.NoError(t, f.Truncate(7))
			require.NoError(t, f.Sync())
		}, old[:5] + "\x00\x00", old[:5] + "\x00\x00"},
		"zero range": {func(t *testing.T, f vfs.File) {
			require.NoError(t, f.ZeroRange(0, 2))
		}, old, "\x00\x00" + old[2:]},
		"mapped write": {func(t *testing.T, f vfs.File) {
			m, err := f.Map(0, page, true)
			require.NoError(t, err)
			copy(m.Bytes(), "new")
			require.NoError(t, m.Close())
		}, old, "new" + old[3:]},
		"mapped write and msync of a range": {func(t *testing.T, f vfs.File) {
			m, err := f.Map(0, 3*page, true)
			require.NoError(t, err)
			copy(m.Bytes(), "new")
			copy(m.Bytes()[page:], "new")
			require.NoError(t, m.Sync(page+1, 1))
		}, old[:page] + "new" + old[page+3:], "new" + old[3:page] + "new" + old[page+3:]},
		"mapped write and fsync, then written again": {func(t *testing.T, f vfs.File) {
			m, err := f.Map(page, page, true)
			require.NoError(t, err)
			copy(m.Bytes(), "one")
			require.NoError(t, f.Sync())
			copy(m.Bytes(), "two")
		}, old[:page] + "one" + old[page+3:], old[:page] + "two" + old[page+3:]},
	} {
		t.Run(name, func(t *testing.T) {
			c := newFS(t, 1)
			test.do(t, durableFile(t, c, "/data/f", old))
			require.Equal(t, test.wantNone, content(t, c.Crash(memfs.KeepNone), "/data/f"), "KeepNone")
			require.Equal(t, test.wantAll, content(t, c.Crash(memfs.KeepAll), "/data/f"), "KeepAll")
		})
	}
}

func TestCrashSyncedLengthSurvivesSecondCrash(t *testing.T) {
	c := newFS(t, 1)
	durableFile(t, c, "/data/f", "content")
	c = c.Crash(memfs.KeepNone).Crash(memfs.KeepNone)
	require.Equal(t, "content", content(t, c, "/data/f"))
}

func TestCrashNames(t *testing.T) {
	for name, test := range map[string]struct {
		do                func(*testing.T, *memfs.FS)
		wantNone, wantAll []string
	}{
		"created": {func(t *testing.T, c *memfs.FS) {
			require.NoError(t, mustOpen(t, c, "/data/new").Sync()) // does not make the name durable
		}, []string{"a", "b"}, []string{"a", "b", "new"}},
		"created and synced": {func(t *testing.T, c *memfs.FS) {
			mustOpen(t, c, "/data/new")
			require.NoError(t, c.SyncDir("/data"))
		}, []string{"a", "b", "new"}, []string{"a", "b", "new"}},
		"parent synced only": {func(t *testing.T, c *memfs.FS) {
			mustOpen(t, c, "/data/new")
			require.NoError(t, c.SyncDir("/"))
		}, []string{"a", "b"}, []string{"a", "b", "new"}},
		"removed": {func(t *testing.T, c *memfs.FS) {
			require.NoError(t, c.Remove("/data/a"))
		}, []string{"a", "b"}, []string{"b"}},
		"removed and synced": {func(t *testing.T, c *memfs.FS) {
			require.NoError(t, c.RemoveAll("/data/a"))
			require.NoError(t, c.SyncDir("/data"))
		}, []string{"b"}, []string{"b"}},
		"renamed": {func(t *testing.T, c *memfs.FS) {
			require.NoError(t, c.Rename("/data/a", "/data/c"))
		}, []string{"a", "b"}, []string{"b", "c"}},
		"renamed over and synced": {func(t *testing.T, c *memfs.FS) {
			require.NoError(t, c.Rename("/data/a", "/data/b"))
			require.NoError(t, c.SyncDir("/data"))
		}, []string{"b"}, []string{"b"}},
		"created in a lost directory": {func(t *testing.T, c *memfs.FS) {
			require.NoError(t, c.MkdirAll("/data/d"))
			mustOpen(t, c, "/data/d/f")
			require.NoError(t, c.SyncDir("/data/d"))
		}, []string{"a", "b"}, []string{"a", "b", "d"}},
		"moved to another directory, synced there": {func(t *testing.T, c *memfs.FS) {
			require.NoError(t, vfs.EnsureDir(c, "/data/d"))
			mustOpen(t, c, "/data/new")
			require.NoError(t, c.Rename("/data/new", "/data/d/new"))
			require.NoError(t, c.SyncDir("/data/d"))
		}, []string{"a", "b", "d"}, []string{"a", "b", "d"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newFS(t, 1)
			durableFile(t, c, "/data/a", "A")
			durableFile(t, c, "/data/b", "B")
			test.do(t, c)
			for keep, want := range map[memfs.Keep][]string{memfs.KeepNone: test.wantNone, memfs.KeepAll: test.wantAll} {
				got, err := c.Crash(keep).List("/data")
				require.NoError(t, err)
				require.Equal(t, want, got, "keep %d", keep)
			}
		})
	}
}

// Over many outcomes of one crash everything allowed must occur, and nothing else.
func TestCrashRandomOutcomes(t *testing.T) {
	c := newFS(t, 7)
	f := durableFile(t, c, "/data/f", strings.Repeat("o", 2*page))
	mustWrite(t, f, strings.Repeat("n", 2*page), 0)
	mustWrite(t, f, "t", 2*page)
	durableFile(t, c, "/data/old", "moved")
	require.NoError(t, c.MkdirAll("/data/d"))
	require.NoError(t, c.SyncDir("/data"))
	require.NoError(t, c.Rename("/data/old", "/data/d/new"))

	contents, places := map[string]bool{}, map[string]bool{}
	for range 300 {
		after := c.Crash(memfs.KeepRandom)
		got := content(t, after, "/data/f")
		seen := ""
		for off := 0; off < len(got); off += page {
			part := got[off:min(off+page, len(got))]
			require.Equal(t, strings.Repeat(part[:1], len(part)), part, "a page is torn")
			seen += part[:1]
		}
		contents[seen] = true
		_, oldErr := after.Stat("/data/old")
		_, newErr := after.Stat("/data/d/new")
		require.NotEqual(t, oldErr == nil, newErr == nil, "a rename is atomic")
		if oldErr == nil {
			places["old"] = true
		} else {
			places["new"] = true
		}
	}
	want := map[string]bool{}
	for _, head := range []string{"oo", "on", "no", "nn"} {
		for _, tail := range []string{"", "\x00", "t"} {
			want[head+tail] = true
		}
	}
	require.Equal(t, want, contents)
	require.Equal(t, map[string]bool{"old": true, "new": true}, places)
}

func TestCrashIsReproducible(t *testing.T) {
	outcome := func() string {
		c := newFS(t, 99)
		f := durableFile(t, c, "/data/f", "")
		mustWrite(t, f, strings.Repeat("x", 64*page), 0)
		for _, name := range []string{"p", "q", "r", "s"} {
			mustOpen(t, c, "/data/"+name)
		}
		after := c.Crash(memfs.KeepRandom)
		names, err := after.List("/data")
		require.NoError(t, err)
		return strings.Join(names, " ") + content(t, after, "/data/f")
	}
	first := outcome()
	require.Equal(t, first, outcome())
}

func TestCrashKillsOldHandles(t *testing.T) {
	c := newFS(t, 1)
	f := durableFile(t, c, "/data/f", "content")
	lock, err := c.Lock("/data/lock")
	require.NoError(t, err)
	m, err := f.Map(0, 7, true)
	require.NoError(t, err)
	after := c.Crash(memfs.KeepAll)

	copy(m.Bytes(), "CONTENT") // allowed, but nobody sees it
	for name, call := range map[string]func() error{
		"ReadAt":   func() error { _, err := f.ReadAt(make([]byte, 1), 0); return err },
		"WriteAt":  func() error { _, err := f.WriteAt([]byte("x"), 0); return err },
		"Size":     func() error { _, err := f.Size(); return err },
		"Truncate": func() error { return f.Truncate(0) },
		"Sync":     f.Sync,
		"msync":    func() error { return m.Sync(0, 7) },
		"Map":      func() error { _, err := f.Map(0, 1, false); return err },
		"OpenFile": func() error { _, err := c.OpenFile("/data/f", os.O_RDWR, 0); return err },
		"List":     func() error { _, err := c.List("/data"); return err },
		"SyncDir":  func() error { return c.SyncDir("/data") },
		"Lock":     func() error { _, err := c.Lock("/data/lock"); return err },
	} {
		require.ErrorIs(t, call(), memfs.ErrCrashed, name)
	}
	require.NoError(t, f.Close())
	require.NoError(t, m.Close())
	require.NoError(t, lock.Close())
	require.Equal(t, "content", content(t, after, "/data/f"))
	lock, err = after.Lock("/data/lock")
	require.NoError(t, err, "a crash releases locks")
	require.NoError(t, lock.Close())
}

func TestCrashClock(t *testing.T) {
	c := newFS(t, 1)
	now := time.Unix(1000, 0)
	c.SetClock(func() time.Time { return now })
	durableFile(t, c, "/data/f", "x")
	now = time.Unix(2000, 0)
	info, err := c.Stat("/data/f")
	require.NoError(t, err)
	require.Equal(t, time.Unix(1000, 0), info.ModTime)
}

// A crash in the middle of traffic; the race detector watches.
func TestCrashConcurrent(t *testing.T) {
	c := newFS(t, 1)
	f := durableFile(t, c, "/data/f", strings.Repeat("x", 16*page))
	m, err := f.Map(0, 16*page, true)
	require.NoError(t, err)
	var wg sync.WaitGroup
	started := make(chan struct{}, 3)
	loop := func(step func() error) {
		wg.Go(func() {
			for i := 0; ; i++ {
				if err := step(); err != nil {
					if !errors.Is(err, memfs.ErrCrashed) {
						t.Error(err)
					}
					return
				}
				if i == 0 {
					started <- struct{}{}
				}
			}
		})
	}
	loop(func() error { _, err := f.WriteAt([]byte("write"), 100); return err })
	loop(func() error { copy(m.Bytes()[200:], "mapped"); return m.Sync(300, 1) })
	loop(f.SyncData)
	for range 3 {
		<-started
	}
	after := c.Crash(memfs.KeepRandom)
	wg.Wait()
	require.Len(t, content(t, after, "/data/f"), 16*page)
}

// WriteFileAtomic leaves the old or the new content whatever fails, and whenever the power goes.
func TestWriteFileAtomicUnderFaults(t *testing.T) {
	for _, op := range []vfstest.Op{
		vfstest.OpOpen, vfstest.OpWrite, vfstest.OpSync, vfstest.OpClose, vfstest.OpRename, vfstest.OpSyncDir,
	} {
		t.Run(op.String(), func(t *testing.T) {
			c := newFS(t, 1)
			faults := vfstest.NewFaults(c)
			require.NoError(t, vfs.WriteFileAtomic(faults, "/data/f", []byte("old")))
			faults.Fail(op, "", 1, syscall.EIO)
			require.ErrorIs(t, vfs.WriteFileAtomic(faults, "/data/f", []byte("new")), syscall.EIO)
			names, err := c.List("/data")
			require.NoError(t, err)
			require.Equal(t, []string{"f"}, names)
			want := "old"
			if op == vfstest.OpSyncDir { // the one step after the rename
				want = "new"
			}
			require.Equal(t, want, content(t, c, "/data/f"))
			require.NoError(t, vfs.WriteFileAtomic(faults, "/data/f", []byte("newer")))
			require.Equal(t, "newer", content(t, c.Crash(memfs.KeepNone), "/data/f"))
		})
	}
}

func TestWriteFileAtomicUnderCrashes(t *testing.T) {
	power := errors.New("power off")
	for step := 1; ; step++ {
		for _, keep := range []memfs.Keep{memfs.KeepNone, memfs.KeepRandom, memfs.KeepAll} {
			c := newFS(t, uint64(step))
			require.NoError(t, vfs.WriteFileAtomic(c, "/data/f", []byte("old content")))
			faults := vfstest.NewFaults(c)
			var after *memfs.FS
			left := step
			faults.SetHook(func(vfstest.Call) error {
				if left--; left == 0 {
					after = c.Crash(keep)
					return power
				}
				return nil
			})
			err := vfs.WriteFileAtomic(faults, "/data/f", []byte("new"))
			if after == nil {
				require.NoError(t, err)
				require.Greater(t, step, 5, "fewer steps than the protocol has")
				require.Equal(t, "new", content(t, c.Crash(keep), "/data/f"))
				return
			}
			require.ErrorIs(t, err, power)
			require.Contains(t, []string{"old content", "new"}, content(t, after, "/data/f"))
			require.NoError(t, vfs.WriteFileAtomic(after, "/data/f", []byte("next")))
			names, err := after.List("/data")
			require.NoError(t, err)
			require.Equal(t, []string{"f"}, names, "left-overs are taken over")
		}
	}
}

func TestEnsureDirSurvives(t *testing.T) {
	c := memfs.New(1)
	require.NoError(t, vfs.EnsureDir(c, "/a/b/c"))
	require.NoError(t, c.MkdirAll("/a/x/y"))
	c = c.Crash(memfs.KeepNone)
	info, err := c.Stat("/a/b/c")
	require.NoError(t, err)
	require.True(t, info.IsDir)
	_, err = c.Stat("/a/x")
	require.ErrorIs(t, err, fs.ErrNotExist)
}
