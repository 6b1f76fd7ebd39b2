// Package python tests the Python package and the examples written with it, as
// processes.
package python

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/allocate/allocatetest"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
	"github.com/hardpointmq/hardpoint/internal/hosttest"
	"github.com/hardpointmq/hardpoint/sdk/external"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// program runs a file of Python as a plugin.
func program(tb testing.TB, path string) external.Command {
	tb.Helper()
	wd, err := os.Getwd()
	require.NoError(tb, err)
	return external.Command{
		Path: hosttest.Python(tb, "grpc", "google.protobuf"), Args: []string{filepath.Join(wd, filepath.FromSlash(path))},
		Env: []string{"PYTHONPATH=" + wd, "PYTHONDONTWRITEBYTECODE=1"},
	}
}

const (
	allocator = "../../examples/python-allocator/allocator.py"
	store     = "../../examples/python-store/store.py"
)

// TestConformance runs the suites on the examples, without an opt-out.
func TestConformance(t *testing.T) {
	allocatetest.Run(t, allocatetest.Harness{Factory: external.Allocate("dealt", program(t, allocator), external.Options{}), Form: "process"})
	f := external.Storage("sqlite", program(t, store), external.Options{})
	opened(t, f, t.TempDir(), storage.Events{}) // keeps the process: starting Python takes longer than a case
	storagetest.Run(t, storagetest.Harness{Factory: f, Form: storagetest.Process})
}

func BenchmarkAllocator(b *testing.B) {
	allocatetest.Benchmark(b, allocatetest.Harness{Factory: external.Allocate("dealt", program(b, allocator), external.Options{})})
}

func BenchmarkStore(b *testing.B) {
	storagetest.Benchmark(b, storagetest.Harness{Factory: external.Storage("sqlite", program(b, store), external.Options{})})
}
