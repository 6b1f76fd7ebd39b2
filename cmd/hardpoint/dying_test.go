package main

import (
	"os"
	"time"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/plugins/allocate/averagely"
	"github.com/hardpointmq/hardpoint/plugins/replication/solo"
	"github.com/hardpointmq/hardpoint/plugins/storage/pebble"
	"github.com/hardpointmq/hardpoint/plugins/transport/remoting"
	"github.com/hardpointmq/hardpoint/sdk/serve"
)

// dyingProgram serves plugins that pass every check, and dies soon after that.
const dyingProgram = "dying-plugins"

func dying() {
	time.AfterFunc(time.Second, func() { os.Exit(3) })
	o := serve.Storage(pebble.NewFactory())
	o.Transport = []transport.Factory{remoting.NewFactory()}
	o.Replication = []replication.Factory{solo.NewFactory()}
	o.Allocate = []allocate.Factory{averagely.NewFactory()}
	serve.Main(o)
}
