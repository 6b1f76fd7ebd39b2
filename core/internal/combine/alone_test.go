package combine_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/internal/combine"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagemw"
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
