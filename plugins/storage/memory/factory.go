package memory

import (
	"context"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storekit"
)

// Name selects the plugin in configuration.
const Name = "memory"

// Config is empty: there is nothing to choose.
type Config struct{}

// NewDefaultConfig returns the configuration.
func NewDefaultConfig() *Config { return &Config{} }

// NewFactory makes the plugin's factory.
func NewFactory() storage.Factory {
	return storage.NewFactory(Name, describe, NewDefaultConfig, New)
}

func describe(*Config) plugin.Description {
	return plugin.Description{
		Version: "1",
		Facets:  storekit.Facets(),
	}
}

// New makes a store that is started with Start.
func New(_ context.Context, p storage.Params, _ *Config) (*storekit.Store, error) {
	return storekit.FromKV(p, &storekit.MemKV{}, storekit.Options{Survives: storage.SurvivesNothing}), nil
}
