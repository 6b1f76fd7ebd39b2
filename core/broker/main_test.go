package broker

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/sdk/serve"
)

func TestMain(m *testing.M) {
	if v := os.Getenv(VersionEnv); v != "" { // the process of an allocator
		serve.Main(serve.Allocate(Turning(v)))
	}
	goleak.VerifyTestMain(m)
}
