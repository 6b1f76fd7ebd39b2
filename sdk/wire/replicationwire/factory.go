package replicationwire

import (
	"context"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/proxy"
	"github.com/hardpointmq/hardpoint/sdk/wire/replicationwire/replicationpb"
)

// NewFactory makes the host's half: a factory whose replicators live in a process
// and work on the host's store.
func NewFactory(name string, l wire.Launcher) replication.Factory {
	h := &host{name: name, launcher: l}
	return plugin.NewRawFactory(name, h.describe, h.build)
}

// Contract is what a host of replication plugins expects of a process.
func Contract() *wire.Contract {
	return &wire.Contract{
		Kind: wire.Replication, Version: replication.Contract,
		Methods: []string{replicationpb.Replication_Probe_FullMethodName, replicationpb.Replication_Open_FullMethodName},
	}
}

type host struct {
	name     string
	launcher wire.Launcher
}

func (h *host) describe(ctx context.Context, raw plugin.Raw) (plugin.Description, error) {
	return wire.Describe(ctx, h.launcher, nil, Contract(), h.name, raw)
}

func (h *host) build(ctx context.Context, p replication.Params, raw plugin.Raw) (replication.Replicator, error) {
	p.Settings = p.WithDefaults()
	d, err := wire.Describe(ctx, h.launcher, p.Logger, Contract(), h.name, raw)
	if err != nil {
		return nil, err
	}
	proc, err := h.launcher.Acquire(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer proc.Release(true)
	a, err := replicationpb.NewReplicationClient(proc.Conn()).Probe(ctx, &replicationpb.ProbeRequest{Plugin: h.name, Config: raw, Params: toParams(&p)})
	if err = wire.FromRPC(ctx, err, a.GetFailure()); err != nil {
		return nil, err
	}
	if err := proxy.Agree(wire.Replication, h.name, d.Facets, a.GetFacets()); err != nil {
		return nil, err
	}
	return newReplicator(h, p, raw, a.GetFacets()), nil
}

func toParams(p *replication.Params) *replicationpb.Params {
	c := p.Store.Capabilities()
	return &replicationpb.Params{
		Settings: wire.ToSettings(&p.Settings), RawLog: c.RawLog != nil,
		SurvivesProcessDeath: c.Survives > 0, Term: p.Sequencer.Term(), Reopener: c.Reopener != nil,
	}
}
