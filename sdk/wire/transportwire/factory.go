package transportwire

import (
	"context"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/transportwire/transportpb"
)

// NewFactory makes the host's half: a factory whose transports live in a
// process.
func NewFactory(name string, l wire.Launcher) transport.Factory {
	h := &host{name: name, launcher: l}
	return plugin.NewRawFactory(name, h.describe, h.build)
}

// Contract is what a host of transports expects of a process.
func Contract() *wire.Contract {
	return &wire.Contract{
		Kind: wire.Transport, Version: transport.Contract,
		Methods: []string{
			transportpb.Transport_Open_FullMethodName, transportpb.Transport_Start_FullMethodName, transportpb.Transport_Serve_FullMethodName,
			transportpb.Transport_Drain_FullMethodName, transportpb.Transport_CloseListener_FullMethodName, transportpb.Transport_Shutdown_FullMethodName,
		},
		OfFacet: map[string]string{
			transport.FacetDialer: transportpb.Transport_Dial_FullMethodName,
			transport.FacetMover:  transportpb.Transport_GivePeer_FullMethodName,
		},
		Kept: []string{transport.FacetMover},
	}
}

type host struct {
	name     string
	launcher wire.Launcher
}

func (h *host) describe(ctx context.Context, raw plugin.Raw) (plugin.Description, error) {
	return wire.Describe(ctx, h.launcher, nil, Contract(), h.name, raw)
}

func (h *host) build(ctx context.Context, p transport.Params, raw plugin.Raw) (transport.Transport, error) {
	p.Settings = p.WithDefaults()
	d, err := wire.Describe(ctx, h.launcher, p.Logger, Contract(), h.name, raw)
	if err != nil {
		return nil, err
	}
	return newRemote(h, p, raw, d.Facets), nil
}
