package external

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	goplugin_runner "github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/sdk/wire"
)

// launcher owns the process of one factory.
type launcher struct {
	contract *wire.Contract
	name     string
	o        Options
	m        *meters
	turn     chan struct{} // holds a token while a process is launched

	mu   sync.Mutex
	cmd  Command // of the next process
	cur  *process
	hist *history // of the processes of cmd

	built     []use // configurations of instances, the newest last
	described use   // the last configuration that was checked
}

func newLauncher(c *wire.Contract, name string, cmd Command, o Options) *launcher {
	l := &launcher{contract: c, name: name, cmd: cmd, o: o.withDefaults(), turn: make(chan struct{}, 1)}
	l.hist = newHistory(&l.o)
	l.m = newMeters(l)
	return l
}

// process is a launched one.
type process struct {
	l       *launcher
	cmd     Command
	client  *goplugin.Client
	conn    *grpc.ClientConn
	run     *runner
	out     *pump
	retired chan struct{} // closed when another process took its place
	watched chan struct{} // closed when its end is noted
	once    sync.Once     // of end
	mute    atomic.Bool   // it tells no metrics
	methods methods

	// under launcher.mu
	users  int
	idle   *time.Timer
	ending bool   // somebody asked it to end while it was alive
	hung   string // why it was killed
	// installed: it was the launcher's, not only tried; its death counts.
	installed bool
	noted     bool // its end is
}

var _ wire.Process = (*process)(nil)

// Acquire implements wire.Launcher. After a death the next process starts when the
// back-off is over; a caller who does not wait that long is refused at once, and so
// is everybody while the circuit breaker is open.
func (l *launcher) Acquire(ctx context.Context, log *slog.Logger) (wire.Process, error) {
	if p := l.join(ctx, log); p != nil {
		return p, nil
	}
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: waiting for the start of plugin %q: %w", plugin.ErrUnavailable, l.name, ctx.Err())
	}
	if p := l.join(ctx, log); p != nil { // somebody else launched it
		return p, nil
	}
	if err := l.wait(ctx); err != nil {
		return nil, err
	}
	l.mu.Lock()
	cmd := l.cmd
	l.hist.begin(l.o.Clock.Now())
	l.mu.Unlock()
	p, err := l.launch(ctx, cmd, log)
	if other := l.join(ctx, log); other != nil { // the program was replaced
		if err == nil {
			p.end()
		}
		return other, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		var s *startError
		if errors.As(err, &s) && s.died {
			l.m.deaths.Add(1)
			l.hist.die(l.o.Clock.Now(), s.what())
		}
		return nil, err
	}
	if p.noted { // it did not live until here
		l.m.deaths.Add(1)
		l.hist.die(l.o.Clock.Now(), "it ended right after its start"+p.epilogue())
	}
	p.users, p.installed = 1, true
	l.cur = p
	return p, nil
}

// join gives the process that runs, nil when there is none.
func (l *launcher) join(ctx context.Context, log *slog.Logger) wire.Process {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.cur
	if p == nil {
		return nil
	}
	if !p.run.alive() {
		l.mu.Unlock() // its end must be noted, or the next start would not wait
		select {
		case <-p.watched:
		case <-ctx.Done():
		}
		l.mu.Lock()
		return nil
	}
	if p.idle != nil {
		p.idle.Stop()
		p.idle = nil
	}
	p.users++
	p.out.use(log)
	return p
}

// wait returns when a process may be started.
func (l *launcher) wait(ctx context.Context) error {
	for {
		l.mu.Lock()
		now := l.o.Clock.Now()
		wait, refused := l.hist.next(now)
		deadline, bounded := ctx.Deadline()
		var err error
		if refused || bounded && time.Until(deadline) < wait {
			err = l.hist.refusal(l.name, l.cmd.Path, now)
		}
		l.mu.Unlock()
		if l.stopping() {
			err = fmt.Errorf("%w: plugin %q (%s) is not started, its host is stopping", plugin.ErrUnavailable, l.name, l.cmd.Path)
		}
		if err != nil || wait <= 0 {
			return err
		}
		t := l.o.Clock.NewTimer(wait)
		select {
		case <-t.C():
		case <-l.o.Stopping:
			t.Stop()
		case <-ctx.Done():
			t.Stop()
			return fmt.Errorf("%w: waiting for the next start of plugin %q: %w", plugin.ErrUnavailable, l.name, ctx.Err())
		}
	}
}

// startError says why a process did not start.
type startError struct {
	name, path string
	err        error
	epilogue   string
	died       bool // a process was started, and the caller did not give up
}

