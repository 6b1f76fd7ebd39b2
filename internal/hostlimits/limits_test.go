package hostlimits_test

import (
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/internal/hostlimits"
)

func TestRead(t *testing.T) {
	before := hostlimits.Read()
	if runtime.GOOS != "linux" {
		require.Equal(t, hostlimits.Limits{OpenFiles: -1, OpenFilesMax: -1, MemoryMaps: -1, MemoryMapsMax: -1}, before)
		return
	}
	require.Positive(t, before.MemoryMaps)
	require.Greater(t, before.MemoryMapsMax, before.MemoryMaps)
	require.GreaterOrEqual(t, before.OpenFilesMax, before.OpenFiles)
	var open []*os.File
	for range 10 {
		f, err := os.Open(os.DevNull)
		require.NoError(t, err)
		open = append(open, f)
	}
	require.GreaterOrEqual(t, hostlimits.Read().OpenFiles, int64(10))
	for _, f := range open {
		require.NoError(t, f.Close())
	}
}
