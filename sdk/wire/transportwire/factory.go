package transportwire

import (
	"context"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/sdk/wire"
)

// NewFactory makes the host's half: a factory whose transports live in a
// process.
func NewFactory(name string, l wire.Launcher) transport.Factory {
	h := &host{name: name, launcher: l}
	return plugin.NewRawFactory(name, h.describe, h.build)
}

type host struct {
	name     string
	launcher wire.Launcher
}

func (h *host) describe(ctx context.Context, raw plugin.Raw) (plugin.Description, error) {
	return wire.Describe(ctx, h.launcher, nil, wire.Transport, h.name, transport.Contract, raw)
}

func (h *host) build(ctx context.Context, p transport.Params, raw plugin.Raw) (transport.Transport, error) {
	p.Settings = p.WithDefaults()
	d, err := wire.Describe(ctx, h.launcher, p.Logger, wire.Transport, h.name, transport.Contract, raw)
	if err != nil {
		return nil, err
	}
	return newRemote(h, p, raw, d.Facets), nil
}
