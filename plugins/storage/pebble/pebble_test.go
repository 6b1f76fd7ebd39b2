package pebble_test

import (
	"os"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
	"github.com/hardpointmq/hardpoint/plugins/storage/pebble"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(holdEnv); dir != "" {
		os.Exit(holdStore(dir))
	}
	goleak.VerifyTestMain(m)
}

const small = `{"cacheBytes": 1048576, "memTableBytes": 1048576}`

func TestConformance(t *testing.T) {
	fs := &crashFS{}
	fs.fs = vfs.NewCrashableMem()
	storagetest.Run(t, storagetest.Harness{
		Factory: pebble.NewFactoryOn(fs.current),
		Config:  plugin.Raw(small),
		Crash:   func(testing.TB, string) { fs.crash() },
	})
}

// crashFS is a file system in memory that can lose what was not synced.
type crashFS struct {
	mu sync.Mutex
	fs *vfs.MemFS
}

func (c *crashFS) current() vfs.FS {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fs
}

func (c *crashFS) crash() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fs = c.fs.CrashClone(vfs.CrashCloneCfg{})
}

func BenchmarkStore(b *testing.B) {
	storagetest.Benchmark(b, storagetest.Harness{Factory: pebble.NewFactory()})
}
