package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) } // the properties library lexes in a goroutine

// write puts text into a file of the test's directory and returns its path.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// loadText loads a file with this name and text.
func loadText(t *testing.T, mode Mode, name, text string) (*Loaded, error) {
	t.Helper()
	return Load(Options{Mode: mode, File: write(t, name, text), Hostname: "host1"})
}

func parseFlags(t *testing.T, args ...string) *pflag.FlagSet {
	t.Helper()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	RegisterFlags(fs)
	require.NoError(t, fs.Parse(args))
	return fs
}

// faults are the errors of a failed load.
func faults(t *testing.T, err error) []*Error {
	t.Helper()
	var all *Errors
	require.ErrorAs(t, err, &all)
	require.NotEmpty(t, all.List)
	return all.List
}

// fault is the only error of a failed load.
func fault(t *testing.T, err error) *Error {
	t.Helper()
	list := faults(t, err)
	require.Len(t, list, 1, "%v", err)
	return list[0]
}

func warned(l *Loaded, key string) bool {
	for _, w := range l.Warnings {
		if w.Key == key {
			return true
		}
	}
	return false
}
