package packaging

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/internal/hosttest"
	"github.com/hardpointmq/hardpoint/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// root is the folder of the product's sources.
const root = "../.."

// nfpm is the pinned program that makes packages.
func nfpm(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(root, "bin", "tools", "nfpm-*"))
	require.NoError(t, err)
	if len(found) == 0 {
		hosttest.Missing(t, "no nfpm in bin/tools, which makes deb and rpm; make tools installs it")
	}
	path, err := filepath.Abs(found[len(found)-1])
	require.NoError(t, err)
	return path
}

// command runs a program in the folder of the sources and returns what it printed.
func command(t *testing.T, env []string, program string, args ...string) string {
	t.Helper()
	out, err := tryCommand(t, env, program, args...)
	require.NoError(t, err, "%s %v\n%s", program, args, out)
	return out
}

func tryCommand(t *testing.T, env []string, program string, args ...string) (string, error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), program, args...)
	c.Dir, c.Env = root, append(os.Environ(), env...)
	out, err := c.CombinedOutput()
	return string(out), err
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, name))
	require.NoError(t, err)
	return string(bytes.ReplaceAll(b, []byte("\r\n"), []byte("\n")))
}

// stopTakes is how long the stop of a process may take, without a drain (docs/operations.md).
const stopTakes = 70 * time.Second

// stopTime is stopTakes and the drain, which only brokers have.
func stopTime(t *testing.T, mode string) time.Duration {
	t.Helper()
	require.Contains(t, read(t, "docs/operations.md"), "The stop itself takes 70 s at most")
	l, err := config.Load(config.Options{Mode: modeOf(mode)})
	require.NoError(t, err)
	if mode != "broker" {
		return stopTakes
	}
	require.Positive(t, l.Config.Node.DrainTimeout)
	return stopTakes + l.Config.Node.DrainTimeout
}
