// Package apachetest unpacks, for tests of either module, the stores that Apache's
// brokers wrote: plugins/storage/commitlog/testdata/apache, whose README says how.
package apachetest

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Unpack extracts what is below the one folder of an archive into dir.
func Unpack(t testing.TB, archive, dir string) {
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
		_, rest, ok := strings.Cut(h.Name, "/")
		if !ok || h.Typeflag == tar.TypeDir || strings.HasPrefix(rest, "timer") { // timers are none of ours, and large
			continue
		}
		path := filepath.Join(dir, filepath.FromSlash(rest))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		w, err := os.Create(path)
		require.NoError(t, err)
		_, err = io.Copy(w, r)
		require.NoError(t, errors.Join(err, w.Close()))
	}
}
