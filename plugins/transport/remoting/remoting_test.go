package remoting_test

import (
	"context"
	"net"
	"testing"

	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/transport/transporttest"
	"github.com/hardpointmq/hardpoint/plugins/transport/remoting"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	anyPort := func(testing.TB) string { return "127.0.0.1:0" }
	bytes := func(ctx context.Context, address string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", address)
	}
	transporttest.Run(t, transporttest.Harness{
		Factory: remoting.NewFactory(), Form: "plain", Address: anyPort, Bytes: bytes,
	})
}
