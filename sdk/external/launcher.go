package external

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	goplugin_runner "github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/sdk/wire"
)

// launcher owns the process of one factory.
type launcher struct {
	kind, name, contract string
	o                    Options

	mu  sync.Mutex
	cmd Command // of the next process
	cur *process

	built     []plugin.Raw // configurations of instances, the newest last
	described plugin.Raw   // the last configuration that was checked
}

// process is a launched one.
type process struct {
	l      *launcher
	cmd    Command
	client *goplugin.Client
	conn   *grpc.ClientConn
	run    *runner
	out    *pump
	// retired is closed when another process took its place.
	retired chan struct{}

	// under launcher.mu
	users int
	idle  *time.Timer
}

var _ wire.Process = (*process)(nil)

// Acquire implements wire.Launcher.
func (l *launcher) Acquire(ctx context.Context, log *slog.Logger) (wire.Process, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.cur; p != nil && p.run.alive() {
		if p.idle != nil {
			p.idle.Stop()
			p.idle = nil
		}
		p.users++
		p.out.use(log)
		return p, nil
	}
	p, err := l.launch(ctx, l.cmd, log)
	if err != nil {
		return nil, err
	}
	p.users = 1
	l.cur = p
	return p, nil
}

// launch starts a process and shakes hands with it.
func (l *launcher) launch(ctx context.Context, cmd Command, log *slog.Logger) (*process, error) {
	identity, certificate, err := newCertificate()
	if err != nil {
		return nil, err
	}
	p := &process{l: l, cmd: cmd, out: newPump(l.name, log), retired: make(chan struct{})}
	p.run = newRunner(cmd, p.out)
	var sockets string
	p.client = goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig:  wire.Handshake(),
		VersionedPlugins: wire.Plugins(nil),
		RunnerFunc: func(_ hclog.Logger, spec *exec.Cmd, dir string) (goplugin_runner.Runner, error) {
			sockets = dir
			p.run.cmd.Env = append(append(environment(cmd.Env), spec.Env...), certificateEnv+"="+certificate)
			return p.run, nil
		},
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		TLSConfig:        identity,
		SkipHostEnv:      true,
		StartTimeout:     l.o.StartTimeout,
		SyncStdout:       p.out.writer("stdout"),
		SyncStderr:       p.out.writer("stderr"),
		// The process's output does not pass through go-plugin at all: it takes
		// lines apart at any other level, and panics on some.
		Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Off, Output: io.Discard}),
	})
	stop := context.AfterFunc(ctx, func() { _ = p.run.Kill(ctx) })
	defer stop()
	err = p.connect(ctx)
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		_ = p.run.Kill(ctx)
		p.client.Kill()
		_ = p.run.wait()
		p.out.stop()
		return nil, fmt.Errorf("%w: the process of plugin %q (%s) did not start: %w%s", plugin.ErrUnavailable, l.name, cmd.Path, err, p.epilogue())
	}
	_ = os.RemoveAll(sockets) // connected: nothing is left behind whoever is killed
	return p, nil
}

func (p *process) connect(ctx context.Context) error {
	c, err := p.client.Client()
	if err != nil {
		return err
	}
	if err := c.Ping(); err != nil {
		return err
	}
	raw, err := c.Dispense(wire.Everything)
	if err != nil {
		return err
	}
	conn, ok := raw.(*grpc.ClientConn)
	if !ok {
		return fmt.Errorf("there is no connection to it, but a %T", raw)
	}
	p.conn = conn
	return ctx.Err()
}

// Conn implements wire.Process.
func (p *process) Conn() grpc.ClientConnInterface { return p.conn }

// Gone implements wire.Process.
func (p *process) Gone() <-chan struct{} { return p.run.exited }

// Retired implements wire.Process.
func (p *process) Retired() <-chan struct{} { return p.retired }

// causeTime bounds the wait for the end of a process whose connections broke.
const causeTime = 2 * time.Second

// Cause implements wire.Process.
func (p *process) Cause() error {
	t := time.NewTimer(causeTime)
	defer t.Stop()
	select {
	case <-p.run.exited:
	case <-t.C:
	}
	return fmt.Errorf("%w: the process of plugin %q (pid %s) is gone%s", plugin.ErrUnavailable, p.l.name, p.run.ID(), p.epilogue())
}

// epilogue is how the process ended and what it said last.
func (p *process) epilogue() string {
	s := p.run.status()
	if s != "" {
		s = "; " + s
	}
	if last := p.out.last(); last != "" {
		s += "; its last output:\n" + last
	}
	return s
}

// Release implements wire.Process.
func (p *process) Release(linger bool) {
	l := p.l
	l.mu.Lock()
	p.users--
	if p.users > 0 {
		l.mu.Unlock()
		return
	}
	if linger && l.o.Linger > 0 && l.cur == p && p.run.alive() {
		p.idle = time.AfterFunc(l.o.Linger, p.expire)
		l.mu.Unlock()
		return
	}
	if l.cur == p {
		l.cur = nil
	}
	l.mu.Unlock()
	p.end()
}

// expire ends a process that nobody acquired.
func (p *process) expire() {
	l := p.l
	l.mu.Lock()
	unused := p.users == 0 && l.cur == p
	if unused {
		l.cur = nil
	}
	l.mu.Unlock()
	if unused {
		p.end()
	}
}

// end asks the process to end, kills it when it does not, and waits.
func (p *process) end() {
	p.client.Kill()
	_ = p.run.Kill(context.Background())
	_ = p.run.wait()
	p.out.stop()
}
