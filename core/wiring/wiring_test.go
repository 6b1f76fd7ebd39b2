package wiring_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/fx"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/wiring"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errTold = errors.New("fails as told")

// journal notes what happens in which order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) note(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]string(nil), j.lines...)
}

// part is a component that does as told.
type part struct {
	name        string
	j           *journal
	start, stop func(ctx context.Context) error
}

func (p part) Start(ctx context.Context) error {
	p.j.note("start " + p.name)
	if p.start != nil {
		return p.start(ctx)
	}
	return nil
}

func (p part) Shutdown(ctx context.Context) error {
	p.j.note("stop " + p.name)
	if p.stop != nil {
		return p.stop(ctx)
	}
	return nil
}

type added struct {
	part
	share int
}

// program wires parts in their order.
func program(t *testing.T, o wiring.Options, parts ...added) *wiring.App {
	t.Helper()
	app, err := wiring.New(o, fx.Invoke(func(life *wiring.Lifecycle) {
		for _, p := range parts {
			life.Add(p.name, p.part, p.share)
		}
	}))
	require.NoError(t, err)
	return app
}

func TestOrder(t *testing.T) {
	j := &journal{}
	app := program(t, wiring.Options{}, added{part{name: "a", j: j}, 1}, added{part{name: "b", j: j}, 1})
	require.Empty(t, j.all(), "wiring starts nothing")
	require.NoError(t, app.Start(t.Context()))
	require.NoError(t, app.Stop(t.Context()))
	require.Equal(t, []string{"start a", "start b", "stop b", "stop a"}, j.all())
}

// fx alone would call no stop hook of the one that failed, and report its own
// chain; here what runs is stopped and the error names the component.
func TestStartThatFails(t *testing.T) {
	j := &journal{}
	fail := func(context.Context) error { return errTold }
	app := program(t, wiring.Options{},
		added{part{name: "admin", j: j}, 1},
		added{part{name: "store", j: j, start: fail}, 1},
		added{part{name: "never", j: j}, 1})
	err := app.Start(t.Context())
	require.ErrorIs(t, err, errTold)
	require.EqualError(t, err, "store did not start: fails as told")
	require.Equal(t, []string{"start admin", "start store", "stop admin"}, j.all())
	require.NoError(t, app.Stop(t.Context()))
	require.Equal(t, []string{"start admin", "start store", "stop admin"}, j.all(), "nothing is stopped twice")
}

// A component that hangs gets its own share, and the store all of its own.
func TestHangTakesNoTimeOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		var storeHad time.Duration
		release := make(chan struct{})
		app := program(t, wiring.Options{StopTimeout: 10 * time.Second},
			added{part{name: "store", j: j, stop: func(ctx context.Context) error {
				d, _ := ctx.Deadline()
				storeHad = time.Until(d)
				require.NoError(t, ctx.Err())
				return nil
			}}, 8},
			added{part{name: "transport", j: j, stop: func(context.Context) error {
				<-release // deaf to its context
				return nil
			}}, 2})
		require.NoError(t, app.Start(t.Context()))
		began := time.Now()
		time.AfterFunc(9*time.Second, func() { close(release) })
		err := app.Stop(t.Context())
		require.EqualError(t, err, "transport did not stop within 2s")
		require.Equal(t, 8*time.Second, storeHad)
		require.Equal(t, 9*time.Second, time.Since(began), "Stop returns only when every component has")
		require.Equal(t, []string{"start store", "start transport", "stop transport", "stop store"}, j.all())
	})
}

// One that never returns, as in an fsync on a disk that does not answer, holds the
// program up until the time to stop is over, and no longer.
func TestHangIsGivenUp(t *testing.T) {
	t.Run("while it stops", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			j := &journal{}
			release := make(chan struct{})
			defer close(release)
			hang := func(context.Context) error { <-release; return nil }
			app := program(t, wiring.Options{StopTimeout: 10 * time.Second},
				added{part{name: "before", j: j}, 1}, added{part{name: "store", j: j, stop: hang}, 3}, added{part{name: "after", j: j}, 1})
			require.NoError(t, app.Start(t.Context()))
			began := time.Now()
			err := app.Stop(t.Context())
			require.ErrorContains(t, err, "store did not stop within 6s")
			require.ErrorContains(t, err, "store still hangs")
			require.Equal(t, 10*time.Second, time.Since(began))
			require.Equal(t, []string{"start before", "start store", "start after", "stop after", "stop store", "stop before"}, j.all())
		})
	})
	t.Run("while it starts", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			j := &journal{}
			release := make(chan struct{})
			defer close(release)
			hang := func(context.Context) error { <-release; return nil }
			app := program(t, wiring.Options{StopTimeout: 10 * time.Second},
				added{part{name: "before", j: j}, 1}, added{part{name: "store", j: j, start: hang}, 3})
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			began := time.Now()
			err := app.Run(ctx)
			require.ErrorContains(t, err, "store did not start")
			require.ErrorContains(t, err, "it hangs")
			require.NotErrorIs(t, err, context.Canceled, "that is how a program ends which was stopped while it started")
			require.Equal(t, 11*time.Second, time.Since(began))
			require.Equal(t, []string{"start before", "start store", "stop before"}, j.all())
		})
	})
}

