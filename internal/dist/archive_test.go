package main

import (
	"archive/zip"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestArchivesRepeat: of the same files come the same bytes, with the one time stamp,
// and Windows' form holds what the other one does (test/packaging looks into that).
func TestArchivesRepeat(t *testing.T) {
	files := []file{{"etc/a", 0o644, []byte("a")}, {"hardpoint.exe", 0o755, bytes.Repeat([]byte("b"), 1<<16)}}
	at := time.Unix(1764547200, 0).UTC()
	for name, pack := range map[string]func(string, []file, time.Time) ([]byte, error){"tar.gz": tarGz, "zip": zipped} {
		first, err := pack("dir", files, at)
		require.NoError(t, err)
		again, err := pack("dir", files, at)
		require.NoError(t, err)
		require.Equal(t, first, again, name)
	}
	b, err := zipped("dir", files, at)
	require.NoError(t, err)
	z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	require.NoError(t, err)
	require.Len(t, z.File, len(files))
	for i, f := range z.File {
		require.Equal(t, "dir/"+files[i].name, f.Name)
		require.Equal(t, files[i].mode, f.Mode())
		require.True(t, at.Equal(f.Modified), f.Modified)
		r, err := f.Open()
		require.NoError(t, err)
		content, err := io.ReadAll(r)
		require.NoError(t, err)
		require.Equal(t, files[i].content, content)
	}
}

// TestLicenceIsNeeded: what is released brings the licence of each part.
func TestLicenceIsNeeded(t *testing.T) {
	dir := t.TempDir()
	var text bytes.Buffer
	require.ErrorContains(t, licencesIn(&text, "example.com/m v1.0.0", dir), "no licence of example.com/m v1.0.0")
	for _, name := range []string{"LICENSE-MIT", "UNLICENSE", "NOTICE", "licenses.go"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("text of "+name), 0o600))
	}
	require.NoError(t, licencesIn(&text, "example.com/m v1.0.0", dir))
	for _, name := range []string{"LICENSE-MIT", "UNLICENSE", "NOTICE"} {
		require.Contains(t, text.String(), "text of "+name)
	}
	require.NotContains(t, text.String(), "licenses.go")
}
