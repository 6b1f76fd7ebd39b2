package storagewire

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
)

// TestQueueWork counts how many batches are moved in memory, whatever waits: a store
// with RawLog may hold very many that are not published yet.
func TestQueueWork(t *testing.T) {
	for _, waits := range []int{0, 1, 1000, 100_000} {
		var q queue
		moved, next := 0, message.Position(0)
		push := func() {
			q.push(waiting{end: next})
			next++
		}
		push()
		push()
		for range waits {
			push()
		}
		const turns = 100_000
		for range turns {
			one := &q.all()[1]
			push()
			if &q.all()[1] != one {
				moved += len(q.all())
			}
			one = &q.all()[1]
			q.shift()
			if &q.all()[0] != one {
				moved += len(q.all())
			}
		}
		require.Less(t, moved, 8*(turns+waits), "with %d that wait", waits)
		require.Len(t, q.all(), waits+2)
		for want := message.Position(turns); want < next; want++ {
			require.Equal(t, want, q.all()[0].end)
			q.shift()
		}
		require.Empty(t, q.all())
	}
}

func TestQueueCut(t *testing.T) {
	var q queue
	for i := range 5 {
		q.push(waiting{end: message.Position(i)})
	}
	q.shift()
	q.cut(2)
	require.Equal(t, []waiting{{end: 1}, {end: 2}}, q.all())
	require.Equal(t, waiting{}, q.items[:5][4], "what was cut holds no memory")
	q.cut(0)
	require.Empty(t, q.all())
	q.push(waiting{end: 9})
	require.Equal(t, []waiting{{end: 9}}, q.all())
	require.Zero(t, testing.AllocsPerRun(100, func() {
		q.push(waiting{})
		q.shift()
	}))
}
