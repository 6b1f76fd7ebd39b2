package allocatemw_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/core/allocate/allocatemw"
	"github.com/hardpointmq/hardpoint/core/allocate/allocatetest"
	"github.com/hardpointmq/hardpoint/core/plugin"
)

// deal is a correct allocator.
func deal(_ context.Context, r *allocate.Request) (allocate.Assignment, error) {
	if err := r.Check(); err != nil {
		return allocate.Assignment{}, err
	}
	a := allocate.Assignment{Owner: make([]int, len(r.Queues))}
	for i := range a.Owner {
		a.Owner[i] = i % len(r.Members)
	}
	return a, nil
}

// meter remembers what was counted.
type meter struct {
	plugin.NopMeter
	failures uint64
	observed int
	labels   []plugin.Label
}

func (m *meter) Counter(_, _ string, labels ...plugin.Label) plugin.Counter {
	m.labels = labels
	return counter{m}
}
func (m *meter) Histogram(string, string, ...plugin.Label) plugin.Histogram { return histogram{m} }

type counter struct{ m *meter }

func (c counter) Add(n uint64) { c.m.failures += n }

type histogram struct{ m *meter }

func (h histogram) Observe(float64) { h.m.observed++ }

func TestConformance(t *testing.T) {
	f := allocate.NewFactory("wrapped",
		func(struct{}) plugin.Description { return plugin.Description{Version: "1"} },
		func() struct{} { return struct{}{} },
		func(_ context.Context, p allocate.Params, _ struct{}) (allocate.Allocator, error) {
			a := allocatemw.Faults(allocate.Func(deal), func(*allocate.Request) error { return nil })
			return allocatemw.Metrics(allocatemw.Timeout(a, time.Minute), p.Settings), nil
		})
	allocatetest.Run(t, allocatetest.Harness{Factory: f, Form: "decorated"})
}

func TestMetrics(t *testing.T) {
	m := &meter{}
	a := allocatemw.Metrics(allocate.Func(deal), plugin.Settings{Name: "deal", Meter: m})
	_, err := a.Allocate(t.Context(), allocatetest.Make(4, 2))
	require.NoError(t, err)
	_, err = a.Allocate(t.Context(), allocatetest.Make(4, 0))
	require.ErrorIs(t, err, allocate.ErrRequest)
	require.Equal(t, 2, m.observed)
	require.Equal(t, uint64(1), m.failures)
	require.Equal(t, []plugin.Label{{Name: "allocator", Value: "deal"}}, m.labels)
}

func TestFaults(t *testing.T) {
	boom := errors.New("boom")
	asked := 0
	next := allocate.Func(func(ctx context.Context, r *allocate.Request) (allocate.Assignment, error) {
		asked++
		return deal(ctx, r)
	})
	fail := true
	a := allocatemw.Faults(next, func(r *allocate.Request) error {
		require.Len(t, r.Queues, 4)
		if fail {
			return boom
		}
		return nil
	})
	_, err := a.Allocate(t.Context(), allocatetest.Make(4, 2))
	require.ErrorIs(t, err, boom)
	require.Zero(t, asked)
	fail = false
	got, err := a.Allocate(t.Context(), allocatetest.Make(4, 2))
	require.NoError(t, err)
	require.Equal(t, []int{0, 1, 0, 1}, got.Owner)
}

func TestTimeout(t *testing.T) {
	slow := allocate.Func(func(ctx context.Context, _ *allocate.Request) (allocate.Assignment, error) {
		<-ctx.Done()
		return allocate.Assignment{}, ctx.Err()
	})
	_, err := allocatemw.Timeout(slow, time.Millisecond).Allocate(t.Context(), allocatetest.Make(4, 2))
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// closer counts how often it is closed.
type closer struct {
	allocate.Func
	closed int
}

func (c *closer) Close() error    { c.closed++; return nil }
func (c *closer) Version() string { return "7" }

// TestThroughDecorators: what an allocator holds is given back, and its version
// is told.
func TestThroughDecorators(t *testing.T) {
	c := &closer{Func: deal}
	a := allocatemw.Timeout(allocatemw.Faults(allocatemw.Metrics(c, plugin.Settings{}), nil), time.Minute)
	require.NoError(t, allocate.Close(a))
	require.Equal(t, 1, c.closed)
	require.Equal(t, "7", allocate.Version(a))
	require.Empty(t, allocate.Version(allocatemw.Timeout(allocate.Func(deal), time.Minute)))
	require.NoError(t, allocate.Close(allocatemw.Timeout(allocate.Func(deal), time.Minute)), "nothing to close")
}
