package vfstest_test

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
	"github.com/hardpointmq/hardpoint/core/vfs/vfstest"
)

func mustOpen(t require.TestingT, fsys vfs.FS, name string) vfs.File {
	f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	require.NoError(t, err)
	return f
}

func mustWrite(t require.TestingT, f vfs.File, data string, off int64) {
	_, err := f.WriteAt([]byte(data), off)
	require.NoError(t, err)
}

func content(t require.TestingT, fsys vfs.FS, name string) string {
	data, err := vfs.ReadFile(fsys, name)
	require.NoError(t, err)
	return string(data)
}

func newFaults(t *testing.T) (*vfstest.Faults, *memfs.FS) {
	t.Helper()
	c := memfs.New(1)
	require.NoError(t, vfs.EnsureDir(c, "/data"))
	return vfstest.NewFaults(c), c
}

// Every operation can be made to fail, is named in the error and counted.
func TestFaultsEveryOp(t *testing.T) {
	faults, _ := newFaults(t)
	f := mustOpen(t, faults, "/data/f")
	mustWrite(t, f, strings.Repeat("x", 100), 0)
	m, err := f.Map(0, 10, true)
	require.NoError(t, err)
	buf := make([]byte, 10)
	for op, call := range map[vfstest.Op]func() error{
		vfstest.OpOpen:      func() error { _, err := faults.OpenFile("/data/g", os.O_CREATE|os.O_RDWR, 0o644); return err },
		vfstest.OpRemove:    func() error { return faults.Remove("/data/f") },
		vfstest.OpRemoveAll: func() error { return faults.RemoveAll("/data/f") },
		vfstest.OpRename:    func() error { return faults.Rename("/data/f", "/data/g") },
		vfstest.OpMkdir:     func() error { return faults.MkdirAll("/data/d") },
		vfstest.OpList:      func() error { _, err := faults.List("/data"); return err },
		vfstest.OpStat:      func() error { _, err := faults.Stat("/data/f"); return err },
		vfstest.OpSyncDir:   func() error { return faults.SyncDir("/data") },
		vfstest.OpUsage:     func() error { _, err := faults.Usage("/data"); return err },
		vfstest.OpLock:      func() error { _, err := faults.Lock("/data/lock"); return err },
		vfstest.OpRead:      func() error { _, err := f.ReadAt(buf, 0); return err },
		vfstest.OpWrite:     func() error { _, err := f.WriteAt(buf, 0); return err },
		vfstest.OpSize:      func() error { _, err := f.Size(); return err },
		vfstest.OpTruncate:  func() error { return f.Truncate(0) },
		vfstest.OpReserve:   func() error { return f.Reserve(0, 1000) },
		vfstest.OpSync:      f.Sync,
		vfstest.OpSyncData:  f.SyncData,
		vfstest.OpZero:      func() error { return f.ZeroRange(0, 10) },
		vfstest.OpMap:       func() error { _, err := f.Map(0, 10, false); return err },
		vfstest.OpMapSync:   func() error { return m.Sync(0, 10) },
		vfstest.OpAdvise:    func() error { return m.Advise(0, 10, vfs.AdviceRandom) },
		vfstest.OpResident:  func() error { _, err := m.Resident(0, 10); return err },
		vfstest.OpMemLock:   func() error { return m.Lock(0, 10) },
		vfstest.OpUnmap:     m.Close,
		vfstest.OpClose:     f.Close,
	} {
		before := faults.Count(op)
		faults.Fail(op, "", 1, syscall.EIO)
		err := call()
		require.ErrorIs(t, err, syscall.EIO, op)
		require.ErrorContains(t, err, "/data")
		require.Equal(t, before+1, faults.Count(op), op)
		require.NotContains(t, op.String(), "Op(")
		faults.Clear()
	}
	names, err := faults.List("/data")
	require.NoError(t, err)
	require.Equal(t, []string{"f"}, names, "failed operations did nothing")
	require.Equal(t, strings.Repeat("x", 100), content(t, faults, "/data/f"))
	require.NoError(t, m.Close())
	require.NoError(t, f.Close())
}

