package proxy_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/proxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errNo = errors.New("no")

func TestLife(t *testing.T) {
	l := proxy.NewLife("thing")
	require.NoError(t, l.Start(t.Context(), func(_ context.Context, run func()) error {
		require.False(t, l.Running())
		run()
		require.True(t, l.Running())
		return nil
	}))
	require.EqualError(t, l.Start(t.Context(), func(context.Context, func()) error { return errNo }), "the thing was started already")
	require.True(t, l.Running())

	going, release := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	shutdown := func() error {
		close(going) // twice would panic
		require.True(t, l.Stopped())
		<-release
		return errNo
	}
	first := make(chan error)
	go func() { first <- l.Shutdown(ctx, shutdown) }()
	<-going
	cancel()
	require.ErrorIs(t, <-first, context.Canceled, "it does not wait longer than its context")
	close(release)
	require.ErrorIs(t, l.Shutdown(t.Context(), shutdown), errNo, "a second one waits for the first")
	require.False(t, l.Running())
}

func TestLifeWithoutStart(t *testing.T) {
	never := func() error { t.Error("there is nothing to shut down"); return nil }
	l := proxy.NewLife("thing")
	require.NoError(t, l.Shutdown(t.Context(), never))
	require.Error(t, l.Start(t.Context(), func(context.Context, func()) error { return nil }))

	l = proxy.NewLife("thing")
	require.ErrorIs(t, l.Start(t.Context(), func(_ context.Context, run func()) error { run(); return errNo }), errNo)
	require.True(t, l.Stopped())
	require.NoError(t, l.Shutdown(t.Context(), never))
}

// TestShutdownDuringStart: Shutdown tells a Start that is under way, does not wait longer
// for it than its context, and ends what that began.
func TestShutdownDuringStart(t *testing.T) {
	l := proxy.NewLife("thing")
	going, release, started := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		started <- l.Start(t.Context(), func(ctx context.Context, run func()) error {
			close(going)
			<-ctx.Done()
			<-release
			run()
			return nil
		})
	}()
	<-going
	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, l.Shutdown(over, func() error { return errNo }), context.Canceled)
	require.False(t, l.Stopped())
	close(release)
	require.NoError(t, <-started)
	require.ErrorIs(t, l.Shutdown(t.Context(), nil), errNo, "what the first one was given")
	require.True(t, l.Stopped())
}

// clock fires its timers when told to.
type clock struct {
	plugin.SystemClock
	asked chan time.Duration
	fire  chan time.Time
}

func newClock() *clock { return &clock{asked: make(chan time.Duration, 1), fire: make(chan time.Time)} }

func (c *clock) NewTimer(d time.Duration) plugin.Timer {
	c.asked <- d
	return timer{c}
}

type timer struct{ c *clock }

func (t timer) C() <-chan time.Time        { return t.c.fire }
func (timer) Reset(time.Duration) (b bool) { return b }
func (timer) Stop() bool                   { return true }

func TestLastMoment(t *testing.T) {
	c := newClock()
	ctx, cancel := context.WithCancel(t.Context())
	call, done := proxy.WithLastMoment(ctx, c, 0)
	defer done()
	cancel()
	require.Equal(t, proxy.LastMoment, <-c.asked)
	require.NoError(t, call.Err(), "a call outlives the context of who waits for it")
	c.fire <- time.Time{}
	<-call.Done()

	call, done = proxy.WithLastMoment(ctx, c, 0)
	require.Equal(t, proxy.LastMoment, <-c.asked)
	done()
	require.Error(t, call.Err())
}

func TestPause(t *testing.T) {
	c := newClock()
	result := make(chan bool)
	pause := func(ctx context.Context, or, either <-chan struct{}) {
		go func() { result <- proxy.Pause(ctx, c, time.Minute, or, either) }()
		require.Equal(t, time.Minute, <-c.asked)
	}
	pause(t.Context(), nil, nil)
	c.fire <- time.Time{}
	require.True(t, <-result)
	over := make(chan struct{})
	close(over)
	pause(t.Context(), over, nil)
	require.False(t, <-result)
	pause(t.Context(), nil, over)
	require.False(t, <-result)
	ctx, cancel := context.WithCancel(t.Context())
	pause(ctx, nil, nil)
	cancel()
	require.False(t, <-result)
}
