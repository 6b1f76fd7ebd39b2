package nameserver

import (
	"context"
	"fmt"

	"go.uber.org/fx"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/wiring"
)

// Module runs a name server. It needs a [Config] (fx.Supply) and the chosen
// transport among the plugins, and provides the *[Server]. Put it before a
// broker that registers with it: components start in this order.
var Module = fx.Module("nameserver",
	fx.Provide(wire),
	fx.Invoke(func(s *Server, life *wiring.Lifecycle) { life.Add("name server", s, 1) }),
)

func wire(cfg Config, o wiring.Options, p *wiring.Plugins) (*Server, error) {
	f, err := p.Transport.Lookup(cfg.Transport)
	if err != nil {
		return nil, fmt.Errorf("name server: %w", err)
	}
	return New(context.Background(), plugin.Settings{Logger: o.Logger, Meter: o.Meter, Clock: o.Clock}, cfg, f)
}
