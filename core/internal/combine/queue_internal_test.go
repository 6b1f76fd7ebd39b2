package combine

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
)

// A large message that is given up because its topic may be gone is no longer waited
// for by who waits until nothing is under way.
func TestIdleAfterOutdatedLarge(t *testing.T) {
	q := &Queue{k: &kernel.Kernel{Clock: plugin.SystemClock{}}, limit: 100, pool: pool{made: 1}, turn: turn{passed: make(chan struct{}, 1)}}
	q.open = newBatch(q, q.limit, 1, false)
	n := Need{Bytes: 200, Groups: 1, Epoch: q.Epoch()}
	q.large.bytes = n.Bytes // as reserveLarge counted it
	idle := make(chan error, 1)
	go func() { idle <- q.Idle(t.Context()) }()
	require.Eventually(t, func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.calm != nil
	}, time.Minute, time.Millisecond)
	q.epoch.Add(1)
	_, err := q.makeLarge(nil, n)
	require.ErrorIs(t, err, ErrOutdated)
	select {
	case err := <-idle:
		assert.NoError(t, err)
	case <-time.After(time.Minute):
		t.Fatal("it waits for what is not there")
	}
}

// keeping is a replicator that answers nothing by itself.
type keeping struct {
	replication.Replicator
	got []*replication.Pending
}

func (k *keeping) Append(_ context.Context, p *replication.Pending, _ replication.Sink) error {
	k.got = append(k.got, p)
	return nil
}

// deaf needs no answers.
type deaf struct{}

func (deaf) Answer(_ *Batch, _, _ int, _ replication.Outcome, _ error, scratch []byte) []byte {
	return scratch
}

// What a burst needed goes when it has not been needed for a while; what is needed all
// the time stays.
func TestPoolShrinks(t *testing.T) {
	rep, meter := &keeping{}, plugin.Settings{}.WithDefaults().Meter
	q := &Queue{
		k: &kernel.Kernel{Clock: plugin.SystemClock{}}, rep: rep, limit: 100, pool: pool{made: 1}, turn: turn{passed: make(chan struct{}, 1)},
		count: counters{batches: meter.Counter("a", "a"), records: meter.Counter("b", "b")},
	}
	q.scratch.New = func() any { return new([]byte) }
	q.open = newBatch(q, q.limit, 1, false)
	bring := func() {
		s, err := q.Reserve(deaf{}, Need{Groups: 1})
		require.NoError(t, err)
		s.Begin()
		s.End(Ticket{}, false, false)
		s.Commit()
		require.True(t, q.round())
	}
	answer := func() {
		for _, p := range rep.got {
			q.Done(p, 0, 1, replication.Stored, nil)
		}
		rep.got = nil
		q.answer()
		require.True(t, q.idle())
	}
	for range 5 {
		bring()
	}
	answer()
	require.Equal(t, []int{6, 5}, []int{q.pool.made, len(q.pool.free)})
	q.shrink()
	require.Equal(t, 6, q.pool.made, "all of them were needed since the last time")
	for range 2 {
		bring()
	}
	answer()
	q.shrink()
	require.Equal(t, []int{4, 3}, []int{q.pool.made, len(q.pool.free)}, "three were enough, and one is kept")
	q.shrink()
	for range 3 {
		bring()
		answer()
		q.shrink()
		require.Equal(t, []int{2, 1}, []int{q.pool.made, len(q.pool.free)}, "one message after the other needs two")
	}
}
