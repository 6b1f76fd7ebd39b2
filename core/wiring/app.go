package wiring

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.uber.org/dig"
	"go.uber.org/fx"
	"go.uber.org/fx/fxevent"

	"github.com/hardpointmq/hardpoint/core/plugin"
)

// Options are what Run needs besides fx options.
type Options struct {
	Logger *slog.Logger
	Meter  plugin.Meter
	Clock  plugin.Clock
	// StartTimeout bounds starting, recovery included [10 min].
	StartTimeout time.Duration
	// StopTimeout is what all components together get to stop [60 s].
	StopTimeout time.Duration
	// Hurry is closed when Run must not drain, or not go on with it; nil: it drains
	// as long as components want.
	Hurry <-chan struct{}

	_ struct{}
}

func (o Options) withDefaults() Options {
	s := plugin.Settings{Logger: o.Logger, Meter: o.Meter, Clock: o.Clock}.WithDefaults()
	o.Logger, o.Meter, o.Clock = s.Logger, s.Meter, s.Clock
	if o.StartTimeout == 0 {
		o.StartTimeout = 10 * time.Minute
	}
	if o.StopTimeout == 0 {
		o.StopTimeout = time.Minute
	}
	return o
}

// App is a program wired with fx. Start it once, stop it once.
type App struct {
	fx   *fx.App
	opts Options
	life *Lifecycle
}

// New wires a program. The error is the first cause, not fx's chain of
// constructors, which goes to the log at debug level.
func New(o Options, options ...fx.Option) (*App, error) {
	o = o.withDefaults()
	life := &Lifecycle{log: o.Logger, total: o.StopTimeout}
	a := &App{opts: o, life: life}
	a.fx = fx.New(
		fx.WithLogger(func() fxevent.Logger {
			l := &fxevent.SlogLogger{Logger: o.Logger}
			l.UseLogLevel(slog.LevelDebug)
			l.UseErrorLevel(slog.LevelDebug)
			return l
		}),
		fx.Supply(o, life),
		fx.Provide(
			func() *slog.Logger { return o.Logger },
			func() plugin.Meter { return o.Meter },
			func() plugin.Clock { return o.Clock },
			newPlugins,
		),
		fx.Options(options...),
		// Last: by now every constructor has added its components.
		fx.Invoke(func(lc fx.Lifecycle) {
			lc.Append(fx.Hook{
				OnStart: func(context.Context) error { return life.start() },
				OnStop:  func(context.Context) error { return life.stop() },
			})
		}),
	)
	if err := a.fx.Err(); err != nil {
		return nil, readable(err)
	}
	return a, nil
}

// Validate checks that the options can be wired, without running any
// constructor.
func Validate(o Options, options ...fx.Option) error {
	o = o.withDefaults()
	return fx.ValidateApp(
		fx.NopLogger,
		fx.Supply(o, &Lifecycle{}),
		fx.Provide(func() *slog.Logger { return nil }, func() plugin.Meter { return nil }, func() plugin.Clock { return nil }, newPlugins),
		fx.Options(options...),
	)
}

// readable is the cause that a person can act on.
func readable(err error) error { return dig.RootCause(err) }

// Start starts all components. When one fails, those that run are shut down and
// the error names the one that failed. When ctx ends it waits for the component
// that is starting, which fx alone would leave behind, but no longer than
// StopTimeout: the process can only end then, as after [App.Stop].
func (a *App) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, a.opts.StartTimeout)
	defer cancel()
	a.life.starting = ctx
	if err := a.fx.Start(context.WithoutCancel(ctx)); err != nil {
		return readable(err)
	}
	return nil
}

// Stop stops all components in reverse. They share StopTimeout, or what ctx leaves
// of it. One that takes longer than its share goes on meanwhile; Stop returns when
// all have returned, or when the whole time is over. Then the error says who hangs,
// and nothing is left to the caller but to end the process: what hangs in a system
// call on a disk that does not answer cannot be stopped.
func (a *App) Stop(ctx context.Context) error {
	if d, ok := ctx.Deadline(); ok {
		a.life.total = min(a.life.total, max(time.Until(d), 0))
	}
	over := time.NewTimer(a.life.total)
	defer over.Stop()
	err := a.fx.Stop(context.WithoutCancel(ctx))
	if err != nil {
		err = readable(err)
	}
	return errors.Join(err, a.life.wait(over.C))
}

// Drainer is a component whose clients are to be led elsewhere before anything stops.
type Drainer interface {
	plugin.Component
	// Drain returns when the component may be shut down. Everything still runs
	// meanwhile, and other components drain at the same time. The end of ctx asks to
	// hurry. It is called once at most.
	Drain(ctx context.Context)
}

