package combine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/plugin"
)

// A large message that is given up because its topic may be gone is no longer waited
// for by who waits until nothing is under way.
func TestIdleAfterOutdatedLarge(t *testing.T) {
	q := &Queue{k: &kernel.Kernel{Clock: plugin.SystemClock{}}, limit: 100, made: 1, turn: turn{passed: make(chan struct{}, 1)}}
	q.open = newBatch(q, q.limit, 1, false)
	n := Need{Bytes: 200, Groups: 1, Epoch: q.Epoch()}
	q.large.bytes = n.Bytes // as reserveLarge counted it
	idle := make(chan error, 1)
	go func() { idle <- q.Idle(t.Context()) }()
	require.Eventually(t, func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.calm != nil
	}, 10*time.Second, time.Millisecond)
	q.epoch.Add(1)
	_, err := q.makeLarge(nil, n)
	require.ErrorIs(t, err, ErrOutdated)
	select {
	case err := <-idle:
		assert.NoError(t, err)
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for what is not there")
	}
}
