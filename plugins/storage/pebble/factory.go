package pebble

import (
	"context"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storekit"
)

// Name selects the plugin in configuration.
const Name = "pebble"

// NewFactory makes the plugin's factory.
func NewFactory() storage.Factory {
	return NewFactoryOn(func() vfs.FS { return osFS{vfs.Default} })
}

// NewFactoryOn is for tests on another file system; fs is asked at each Start.
func NewFactoryOn(fs func() vfs.FS) storage.Factory {
	return storage.NewFactory(Name, describe, NewDefaultConfig,
		func(_ context.Context, p storage.Params, cfg *Config) (*storekit.Store, error) {
			p.Settings = p.WithDefaults()
			return storekit.FromKV(p, &backend{dir: p.Dir, cfg: cfg, log: p.Logger, clock: p.Clock, fs: fs}, storekit.Options{Survives: storage.SurvivesProcessDeath}), nil
		})
}

func describe(*Config) plugin.Description {
	return plugin.Description{Version: "1", Facets: storekit.Facets()}
}
