// Package wiretest joins both halves of a plugin process in one process, for
// tests.
package wiretest

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/sdk/wire"
)

// Pair is a process that is none: a launcher of itself.
type Pair struct {
	conn   *grpc.ClientConn
	server *grpc.Server
	gone   chan struct{}
	once   sync.Once
}

// New serves the kinds until the test ends; then they are closed, and what they
// say about it is not looked at: tests may have broken them.
func New(tb testing.TB, served ...wire.Served) *Pair {
	tb.Helper()
	ln := bufconn.Listen(1 << 16)
	p := &Pair{server: grpc.NewServer(grpc.MaxRecvMsgSize(wire.MaxControl)), gone: make(chan struct{})}
	wire.Register(p.server, served...)
	go func() { _ = p.server.Serve(ln) }()
	conn, err := grpc.NewClient("passthrough:plugin",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return ln.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		tb.Fatal(err)
	}
	p.conn = conn
	tb.Cleanup(func() {
		for _, s := range served {
			_ = s.Close(context.WithoutCancel(tb.Context()))
		}
		p.Kill()
	})
	return p
}

// Kill cuts the control connection.
func (p *Pair) Kill() {
	p.once.Do(func() {
		close(p.gone)
		_ = p.conn.Close()
		p.server.Stop()
	})
}

// Acquire implements wire.Launcher.
func (p *Pair) Acquire(context.Context, *slog.Logger) (wire.Process, error) { return p, nil }

// Conn implements wire.Process.
func (p *Pair) Conn() grpc.ClientConnInterface { return p.conn }

// Gone implements wire.Process.
func (p *Pair) Gone() <-chan struct{} { return p.gone }

// Retired implements wire.Process: nothing takes the place of a Pair.
func (p *Pair) Retired() <-chan struct{} { return nil }

// Cause implements wire.Process.
func (p *Pair) Cause() error { return plugin.ErrUnavailable }

// Release implements wire.Process.
func (p *Pair) Release(bool) {}
