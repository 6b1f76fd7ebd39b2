package storagewire_test

import (
	"context"
	"log/slog"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire/storagepb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair is both halves in one process; kill cuts the gRPC connection.
type pair struct {
	control storagepb.StorageClient
	conn    *grpc.ClientConn
	server  *grpc.Server
	stores  *storagewire.Server
}

func newPair(tb testing.TB, factories ...storage.Factory) *pair {
	tb.Helper()
	ln := bufconn.Listen(1 << 16)
	p := &pair{server: grpc.NewServer(), stores: storagewire.NewServer(nil, factories...)}
	storagepb.RegisterStorageServer(p.server, p.stores)
	go func() { _ = p.server.Serve(ln) }()
	conn, err := grpc.NewClient("passthrough:plugin",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return ln.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(tb, err)
	p.conn, p.control = conn, storagepb.NewStorageClient(conn)
	tb.Cleanup(func() {
		require.NoError(tb, p.stores.Close(context.WithoutCancel(tb.Context())))
		require.NoError(tb, conn.Close())
		p.server.Stop()
	})
	return p
}

func (p *pair) Acquire(context.Context, *slog.Logger) (storagewire.Process, error) { return p, nil }
func (p *pair) Control() storagepb.StorageClient                                   { return p.control }
func (p *pair) Cause() error                                                       { return plugin.ErrUnavailable }
func (p *pair) Release(bool)                                                       {}
