package main

import (
	"os"
	"path/filepath"
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
	time.AfterFunc(lifetime(), func() { os.Exit(3) })
	o := serve.Storage(pebble.NewFactory())
	o.Transport = []transport.Factory{remoting.NewFactory()}
	o.Replication = []replication.Factory{solo.NewFactory()}
	o.Allocate = []allocate.Factory{averagely.NewFactory()}
	serve.Main(o)
}

// lifetime is twice as long after each two lives of a test, up to half a minute: on a
// busy machine the first ones are over before they are checked.
func lifetime() time.Duration {
	f, err := os.OpenFile(filepath.Join(os.TempDir(), "lives"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return time.Second
	}
	defer f.Close()
	_, _ = f.WriteString(".")
	lives := int64(1)
	if st, err := f.Stat(); err == nil {
		lives = st.Size()
	}
	return time.Second << min((lives-1)/2, 5)
}
