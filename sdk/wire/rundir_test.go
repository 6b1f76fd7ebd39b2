package wire

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/vfs"
)

// shortTemp is a temporary directory whose path leaves room for a socket's.
func shortTemp(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "t")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	t.Setenv("TMPDIR", dir)
	return dir
}

func names(t *testing.T, dir string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestSocketDirs(t *testing.T) {
	tmp := shortTemp(t)
	var all runDirs
	a, removeA, err := all.make()
	require.NoError(t, err)
	b, removeB, err := all.make()
	require.NoError(t, err)
	require.NotEqual(t, a, b)
	require.Equal(t, filepath.Dir(a), filepath.Dir(b))
	for _, dir := range []string{a, filepath.Dir(a)} {
		info, err := os.Stat(dir)
		require.NoError(t, err)
		require.Equal(t, os.ModeDir|0o700, info.Mode())
	}
	require.NoError(t, os.WriteFile(filepath.Join(a, "socket"), nil, 0o600))
	removeA()
	removeA()
	require.NoDirExists(t, a)
	require.DirExists(t, b)
	removeB()
	require.Empty(t, names(t, tmp), "the run directory ends with the last directory in it")

	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				_, remove, err := all.make()
				if err != nil {
					t.Error(err)
					return
				}
				remove()
			}
		})
	}
	wg.Wait()
	require.Empty(t, names(t, tmp))
}

// TestDeadHosts: what they left behind goes, what lives or is somebody else's stays.
func TestDeadHosts(t *testing.T) {
	tmp := shortTemp(t)
	mk := func(name string, lock bool) string {
		dir := filepath.Join(tmp, name)
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "1"), 0o700))
		if lock {
			require.NoError(t, os.WriteFile(filepath.Join(dir, runLock), nil, 0o600))
		}
		return dir
	}
	mk("hardpoint-dead", true)
	living := mk("hardpoint-alive", true)
	lock, err := vfs.OS{}.Lock(filepath.Join(living, runLock))
	require.NoError(t, err)
	defer lock.Close()
	mk("hardpoint-other", false)
	mk(".hardpoint-fresh", true)
	for _, old := range []string{".hardpoint-empty", ".hardpoint-locked", ".hardpoint-data"} {
		dir := filepath.Join(tmp, old)
		require.NoError(t, os.Mkdir(dir, 0o700))
		switch old {
		case ".hardpoint-locked":
			require.NoError(t, os.WriteFile(filepath.Join(dir, runLock), nil, 0o600))
		case ".hardpoint-data": // of a broker: its directory is changed when it is made, and then no more
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "store", "commitlog"), 0o700))
		}
		require.NoError(t, os.Chtimes(dir, time.Time{}, time.Now().Add(-2*abandoned)))
	}
	for _, store := range []string{"hardpoint-store", "hardpoint-mixed"} { // data that somebody called so
		dir := filepath.Join(tmp, store)
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "commitlog"), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "lock"), nil, 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(tmp, "hardpoint-mixed", runLock), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(tmp, "hardpoint-file"), nil, 0o600))

	var all runDirs
	dir, remove, err := all.make()
	require.NoError(t, err)
	require.Equal(t, []string{
		".hardpoint-data", ".hardpoint-fresh", "hardpoint-alive", "hardpoint-file", "hardpoint-mixed", "hardpoint-other", "hardpoint-store",
	}, without(names(t, tmp), filepath.Base(filepath.Dir(dir))))
	remove()
}

func without(list []string, name string) (out []string) {
	for _, one := range list {
		if one != name {
			out = append(out, one)
		}
	}
	return out
}

func TestSocketPathTooLong(t *testing.T) {
	var all runDirs
	tmp := filepath.Join(t.TempDir(), "a_directory_whose_path_alone_is_longer_than_that_of_a_socket_may_be_anywhere")
	require.NoError(t, os.MkdirAll(tmp, 0o700))
	t.Setenv("TMPDIR", tmp)
	_, _, err := all.make()
	require.ErrorContains(t, err, "set TMPDIR to a shorter one")
	t.Setenv("TMPDIR", "a|b")
	_, _, err = all.make()
	require.ErrorContains(t, err, "set TMPDIR to another one")
}
