// Package proxy is what the proxies of plugins, in the host, have in common.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/sdk/wire"
)

// phase of a Life.
const (
	fresh int32 = iota
	running
	stopped
)

// Life is that of a component: it is started once at most, and shut down once however
// often that is asked for. A Start that is under way when Shutdown comes is told so, and
// no Start comes behind a Shutdown. Make it with [NewLife]. Safe for concurrent use.
type Life struct {
	what  string
	mu    sync.Mutex // Start, and the change to stopped
	phase atomic.Int32
	over  context.Context // ends with the first Shutdown
	end   context.CancelFunc
	once  sync.Once
	down  chan struct{} // closed when it is shut down
	err   error         // how that went; written before down is closed
}

// NewLife makes the Life of what errors call what.
func NewLife(what string) *Life {
	l := &Life{what: what, down: make(chan struct{})}
	l.over, l.end = context.WithCancel(context.Background())
	return l
}

// Running reports whether the component takes calls.
func (l *Life) Running() bool { return l.phase.Load() == running }

// Stopped reports whether it was shut down, or Start failed.
func (l *Life) Stopped() bool { return l.phase.Load() == stopped }

// Start calls f, whose context ends with ctx, with a Shutdown, and when f returns. f calls
// run as soon as the component takes calls: Running is true from then on. f's error is
// returned, and is the end. A second Start is an error.
func (l *Life) Start(ctx context.Context, f func(ctx context.Context, run func()) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.over.Err() != nil:
		return fmt.Errorf("the %s was shut down already", l.what)
	case l.phase.Load() != fresh:
		return fmt.Errorf("the %s was started already", l.what)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.over, cancel)()
	err := f(ctx, func() { l.phase.Store(running) })
	if err != nil {
		l.phase.Store(stopped)
	}
	return err
}

// Shutdown calls f beside the caller, once, when a Start that is under way has returned
// and if the component runs then, and returns its error. When ctx ends first, it returns
// ctx's error, f is called or goes on all the same, and a second Shutdown waits for it.
// Stopped is true when f is called.
func (l *Life) Shutdown(ctx context.Context, f func() error) error {
	l.end()
	l.once.Do(func() {
		end := func() {
			was := l.phase.Swap(stopped)
			l.mu.Unlock() // a Start that comes from now on is refused at once
			if was == running {
				l.err = f()
			}
			close(l.down)
		}
		switch {
		case !l.mu.TryLock(): // a Start is under way
			go func() {
				l.mu.Lock()
				end()
			}()
		case l.phase.Load() == running:
			go end()
		default:
			end()
		}
	})
	select {
	case <-l.down: // also when ctx has ended
		return l.err
	default:
	}
	select {
	case <-l.down:
		return l.err
	case <-ctx.Done():
		return fmt.Errorf("waiting for the %s to shut down: %w", l.what, ctx.Err())
	}
}

// LastMoment is what a process gets to end an instance after the context for that
// has ended; then its connections are cut.
const LastMoment = 10 * time.Second

// WithLastMoment gives a context that ends [LastMoment] after ctx does: with ctx itself
// a process would never hear of a call that shuts something down, and would keep it
// for as long as it likes. done releases it.
//
// When most is not 0 it ends after that at the latest, whatever becomes of ctx.
func WithLastMoment(ctx context.Context, clock plugin.Clock, most time.Duration) (call context.Context, done func()) {
	call, cancel := context.WithCancel(context.WithoutCancel(ctx))
	if most > 0 {
		go func() {
			if Pause(call, clock, most, nil, nil) {
				cancel()
			}
		}()
	}
	stop := context.AfterFunc(ctx, func() {
		t := clock.NewTimer(LastMoment)
		defer t.Stop()
		select {
		case <-t.C():
			cancel()
		case <-call.Done():
		}
	})
	return call, func() {
		stop()
		cancel()
	}
}

// StopLimit is how long the call that ends an instance may take because the host of its
// process stops; 0: it does not, or takes the time.
func StopLimit(p wire.Process) time.Duration {
	select {
	case <-p.Stopping():
		return p.StopTimeout()
	default:
		return 0
	}
}

// LastTime is what the process of an instance gets to end it beside all else: LastMoment,
// or less when its host stops.
func LastTime(p wire.Process) time.Duration {
	if limit := StopLimit(p); limit > 0 {
		return min(limit, LastMoment)
	}
	return LastMoment
}

// NotWaited is for the end of an instance that keeps nothing which was acknowledged, and
// of which the call that ends it failed with err, when the host stops: one that did not
// answer in time is killed, and one that is gone is what the host wants. Both are told
// to the log, and are no error. Any other is returned.
func NotWaited(call context.Context, p wire.Process, log *slog.Logger, what string, err error) error {
	switch {
	case err == nil || StopLimit(p) == 0:
		return err
	case call.Err() != nil || errors.Is(err, context.DeadlineExceeded): // gRPC is a moment early
		p.Fail(fmt.Errorf("its host stops, and it did not shut down within %v; pluginStopTimeout is the limit", p.StopTimeout()))
	case !errors.Is(err, plugin.ErrUnavailable):
		return err
	}
	Away(p, log, what, p.Cause())
	return nil
}

// Away tells the log, when the host stops, that a plugin could not be shut down, which
// keeps nothing that was acknowledged.
func Away(p wire.Process, log *slog.Logger, what string, why error) {
	if StopLimit(p) > 0 {
		log.Warn("a plugin was not waited for at the stop; nothing that was acknowledged is lost by that", "plugin", what, "error", why)
	}
}

// Pause waits for d. It is false when ctx ended first, or one of the channels was
// closed, which may be nil.
func Pause(ctx context.Context, clock plugin.Clock, d time.Duration, or, either <-chan struct{}) bool {
	t := clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C():
		return true
	case <-ctx.Done():
	case <-or:
	case <-either:
	}
	return false
}

// Agree holds what an instance offers against what its plugin described. The error
// matches plugin.ErrUnavailable.
func Agree(kind, name string, described, offered []string) error {
	if !slices.Equal(described, offered) {
		return fmt.Errorf("%w: %s plugin %q describes itself with the facets %q, but an instance offers %q; this is a fault of the plugin",
			plugin.ErrUnavailable, kind, name, described, offered)
	}
	return nil
}
