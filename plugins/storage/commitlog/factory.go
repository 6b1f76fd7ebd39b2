package commitlog

import (
	"context"
	"fmt"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/vfs"
)

const (
	pluginName    = "commitlog"
	pluginVersion = "1.0.0"
)

// NewFactory declares the store on the operating system's file system.
func NewFactory() storage.Factory { return NewFactoryOn(vfs.OS{}) }

// NewFactoryOn declares the store on any file system, for tests.
func NewFactoryOn(fsys vfs.FS) storage.Factory {
	return storage.NewFactory(pluginName, describe, NewDefaultConfig,
		func(_ context.Context, p storage.Params, cfg Config) (*Store, error) { return New(fsys, p, cfg) })
}

func describe(c Config) plugin.Description {
	var facets []string
	if c.MessageIndexEnable {
		facets = append(facets, storage.FacetKeyIndex)
	}
	// Records are bounded by the segment size, which is the host's and not ours.
	return plugin.Description{Version: pluginVersion, Facets: append(facets, storage.FacetRawLog, storage.FacetRetention)}
}

// New makes a store that must be started. It does no I/O.
func New(fsys vfs.FS, p storage.Params, cfg Config) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("%w of %q: %w", plugin.ErrConfig, pluginName, err)
	}
	if p.Dir == "" {
		return nil, fmt.Errorf("%w of %q: the store needs a directory", plugin.ErrConfig, pluginName)
	}
	if p.Segment <= message.MinRecordSize+message.BlankSize || p.Segment > maxSegment {
		return nil, fmt.Errorf("%w of %q: segments of %d bytes; allowed are %d to %d", plugin.ErrConfig, pluginName, p.Segment, message.MinRecordSize+message.BlankSize+1, maxSegment)
	}
	p.Settings = p.WithDefaults()
	return newStore(fsys, p, cfg), nil
}

// maxSegment keeps a blank's size within its i32.
const maxSegment = 1<<31 - 1
