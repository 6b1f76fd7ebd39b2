package broker

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/plugins/replication/solo"
	"github.com/hardpointmq/hardpoint/sdk/serve"
)

func TestMain(m *testing.M) {
	if v := os.Getenv(VersionEnv); v != "" { // the process of a plugin
		o := serve.Allocate(Turning(v))
		o.Replication = []replication.Factory{solo.NewFactory()}
		serve.Main(o)
	}
	goleak.VerifyTestMain(m)
}