// Run starts the program and waits until ctx ends or a component asks to stop
// ([Lifecycle.Fail]). If ctx ended while all ran it lets those drain that can
// ([Drainer]), until Hurry or a failure. Then it stops the program, and returns what
// went wrong.
func (a *App) Run(ctx context.Context) error {
	if err := a.Start(ctx); err != nil {
		return err
	}
	var cause error
	early := ctx.Err() != nil // nobody was served yet
	select {
	case <-ctx.Done():
		if !early && !a.hurries() {
			cause = a.drain(context.WithoutCancel(ctx))
		}
	case cause = <-a.life.failures():
	}
	return errors.Join(cause, a.Stop(context.WithoutCancel(ctx)))
}

func (a *App) hurries() bool {
	select {
	case <-a.opts.Hurry:
		return true
	default:
		return false
	}
}

// drain waits for all drainers. The error is that of a component that asked to stop.
func (a *App) drain(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	for _, p := range a.life.parts {
		if d, ok := p.c.(Drainer); ok {
			wg.Go(func() { d.Drain(ctx) })
		}
	}
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	var cause error
	select {
	case <-done:
	case <-a.opts.Hurry:
	case cause = <-a.life.failures():
	}
	cancel()
	<-done
	return cause
}

// Lifecycle starts components in the order they were added and stops them in
// reverse, each with a share of the time of its own.
type Lifecycle struct {
	log      *slog.Logger
	total    time.Duration
	starting context.Context // of the Start under way

	mu    sync.Mutex
	parts []part
	up    int
	fail  chan error

	late map[string]chan error // Shutdowns that took longer than their share
}

type part struct {
	name  string
	c     plugin.Component
	share int
}

// Add adds a component. share weighs its part of the stop time against those of
// the others; it is at least 1.
func (l *Lifecycle) Add(name string, c plugin.Component, share int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.parts = append(l.parts, part{name, c, max(share, 1)})
}

// Names are the components in the order in which they start.
func (l *Lifecycle) Names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := make([]string, len(l.parts))
	for i, p := range l.parts {
		names[i] = p.name
	}
	return names
}

func (l *Lifecycle) failures() chan error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail == nil {
		l.fail = make(chan error, 1)
	}
	return l.fail
}

// Fail asks the program to stop because of err; the first one counts.
func (l *Lifecycle) Fail(err error) {
	select {
	case l.failures() <- err:
	default:
	}
}

func (l *Lifecycle) start() error {
	ctx := l.starting
	for i, p := range l.parts {
		if err := l.startOne(ctx, p); err != nil {
			l.up = i
			// fx calls no stop hook of a start hook that failed.
			return errors.Join(fmt.Errorf("%s did not start: %w", p.name, err), l.stop())
		}
		l.up = i + 1
	}
	return nil
}

// startOne starts a component. A Start that does not return after ctx has ended
// is given up after the time that all get to stop.
func (l *Lifecycle) startOne(ctx context.Context, p part) error {
	done := make(chan error, 1)
	go func() { done <- p.c.Start(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	over := time.NewTimer(l.total)
	defer over.Stop()
	select {
	case err := <-done:
		return err
	case <-over.C:
		// Not wrapped: this is no start that was called off and ended in order.
		return fmt.Errorf("%v, and it has not returned for %v since: it hangs, perhaps on a disk that does not answer", context.Cause(ctx), l.total) //nolint:errorlint // see above
	}
}

// stop gives each component its share, whatever the earlier ones took.
func (l *Lifecycle) stop() error {
	sum := 0
	for _, p := range l.parts[:l.up] {
		sum += p.share
	}
	var errs []error
	for i := l.up - 1; i >= 0; i-- {
		p := l.parts[i]
		share := l.total * time.Duration(p.share) / time.Duration(sum)
		one, cancel := context.WithTimeout(context.Background(), share)
		done := make(chan error, 1)
		go func() { done <- p.c.Shutdown(one) }()
		select {
		case err := <-done:
			if err != nil {
				errs = append(errs, fmt.Errorf("%s did not stop cleanly: %w", p.name, err))
			}
		case <-one.Done():
			// Its Shutdown goes on by itself; App.Stop waits for it at the end.
			errs = append(errs, fmt.Errorf("%s did not stop within %v", p.name, share.Round(time.Millisecond)))
			l.log.Warn("a component takes long to stop; the others are stopped meanwhile", "component", p.name, "its_time", share.Round(time.Millisecond))
			if l.late == nil {
				l.late = map[string]chan error{}
			}
			l.late[p.name] = done
		}
		cancel()
	}
	l.up = 0
	return errors.Join(errs...)
}

// wait waits for Shutdowns that took too long, until over.
func (l *Lifecycle) wait(over <-chan time.Time) error {
	var errs []error
	for name, done := range l.late {
		select {
		case err := <-done:
			errs = append(errs, err)
			continue
		default:
		}
		select {
		case err := <-done:
			errs = append(errs, err)
		case <-over:
			return errors.Join(append(errs, fmt.Errorf("%s still hangs, perhaps on a disk that does not answer; the process ends without it, and the next start recovers", name))...)
		}
	}
	return errors.Join(errs...)
}
