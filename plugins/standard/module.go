// Package standard lists the default plugins. A third party writes the same
// lines in a main of its own, for these or for others.
package standard

import (
	"go.uber.org/fx"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/core/wiring"
	"github.com/hardpointmq/hardpoint/plugins/allocate/averagely"
	"github.com/hardpointmq/hardpoint/plugins/allocate/circle"
	"github.com/hardpointmq/hardpoint/plugins/allocate/config"
	"github.com/hardpointmq/hardpoint/plugins/allocate/consistenthash"
	"github.com/hardpointmq/hardpoint/plugins/allocate/machineroom"
	"github.com/hardpointmq/hardpoint/plugins/allocate/sticky"
	"github.com/hardpointmq/hardpoint/plugins/allocate/zone"
	"github.com/hardpointmq/hardpoint/plugins/replication/solo"
	"github.com/hardpointmq/hardpoint/plugins/storage/commitlog"
	"github.com/hardpointmq/hardpoint/plugins/storage/memory"
	"github.com/hardpointmq/hardpoint/plugins/storage/pebble"
	"github.com/hardpointmq/hardpoint/plugins/transport/inproc"
	"github.com/hardpointmq/hardpoint/plugins/transport/remoting"
)

// Stores are the default stores.
func Stores() []storage.Factory {
	return []storage.Factory{commitlog.NewFactory(), pebble.NewFactory(), memory.NewFactory()}
}

// Allocators are the default allocators.
func Allocators() []allocate.Factory {
	return []allocate.Factory{
		averagely.NewFactory(), circle.NewFactory(), sticky.NewFactory(), zone.NewFactory(),
		consistenthash.NewFactory(), machineroom.NewFactory(), config.NewFactory(),
	}
}

// Replicators are the default replicators.
func Replicators() []replication.Factory {
	return []replication.Factory{solo.NewFactory()}
}

// Transports are the default transports.
func Transports() []transport.Factory {
	return []transport.Factory{remoting.NewFactory(), inproc.NewFactory()}
}

// Plugins are the registries of the default plugins, without fx.
func Plugins() (*wiring.Plugins, error) {
	return wiring.NewPlugins(Stores(), Allocators(), Replicators(), Transports())
}

// Module registers the default plugins in an fx program.
var Module = fx.Module("standard_plugins",
	each(Stores(), wiring.Storage),
	each(Allocators(), wiring.Allocate),
	each(Replicators(), wiring.Replication),
	each(Transports(), wiring.Transport),
)

// each registers all factories of a kind.
func each[F any](factories []F, register func(F) fx.Option) fx.Option {
	var all []fx.Option
	for _, f := range factories {
		all = append(all, register(f))
	}
	return fx.Options(all...)
}
