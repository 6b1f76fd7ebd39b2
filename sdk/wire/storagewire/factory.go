package storagewire

import (
	"context"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/proxy"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire/storagepb"
)

// NewFactory makes the host's half: a factory whose stores live in a process.
func NewFactory(name string, l wire.Launcher) storage.Factory {
	h := &host{name: name, launcher: l}
	return plugin.NewRawFactory(name, h.describe, h.build)
}

// Contract is what a host of stores expects of a process. Data is not asked for: it
// is needed only where Open gives no data socket, and then used at once.
func Contract() *wire.Contract {
	return &wire.Contract{
		Kind: wire.Storage, Version: storage.Contract,
		Methods: []string{
			storagepb.Storage_Probe_FullMethodName, storagepb.Storage_Open_FullMethodName, storagepb.Storage_Start_FullMethodName,
			storagepb.Storage_Shutdown_FullMethodName, storagepb.Storage_State_FullMethodName,
		},
		OfFacet: map[string]string{
			storage.FacetRetention: storagepb.Storage_Segments_FullMethodName,
			storage.FacetKeyIndex:  storagepb.Storage_Find_FullMethodName,
		},
	}
}

type host struct {
	name     string
	launcher wire.Launcher
}

func (h *host) describe(ctx context.Context, raw plugin.Raw) (plugin.Description, error) {
	return wire.Describe(ctx, h.launcher, nil, Contract(), h.name, raw)
}

func (h *host) build(ctx context.Context, p storage.Params, raw plugin.Raw) (storage.Store, error) {
	p.Settings = p.WithDefaults()
	d, err := wire.Describe(ctx, h.launcher, p.Logger, Contract(), h.name, raw)
	if err != nil {
		return nil, err
	}
	caps, err := h.probe(ctx, &storagepb.ProbeRequest{Plugin: h.name, Config: raw, Params: toParams(&p)})
	if err != nil {
		return nil, err
	}
	if err := proxy.Agree(wire.Storage, h.name, d.Facets, caps.GetFacets()); err != nil {
		return nil, err
	}
	return newStore(h, p, raw, caps), nil
}

func (h *host) probe(ctx context.Context, r *storagepb.ProbeRequest) (*storagepb.Capabilities, error) {
	proc, err := h.launcher.Acquire(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer proc.Release(true)
	a, err := storagepb.NewStorageClient(proc.Conn()).Probe(ctx, r)
	return a.GetCapabilities(), wire.FromRPC(ctx, err, a.GetFailure())
}
