package storage_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
)

// mirror makes a Sequencer do what another one did, as the host's follows that of a
// replicator in a process of its own. twin gives the Pending that the other one has
// a copy of; without one the Pending is the other one's own.
type mirror struct {
	t    *testing.T
	to   *storage.Sequencer
	twin map[*storage.Pending]*storage.Pending
}

func (m *mirror) Opened(term uint64, st storage.State, ends []storage.OffsetAnswer) {
	require.NoError(m.t, m.to.Open(term, st, ends))
}

func (m *mirror) Assigned(p *storage.Pending, lead int, last int64) {
	if q := m.twin[p]; q != nil {
		require.NoError(m.t, m.to.AssignAt(q, lead, last))
		require.Equal(m.t, p.Buf, q.Buf)
		require.Equal(m.t, p.Units, q.Units)
		require.Equal(m.t, p.Keys, q.Keys)
		require.Equal(m.t, []message.Position{p.At, p.End}, []message.Position{q.At, q.End})
		require.Len(m.t, q.Batches, len(p.Batches))
		return
	}
	var ends []storage.OffsetAnswer
	for i := range p.Units {
		ends = append(ends, storage.OffsetAnswer{Queue: p.Units[i].Queue, Max: p.Units[i].Offset + 1})
	}
	m.to.Adopt(p.End, last, ends)
}

func (m *mirror) Undone(p *storage.Pending, from int, rewind bool, tail message.Position, last int64) {
	if q := m.twin[p]; q != nil {
		if rewind {
			require.NoError(m.t, m.to.Rewind(q))
		} else {
			require.NoError(m.t, m.to.Abandon(q, from))
		}
		return
	}
	var ends []storage.OffsetAnswer
	for n := len(p.Batches) - 1; n >= from; n-- {
		for i := len(p.Batches[n].Units) - 1; i >= 0; i-- {
			u := &p.Batches[n].Units[i]
			ends = append(ends, storage.OffsetAnswer{Queue: u.Queue, Max: u.Offset})
		}
	}
	m.to.Adopt(tail, last, ends)
}

func (m *mirror) Forgot(q message.Queue) { m.to.Forget(q) }

// state is all that can be seen of a Sequencer.
func state(s *storage.Sequencer) any {
	ends := map[message.Queue]int64{}
	s.Ends(func(q message.Queue, next int64) bool {
		if next > 0 { // one that was taken back is as one that never was
			ends[q] = next
		}
		return true
	})
	return []any{s.Term(), s.Tail(), s.Segment(), ends}
}

// TestSequencerWatch: whatever one Sequencer does, one that follows it is the same.
func TestSequencerWatch(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	clock := storagetest.NewClock(now)
	m := &mirror{t: t, to: storage.NewSequencer(storagetest.NewClock(5)), twin: map[*storage.Pending]*storage.Pending{}}
	s := storage.NewSequencer(clock)
	s.Watch(m)
	require.NoError(t, s.Open(3, storage.State{Segment: segment, Published: 1000, Tail: 1000, LastStoreTime: now - 5},
		[]storage.OffsetAnswer{{Queue: queue("T", 0), Max: 7}}))
	w := storagetest.NewWriter(rules())
	for range 500 {
		clock.Add(rnd.Int64N(3))
		var groups [][]msg
		for range 1 + rnd.IntN(5) {
			groups = append(groups, []msg{{Queue: queue("T", rnd.Int32N(3)), UniqueKey: "k", Body: make([]byte, rnd.IntN(1500))}})
		}
		p, q := w.Pending(groups...), w.Pending(groups...)
		if rnd.IntN(3) > 0 {
			m.twin[p] = q
		}
		lead := 0
		if rnd.IntN(4) == 0 && len(p.Buf) < segment/2 {
			lead = 100
		}
		require.NoError(t, s.Assign(p, lead))
		require.Equal(t, state(s), state(m.to))
		switch rnd.IntN(4) {
		case 0:
			require.NoError(t, s.Rewind(p))
			if m.twin[p] != nil {
				require.Equal(t, p.Units, q.Units)
			}
		case 1:
			require.NoError(t, s.Abandon(p, rnd.IntN(len(p.Batches))))
		case 2:
			s.Forget(queue("T", rnd.Int32N(3)))
		}
		require.Equal(t, state(s), state(m.to))
	}
}

// TestSequencerContinue: a Sequencer knows the last office before its first one.
func TestSequencerContinue(t *testing.T) {
	s := storage.NewSequencer(nil)
	require.Zero(t, s.Term())
	s.Continue(7)
	require.Equal(t, uint64(7), s.Term())
	require.NoError(t, s.Open(8, storage.State{Segment: segment}, nil))
	require.Equal(t, uint64(8), s.Term())
}
