package storagewire_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/internal/wiretest"
)

const (
	callLimit = 8 * time.Second
	callLook  = time.Second
)

func swallow(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestSilent: a plugin that swallows a call is given up, although its control
// connection answers; the call fails, and the store is opened again.
func TestSilent(t *testing.T) {
	for name, call := range map[string]func(*lives) error{
		"Append":   func(l *lives) error { return l.Append(context.Background(), oneBatch(0, nil)) },
		"Truncate": func(l *lives) error { return l.raw.Truncate(context.Background(), 0) },
		"Sync":     func(l *lives) error { return l.Sync(context.Background(), 0) },
		"Read": func(l *lives) error {
			return l.Read(context.Background(), storage.ReadRequest{}, &storage.Chunk{})
		},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(name+map[bool]string{true: " over the stream"}[stream], func(t *testing.T) {
				clock := wiretest.NewClock(callLook)
				l := liveUnder(t, clock, callLimit, stream, storage.Explicit, storage.SurvivesProcessDeath)
				before := l.process()
				before.does(func(s *script) {
					s.appended = func(ctx context.Context, _ *scripted, _ *storage.Batch) error { return swallow(ctx) }
					s.block = swallow
				})
				out := make(chan error, 1)
				go func() { out <- call(l) }()
				err := wiretest.Outcome(t, clock, out)
				require.ErrorIs(t, err, plugin.ErrUnavailable)
				require.ErrorContains(t, err, "did not answer "+name+" for 8s, though it answers health calls")
				require.ErrorContains(t, l.again.Gone(t.Context()), "did not answer "+name)
				require.NoError(t, l.again.Reopened(t.Context()))
				require.NotSame(t, before, l.process())
				l.append(t, 0)
			})
		}
	}
}

// TestSlow: a plugin that is slow with one call and answers others is not given up.
func TestSlow(t *testing.T) {
	for _, stream := range []bool{false, true} {
		clock := wiretest.NewClock(callLook)
		l := liveUnder(t, clock, callLimit, stream, storage.Explicit, storage.SurvivesProcessDeath)
		before := l.process()
		entered, leave := make(chan struct{}), make(chan struct{})
		before.does(func(s *script) {
			s.block = func(context.Context) error {
				close(entered)
				<-leave
				return nil
			}
		})
		out := make(chan error, 1)
		go func() { out <- l.Sync(context.Background(), 0) }()
		<-entered
		before.does(func(s *script) { s.block = nil })
		for range 30 {
			require.NoError(t, l.Read(t.Context(), storage.ReadRequest{}, &storage.Chunk{}))
			require.True(t, wiretest.Pass(clock, callLook, out))
		}
		close(leave)
		require.NoError(t, <-out)
		require.Same(t, before, l.process())
	}
}
