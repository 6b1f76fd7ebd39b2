package commitlog

import (
	"encoding/json"
	"testing"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
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