func TestFaultsRules(t *testing.T) {
	boom := errors.New("boom")
	for name, test := range map[string]struct {
		rule vfstest.Rule
		file string
		want []bool // which of the calls fail
	}{
		"first":             {vfstest.Rule{For: 1}, "/data/f", []bool{true, false, false}},
		"third":             {vfstest.Rule{Nth: 3, For: 1}, "/data/f", []bool{false, false, true, false}},
		"two from second":   {vfstest.Rule{Nth: 2, For: 2}, "/data/f", []bool{false, true, true, false}},
		"for good":          {vfstest.Rule{Nth: 2}, "/data/f", []bool{false, true, true, true}},
		"other file":        {vfstest.Rule{Path: "/data/g"}, "/data/f", []bool{false, false}},
		"pattern":           {vfstest.Rule{Path: "/data/*"}, "/data/f", []bool{true}},
		"any directory":     {vfstest.Rule{Path: "*/f"}, "/data/f", []bool{true}},
		"any, two levels":   {vfstest.Rule{Path: "*/data/?"}, "/data/f", []bool{true}},
		"no directory":      {vfstest.Rule{Path: "f"}, "/data/f", []bool{false}},
		"star stays in dir": {vfstest.Rule{Path: "/*"}, "/data/f", []bool{false}},
	} {
		t.Run(name, func(t *testing.T) {
			faults, _ := newFaults(t)
			f := mustOpen(t, faults, test.file)
			test.rule.Op, test.rule.Err = vfstest.OpSync, boom
			faults.Add(test.rule)
			var got []bool
			for range test.want {
				got = append(got, errors.Is(f.Sync(), boom))
			}
			require.Equal(t, test.want, got)
		})
	}
}

func TestFaultsRenameMatchesBothNames(t *testing.T) {
	faults, _ := newFaults(t)
	mustOpen(t, faults, "/data/a")
	faults.Add(vfstest.Rule{Op: vfstest.OpRename, Path: "*/b"})
	require.ErrorIs(t, faults.Rename("/data/a", "/data/b"), vfstest.ErrInjected)
	require.NoError(t, faults.Rename("/data/a", "/data/c"))
}

func TestFaultsShortWrite(t *testing.T) {
	faults, _ := newFaults(t)
	f := mustOpen(t, faults, "/data/f")
	faults.Add(vfstest.Rule{Op: vfstest.OpWrite, Short: 3, For: 1, Err: syscall.EIO})
	n, err := f.WriteAt([]byte("hello"), 0)
	require.ErrorIs(t, err, syscall.EIO)
	require.Equal(t, 3, n)
	require.Equal(t, "hel", content(t, faults, "/data/f"))
}

func TestFaultsAfter(t *testing.T) {
	faults, c := newFaults(t)
	f := mustOpen(t, faults, "/data/f")
	require.NoError(t, c.SyncDir("/data"))
	faults.Add(vfstest.Rule{Op: vfstest.OpSync, After: true, For: 1})
	mustWrite(t, f, "done", 0)
	require.ErrorIs(t, f.Sync(), vfstest.ErrInjected)

	faults.Add(vfstest.Rule{Op: vfstest.OpOpen, After: true, For: 1})
	g, err := faults.OpenFile("/data/g", os.O_CREATE|os.O_RDWR, 0o644)
	require.ErrorIs(t, err, vfstest.ErrInjected)
	require.Nil(t, g)
	_, err = c.Stat("/data/g")
	require.NoError(t, err, "the file was created")
	require.Equal(t, "done", content(t, c.Crash(memfs.KeepNone), "/data/f"))
}

