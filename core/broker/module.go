package broker

import (
	"context"
	"log/slog"

	"go.uber.org/fx"

	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/wiring"
)

// stopShare weighs the broker's part of the stop time: it has a store to flush.
const stopShare = 8

// NameServers tells the broker of name servers that the configuration cannot
// know: the one in the same process, whose port may be any. It is called when
// the broker starts, after the components that were added before it.
type NameServers func() []string

// Module builds one broker group in an fx program. It needs a *config.Config and
// the plugins registered with core/wiring, and takes [NameServers] when there
// are some. It provides the *[Broker].
var Module = fx.Module("broker",
	fx.Provide(newInFx),
	fx.Invoke(func(b *Broker, life *wiring.Lifecycle) { life.Add("broker "+b.Name(), b, stopShare) }),
)

type inFx struct {
	fx.In
	Config  *config.Config
	Plugins *wiring.Plugins
	Logger  *slog.Logger
	Meter   plugin.Meter
	Clock   plugin.Clock
	Servers NameServers    `optional:"true"`
	Loaded  *config.Loaded `optional:"true"`
	Changed OnChange       `optional:"true"`
}

func newInFx(in inFx) (*Broker, error) {
	return New(context.Background(), Params{
		Settings:    plugin.Settings{Name: in.Config.Broker.Name, Logger: in.Logger, Meter: in.Meter, Clock: in.Clock},
		Config:      in.Config,
		Plugins:     in.Plugins,
		NameServers: in.Servers,
		Loaded:      in.Loaded,
		Changed:     in.Changed,
	})
}
