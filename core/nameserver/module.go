package nameserver

import (
	"context"
	"fmt"

	"go.uber.org/fx"

	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/wiring"
)

// Module runs a name server. It needs a [Config] (fx.Supply) and the chosen
// transport among the plugins, and provides the *[Server]. With a *config.Config
// it says where a fault in the transport's configuration was written; with a
// *config.Loaded requests read and change its configuration (see [OnChange]). Put it
// before a broker that registers with it: components start in this order.
var Module = fx.Module("nameserver",
	fx.Provide(wire),
	fx.Invoke(func(s *Server, life *wiring.Lifecycle) { life.Add("name server", s, 1) }),
)

type inFx struct {
	fx.In
	Config  Config
	Options wiring.Options
	Plugins *wiring.Plugins
	Process *config.Config `optional:"true"`
	Loaded  *config.Loaded `optional:"true"`
	Changed OnChange       `optional:"true"`
}

func wire(in inFx) (*Server, error) {
	ctx := context.Background()
	if in.Process != nil {
		if err := CheckPlugins(ctx, in.Process, in.Plugins); err != nil {
			return nil, err
		}
	}
	f, err := in.Plugins.Transport.Lookup(in.Config.Transport)
	if err != nil {
		return nil, fmt.Errorf("name server: %w", err)
	}
	o := in.Options
	return build(ctx, plugin.Settings{Logger: o.Logger, Meter: o.Meter, Clock: o.Clock}, in.Config, f, in.Loaded, in.Changed)
}
