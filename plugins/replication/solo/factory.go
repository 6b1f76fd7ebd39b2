package solo

import (
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// Name is the name under which configuration selects the plugin.
const Name = "solo"

// NewFactory returns the plugin's factory.
func NewFactory() replication.Factory {
	return replication.NewFactory(Name, describe, NewDefaultConfig, New)
}

func describe(c Config) plugin.Description {
	d := plugin.Description{Version: "1.0.0", Publish: storage.Immediate.String()}
	if c.FlushDiskType == SyncFlush {
		d.Publish = storage.Explicit.String()
		d.Needs = []string{"storage." + storage.FacetRawLog}
	}
	return d
}
