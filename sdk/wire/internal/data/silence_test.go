package data_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/internal/wiretest"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
)

const (
	limit = 8 * time.Second
	step  = time.Second
)

// watched is a Watch of one line under way.
type watched struct {
	*data.Line
	clock *wiretest.Clock
	owes  atomic.Bool
	end   chan error
	until chan struct{}

	limits data.Limits
}

func watch(t *testing.T) *watched {
	t.Helper()
	return watchUnder(t, data.Limits{Call: limit})
}

func watchUnder(t *testing.T, l data.Limits) *watched {
	t.Helper()
	w := &watched{Line: &data.Line{}, clock: wiretest.NewClock(step), end: make(chan error, 1), until: make(chan struct{}), limits: l}
	w.owes.Store(true)
	w.Owes = func() string {
		if w.owes.Load() {
			return "answer Append"
		}
		return ""
	}
	idle := &data.Line{Owes: func() string { return "" }}
	go func() { w.end <- data.Watch(w.clock, w.limits, w.until, idle, w.Line) }()
	return w
}

// goesOn lets steps pass after each of which something is done, and sees that nobody
// is given up.
func (w *watched) goesOn(t *testing.T, by time.Duration, each func()) {
	t.Helper()
	for range 30 {
		require.True(t, wiretest.Pass(w.clock, by, w.end))
		each()
	}
	close(w.until)
	require.NoError(t, <-w.end)
}

func TestSilence(t *testing.T) {
	w := watch(t)
	n := 0
	for n = 0; wiretest.Pass(w.clock, step, w.end); n++ {
		require.Less(t, n, 20, "nobody is given up")
	}
	require.GreaterOrEqual(t, n, int(limit/step), "it had less time than the limit")

	w = watch(t)
	err := wiretest.Outcome(t, w.clock, w.end)
	require.ErrorIs(t, err, data.ErrSilent)
	require.True(t, data.GivenUp(err))
	require.ErrorContains(t, err, "it did not answer Append for 8s, though it answers health calls")
	require.NoError(t, data.Watch(w.clock, data.Limits{Stop: limit}, nil, w.Line), "no limit")
	require.False(t, data.GivenUp(errors.New("x")))
}

// TestSilenceAtStop: a host that stops does not wait for as long.
func TestSilenceAtStop(t *testing.T) {
	for name, call := range map[string]time.Duration{"shorter": 100 * limit, "no other": 0} {
		t.Run(name, func(t *testing.T) {
			stopping := make(chan struct{})
			w := watchUnder(t, data.Limits{Call: call, Stop: limit, Stopping: stopping})
			close(stopping)
			require.ErrorContains(t, wiretest.Outcome(t, w.clock, w.end), "did not answer Append for 8s, though it answers health calls; the host is stopping, and pluginStopTimeout is the limit")
		})
	}
	t.Run("longer", func(t *testing.T) {
		stopping := make(chan struct{})
		close(stopping)
		w := watchUnder(t, data.Limits{Call: limit, Stop: 100 * limit, Stopping: stopping})
		require.ErrorContains(t, wiretest.Outcome(t, w.clock, w.end), "for 8s, though it answers health calls; pluginCallTimeout")
	})
	t.Run("nobody stops", func(t *testing.T) {
		w := watchUnder(t, data.Limits{Stop: limit, Stopping: make(chan struct{})})
		close(w.until)
		require.NoError(t, <-w.end)
	})
}

// TestNoSilence: what is slow and goes on, what owes nothing, and what nobody could
// listen to, is not given up.
func TestNoSilence(t *testing.T) {
	t.Run("bytes", func(t *testing.T) {
		w := watch(t)
		in := w.Hear(strings.NewReader(strings.Repeat("x", 100)))
		n := 0
		w.goesOn(t, step, func() {
			if n++; n%4 == 0 {
				_, err := in.Read(make([]byte, 1))
				require.NoError(t, err)
			}
		})
	})
	t.Run("an end is nothing", func(t *testing.T) {
		w := watch(t)
		in := w.Hear(strings.NewReader(""))
		for wiretest.Pass(w.clock, step, w.end) {
			_, err := in.Read(make([]byte, 1))
			require.Error(t, err)
		}
	})
	t.Run("nothing owed", func(t *testing.T) {
		w := watch(t)
		n := 0
		w.goesOn(t, step, func() { n++; w.owes.Store(n%5 != 0) })
	})
	t.Run("a host that was suspended", func(t *testing.T) {
		w := watch(t)
		w.goesOn(t, 3*step, func() {})
	})
}

// TestSilenceOfAMoment: a limit that is shorter than a machine can look is one all the
// same. Looks come late by what a machine is late, and that is no suspension.
func TestSilenceOfAMoment(t *testing.T) {
	const late = 2 * time.Millisecond // of a machine that does other things
	clock := wiretest.NewClock(late)
	owing := &data.Line{Owes: func() string { return "answer Append" }}
	end := make(chan error, 1)
	go func() { end <- data.Watch(rounded{clock, late}, data.Limits{Call: time.Millisecond}, nil, owing) }()
	require.ErrorIs(t, wiretest.Outcome(t, clock, end), data.ErrSilent)
}

// rounded is a clock whose timers all run for a while.
type rounded struct {
	*wiretest.Clock
	least time.Duration
}

func (r rounded) NewTimer(time.Duration) plugin.Timer { return r.Clock.NewTimer(r.least) }
