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

// Module builds one broker group in an fx program. It needs a *config.Config and
// the plugins registered with core/wiring.
var Module = fx.Module("broker", fx.Provide(newInFx), fx.Invoke(func(*Broker) {}))

func newInFx(cfg *config.Config, p *wiring.Plugins, life *wiring.Lifecycle, log *slog.Logger, meter plugin.Meter, clock plugin.Clock) (*Broker, error) {
	b, err := New(context.Background(), Params{
		Settings: plugin.Settings{Name: cfg.Broker.Name, Logger: log, Meter: meter, Clock: clock},
		Config:   cfg,
		Plugins:  p,
	})
	if err != nil {
		return nil, err
	}
	life.Add("broker "+cfg.Broker.Name, b, stopShare)
	return b, nil
}
