package stats_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/internal/stats"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Counting allocates nothing, whatever topics a batch mixes.
func TestNoAllocations(t *testing.T) {
	k := kernel.New(kernel.Config{Identity: kernel.Identity{ClusterName: "C"}}, plugin.Settings{}, nil)
	s := stats.New(k)
	var units []message.Unit
	for i := range 300 {
		q := message.Queue{Topic: []string{"A", "B", "longer", message.CatalogTopic}[i%4], ID: int32(i % 8)}
		units = append(units, message.Unit{Queue: q, Size: 100})
	}
	published := k.Hooks.Events(nil).Published
	published(0, units)
	got := message.Queue{Topic: "A", ID: 3}
	s.Got("G", got, 2, 200, 5)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		published(0, units)
		s.Got("G", got, 2, 200, 7)
		s.Missed()
		s.Back("G", "A")
	}))
	r := s.Runtime()
	require.Equal(t, int64(102*225), r.Messages, "what is the broker's own does not count")
	require.Equal(t, r.Messages*100, r.Bytes)
	require.Equal(t, int64(7), s.Pulled("G", got))
	require.Zero(t, s.Pulled("H", got))
}

func TestCreations(t *testing.T) {
	var s stats.Stats
	made, refused := stats.Creation{Group: true}, stats.Creation{Group: true, Failed: true}
	for _, d := range []time.Duration{-time.Second, 10 * time.Millisecond, 11 * time.Millisecond, time.Second, 5001 * time.Millisecond} {
		s.Created(made, d)
	}
	s.Created(refused, 4*time.Second)
	got := map[stats.Creation]stats.Spent{}
	s.Creations(func(c stats.Creation, x stats.Spent) bool { got[c] = x; return true })
	require.Equal(t, map[stats.Creation]stats.Spent{
		made:    {UpTo: [...]uint64{2, 3, 4, 4, 4}, N: 5, Sum: 6022 * time.Millisecond},
		refused: {UpTo: [...]uint64{0, 0, 0, 0, 1}, N: 1, Sum: 4 * time.Second},
	}, got)
}
