package commitlog

import (
	"io/fs"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
	"github.com/hardpointmq/hardpoint/core/vfs/vfstest"
)

// TestMayNotWrite: stores are read without their lock where nobody can take it. Package
// io/fs does not count a read-only file system among what is not permitted.
func TestMayNotWrite(t *testing.T) {
	failed := func(err error) error { return &fs.PathError{Op: "open", Path: "lock", Err: err} }
	require.True(t, mayNotWrite(failed(syscall.EROFS)))
	require.True(t, mayNotWrite(failed(syscall.EACCES)))
	for _, err := range []error{nil, failed(syscall.ENOENT), failed(syscall.EIO), failed(vfs.ErrLocked), failed(vfs.ErrNoSpace)} {
		require.False(t, mayNotWrite(err), "%v", err)
	}
}

// TestRepairLooksWithoutLock: a repair that only looks needs nothing that may be written.
func TestRepairLooksWithoutLock(t *testing.T) {
	for _, fault := range []error{syscall.EROFS, syscall.EACCES} {
		fsys := memfs.New(1)
		require.NoError(t, vfs.EnsureDir(fsys, filepath.Join("store", "commitlog")))
		faults := vfstest.NewFaults(fsys)
		look := func(how Repairing) error {
			how.Now = time.Unix(0, 0)
			_, err := Repair(t.Context(), Examination{FS: faults, Dir: "store", Config: NewDefaultConfig()}, how)
			return err
		}
		require.NoError(t, look(Repairing{DryRun: true}))
		_, err := fsys.Stat(filepath.Join("store", "lock"))
		require.ErrorIs(t, err, fs.ErrNotExist, "no lock is made")
		require.NoError(t, vfs.WriteFileAtomic(fsys, filepath.Join("store", "lock"), []byte("lock")))
		faults.Fail(vfstest.OpLock, "", 1, fault)
		require.NoError(t, look(Repairing{DryRun: true}))
		faults.Fail(vfstest.OpLock, "", 1, fault)
		require.ErrorIs(t, look(Repairing{}), fault)
	}
}
