package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
	"github.com/hardpointmq/hardpoint/core/storage/storekit"
	"github.com/hardpointmq/hardpoint/core/storage/storekit/kvtest"
	"github.com/hardpointmq/hardpoint/plugins/standard"
	"github.com/hardpointmq/hardpoint/sdk/embedded"
	"github.com/hardpointmq/hardpoint/sdk/external"
)

const serveEnv = "CUSTOM_STORE_SERVE"

// The tests' own program is the plugin, too: one build less.
func TestMain(m *testing.M) {
	if os.Getenv(serveEnv) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

func asProcess(t testing.TB) storage.Factory {
	self, err := os.Executable()
	require.NoError(t, err)
	return external.Storage("journal", external.Command{Path: self, Env: []string{serveEnv + "=1"}}, external.Options{})
}

func TestBackend(t *testing.T) {
	kvtest.Run(t, kvtest.Harness{New: func(dir string) storekit.KV { return &journal{dir: dir, buffer: 4096} }})
}

func TestConformance(t *testing.T) {
	storagetest.Run(t, storagetest.Harness{Factory: NewFactory()})
}

func TestConformanceAsProcess(t *testing.T) {
	storagetest.Run(t, storagetest.Harness{Factory: asProcess(t), Form: storagetest.Process})
}

// TestBroker runs a whole broker on the store, in both forms, and finds the
// message again after a restart.
func TestBroker(t *testing.T) {
	for name, f := range map[string]storage.Factory{"in_process": NewFactory(), "process": asProcess(t)} {
		t.Run(name, func(t *testing.T) {
			plugins, err := standard.Plugins()
			require.NoError(t, err)
			plugins.Storage = plugins.Storage.With(f)
			dir := t.TempDir()
			start := func() *embedded.Broker {
				return embedded.Start(t, embedded.WithPlugins(plugins), embedded.WithStorage("journal"), embedded.WithDir(dir))
			}
			b := start()
			sent, err := b.API().Send(t.Context(), &api.SendRequest{Topic: "T", Body: []byte("kept")})
			require.NoError(t, err)
			require.NoError(t, b.Close(t.Context()))

			b = start()
			defer func() { require.NoError(t, b.Close(t.Context())) }()
			got, err := b.API().Pull(t.Context(), &api.PullRequest{Group: "g", Queue: sent.Queue, Offset: sent.Offset})
			require.NoError(t, err)
			require.Len(t, got.Messages, 1)
			require.Equal(t, "kept", string(got.Messages[0].Body))
		})
	}
}

func TestATornEntryIsCutOff(t *testing.T) {
	dir := t.TempDir()
	whole := []byte{0, 0, 0, 14, 0, 0, 0, 0}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "journal"), append(whole, "wrong checksum"...), 0o644))
	j := &journal{dir: dir, buffer: 4096}
	require.NoError(t, j.Open(t.Context()))
	defer func() { require.NoError(t, j.Close()) }()
	info, err := os.Stat(filepath.Join(dir, "journal"))
	require.NoError(t, err)
	require.Zero(t, info.Size())
}

func BenchmarkJournal(b *testing.B) {
	storagetest.Benchmark(b, storagetest.Harness{Factory: NewFactory()})
}
