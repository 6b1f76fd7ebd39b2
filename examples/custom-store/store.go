// Command custom-store shows a storage plugin of one's own: a journal file and a
// sorted map of what is in it, made a whole store by storekit. The program itself
// is the plugin as a process of its own.
package main

import (
	"context"
	"fmt"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storekit"
)

// Config is what users write under plugins.storage.journal; JSON names are its
// keys.
type Config struct {
	// BufferBytes is how much is read at a time when the journal is opened.
	BufferBytes int `json:"bufferBytes"`
}

// Validate says what is wrong with the value and what would be right.
func (c *Config) Validate() error {
	if c.BufferBytes < 4096 {
		return fmt.Errorf("bufferBytes is %d, it must be at least 4096", c.BufferBytes)
	}
	return nil
}

// NewFactory declares the plugin; list it in main with wiring.Storage.
func NewFactory() storage.Factory {
	return storage.NewFactory("journal",
		func(*Config) plugin.Description {
			return plugin.Description{Version: "1.0", Facets: storekit.Facets()} // the kit offers all
		},
		func() *Config { return &Config{BufferBytes: 1 << 20} },
		New)
}

// New does no I/O; Start does.
func New(_ context.Context, p storage.Params, cfg *Config) (*storekit.Store, error) {
	backend := &journal{dir: p.Dir, buffer: cfg.BufferBytes}
	return storekit.FromKV(p, backend, storekit.Options{Survives: storage.SurvivesProcessDeath}), nil
}
