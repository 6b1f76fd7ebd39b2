package pull

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/internal/filter"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// empty is a store in which every queue is empty.
type empty struct{ storage.Store }

func (empty) Offsets(_ context.Context, q []storage.OffsetQuery, a *storage.OffsetAnswers) error {
	a.Answers = append(a.Answers[:0], make([]storage.OffsetAnswer, len(q))...)
	return nil
}

// unmoved is progress that nobody resets.
type unmoved struct{ kernel.Offsets }

func (unmoved) Meets(string, message.Queue, int64) (int64, bool) { return 0, false }

func parked(t *testing.T) *Pull {
	t.Helper()
	p := &Pull{k: kernel.New(kernel.Config{}, plugin.Settings{}, empty{})}
	p.k.Offsets = unmoved{}
	p.pool.New = func() any { return &task{} }
	p.park = newPark(p)
	return p
}

func (p *Pull) hold(t *testing.T, c *kernel.Conn, q message.Queue) {
	t.Helper()
	x := p.get()
	x.ticket.Conn, x.req.Queue = c, q
	tags, err := filter.Parse("*")
	require.NoError(t, err)
	x.setTags(tags)
	held, err := p.park.hold(x, 60_000)
	require.NoError(t, err)
	require.True(t, held)
}

// Ten thousand clients that leave at once must not each go through what all of
// them parked: nobody is served meanwhile.
func TestDisconnectLooksAtItsOwnAlone(t *testing.T) {
	p := parked(t)
	a, b := &kernel.Conn{}, &kernel.Conn{}
	q := message.Queue{Topic: "T"}
	p.hold(t, a, q)
	p.hold(t, b, q)
	// Whoever looks at it panics.
	p.park.mu.Lock()
	p.park.heap.Push(&waiter{deadline: time.Now().Add(time.Hour)})
	p.park.mu.Unlock()
	p.park.disconnected(a)
	require.EqualValues(t, 1, p.park.count.Load())
	p.park.disconnected(a)
	require.EqualValues(t, 1, p.park.count.Load())
	p.park.disconnected(b)
	require.Zero(t, p.park.count.Load())
	require.Empty(t, p.park.of)
	require.Empty(t, p.park.shard(q).queues)
}

// Whatever the order in which waiters come and go, each knows its places.
func TestParkKeepsItsPlaces(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	p := parked(t)
	conns := make([]*kernel.Conn, 8)
	for i := range conns {
		conns[i] = &kernel.Conn{}
	}
	for range 3000 {
		q := message.Queue{Topic: "T", ID: r.Int32N(3)}
		switch c := conns[r.IntN(len(conns))]; r.IntN(12) {
		case 0:
			p.park.disconnected(c)
		case 1:
			p.park.published(0, []message.Unit{{Queue: q, Offset: 9}})
			for _, w := range p.park.ready { // as a worker does, without an answer
				p.park.unschedule(w)
				p.put(w.t)
			}
			p.park.ready = nil
		default:
			p.hold(t, c, q)
		}
		check(t, p.park)
	}
	for _, c := range conns {
		p.park.disconnected(c)
	}
	require.Zero(t, p.park.count.Load())
	require.Empty(t, p.park.of)
}

func check(t *testing.T, k *park) {
	t.Helper()
	listed, chained := 0, 0
	for i := range k.shards {
		for q, list := range k.shards[i].queues {
			for at, w := range list {
				require.Equal(t, at, w.at)
				require.Equal(t, q, w.t.req.Queue)
			}
			listed += len(list)
		}
	}
	for c, w := range k.of {
		require.Nil(t, w.prev)
		for ; w != nil; w = w.next {
			require.Same(t, c, w.t.ticket.Conn)
			require.Same(t, w, k.heap[w.index])
			chained++
		}
	}
	require.Equal(t, len(k.heap), listed)
	require.Equal(t, len(k.heap), chained)
	require.EqualValues(t, len(k.heap), k.count.Load())
}
