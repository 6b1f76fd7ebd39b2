package hosttest

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTmpfs(t *testing.T) {
	full(t, Tmpfs(t, "size=1m"))
}

// TestTmpfsInNamespace is the way of a user who may not mount, for every user.
func TestTmpfsInNamespace(t *testing.T) {
	dir, err := mountInNamespace(t, t.TempDir(), "size=1m")
	if err != nil {
		Refused(t, "no mount in a user namespace: %v", err)
	}
	full(t, dir)
	_, err = mountInNamespace(t, t.TempDir(), "size=nonsense")
	require.ErrorContains(t, err, "exit status")
	require.ErrorContains(t, err, "mount")
}

func full(t *testing.T, dir string) {
	t.Helper()
	name := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(name, make([]byte, 1<<20), 0o600))
	require.ErrorIs(t, os.WriteFile(name+"2", make([]byte, 1), 0o600), syscall.ENOSPC)
	require.NoError(t, os.Remove(name))
	require.NoError(t, os.WriteFile(name+"2", make([]byte, 1), 0o600))
}