// Error implements error.
func (e *startError) Error() string {
	return fmt.Sprintf("%s: the process of plugin %q (%s) did not start: %s", plugin.ErrUnavailable, e.name, e.path, e.what())
}

func (e *startError) what() string { return e.err.Error() + e.epilogue }

// Unwrap makes it match plugin.ErrUnavailable and its reason.
func (e *startError) Unwrap() []error { return []error{plugin.ErrUnavailable, e.err} }

// launch starts a process and shakes hands with it.
func (l *launcher) launch(ctx context.Context, cmd Command, log *slog.Logger) (*process, error) {
	fault := &startError{name: l.name, path: cmd.Path}
	identity, certificate, err := newCertificate()
	if err != nil {
		fault.err = err
		return nil, fault
	}
	prog, err := openProgram(cmd)
	if err != nil {
		fault.err = err
		return nil, fault
	}
	defer prog.close()
	sockets, remove, err := wire.SocketDir()
	if err != nil {
		fault.err = err
		return nil, fault
	}
	defer remove() // connected: nothing is left behind whoever is killed

	p := &process{l: l, cmd: cmd, out: newPump(l.name, log, l.o.Clock), retired: make(chan struct{}), watched: make(chan struct{})}
	p.run = newRunner(prog, cmd.Args, p.out)
	p.client = goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig:  wire.Handshake(),
		VersionedPlugins: wire.Plugins(nil),
		UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: sockets},
		RunnerFunc: func(_ hclog.Logger, spec *exec.Cmd, _ string) (goplugin_runner.Runner, error) {
			// Later ones count: the socket's path must be short.
			p.run.cmd.Env = append(append(environment(cmd.Env), spec.Env...), certificateEnv+"="+certificate, goplugin.EnvUnixSocketDir+"="+sockets)
			return p.run, nil
		},
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		TLSConfig:        identity,
		SkipHostEnv:      true,
		StartTimeout:     l.o.StartTimeout + time.Minute, // ours counts, and says more
		SyncStdout:       p.out.writer("stdout"),
		SyncStderr:       p.out.writer("stderr"),
		GRPCDialOptions:  p.dialOptions(),
		// The process's output does not pass through go-plugin at all: it takes
		// lines apart at any other level, and panics on some.
		Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Off, Output: io.Discard}),
	})
	l.m.starts.Add(1)
	limit, cancel := context.WithTimeout(ctx, l.o.StartTimeout)
	defer cancel()
	stop := context.AfterFunc(limit, func() { _ = p.run.Kill(ctx) })
	defer stop()
	if err := p.connect(limit); err != nil {
		fault.err = p.whyNot(ctx, limit, err)
		fault.died = ctx.Err() == nil && p.run.started.Load()
		_ = p.run.Kill(ctx)
		p.client.Kill()
		_ = p.run.wait()
		p.out.stop()
		fault.epilogue = p.epilogue()
		return nil, fault
	}
	go p.watch()
	return p, nil
}

func (p *process) connect(ctx context.Context) error {
	c, err := p.client.Client()
	if err != nil {
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
	if err := p.health(ctx); err != nil {
		return fmt.Errorf("it does not answer the health call: %w", err)
	}
	return ctx.Err()
}

// whyNot is why the process did not come up, in words.
func (p *process) whyNot(ctx, limit context.Context, err error) error {
	r := p.run
	hand, fault := r.shaken()
	late := limit.Err() != nil || status.Code(err) == codes.DeadlineExceeded // gRPC is a moment early
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case r.startErr != nil:
		return diagnose(p.cmd.Path, r.startErr)
	case !r.started.Load(): // go-plugin failed before that
		return fmt.Errorf("it was not launched: %w", err)
	case fault != nil:
		return fault
	case late && hand == "":
		found := "found was nothing"
		if n := p.out.noise(); len(n) > 0 {
			found = fmt.Sprintf("found was %q", n[0])
		}
		return fmt.Errorf("nothing came of the handshake within %v: expected is a line like %q of its own on its standard output, %s; if the program is only slow to start, give it a longer start timeout (pluginStartTimeout)", p.l.o.StartTimeout, expectedHandshake, found)
	case late:
		return fmt.Errorf("it shook hands (%s), but did not answer the health call within %v", shown(hand), p.l.o.StartTimeout)
	case hand == "" && r.killed.Load(): // go-plugin did, at the end of its output
		return errors.New("it closed its standard output without the handshake of a Hardpoint plugin, and went on running")
	case hand == "":
		return errors.New("it ended before the handshake: its last output says why, unless it is no plugin of Hardpoint, or one whose main function does not call serve")
	}
	return fmt.Errorf("it shook hands (%s), then: %w", shown(hand), err)
}