func TestStopErrorsAreAllTold(t *testing.T) {
	j := &journal{}
	fail := func(context.Context) error { return errTold }
	app := program(t, wiring.Options{}, added{part{name: "a", j: j, stop: fail}, 1}, added{part{name: "b", j: j, stop: fail}, 1})
	require.NoError(t, app.Start(t.Context()))
	err := app.Stop(t.Context())
	require.EqualError(t, err, "b did not stop cleanly: fails as told\na did not stop cleanly: fails as told")
}

func TestRun(t *testing.T) {
	t.Run("until the context ends", func(t *testing.T) {
		j := &journal{}
		ctx, cancel := context.WithCancel(t.Context())
		app := program(t, wiring.Options{}, added{part{name: "a", j: j, start: func(context.Context) error { cancel(); return nil }, stop: func(ctx context.Context) error { return ctx.Err() }}, 1})
		require.NoError(t, app.Run(ctx))
		require.Equal(t, []string{"start a", "stop a"}, j.all())
	})
	t.Run("until a component fails", func(t *testing.T) {
		j := &journal{}
		app, err := wiring.New(wiring.Options{}, fx.Invoke(func(life *wiring.Lifecycle) {
			life.Add("a", part{name: "a", j: j, start: func(context.Context) error {
				life.Fail(errTold)
				life.Fail(errors.New("too late"))
				return nil
			}}, 1)
		}))
		require.NoError(t, err)
		require.EqualError(t, app.Run(t.Context()), errTold.Error())
		require.Equal(t, []string{"start a", "stop a"}, j.all())
	})
}

// What a person reads is the cause; fx's chain of constructors is in the log at
// debug level.
func TestReadableError(t *testing.T) {
	type one struct{}
	type two struct{}
	var log bytes.Buffer
	_, err := wiring.New(wiring.Options{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))},
		fx.Provide(func() (*one, error) { return nil, errTold }, func(*one) *two { return &two{} }),
		fx.Invoke(func(*two) {}))
	require.EqualError(t, err, errTold.Error())
	require.Contains(t, log.String(), "could not build arguments")
}

func allocator(name string) allocate.Factory {
	return allocate.NewFunc(name, "1", func(_ context.Context, r *allocate.Request) (allocate.Assignment, error) {
		return allocate.Assignment{Owner: make([]int, len(r.Queues))}, nil
	})
}

func TestPluginsByName(t *testing.T) {
	var p *wiring.Plugins
	_, err := wiring.New(wiring.Options{}, wiring.Allocate(allocator("b")), wiring.Allocate(allocator("a")), fx.Populate(&p))
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, p.Allocate.Names())
	require.Empty(t, p.Storage.Names())
	f, err := p.Allocate.Lookup("b")
	require.NoError(t, err)
	require.Equal(t, "b", f.Name())

	_, err = p.Allocate.Lookup("c")
	require.ErrorIs(t, err, wiring.ErrUnknownPlugin)
	require.EqualError(t, err, `unknown plugin: there is no allocate plugin "c"; known are a, b`)
}

func TestDuplicateName(t *testing.T) {
	_, err := wiring.New(wiring.Options{}, wiring.Allocate(allocator("a")), wiring.Allocate(allocator("a")), fx.Invoke(func(*wiring.Plugins) {}))
	require.ErrorIs(t, err, wiring.ErrDuplicatePlugin)
	require.EqualError(t, err, `two plugins have the same name: allocate plugin "a" is registered twice; give one of them another name`)
}

func TestWith(t *testing.T) {
	first, second := allocator("a"), allocator("a")
	r, err := wiring.NewRegistry("allocate", first, allocator("b"))
	require.NoError(t, err)
	other := r.With(second)
	got, err := other.Lookup("a")
	require.NoError(t, err)
	require.Same(t, second, got)
	got, err = r.Lookup("a")
	require.NoError(t, err)
	require.Same(t, first, got, "the original stays")
	require.Equal(t, []string{"a", "b"}, other.Names())
}

func TestValidate(t *testing.T) {
	type missing struct{}
	require.NoError(t, wiring.Validate(wiring.Options{}, wiring.Allocate(allocator("a")), fx.Invoke(func(*wiring.Plugins, *wiring.Lifecycle, plugin.Clock) {})))
	require.Error(t, wiring.Validate(wiring.Options{}, fx.Invoke(func(*missing) {})))
}

// fx would return at once and leave the component starting behind.
func TestStartWaitsForWhoStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		app := program(t, wiring.Options{StartTimeout: time.Second},
			added{part{name: "before", j: j}, 1},
			added{part{name: "slow", j: j, start: func(ctx context.Context) error {
				<-ctx.Done()
				<-time.After(30 * time.Second) // an fsync that cannot be interrupted
				j.note("gave up")
				return ctx.Err()
			}}, 1})
		err := app.Start(t.Context())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "slow did not start")
		require.Equal(t, []string{"start before", "start slow", "gave up", "stop before"}, j.all())
	})
}