// A hook may hang in one operation while others go on.
func TestFaultsHook(t *testing.T) {
	faults, _ := newFaults(t)
	f := mustOpen(t, faults, "/data/f")
	entered, release, done := make(chan vfstest.Call), make(chan struct{}), make(chan error)
	faults.SetHook(func(c vfstest.Call) error {
		if c.Op == vfstest.OpSync {
			entered <- c
			<-release
		}
		return nil
	})
	go func() { done <- f.Sync() }()
	require.Equal(t, vfstest.Call{Op: vfstest.OpSync, Name: "/data/f"}, <-entered)
	mustWrite(t, f, "goes on", 0)
	close(release)
	require.NoError(t, <-done)
	faults.SetHook(nil)
	require.NoError(t, f.Sync())
}

func TestFaultsThrottle(t *testing.T) {
	faults, _ := newFaults(t)
	f := mustOpen(t, faults, "/data/f")
	moved := map[vfstest.Op]int64{}
	faults.SetThrottle(func(op vfstest.Op, n int64) { moved[op] += n })
	mustWrite(t, f, "12345", 0)
	mustWrite(t, f, "678", 5)
	_, err := f.ReadAt(make([]byte, 4), 0)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	faults.SetThrottle(nil)
	mustWrite(t, f, "9", 8)
	require.Equal(t, map[vfstest.Op]int64{vfstest.OpWrite: 8, vfstest.OpRead: 4}, moved)
}

func TestFaultsFullDisk(t *testing.T) {
	faults, c := newFaults(t)
	before := mustOpen(t, c, "/data/before")
	mustWrite(t, before, strings.Repeat("b", 500), 0)
	require.Equal(t, int64(-1), faults.Free())
	faults.SetFree(1000)
	faults.SetTotal(10_000)

	f := mustOpen(t, faults, "/data/f")
	require.NoError(t, f.Reserve(0, 600))
	require.NoError(t, f.Reserve(0, 600), "already there")
	mustWrite(t, f, strings.Repeat("f", 600), 0)
	require.Equal(t, int64(400), faults.Free())
	u, err := faults.Usage("/data")
	require.NoError(t, err)
	require.Equal(t, uint64(400), u.Available)
	require.Equal(t, 96, u.UsedPercent())

	require.ErrorIs(t, f.Reserve(600, 500), vfs.ErrNoSpace)
	size, err := f.Size()
	require.NoError(t, err)
	require.Equal(t, int64(600), size)
	n, err := f.WriteAt([]byte(strings.Repeat("w", 500)), 600)
	require.ErrorIs(t, err, vfs.ErrNoSpace)
	require.Equal(t, 400, n, "what fits is written")
	require.Zero(t, faults.Free())
	mustWrite(t, f, "overwriting is free", 0)

	require.NoError(t, f.Truncate(900))
	require.Equal(t, int64(100), faults.Free())
	require.NoError(t, faults.Remove("/data/before"))
	require.Equal(t, int64(600), faults.Free(), "a file from before gives its space back")

	g := mustOpen(t, faults, "/data/g")
	mustWrite(t, g, strings.Repeat("g", 200), 0)
	require.NoError(t, faults.Rename("/data/g", "/data/f"))
	require.Equal(t, int64(400+900), faults.Free(), "a replaced file gives its space back")
	mustOpen(t, faults, "/data/f")
	_, err = faults.OpenFile("/data/f", os.O_RDWR|os.O_TRUNC, 0)
	require.NoError(t, err)
	require.Equal(t, int64(1500), faults.Free())
	h := mustOpen(t, faults, "/data/h")
	mustWrite(t, h, "12345", 0)
	require.NoError(t, faults.RemoveAll("/data"))
	require.Equal(t, int64(1500), faults.Free())
	_, err = faults.Usage("/data")
	require.ErrorIs(t, err, fs.ErrNotExist)
	faults.SetFree(-1)
	require.Equal(t, int64(-1), faults.Free())
}
