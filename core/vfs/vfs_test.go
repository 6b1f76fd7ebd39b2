package vfs_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/vfs"
)

func TestUsedPercent(t *testing.T) {
	for name, test := range map[string]struct {
		usage vfs.Usage
		want  int
	}{
		"empty value":             {vfs.Usage{}, 0},
		"nothing used":            {vfs.Usage{Total: 100, Free: 100, Available: 100}, 0},
		"full":                    {vfs.Usage{Total: 100}, 100},
		"exact":                   {vfs.Usage{Total: 100, Free: 15, Available: 15}, 85},
		"rounded up":              {vfs.Usage{Total: 100_000, Free: 14_999, Available: 14_999}, 86},
		"one byte":                {vfs.Usage{Total: 1 << 50, Free: 1<<50 - 1, Available: 1<<50 - 1}, 1},
		"root's share left out":   {vfs.Usage{Total: 100, Free: 50, Available: 25}, 67}, // 50/75
		"root's share only":       {vfs.Usage{Total: 100, Free: 5, Available: 0}, 100},
		"near the end of uint64":  {vfs.Usage{Total: 1 << 63, Free: 1 << 62, Available: 1 << 62}, 50},
		"free above total":        {vfs.Usage{Total: 10, Free: 20, Available: 20}, 0},
		"more available than all": {vfs.Usage{Total: 0, Free: 0, Available: 20}, 0},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, test.want, test.usage.UsedPercent()) })
	}
}

// TestWriteFileAtomicOntoDirectory: what stands in a file's place is named, and the way out.
func TestWriteFileAtomicOntoDirectory(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "f")
	require.NoError(t, os.Mkdir(name, 0o755))
	err := vfs.WriteFileAtomic(vfs.OS{}, name, []byte("new"))
	require.ErrorContains(t, err, "write "+name+": it is a directory, where a file belongs; move it away")
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, names, 1, "no temporary file is left")
}
