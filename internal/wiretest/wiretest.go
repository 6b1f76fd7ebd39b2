// Package wiretest joins both halves of a plugin process in one process, for
// tests.
package wiretest

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
	served []wire.Served
	gone   chan struct{}
	failed atomic.Pointer[error]
	once   sync.Once
	limit  time.Duration // of calls
	// stop is the limit when stopping is closed.
	stop     time.Duration
	stopping <-chan struct{}
}

// New serves the kinds until the test ends; then they are closed, and what they
// say about it is not looked at: tests may have broken them.
func New(tb testing.TB, served ...wire.Served) *Pair {
	tb.Helper()
	p, err := open(served)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { p.close(context.WithoutCancel(tb.Context())) })
	return p
}

func open(served []wire.Served) (*Pair, error) {
	ln := bufconn.Listen(1 << 16)
	p := &Pair{server: grpc.NewServer(grpc.MaxRecvMsgSize(wire.MaxControl)), served: served, gone: make(chan struct{})}
	wire.Register(p.server, nil, served...)
	go func() { _ = p.server.Serve(ln) }()
	conn, err := grpc.NewClient("passthrough:plugin",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return ln.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	p.conn = conn
	return p, err
}

func (p *Pair) close(ctx context.Context) {
	for _, s := range p.served {
		_ = s.Close(ctx)
	}
	p.Kill()
}

// Launcher starts Pairs, the next one when the last was killed.
type Launcher struct {
	serve func() []wire.Served

	mu   sync.Mutex
	all  []*Pair
	fail error
	// Limit is that of calls over data sockets, of the Pairs to come; 0: none.
	Limit time.Duration
	// Stop is the limit when Stopping is closed, of the Pairs to come.
	Stop     time.Duration
	Stopping <-chan struct{}
}

// NewLauncher makes a Launcher of processes that serve what serve gives; they are
// closed when the test ends.
func NewLauncher(tb testing.TB, serve func() []wire.Served) *Launcher {
	l := &Launcher{serve: serve}
	tb.Cleanup(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, p := range l.all {
			p.close(context.WithoutCancel(tb.Context()))
		}
	})
	return l
}

// Refuse makes Acquire fail when there is no process; nil ends that.
func (l *Launcher) Refuse(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail = err
}

// Kill kills the process that was started last.
func (l *Launcher) Kill() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all[len(l.all)-1].Kill()
}

// Acquire implements wire.Launcher.
func (l *Launcher) Acquire(context.Context, *slog.Logger) (wire.Process, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.all); n > 0 {
		select {
		case <-l.all[n-1].gone:
		default:
			return l.all[n-1], nil
		}
	}
	if l.fail != nil {
		return nil, l.fail
	}
	p, err := open(l.serve())
	if err != nil {
		return nil, err
	}
	p.limit, p.stop, p.stopping = l.Limit, l.Stop, l.Stopping
	l.all = append(l.all, p)
	return p, nil
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

// Knows implements wire.Process.
func (p *Pair) Knows(ctx context.Context, methods []string) error {
	lacks, err := wire.Lacking(ctx, p.conn, methods)
	if err == nil && len(lacks) > 0 {
		err = fmt.Errorf("%w: it lacks %q", plugin.ErrUnavailable, lacks)
	}
	return err
}

// Gone implements wire.Process.
func (p *Pair) Gone() <-chan struct{} { return p.gone }

// Retired implements wire.Process: nothing takes the place of a Pair.
func (p *Pair) Retired() <-chan struct{} { return nil }

// CallTimeout implements wire.Process.
func (p *Pair) CallTimeout() time.Duration { return p.limit }

// Stopping implements wire.Process.
func (p *Pair) Stopping() <-chan struct{} { return p.stopping }

// StopTimeout implements wire.Process.
func (p *Pair) StopTimeout() time.Duration { return p.stop }

// Cause implements wire.Process.
func (p *Pair) Cause() error {
	if why := p.failed.Load(); why != nil {
		return fmt.Errorf("%w: %w", plugin.ErrUnavailable, *why)
	}
	return plugin.ErrUnavailable
}

// Fail implements wire.Process.
func (p *Pair) Fail(why error) {
	p.failed.CompareAndSwap(nil, &why)
	p.Kill()
}

// Release implements wire.Process.
func (p *Pair) Release(bool) {}

// Without registers services as if some methods, by their full names, were not in
// their protos.
func Without(r grpc.ServiceRegistrar, methods ...string) grpc.ServiceRegistrar {
	return without{r, methods}
}

type without struct {
	grpc.ServiceRegistrar
	methods []string
}

// RegisterService implements grpc.ServiceRegistrar.
func (w without) RegisterService(d *grpc.ServiceDesc, impl any) {
	less := *d
	less.Methods = slices.DeleteFunc(slices.Clone(d.Methods), func(m grpc.MethodDesc) bool {
		return slices.Contains(w.methods, "/"+d.ServiceName+"/"+m.MethodName)
	})
	w.ServiceRegistrar.RegisterService(&less, impl)
}
