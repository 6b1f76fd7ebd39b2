package broker

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/internal/assign"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/wiring"
)

// hosted is an allocator whose program can be replaced.
type hosted struct {
	allocate.Func
	version string
	closed  int
}

func (h *hosted) Version() string { return h.version }
func (h *hosted) Close() error    { h.closed++; return nil }

// TestAllocatorsOfGroups: one instance for all groups, which tells the version of
// its program as it is now, and is closed with the broker.
func TestAllocatorsOfGroups(t *testing.T) {
	h := &hosted{version: "1"}
	built := 0
	f := allocate.NewFactory("hosted",
		func(struct{}) plugin.Description { return plugin.Description{Version: "1"} },
		func() struct{} { return struct{}{} },
		func(context.Context, allocate.Params, struct{}) (*hosted, error) { built++; return h, nil })
	plain := allocate.NewFunc("plain", "3", func(context.Context, *allocate.Request) (allocate.Assignment, error) {
		return allocate.Assignment{}, nil
	})
	from, err := wiring.NewRegistry("allocate", f, plain)
	require.NoError(t, err)
	l := &allocators{cfg: &config.Config{}, from: from, settings: func(name string) plugin.Settings { return plugin.Settings{Name: name} }}
	for _, version := range []string{"1", "2"} {
		h.version = version
		i, err := l.get(t.Context(), "hosted")
		require.NoError(t, err)
		require.Equal(t, version, i.Version)
	}
	require.Equal(t, 1, built)
	i, err := l.get(t.Context(), "plain")
	require.NoError(t, err)
	require.Equal(t, "3", i.Version)
	_, err = l.get(t.Context(), "other")
	require.ErrorIs(t, err, assign.ErrUnknown)
	require.NoError(t, l.close(t.Context()))
	require.Equal(t, 1, h.closed)
	_, err = l.get(t.Context(), "plain")
	require.ErrorContains(t, err, "shut down")
	require.NoError(t, l.close(t.Context()))
	require.Equal(t, 1, h.closed)
}

// TestAllocatorThatDoesNotStart: who asks does not wait longer than it may, others
// do not start it again meanwhile, and the end of the broker ends the attempt.
func TestAllocatorThatDoesNotStart(t *testing.T) {
	var tries atomic.Int64
	begun := make(chan struct{}, 2)
	fail := make(chan error)
	f := allocate.NewFactory("slow",
		func(struct{}) plugin.Description { return plugin.Description{Version: "1"} },
		func() struct{} { return struct{}{} },
		func(ctx context.Context, _ allocate.Params, _ struct{}) (*hosted, error) {
			tries.Add(1)
			begun <- struct{}{}
			select {
			case err := <-fail:
				return nil, err
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})
	from, err := wiring.NewRegistry("allocate", f)
	require.NoError(t, err)
	l := &allocators{cfg: &config.Config{}, from: from, settings: func(name string) plugin.Settings { return plugin.Settings{Name: name} }}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		_, err = l.get(over, "slow")
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "allocator slow is still being started")
		require.NotErrorIs(t, err, assign.ErrUnknown)
	}
	<-begun
	go func() { fail <- errors.New("no licence") }()
	_, err = l.get(t.Context(), "slow")
	require.ErrorContains(t, err, "no licence")
	require.EqualValues(t, 1, tries.Load())
	_, _ = l.get(over, "slow") // it is tried again
	<-begun
	require.NoError(t, l.close(t.Context()))
	require.EqualValues(t, 2, tries.Load())
}