// shown is a handshake without its certificate.
func shown(hand string) string {
	parts := strings.SplitN(hand, "|", 6)
	return strings.Join(parts[:min(len(parts), 5)], "|")
}

// Conn implements wire.Process.
func (p *process) Conn() grpc.ClientConnInterface { return p.conn }

// methods are what is known of those of a process.
type methods struct {
	sync.Mutex                 // held while it is asked
	has        map[string]bool // of those that were asked for
}

// Knows implements wire.Process.
func (p *process) Knows(ctx context.Context, all []string) error {
	m := &p.methods
	m.Lock()
	defer m.Unlock()
	ask := slices.DeleteFunc(slices.Clone(all), func(one string) bool {
		_, asked := m.has[one]
		return asked
	})
	lacks, err := wire.Lacking(ctx, p.conn, ask)
	if err != nil {
		return err
	}
	if m.has == nil {
		m.has = map[string]bool{}
	}
	for _, one := range ask {
		m.has[one] = !slices.Contains(lacks, one)
	}
	lacks = slices.DeleteFunc(slices.Clone(all), func(one string) bool { return m.has[one] })
	if len(lacks) == 0 {
		return nil
	}
	return fmt.Errorf("%w: the program %s of plugin %q lacks what this host calls: %s; build it with the SDK of this host's version, or, in another language, serve every method of its protos",
		plugin.ErrUnavailable, p.cmd.Path, p.l.name, strings.Join(lacks, ", "))
}

// Gone implements wire.Process.
func (p *process) Gone() <-chan struct{} { return p.run.exited }

// Retired implements wire.Process.
func (p *process) Retired() <-chan struct{} { return p.retired }

// CallTimeout implements wire.Process.
func (p *process) CallTimeout() time.Duration { return max(p.l.o.CallTimeout, 0) }

// causeTime bounds the wait for the end of a process whose connections broke.
const causeTime = 2 * time.Second

// Cause implements wire.Process.
func (p *process) Cause() error {
	t := time.NewTimer(causeTime)
	defer t.Stop()
	select {
	case <-p.run.exited:
		select {
		case <-p.run.pumps: // its last words
		case <-t.C:
		}
	case <-t.C:
	}
	return fmt.Errorf("%w: the process of plugin %q (%s, pid %s) %s", plugin.ErrUnavailable, p.l.name, p.cmd.Path, p.run.ID(), p.fate())
}

// Stopping implements wire.Process.
func (p *process) Stopping() <-chan struct{} { return p.l.o.Stopping }

// StopTimeout implements wire.Process.
func (p *process) StopTimeout() time.Duration { return max(p.l.o.StopTimeout, 0) }

// fate is what became of the process, without its name.
func (p *process) fate() string {
	p.l.mu.Lock()
	hung := p.hung
	p.l.mu.Unlock()
	if hung != "" {
		return hung + p.epilogue()
	}
	if p.run.alive() {
		return "broke its connections, but runs" + p.epilogue()
	}
	return "is gone" + p.epilogue()
}

// Fail implements wire.Process.
func (p *process) Fail(why error) {
	p.l.mu.Lock()
	if p.hung == "" && p.run.alive() {
		p.hung = "was killed by its host, because " + why.Error()
	}
	p.l.mu.Unlock()
	_ = p.run.Kill(context.Background())
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

// endTime is how long a process may take to end that was asked to; a little more
// than what serve gives its plugins to close.
const endTime = 12 * time.Second

// end asks the process to end, kills it when it does not, and waits. Only the first
// call does something.
func (p *process) end() {
	p.once.Do(func() {
		p.l.mu.Lock()
		// One that was killed because it hung has died, however soon it is given back.
		p.ending = p.ending || p.hung == "" && p.run.alive()
		p.l.mu.Unlock()
		// One that hangs would never answer go-plugin.
		limit := endTime
		if p.l.stopping() && p.l.o.StopTimeout > 0 {
			limit = min(limit, p.l.o.StopTimeout)
		}
		t := time.AfterFunc(limit, func() { _ = p.run.Kill(context.Background()) })
		defer t.Stop()
		p.client.Kill()
		_ = p.run.Kill(context.Background())
		_ = p.run.wait()
		<-p.watched
		p.out.stop()
	})
}
