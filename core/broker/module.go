package broker

import (
	"context"
	"log/slog"
	"slices"

	"go.uber.org/fx"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/wiring"
)

// stopShare weighs the broker's part of the stop time: it has a store to flush.
const stopShare = 8

// NameServers tells the broker of name servers that the configuration cannot
// know: the one in the same process, whose port may be any. It is called when
// the broker starts, after the components that were added before it.
type NameServers func() []string

// Module builds the broker groups of an fx program. It needs their []Params: what
// those leave zero of the settings, the plugins and the name servers is the program's
// (core/wiring, [NameServers] when there are some). It provides the *[Groups].
var Module = fx.Module("broker",
	fx.Provide(newInFx),
	fx.Invoke(func(g *Groups, life *wiring.Lifecycle) { life.Add(g.title(), g, stopShare) }),
)

type inFx struct {
	fx.In
	Groups  []Params
	Plugins *wiring.Plugins
	Logger  *slog.Logger
	Meter   plugin.Meter
	Clock   plugin.Clock
	Servers NameServers `optional:"true"`
}

func newInFx(in inFx) (*Groups, error) {
	groups := slices.Clone(in.Groups)
	for i := range groups {
		p := &groups[i]
		if p.Logger == nil {
			p.Logger = in.Logger
		}
		if p.Meter == nil {
			p.Meter = in.Meter
		}
		if p.Clock == nil {
			p.Clock = in.Clock
		}
		if p.Plugins == nil {
			p.Plugins = in.Plugins
		}
		if p.NameServers == nil {
			p.NameServers = in.Servers
		}
	}
	return NewGroups(context.Background(), groups...)
}
