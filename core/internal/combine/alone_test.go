package combine_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/internal/combine"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagemw"
	"github.com/hardpointmq/hardpoint/plugins/replication/solo"
)

// What runs alone never overlaps with an append, and is not starved by senders.
func TestAlone(t *testing.T) {
	var appending, alone, overlaps atomic.Int64
	mw := func(p storage.Params, next storage.Store) storage.Store {
		return storagemw.Faults(func(_ context.Context, c storagemw.Call) error {
			if c.Op != storagemw.OpAppend {
				return nil
			}
			if c.Done {
				appending.Add(-1)
				return nil
			}
			appending.Add(1)
			overlaps.Add(alone.Load())
			return nil
		})(p, next)
	}
	each(t, func(t *testing.T, o enginetest.Options) {
		o.Store = mw
		overlaps.Store(0)
		e := enginetest.Start(t, o)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						if _, err := e.K.Journal.Write(t.Context(), record(0, "x")); err != nil {
							t.Error(err)
							return
						}
					}
				}
			})
		}
		for range 50 {
			require.NoError(t, e.K.Journal.Alone(t.Context(), func(context.Context) error {
				alone.Add(1)
				defer alone.Add(-1)
				overlaps.Add(appending.Load())
				return nil
			}))
		}
		close(stop)
		wg.Wait()
		require.Zero(t, overlaps.Load())
		odd := errors.New("odd")
		require.ErrorIs(t, e.K.Journal.Alone(t.Context(), func(context.Context) error { return odd }), odd)
		require.ErrorContains(t, e.K.Journal.Alone(t.Context(), func(context.Context) error { panic("a bug") }), "a bug")
		over, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, e.K.Journal.Alone(over, func(context.Context) error { t.Error("it ran"); return nil }), context.Canceled)
		_, err := e.K.Journal.Write(t.Context(), record(0, "x"))
		require.NoError(t, err)
		e.Stop()
		require.ErrorIs(t, e.K.Journal.Alone(t.Context(), func(context.Context) error { t.Error("it ran"); return nil }), combine.ErrStopped)
	})
}

// What was brought before somebody wants the log alone is in it by then, in shared
// batches and in those of large messages; and who has waited in vain has not run.
func TestAloneComesBehind(t *testing.T) {
	in, out := make(chan struct{}), make(chan struct{})
	var hold atomic.Bool
	var appended atomic.Int64
	mw := func(p storage.Params, next storage.Store) storage.Store {
		return storagemw.Faults(func(_ context.Context, c storagemw.Call) error {
			switch {
			case c.Op != storagemw.OpAppend:
			case c.Done:
				appended.Add(1)
			case hold.CompareAndSwap(true, false):
				close(in)
				<-out
			}
			return nil
		})(p, next)
	}
	e := enginetest.Start(t, enginetest.Options{Replication: solo.NewFactory(), Store: mw, Segment: 8 << 20})
	hold.Store(true)
	before := appended.Load()
	var wg sync.WaitGroup
	submit := func(body string) {
		wg.Add(1)
		e.K.Journal.Submit([]*message.Record{record(0, body)}, func(_ kernel.Placed, err error) {
			assert.NoError(t, err)
			wg.Done()
		})
	}
	wg.Go(func() {
		_, err := e.K.Journal.Write(t.Context(), record(0, "it holds the turn"))
		assert.NoError(t, err)
	})
	<-in
	submit("shared")
	submit(strings.Repeat("large", 1<<19))
	submit("shared, too")
	short, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- e.K.Journal.Alone(short, func(context.Context) error { t.Error("it ran"); return nil })
	}()
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled, "although the turn is held")
	go func() {
		ended <- e.K.Journal.Alone(t.Context(), func(context.Context) error {
			assert.EqualValues(t, 3, appended.Load()-before, "what held the turn, and both batches behind it")
			return nil
		})
	}()
	q := e.K.Journal.(*combine.Queue)
	require.Eventually(t, func() bool { return q.Epoch() == 3 }, time.Minute, time.Millisecond)
	close(out)
	require.NoError(t, <-ended)
	wg.Wait()
}
