package storagewire

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire/storagepb"
)

// Launcher gives the process of a plugin, which it starts when there is none.
// Safe for concurrent use.
type Launcher interface {
	// Acquire returns a running process; log, when not nil, gets its output.
	// Errors match plugin.ErrUnavailable and say why the process did not start.
	Acquire(ctx context.Context, log *slog.Logger) (Process, error)
}

// Process is a running plugin process.
type Process interface {
	Control() storagepb.StorageClient
	// Cause says why the process is gone, as an error that matches
	// plugin.ErrUnavailable. It waits a moment for the process to end.
	Cause() error
	// Release gives the process back, once per Acquire. Without other users it
	// ends: at once, or, with linger, when it was not acquired for a while.
	Release(linger bool)
}

// NewFactory makes the host's half: a factory whose stores live in a process.
func NewFactory(name string, l Launcher) storage.Factory {
	h := &host{name: name, launcher: l}
	return plugin.NewRawFactory(name, h.describe, h.build)
}

type host struct {
	name     string
	launcher Launcher
}

func (h *host) describe(ctx context.Context, raw plugin.Raw) (plugin.Description, error) {
	d, err := h.ask(ctx, nil, &storagepb.DescribeRequest{Plugin: h.name, Config: raw})
	if err != nil {
		return plugin.Description{}, err
	}
	return plugin.Description{
		Name: d.GetName(), Version: d.GetVersion(), Contract: d.GetContract(),
		Facets: d.GetFacets(), Needs: d.GetNeeds(), LargestRecord: d.GetLargestRecord(), Schema: d.GetSchema(),
	}, nil
}

// ask also checks that both ends mean the same contract.
func (h *host) ask(ctx context.Context, log *slog.Logger, r *storagepb.DescribeRequest) (*storagepb.DescribeResponse, error) {
	proc, err := h.launcher.Acquire(ctx, log)
	if err != nil {
		return nil, err
	}
	defer proc.Release(true)
	d, err := proc.Control().Describe(ctx, r)
	if err = fromRPC(ctx, err, d.GetFailure()); err != nil {
		return nil, err
	}
	if d.GetContract() != storage.Contract {
		return nil, fmt.Errorf("%w: storage plugin %q speaks contract %q, this host %q; take a plugin built for it",
			plugin.ErrUnavailable, h.name, d.GetContract(), storage.Contract)
	}
	return d, nil
}

func (h *host) build(ctx context.Context, p storage.Params, raw plugin.Raw) (storage.Store, error) {
	p.Settings = p.WithDefaults()
	d, err := h.ask(ctx, p.Logger, &storagepb.DescribeRequest{Plugin: h.name, Config: raw, Params: toParams(&p)})
	if err != nil {
		return nil, err
	}
	if err := h.agree(d.GetFacets(), d.GetCapabilities()); err != nil {
		return nil, err
	}
	return newStore(h, p, raw, d.GetCapabilities()), nil
}

// agree holds what an instance offers against what was described.
func (h *host) agree(described []string, c *storagepb.Capabilities) error {
	if !slices.Equal(described, c.GetFacets()) {
		return fmt.Errorf("%w: storage plugin %q describes itself with the facets %q, but an instance offers %q; this is a fault of the plugin",
			plugin.ErrUnavailable, h.name, described, c.GetFacets())
	}
	return nil
}
