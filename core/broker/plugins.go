package broker

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/core/wiring"
)

// CheckPlugins asks the plugins that a broker with this configuration would use
// what they say to it, without opening anything, and returns every fault, as a
// start does. Plugins that run as a process of their own are launched for it.
func CheckPlugins(ctx context.Context, cfg *config.Config, p *wiring.Plugins) []error {
	_, faults := choose(ctx, cfg, p)
	return faults
}

// part is a chosen plugin, its configuration, and what it says of itself.
type part[P, T any] struct {
	factory plugin.Factory[P, T]
	raw     plugin.Raw
	says    plugin.Description
}

type chosen struct {
	store part[storage.Params, storage.Store]
	rep   part[replication.Params, replication.Replicator]
	// trans is that of the client port first.
	trans []part[transport.Params, transport.Transport]
}

func choose(ctx context.Context, cfg *config.Config, p *wiring.Plugins) (c chosen, faults []error) {
	note := func(err error) {
		if err != nil {
			faults = append(faults, err)
		}
	}
	var err error
	c.store, err = chooseOne(ctx, cfg, p.Storage, "storage", cfg.Store.Storage, cfg.PluginRaw)
	note(err)
	c.rep, err = chooseOne(ctx, cfg, p.Replication, "replication", cfg.Broker.Replication,
		func(kind, name string) (plugin.Raw, error) { return replicationRaw(ctx, cfg, p.Replication, name) })
	note(err)
	parts := []said{{"storage", c.store.says}, {"replication", c.rep.says}}
	described := len(faults) == 0
	transports := cfg.Network.Transports()
	for i, name := range transports {
		t, err := chooseOne(ctx, cfg, p.Transport, "transport", name, cfg.PluginRaw)
		c.trans = append(c.trans, t)
		if note(err); err != nil {
			continue
		}
		parts = append(parts, said{"transport", t.says})
		if i == 0 && len(cfg.Broker.NamesrvAddrs) > 0 {
			note(cfg.PluginError("transport", name, dials(name, t.says.Has(transport.FacetDialer))))
		}
	}
	if described {
		note(fit(parts...))
		note(holds(c.store.says, cfg.Broker.MaxMessageSize))
	}
	faults = append(faults, configured(ctx, cfg, p.Allocate)...)
	return c, append(faults, cfg.UnknownPlugins(func(kind, name string) error {
		switch { // those that were chosen are judged above
		case kind == "storage" && name != cfg.Store.Storage:
			return known(p.Storage, name)
		case kind == "replication" && name != cfg.Broker.Replication:
			return known(p.Replication, name)
		case kind == "transport" && !slices.Contains(transports, name):
			return known(p.Transport, name)
		case kind == "allocate":
			return known(p.Allocate, name)
		}
		return nil
	})...)
}

// dials refuses a transport of the client port that cannot reach name servers.
func dials(name string, can bool) error {
	if can {
		return nil
	}
	return fmt.Errorf("transport %s offers no %s, without which the broker cannot register with name servers; choose another one for the client port and put %s into moreListeners", name, transport.FacetDialer, name)
}

func known[P, T any](r *wiring.Registry[P, T], name string) error {
	_, err := r.Lookup(name)
	return err
}

func chooseOne[P, T any](ctx context.Context, cfg *config.Config, r *wiring.Registry[P, T], kind, name string,
	raw func(kind, name string) (plugin.Raw, error),
) (c part[P, T], err error) {
	if c.factory, err = r.Lookup(name); err == nil {
		if c.raw, err = raw(kind, name); err == nil {
			c.says, err = c.factory.Describe(ctx, c.raw)
		}
	}
	return c, cfg.PluginError(kind, name, err)
}

// replicationRaw is the replicator's configuration: the flush keys that RocketMQ
// has at the top level, as far as the replicator knows them, then
// plugins.replication.NAME. One that does not know flushDiskType has a promise of
// its own, and must not be taken for one that flushes.
func replicationRaw(ctx context.Context, cfg *config.Config, r *wiring.Registry[replication.Params, replication.Replicator], name string) (plugin.Raw, error) {
	f, err := r.Lookup(name)
	if err != nil {
		return nil, err
	}
	says, err := f.Describe(ctx, nil)
	if err != nil {
		return nil, err
	}
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if err := json.Unmarshal(says.Schema, &schema); len(says.Schema) > 0 && err != nil {
		return nil, fmt.Errorf("the configuration schema of replication %s: %w", name, err)
	}
	m := map[string]any{}
	for key, v := range map[string]any{
		"flushDiskType":          cfg.Store.FlushDiskType,
		"flushIntervalCommitLog": cfg.Store.FlushInterval.Milliseconds(),
		"syncFlushTimeout":       cfg.Store.SyncFlushTimeout.Milliseconds(),
	} {
		switch _, known := schema.Properties[key]; {
		case known:
			m[key] = v
		case v == config.SyncFlush:
			return nil, fmt.Errorf("%w of %q: it does not know flushDiskType, so it does not promise %s; leave that out, or choose another replication plugin", plugin.ErrConfig, name, v)
		}
	}
	for k, v := range cfg.Plugins["replication"][name] {
		m[k] = v
	}
	raw, err := config.RawOf(m)
	if err != nil {
		return nil, fmt.Errorf("configuration of replication %s: %w", name, err)
	}
	return raw, nil
}
