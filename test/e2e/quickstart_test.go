package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/test/harness"
)

// TestQuickstart runs the program of docs/quickstart.md as a reader does.
func TestQuickstart(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/quickstart.md")
	require.NoError(t, err)
	m := regexp.MustCompile("(?ms)^```go\\n(package main.*?)^```$").FindSubmatch(page)
	require.NotNil(t, m, "the page has no program")
	const address = "127.0.0.1:9876"
	require.Contains(t, string(m[1]), address)

	n := harness.New(t, harness.Options{Race: true})
	main := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(main, []byte(strings.ReplaceAll(string(m[1]), address, n.Namesrv)), 0o644))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // it is built first
	defer cancel()
	out, err := exec.CommandContext(ctx, "go", "run", main).CombinedOutput()
	require.NoError(t, err, string(out))
	require.Regexp(t, "(?m)^sent [0-9A-Fa-f]+ to queue [0-9]$", string(out))
	require.Regexp(t, "(?m)^received hello$", string(out))
}
