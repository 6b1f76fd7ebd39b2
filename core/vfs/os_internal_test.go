package vfs

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The slow ways are taken on file systems without a call for it, which a test machine rarely has.
func TestReserveByWriting(t *testing.T) {
	for name, test := range map[string]struct {
		length, data  int64 // of the file; data bytes at its end, a hole before
		off, size     int64
		wantSize      int64
		wantAllocated bool
	}{
		"empty file":     {0, 0, 0, 200_000, 200_000, true},
		"beyond the end": {0, 0, 100_000, 5, 100_005, false},
		"fill the hole":  {1 << 20, 10, 0, 1 << 20, 1 << 20, true},
		"hole and more":  {1 << 20, 10, 0, 1<<20 + 77, 1<<20 + 77, true},
		"inside":         {1 << 20, 10, 5, 100, 1 << 20, false},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f")
			f, err := openOS(path, os.O_RDWR|os.O_CREATE, 0o644)
			require.NoError(t, err)
			defer f.Close()
			require.NoError(t, f.Truncate(test.length))
			want := make([]byte, test.wantSize)
			if test.data > 0 {
				data := bytes.Repeat([]byte{7}, int(test.data))
				_, err = f.WriteAt(data, test.length-test.data)
				require.NoError(t, err)
				copy(want[test.length-test.data:], data)
			}
			require.NoError(t, f.reserveByWriting(test.off, test.size))
			got, err := ReadFile(OS{}, path)
			require.NoError(t, err)
			require.True(t, bytes.Equal(want, got), "content changed; %d bytes, want %d", len(got), len(want))
			info, err := OS{}.Stat(path)
			require.NoError(t, err)
			if test.wantAllocated && info.Allocated >= 0 {
				require.GreaterOrEqual(t, info.Allocated, test.wantSize)
			}
		})
	}
}

func TestWriteZeros(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	f, err := openOS(path, os.O_RDWR|os.O_CREATE, 0o644)
	require.NoError(t, err)
	defer f.Close()
	want := bytes.Repeat([]byte{7}, 3*zeroChunk)
	_, err = f.WriteAt(want, 0)
	require.NoError(t, err)
	require.NoError(t, f.writeZeros(5, zeroChunk+100))
	clear(want[5 : 5+zeroChunk+100])
	got, err := ReadFile(OS{}, path)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got))
}
