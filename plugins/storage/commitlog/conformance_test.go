package commitlog

import (
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
)

// raw encodes a configuration that differs from the defaults; the key index's
// files are small, because each test makes its own.
func raw(tb testing.TB, change func(*Config)) plugin.Raw {
	tb.Helper()
	c := NewDefaultConfig()
	c.MappedFileSizeConsumeQueue = 4000
	c.MaxHashSlotNum, c.MaxIndexNum = 500, 1000
	if change != nil {
		change(&c)
	}
	b, err := json.Marshal(c)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func TestConformance(t *testing.T) {
	storagetest.Run(t, storagetest.Harness{Factory: NewFactory(), Config: raw(t, nil)})
}

// TestConformanceOnDisk runs the suite on a disk that loses power.
func TestConformanceOnDisk(t *testing.T) {
	d := newDisk(1)
	var dirs atomic.Int64
	storagetest.Run(t, storagetest.Harness{
		Factory: NewFactoryOn(d), Config: raw(t, nil), Form: "crash_disk",
		Dir:   func(testing.TB) string { return fmt.Sprintf("/data/%d", dirs.Add(1)) },
		Crash: func(testing.TB, string) { d.crash(memfs.KeepNone) },
	})
}

func BenchmarkStore(b *testing.B) {
	storagetest.Benchmark(b, storagetest.Harness{Factory: NewFactory(), Segment: 1 << 28})
}
