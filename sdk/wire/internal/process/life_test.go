package process_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/process"
)

func never(t *testing.T) func(context.Context) error {
	return func(context.Context) error {
		t.Error("it is called")
		return nil
	}
}

func fine(context.Context) error { return nil }

func TestLife(t *testing.T) {
	failed := errors.New("it is out of order")
	fails := func(context.Context) error { return failed }
	l := process.NewLife(storage.ErrNotRunning)
	require.ErrorIs(t, l.Start(t.Context(), fails), failed)
	require.ErrorIs(t, l.Start(t.Context(), never(t)), plugin.ErrUnavailable, "once at most")
	require.ErrorIs(t, l.Shutdown(t.Context(), fails), failed)
	require.NoError(t, l.Shutdown(t.Context(), fine), "twice is legal")
	err := l.Start(t.Context(), never(t))
	require.ErrorIs(t, err, storage.ErrNotRunning)

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	l = process.NewLife(storage.ErrNotRunning)
	called := false
	require.NoError(t, l.Shutdown(ended, func(context.Context) error { called = true; return nil }))
	require.True(t, called, "without a Start there is nothing to wait for")
	require.ErrorIs(t, l.Start(ended, never(t)), storage.ErrNotRunning)
}

// TestLifeInTurn: a Shutdown ends the context of a Start under way, and waits for it.
func TestLifeInTurn(t *testing.T) {
	l := process.NewLife(storage.ErrNotRunning)
	entered, over, started := make(chan struct{}), false, make(chan error, 1)
	go func() {
		started <- l.Start(t.Context(), func(ctx context.Context) error {
			close(entered)
			<-ctx.Done()
			over = true
			return ctx.Err()
		})
	}()
	<-entered
	require.NoError(t, l.Shutdown(t.Context(), func(context.Context) error {
		require.True(t, over)
		return nil
	}))
	require.ErrorIs(t, <-started, context.Canceled)
}

// TestLifeLate: a Start that does not return keeps no Shutdown beyond its context, and
// what it began is ended all the same.
func TestLifeLate(t *testing.T) {
	l := process.NewLife(storage.ErrNotRunning)
	entered, release, started, down := make(chan struct{}), make(chan struct{}), make(chan error, 1), make(chan error)
	go func() {
		started <- l.Start(t.Context(), func(context.Context) error {
			close(entered)
			<-release
			return nil
		})
	}()
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := l.Shutdown(ctx, func(ctx context.Context) error {
		down <- ctx.Err()
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
	close(release)
	require.NoError(t, <-started)
	require.NoError(t, <-down, "it has time of its own")
}
