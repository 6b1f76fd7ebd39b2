package proxy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/proxy"
)

// ending is a process whose host may stop.
type ending struct {
	wire.Process
	stopping chan struct{}
	limit    time.Duration
	why      error
}

func (e *ending) Stopping() <-chan struct{}  { return e.stopping }
func (e *ending) StopTimeout() time.Duration { return e.limit }
func (e *ending) Fail(why error)             { e.why = why }
func (e *ending) Cause() error               { return fmt.Errorf("%w: %w", plugin.ErrUnavailable, e.why) }

// TestNotWaited: only a host that stops does without an answer, and says so.
func TestNotWaited(t *testing.T) {
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	over, cancel := context.WithCancel(t.Context())
	cancel()
	mine := errors.New("its disk is full")

	p := &ending{stopping: make(chan struct{}), limit: 3 * time.Second}
	require.Zero(t, proxy.StopLimit(p))
	require.Equal(t, proxy.LastMoment, proxy.LastTime(p))
	require.ErrorIs(t, proxy.NotWaited(over, p, log, "acme", context.Canceled), context.Canceled)
	require.NoError(t, p.why)

	close(p.stopping)
	require.Equal(t, p.limit, proxy.StopLimit(p))
	require.Equal(t, p.limit, proxy.LastTime(p))
	require.NoError(t, proxy.NotWaited(over, p, log, "acme", nil))
	require.ErrorIs(t, proxy.NotWaited(t.Context(), p, log, "acme", mine), mine, "it answered")
	require.Empty(t, text.String())
	require.NoError(t, proxy.NotWaited(over, p, log, "acme", context.Canceled))
	require.ErrorContains(t, p.why, "it did not shut down within 3s; pluginStopTimeout is the limit")
	require.Contains(t, text.String(), `plugin=acme`)
	require.Contains(t, text.String(), "3s")

	p.why = nil
	require.NoError(t, proxy.NotWaited(t.Context(), p, log, "acme", context.DeadlineExceeded))
	require.ErrorContains(t, p.why, "it did not shut down", "a call that is told so a moment early")

	p.why = errors.New("it ended with exit status 3")
	require.NoError(t, proxy.NotWaited(t.Context(), p, log, "acme", plugin.ErrUnavailable), "it is gone")
	require.Contains(t, text.String(), "exit status 3")
}

// TestShorterThanTheCaller: a call ends after its own time, too.
func TestShorterThanTheCaller(t *testing.T) {
	call, done := proxy.WithLastMoment(context.Background(), plugin.SystemClock{}, time.Millisecond)
	defer done()
	<-call.Done()
}
