// Package tartest unpacks archives for tests.
package tartest

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Unpack writes the files of a compressed archive below dir, each under the name that
// place gives for the one in the archive (with slashes); empty: it is left out. A nil
// place leaves all as they are.
func Unpack(t testing.TB, archive, dir string, place func(name string) string) {
	t.Helper()
	f, err := os.Open(archive)
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		name := h.Name
		if place != nil {
			name = place(name)
		}
		if name == "" || h.Typeflag == tar.TypeDir {
			continue
		}
		require.True(t, filepath.IsLocal(name), name)
		path := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		w, err := os.Create(path)
		require.NoError(t, err)
		_, err = io.Copy(w, r)
		require.NoError(t, errors.Join(err, w.Close()))
	}
}
