package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"

	"go.uber.org/fx"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/core/wiring"
	"github.com/hardpointmq/hardpoint/internal/suggest"
	"github.com/hardpointmq/hardpoint/sdk/external"
	"github.com/hardpointmq/hardpoint/sdk/serve"
	"github.com/hardpointmq/hardpoint/sdk/wire"
)

// pluginKind is a contract as the commands see it.
type pluginKind struct {
	name     string
	names    func(p *wiring.Plugins) []string
	describe func(ctx context.Context, p *wiring.Plugins, name string, raw plugin.Raw) (plugin.Description, error)
	// launch makes the plugin one in a process of its own.
	launch func(p *wiring.Plugins, name string, c external.Command, o external.Options)
	serve  func(p *wiring.Plugins, name string) (serve.Options, error)
}

type (
	storageRegistry     = *wiring.Registry[storage.Params, storage.Store]
	allocateRegistry    = *wiring.Registry[allocate.Params, allocate.Allocator]
	replicationRegistry = *wiring.Registry[replication.Params, replication.Replicator]
	transportRegistry   = *wiring.Registry[transport.Params, transport.Transport]
)

func pluginKinds() []pluginKind {
	return []pluginKind{
		kindOf(wire.Storage, func(p *wiring.Plugins) *storageRegistry { return &p.Storage }, external.Storage, serve.Storage),
		kindOf(wire.Allocate, func(p *wiring.Plugins) *allocateRegistry { return &p.Allocate }, external.Allocate, serve.Allocate),
		kindOf(wire.Replication, func(p *wiring.Plugins) *replicationRegistry { return &p.Replication }, external.Replication, serve.Replication),
		kindOf(wire.Transport, func(p *wiring.Plugins) *transportRegistry { return &p.Transport }, external.Transport, serve.Transport),
	}
}

func kindOf[P, T any](
	name string, of func(*wiring.Plugins) **wiring.Registry[P, T],
	launch func(name string, c external.Command, o external.Options) plugin.Factory[P, T],
	serves func(...plugin.Factory[P, T]) serve.Options,
) pluginKind {
	return pluginKind{
		name:  name,
		names: func(p *wiring.Plugins) []string { return (*of(p)).Names() },
		describe: func(ctx context.Context, p *wiring.Plugins, name string, raw plugin.Raw) (plugin.Description, error) {
			f, err := (*of(p)).Lookup(name)
			if err != nil {
				return plugin.Description{}, err
			}
			return f.Describe(ctx, raw)
		},
		launch: func(p *wiring.Plugins, name string, c external.Command, o external.Options) {
			*of(p) = (*of(p)).With(launch(name, c, o))
		},
		serve: func(p *wiring.Plugins, name string) (serve.Options, error) {
			f, err := (*of(p)).Lookup(name)
			if err != nil {
				return serve.Options{}, err
			}
			return serves(f), nil
		},
	}
}

// kindNamed finds a kind as a person names it.
func kindNamed(name string) (pluginKind, error) {
	var names []string
	for _, k := range pluginKinds() {
		if k.name == name {
			return k, nil
		}
		names = append(names, k.name)
	}
	return pluginKind{}, fmt.Errorf("there is no kind of plugins %q; known are allocate, replication, storage and transport%s", name, suggest.DidYouMean(name, slices.Values(names)))
}

// outOfProcess makes the plugins that are processes of their own, by --storage-process
// or the configuration, take the places of their names, for each broker group. What
// belongs to no group, a name server, has those of the first.
func outOfProcess(n *node) fx.Option {
	return fx.Decorate(func(p *wiring.Plugins) (*wiring.Plugins, error) {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("finding the program that serves plugins as a process: %w", err)
		}
		for _, g := range n.groups {
			o := supervision(&g.Config)
			o.Meter, o.Stopping = g.meter(), n.stopping
			g.plugins = withPrograms(withProcesses(p, &g.Config, self, o, g.upgrades.replacer), &g.Config, o, g.upgrades.replacer)
		}
		return n.groups[0].plugins, nil
	})
}

// supervision is what a configuration that was loaded says of all processes of
// plugins.
func supervision(c *config.Config) external.Options {
	p := &c.PluginProcesses
	o := external.Options{
		StartTimeout: p.StartTimeout, Health: p.HealthInterval, HealthLimit: p.HealthTimeout, CallTimeout: p.CallTimeout, StopTimeout: p.StopTimeout,
		Backoff: external.Backoff{First: p.BackoffFirst, Most: p.BackoffMost},
		Breaker: external.Breaker{Deaths: p.BreakerDeaths, Window: p.BreakerWindow, Open: p.BreakerOpen},
	}
	if o.Health == 0 {
		o.Health = -1
	}
	if o.CallTimeout == 0 {
		o.CallTimeout = -1
	}
	if o.StopTimeout == 0 {
		o.StopTimeout = -1
	}
	if o.Breaker.Deaths == 0 {
		o.Breaker.Deaths = -1
	}
	return o
}

// withProcesses are the plugins of which some run as a process of this program.
// Names that no plugin has are left to those who judge the configuration.
// Replacer, when not nil, makes that of each.
func withProcesses(p *wiring.Plugins, c *config.Config, self string, o external.Options, replacer func(kind, name string) *external.Replacer) *wiring.Plugins {
	out := *p
	for _, k := range pluginKinds() {
		for _, name := range k.names(p) {
			if c.PluginProcess(k.name, name) {
				if replacer != nil {
					o.Replacer = replacer(k.name, name)
				}
				k.launch(&out, name, ownCommand(self, k.name, name), o)
			}
		}
	}
	return &out
}

// withPrograms are the plugins with those beside them that the configuration
// names programs for, with replacers as in withProcesses.
func withPrograms(p *wiring.Plugins, c *config.Config, o external.Options, replacer func(kind, name string) *external.Replacer) *wiring.Plugins {
	out := *p
	for _, k := range pluginKinds() {
		for _, prog := range c.Programs {
			if prog.Kind == k.name {
				if replacer != nil {
					o.Replacer = replacer(prog.Kind, prog.Name)
				}
				k.launch(&out, prog.Name, programCommand(prog), o)
			}
		}
	}
	return &out
}

// checkPrograms asks the plugins that are programs what they say to their
// configuration. Those that were chosen have been asked, and so have allocators.
func checkPrograms(ctx context.Context, c *config.Config, p *wiring.Plugins, chosen ...string) []error {
	var faults []error
	for _, which := range slices.Sorted(maps.Keys(c.Programs)) {
		prog := c.Programs[which]
		if prog.Kind == wire.Allocate || slices.Contains(chosen, which) {
			continue
		}
		if err := describeConfigured(ctx, c, p, prog.Kind, prog.Name); err != nil {
			faults = append(faults, c.PluginError(prog.Kind, prog.Name, err))
		}
	}
	return faults
}

func describeConfigured(ctx context.Context, c *config.Config, p *wiring.Plugins, kind, name string) error {
	k, err := kindNamed(kind)
	if err != nil {
		return err
	}
	raw, err := c.PluginRaw(kind, name)
	if err != nil {
		return err
	}
	_, err = k.describe(ctx, p, name, raw)
	return err
}
