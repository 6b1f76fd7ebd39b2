package main

import (
	"context"
	"errors"
	"log/slog"

	"go.uber.org/fx"

	"github.com/hardpointmq/hardpoint/core/adminport"
	"github.com/hardpointmq/hardpoint/core/broker"
	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/wiring"
)

// brokerLabel tells the metrics of several broker groups apart. One alone has none.
const brokerLabel = "broker"

// group is a broker group of the node: what one configuration file says. A name
// server alone has one that serves no clients, for its plugins.
type group struct {
	*config.Loaded
	n        *node
	several  bool // there are others
	upgrades upgrades
	plugins  *wiring.Plugins // with those that are processes; see outOfProcess
}

// log is that of the group.
func (g *group) log() *slog.Logger {
	if !g.several {
		return g.n.log
	}
	return g.n.log.With("broker_group", g.name())
}

func (g *group) name() string { return g.Config.Broker.Name }

// meter is that of the group.
func (g *group) meter() plugin.Meter { return g.labelled(g.name()) }

// meterOfProcess is that of what belongs to no group: all metrics of a name have the
// same labels.
func (g *group) meterOfProcess() plugin.Meter { return g.labelled("") }

func (g *group) labelled(name string) plugin.Meter {
	if !g.several {
		return g.n.metrics.Meter()
	}
	return g.n.metrics.Meter(plugin.Label{Name: brokerLabel, Value: name})
}

// params are those of its broker.
func (g *group) params() broker.Params {
	return broker.Params{
		Settings: plugin.Settings{Name: g.name(), Logger: g.log(), Meter: g.meter()},
		Config:   &g.Config, Plugins: g.plugins, Loaded: g.Loaded, Changed: g.n.onChange, Tracer: g.n.tracer(),
	}
}

// describe is what the log tells of where its messages are kept.
func (g *group) describe() []any {
	c := &g.Config
	return []any{"storage", c.Store.Storage, "flush", c.Store.FlushDiskType, "data", absolute(c.Node.Data), "store", absolute(c.Store.RootDir)}
}

func brokersOf(n *node) fx.Option {
	return fx.Options(
		fx.Provide(func(*wiring.Plugins) []broker.Params { // which have been made those of the groups
			var all []broker.Params
			for _, g := range n.groups {
				all = append(all, g.params())
			}
			return all
		}),
		fx.Invoke(func(p *adminport.Port, g *broker.Groups) {
			for _, b := range g.All() {
				p.Check("broker "+b.Name(), b.Ready)
				n.files = append(n.files, b.Reload)
			}
		}),
	)
}

// pluginsChecked ends a start before anything opens, with everything that the
// plugins find wrong with their configuration.
func pluginsChecked(n *node) fx.Option {
	return fx.Module("plugins_checked", fx.Invoke(func(*wiring.Plugins) error {
		return errors.Join(checkGroups(context.Background(), n.loaded(), func(i int) *wiring.Plugins { return n.groups[i].plugins })...)
	}))
}

// loaded is what was read for the groups.
func (n *node) loaded() []*config.Loaded {
	all := make([]*config.Loaded, len(n.groups))
	for i, g := range n.groups {
		all[i] = g.Loaded
	}
	return all
}
