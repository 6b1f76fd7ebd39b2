package config

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write docs/configuration.md")

// The committed page is what the key table says.
func TestGeneratedReferenceIsFresh(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "configuration.md")
	var b bytes.Buffer
	require.NoError(t, WriteReference(&b))
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, b.Bytes(), 0o644))
	}
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, b.String(), strings.ReplaceAll(string(got), "\r\n", "\n"), "run: go test ./core/config -run Reference -update")
	for _, k := range Keys() {
		require.Contains(t, b.String(), "| `"+k.Name+"`", k.Name)
	}
}
