package vfs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/core/vfs/vfstest"
	"github.com/hardpointmq/hardpoint/internal/hosttest"
)

func openNew(t *testing.T, name string) vfs.File {
	t.Helper()
	f, err := vfs.OS{}.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() }) // nothing is kept in it
	return f
}

func allocated(t *testing.T, name string) int64 {
	t.Helper()
	info, err := vfs.OS{}.Stat(name)
	require.NoError(t, err)
	return info.Allocated
}

func skipCopyOnWrite(t *testing.T, dir string) {
	t.Helper()
	u, err := vfs.OS{}.Usage(dir)
	require.NoError(t, err)
	if u.CopyOnWrite {
		hosttest.Refused(t, "%s does not reserve", u.Type)
	}
}

func TestReserveAllocatesBlocks(t *testing.T) {
	skipCopyOnWrite(t, t.TempDir())
	name := filepath.Join(t.TempDir(), "f")
	f := openNew(t, name)
	const size = 4 << 20
	require.NoError(t, f.Truncate(size))
	require.Less(t, allocated(t, name), int64(size), "Truncate makes a hole")
	require.NoError(t, f.Reserve(0, size))
	require.GreaterOrEqual(t, allocated(t, name), int64(size))
	require.NoError(t, f.ZeroRange(4096, size/2))
	require.GreaterOrEqual(t, allocated(t, name), int64(size), "ZeroRange keeps the space")
}

func TestNoSpace(t *testing.T) {
	dir := hosttest.Tmpfs(t, "size=1m")
	u, err := vfs.OS{}.Usage(dir)
	require.NoError(t, err)
	require.Equal(t, vfs.Usage{Total: 1 << 20, Free: 1 << 20, Available: 1 << 20, Type: "tmpfs"}, u)

	f := openNew(t, filepath.Join(dir, "f"))
	err = f.Reserve(0, 2<<20)
	require.ErrorIs(t, err, vfs.ErrNoSpace)
	require.ErrorIs(t, err, unix.ENOSPC)
	require.ErrorContains(t, err, filepath.Join(dir, "f"))
	require.NoError(t, f.Reserve(0, 1<<20))
	u, err = vfs.OS{}.Usage(dir)
	require.NoError(t, err)
	require.Equal(t, 100, u.UsedPercent())

	g := openNew(t, filepath.Join(dir, "g"))
	_, err = g.WriteAt([]byte("x"), 0)
	require.ErrorIs(t, err, vfs.ErrNoSpace)
	require.ErrorIs(t, vfs.WriteFileAtomic(vfs.OS{}, filepath.Join(dir, "h"), []byte("x")), vfs.ErrNoSpace)
	names, err := vfs.OS{}.List(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"f", "g"}, names, "no temporary file is left")

	// A hole on the full disk: populating reports what a write through the mapping would be killed for.
	require.NoError(t, g.Truncate(8192))
	m, err := g.Map(0, 8192, true)
	require.NoError(t, err)
	if kernelPopulates(t) {
		require.Error(t, m.Advise(0, 8192, vfs.AdvicePopulateWrite))
	}
	require.NoError(t, m.Close())

	// Reserved space can be written, mapped or not.
	m, err = f.Map(0, 1<<20, true)
	require.NoError(t, err)
	require.NoError(t, m.Advise(0, 1<<20, vfs.AdvicePopulateWrite))
	copy(m.Bytes()[1<<20-4:], "last")
	require.NoError(t, m.Sync(0, 1<<20))
	require.NoError(t, m.Close())
}

// kernelPopulates reports whether the kernel knows MADV_POPULATE_WRITE (5.14).
func kernelPopulates(t *testing.T) bool {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(mem)) }()
	return unix.Madvise(mem, unix.MADV_POPULATE_WRITE) == nil
}

func TestOSOnTmpfs(t *testing.T) {
	dir := hosttest.Tmpfs(t, "size=64m")
	vfstest.Run(t, vfstest.Harness{New: func(t *testing.T) (vfs.FS, string) {
		sub := filepath.Join(dir, strings.ReplaceAll(t.Name(), "/", "-"))
		require.NoError(t, vfs.OS{}.MkdirAll(sub))
		return vfs.OS{}, sub
	}})
}

func TestResident(t *testing.T) {
	page := int64(os.Getpagesize())
	f := openNew(t, filepath.Join(t.TempDir(), "f"))
	size := 2000 * page // more than one vector of mincore
	require.NoError(t, f.Truncate(size))
	m, err := f.Map(0, size, true)
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Close()) }()
	n, err := m.Resident(0, size)
	require.NoError(t, err)
	require.Zero(t, n, "nothing of a new hole is in memory")

	// Written by pwrite: a page fault would bring neighbours in.
	_, err = f.WriteAt(make([]byte, 10*page), 1500*page)
	require.NoError(t, err)
	for _, test := range []struct{ off, n, want int64 }{
		{0, size, 10 * page},
		{1500 * page, 10 * page, 10 * page},
		{1500*page + 5, 100, 100}, // inside a page
		{1500*page - 7, 10, 3},    // over the edge
		{1510*page - 3, 10, 3},
		{1400 * page, page, 0},
	} {
		n, err := m.Resident(test.off, test.n)
		require.NoError(t, err)
		require.Equal(t, test.want, n, "%d bytes at %d", test.n, test.off)
	}
}

// An unaligned mapping must ask about its own pages.
func TestResidentUnaligned(t *testing.T) {
	page := int64(os.Getpagesize())
	f := openNew(t, filepath.Join(t.TempDir(), "f"))
	require.NoError(t, f.Truncate(100*page))
	m, err := f.Map(10*page+100, 50*page, true)
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Close()) }()
	_, err = f.WriteAt(make([]byte, page), 11*page)
	require.NoError(t, err)
	n, err := m.Resident(0, 50*page)
	require.NoError(t, err)
	require.Equal(t, page, n)
	n, err = m.Resident(page-100-1, 2) // last byte of page 10, first of page 11
	require.NoError(t, err)
	require.Equal(t, int64(1), n)
}

// The lock is a POSIX record lock on byte 0, which other programs see and which flock(2) would not be.
func TestLockIsPOSIX(t *testing.T) {
	python := hosttest.Program(t, "python3", "which looks from outside")
	name := filepath.Join(t.TempDir(), "lock")
	l, err := vfs.OS{}.Lock(name)
	require.NoError(t, err)
	try := func(length, start string) error {
		script := "import fcntl,sys\nf=open(sys.argv[1],'r+')\nfcntl.lockf(f,fcntl.LOCK_EX|fcntl.LOCK_NB," + length + "," + start + ")"
		return exec.Command(python, "-c", script, name).Run()
	}
	require.Error(t, try("1", "0"))
	require.NoError(t, try("1", "1"), "only byte 0 is locked")
	require.NoError(t, l.Close())
	require.NoError(t, try("1", "0"))
}
