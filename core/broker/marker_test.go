package broker

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
)

func TestDirectoryBelongsToOneStore(t *testing.T) {
	fsys := memfs.New(1)
	require.NoError(t, claim(fsys, "store", "pebble"))
	require.NoError(t, claim(fsys, "store", "pebble"))
	after := fsys.Crash(memfs.KeepNone)
	err := claim(after, "store", "commitlog")
	require.ErrorIs(t, err, ErrOtherStore)
	require.ErrorContains(t, err, "storage=pebble")
}

func TestDirectoryOfRocketMQIsCommitlogs(t *testing.T) {
	fsys := memfs.New(1)
	require.NoError(t, vfs.EnsureDir(fsys, filepath.Join("store", "commitlog")))
	require.ErrorIs(t, claim(fsys, "store", "memory"), ErrOtherStore)
	require.NoError(t, claim(fsys, "store", "commitlog"))
	b, err := vfs.ReadFile(fsys, filepath.Join("store", markerName))
	require.NoError(t, err)
	require.Equal(t, "commitlog\n", string(b))
}
