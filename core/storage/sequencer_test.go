package storage_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
)

const (
	segment = 4096
	now     = 1_700_000_000_000
)

type msg = storagetest.Message

func rules() message.IndexRules {
	return message.IndexRules{DelayLevels: message.DefaultDelayLevels()}
}

func queue(topic string, id int32) message.Queue { return message.Queue{Topic: topic, ID: id} }

// opened makes a Sequencer at a tail.
func opened(t testing.TB, clock *storagetest.Clock, tail message.Position, ends ...storage.OffsetAnswer) *storage.Sequencer {
	t.Helper()
	s := storage.NewSequencer(clock)
	require.NoError(t, s.Open(3, storage.State{Segment: segment, Published: tail, Tail: tail}, ends))
	return s
}

// sized is a message whose record has n bytes.
func sized(t testing.TB, n int) msg {
	t.Helper()
	m := msg{Queue: queue("T", 0)}
	empty := storagetest.NewWriter(rules()).Size(m)
	require.GreaterOrEqual(t, n, empty)
	m.Body = make([]byte, n-empty)
	return m
}

func TestSequencerOpenRefuses(t *testing.T) {
	s := storage.NewSequencer(nil)
	require.ErrorContains(t, s.Open(1, storage.State{Segment: segment, Published: 5, Tail: 6}, nil), "published up to 5")
	require.ErrorContains(t, s.Open(1, storage.State{Segment: 99}, nil), "99 bytes")
}

func TestSequencerStamps(t *testing.T) {
	clock := storagetest.NewClock(now)
	s := opened(t, clock, 1000, storage.OffsetAnswer{Queue: queue("T", 0), Known: true, Min: 2, Max: 7})
	w := storagetest.NewWriter(rules())
	v6 := netip.MustParseAddrPort("[fd00::9]:50000")
	p := w.Pending(
		[]msg{{Queue: queue("T", 0), Tags: "TagA", Keys: "a b", UniqueKey: "u"}, {Queue: queue("T", 1)}},
		[]msg{{Queue: queue("T", 0), BornHost: v6, StoreHost: v6, Body: []byte("six")}},
		[]msg{{Queue: queue(message.ScheduleTopic, 1), Delay: 2}, {Queue: queue(message.ScheduleTopic, 1), Tags: "x"}},
		[]msg{{Queue: queue("T", 0), SysFlag: message.SysTxRollback, Keys: "k"}, {Queue: queue("T", 0), SysFlag: message.SysTxPrepared, Keys: "k"}},
	)
	require.NoError(t, s.Assign(p, 0))
	require.Equal(t, message.Position(1000), p.At)
	require.Len(t, p.Batches, 1)
	b := p.Batches[0]
	require.Equal(t, uint64(3), b.Term)
	require.Equal(t, s.Tail(), p.End)
	require.Equal(t, p.End, b.End())

	// The Deriver makes the same units and keys of the stamped records.
	d := message.NewDeriver(rules())
	var units []message.Unit
	var keys []message.Key
	at := b.At
	for rest := b.Buf; len(rest) > 0; {
		var v message.View
		require.NoError(t, message.Parse(rest, &v))
		require.Equal(t, at, v.Position)
		require.Equal(t, int64(now), v.StoreTime)
		units, keys = d.Derive(&v, nil, units, keys)
		at += message.Position(v.Size)
		rest = rest[v.Size:]
	}
	require.Equal(t, units, b.Units)
	require.Equal(t, keys, b.Keys)
	var offsets []int64
	for _, u := range b.Units {
		offsets = append(offsets, u.Offset)
	}
	require.Equal(t, []int64{7, 0, 8, 0, 1}, offsets)
	require.Equal(t, int64(now+5000), b.Units[3].TagsCode, "the delayed unit is due after level 2")
	require.Equal(t, int64('x'), b.Units[4].TagsCode, "a unit without DELAY keeps its hash, also in the schedule topic")
	var v message.View
	require.NoError(t, message.Parse(b.GroupBytes(1), &v))
	require.Equal(t, v6, message.HostAddr(v.BornHost))
	require.Equal(t, int64(now), v.StoreTime)
	require.Equal(t, "six", string(v.Body))
}

// TestSequencerDelayOfNothing: a level of 0 s is a time, too.
func TestSequencerDelayOfNothing(t *testing.T) {
	s := opened(t, storagetest.NewClock(now), 0)
	w := storagetest.NewWriter(message.IndexRules{DelayLevels: []int64{0}})
	p := w.Pending([]msg{{Queue: queue(message.ScheduleTopic, 0), Delay: 1}})
	require.NoError(t, s.Assign(p, 0))
	require.Equal(t, int64(now), p.Units[0].TagsCode)
	require.NoError(t, s.Rewind(p))
	require.Zero(t, p.Units[0].TagsCode)
}

func TestSequencerEdges(t *testing.T) {
	type batch struct {
		at  message.Position
		len int
	}
	for name, tc := range map[string]struct {
		tail   message.Position
		lead   int
		groups []int // sizes, one record each
		want   []batch
		at     message.Position
	}{
		"empty log":              {0, 0, []int{200, 300}, []batch{{0, 500}}, 0},
		"exact fit":              {3000, 0, []int{segment - 3000 - 8}, []batch{{3000, 1088}}, 3000},
		"one byte too much":      {3000, 0, []int{segment - 3000 - 7}, []batch{{segment, 1089}}, segment},
		"edge between groups":    {3000, 0, []int{500, 500, 500, 100}, []batch{{3000, 1000}, {segment, 600}}, 3000},
		"three segments":         {4000, 0, []int{4000, 4000}, []batch{{segment, 4000}, {2 * segment, 4000}}, segment},
		"largest":                {100, 0, []int{segment - 8}, []batch{{segment, segment - 8}}, segment},
		"lead fits":              {100, 200, []int{200, 300}, []batch{{300, 500}}, 100},
		"lead, exact fit":        {3000, 188, []int{900}, []batch{{3188, 900}}, 3000},
		"lead moves to the next": {3000, 189, []int{900}, []batch{{segment + 189, 900}}, segment},
		"lead moves all groups":  {3000, 100, []int{500, 500}, []batch{{segment + 100, 1000}}, segment},
		"at an edge":             {segment, 0, []int{200}, []batch{{segment, 200}}, segment},
		"lead alone":             {3000, 100, nil, nil, 3000},
	} {
		t.Run(name, func(t *testing.T) {
			s := opened(t, storagetest.NewClock(now), tc.tail)
			w := storagetest.NewWriter(rules())
			p := &storage.Pending{}
			for _, n := range tc.groups {
				w.Add(p, sized(t, n))
			}
			require.NoError(t, s.Assign(p, tc.lead))
			var got []batch
			for i := range p.Batches {
				b := &p.Batches[i]
				got = append(got, batch{b.At, len(b.Buf)})
				require.Zero(t, (b.End()-1)/segment-b.At/segment, "a batch lies in one segment")
				for g := range b.Groups {
					require.Len(t, b.GroupBytes(g), int(b.Groups[g].Len))
				}
			}
			require.Equal(t, tc.want, got)
			require.Equal(t, tc.at, p.At)
			require.Equal(t, p.End, s.Tail())
		})
	}
}

// TestSequencerEdgeGroups: what must begin a segment does, behind its lead.
func TestSequencerEdgeGroups(t *testing.T) {
	for name, tc := range map[string]struct {
		tail message.Position
		lead int
		edge int // the group with Edge, of three with 200 bytes
		at   message.Position
		want []message.Position
	}{
		"first":            {100, 0, 0, segment, []message.Position{segment}},
		"second":           {100, 0, 1, 100, []message.Position{100, segment}},
		"last":             {100, 0, 2, 100, []message.Position{100, segment}},
		"at an edge":       {segment, 0, 0, segment, []message.Position{segment}},
		"empty log":        {0, 0, 0, 0, []message.Position{0}},
		"lead":             {100, 50, 0, segment, []message.Position{segment + 50}},
		"lead, later":      {100, 50, 2, segment, []message.Position{segment + 50}},
		"lead, at an edge": {segment, 50, 0, segment, []message.Position{segment + 50}},
	} {
		t.Run(name, func(t *testing.T) {
			s := opened(t, storagetest.NewClock(now), tc.tail)
			w := storagetest.NewWriter(rules())
			p := &storage.Pending{}
			for range 3 {
				w.Add(p, sized(t, 200))
			}
			p.Groups[tc.edge].Edge = true
			before := slices.Clone(p.Units)
			require.NoError(t, s.Assign(p, tc.lead))
			var got []message.Position
			for i := range p.Batches {
				got = append(got, p.Batches[i].At)
			}
			require.Equal(t, tc.want, got)
			require.Equal(t, tc.at, p.At)
			require.NoError(t, s.Rewind(p))
			require.Equal(t, before, p.Units)
			require.Equal(t, tc.tail, s.Tail())
		})
	}
}

// TestSequencerAbandon: of three batches the first is in the log, the others
// are not.
func TestSequencerAbandon(t *testing.T) {
	for from := range 3 {
		s := opened(t, storagetest.NewClock(now), 3000)
		w := storagetest.NewWriter(rules())
		p := &storage.Pending{}
		for _, n := range []int{500, 3500, 3500} {
			w.Add(p, sized(t, n))
		}
		require.NoError(t, s.Assign(p, 0))
		require.Len(t, p.Batches, 3)
		require.ErrorIs(t, s.Abandon(p, 3), storage.ErrOrder)
		require.NoError(t, s.Abandon(p, from))
		require.ErrorIs(t, s.Abandon(p, from), storage.ErrOrder)
		require.ErrorIs(t, s.Rewind(p), storage.ErrOrder)
		want := message.Position(3000)
		if from > 0 {
			want = p.Batches[from-1].End()
		}
		require.Equal(t, want, s.Tail())
		ends := map[message.Queue]int64{}
		for q, next := range s.Ends {
			ends[q] = next
		}
		require.Equal(t, map[message.Queue]int64{queue("T", 0): int64(from)}, ends)
		next := w.Pending([]msg{{Queue: queue("T", 0)}})
		require.NoError(t, s.Assign(next, 0))
		require.Equal(t, int64(from), next.Units[0].Offset)
	}
}

func TestSequencerOwner(t *testing.T) {
	s := opened(t, storagetest.NewClock(now), 4000)
	w := storagetest.NewWriter(rules())
	freed := 0
	p := &storage.Pending{Owner: "me", Free: func(b *storage.Batch) {
		require.Equal(t, "me", b.Owner)
		freed++
	}}
	w.Add(p, sized(t, 3000))
	w.Add(p, sized(t, 3000))
	require.NoError(t, s.Assign(p, 0))
	for i := range p.Batches {
		p.Batches[i].Done()
	}
	require.Equal(t, 2, freed)
	p.Reset()
	require.Equal(t, "me", p.Owner)
	require.NotNil(t, p.Free)
	require.Equal(t, int64(segment), s.Segment())
}

func TestSequencerGroupStaysTogether(t *testing.T) {
	s := opened(t, storagetest.NewClock(now), 3000)
	p := storagetest.NewWriter(rules()).Pending([]msg{sized(t, 500), sized(t, 500), sized(t, 500)})
	require.NoError(t, s.Assign(p, 0))
	require.Len(t, p.Batches, 1)
	require.Equal(t, message.Position(segment), p.Batches[0].At)
}

func TestSequencerTooLargeChangesNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		groups []int
		lead   int
	}{
		"group":             {[]int{200, segment - 7, 200}, 0},
		"whole with a lead": {[]int{2000, 2000}, 100},
	} {
		t.Run(name, func(t *testing.T) {
			s := opened(t, storagetest.NewClock(now), 500)
			w := storagetest.NewWriter(rules())
			good := w.Pending([]msg{{Queue: queue("T", 0)}})
			require.NoError(t, s.Assign(good, 0))
			tail := s.Tail()
			p := &storage.Pending{}
			for _, n := range tc.groups {
				w.Add(p, sized(t, n))
			}
			buf, units := slices.Clone(p.Buf), slices.Clone(p.Units)
			require.ErrorIs(t, s.Assign(p, tc.lead), storage.ErrTooLarge)
			require.Equal(t, tail, s.Tail())
			require.True(t, bytes.Equal(buf, p.Buf))
			require.Equal(t, units, p.Units)
			require.NoError(t, s.Rewind(good), "the refused one did not become the latest")
			require.ErrorIs(t, s.Rewind(p), storage.ErrOrder)
		})
	}
}

func TestSequencerTimeNeverFalls(t *testing.T) {
	clock := storagetest.NewClock(now)
	s := storage.NewSequencer(clock)
	require.NoError(t, s.Open(1, storage.State{Segment: 1 << 20, LastStoreTime: now + 100}, nil))
	w := storagetest.NewWriter(rules())
	last := int64(now + 100)
	for _, step := range []int64{0, 50, 100, -1000, 2000, -5, 0, 5} {
		clock.Add(step)
		p := w.Pending([]msg{{Queue: queue("T", 0)}}, []msg{{Queue: queue("T", 0)}})
		require.NoError(t, s.Assign(p, 0))
		got := p.Units[0].StoreTime
		require.Equal(t, max(last, clock.Now().UnixMilli()), got)
		require.Equal(t, got, p.Units[1].StoreTime, "one store time for all of a Pending")
		last = got
	}
}

// TestSequencerRewind drops random proposals and proposes them again.
func TestSequencerRewind(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	clock := storagetest.NewClock(now)
	s := opened(t, clock, 0)
	w := storagetest.NewWriter(rules())
	for range 200 {
		p := &storage.Pending{}
		for range 1 + rnd.IntN(6) {
			var g []msg
			for range 1 + rnd.IntN(3) {
				m := msg{Queue: queue("T", int32(rnd.IntN(3))), Keys: "a b", Body: make([]byte, rnd.IntN(600))}
				if rnd.IntN(4) == 0 {
					m.Queue, m.Delay = queue(message.ScheduleTopic, 0), 1+rnd.IntN(20)
				}
				if rnd.IntN(5) == 0 {
					m.SysFlag = message.SysTxRollback
				}
				g = append(g, m)
			}
			w.Add(p, g...)
		}
		lead := 0
		if len(p.Buf) < segment-300 && rnd.IntN(2) == 0 {
			lead = 200
		}
		before := struct {
			tail  message.Position
			units []message.Unit
			keys  []message.Key
		}{s.Tail(), slices.Clone(p.Units), slices.Clone(p.Keys)}
		require.NoError(t, s.Assign(p, lead))
		first := snapshot(p)
		require.NoError(t, s.Rewind(p))
		require.Equal(t, before.tail, s.Tail())
		require.Equal(t, before.units, p.Units)
		require.Equal(t, before.keys, p.Keys)
		require.ErrorIs(t, s.Rewind(p), storage.ErrOrder, "only once")
		require.NoError(t, s.Assign(p, lead))
		require.Equal(t, first, snapshot(p), "assigned anew, the bytes are the same")
		clock.Add(int64(rnd.IntN(20)))
	}
}

// snapshot renders everything that Assign decides.
func snapshot(p *storage.Pending) string {
	s := fmt.Sprintln(p.At, p.End, p.Units, p.Keys)
	for i := range p.Batches {
		b := &p.Batches[i]
		s += fmt.Sprintln(b.Term, b.At, b.Groups, b.Units, b.Keys) + string(b.Buf)
	}
	return s
}

func TestSequencerRewindOnlyLatest(t *testing.T) {
	s := opened(t, storagetest.NewClock(now), 0)
	w := storagetest.NewWriter(rules())
	a, b := w.Pending([]msg{{Queue: queue("T", 0)}}), w.Pending([]msg{{Queue: queue("T", 0)}})
	require.ErrorIs(t, s.Rewind(a), storage.ErrOrder)
	require.NoError(t, s.Assign(a, 0))
	require.NoError(t, s.Assign(b, 0))
	require.ErrorIs(t, s.Rewind(a), storage.ErrOrder)
	require.NoError(t, s.Rewind(b))
	require.ErrorIs(t, s.Rewind(a), storage.ErrOrder, "two in a row are not undone")
}

func TestSequencerForget(t *testing.T) {
	q := queue("T", 0)
	s := opened(t, storagetest.NewClock(now), 0, storage.OffsetAnswer{Queue: q, Max: 40})
	w := storagetest.NewWriter(rules())
	p := w.Pending([]msg{{Queue: q}})
	require.NoError(t, s.Assign(p, 0))
	require.Equal(t, int64(40), p.Units[0].Offset)
	s.Forget(q)
	p = w.Pending([]msg{{Queue: q}})
	require.NoError(t, s.Assign(p, 0))
	require.Zero(t, p.Units[0].Offset)
}

// TestSequencerOffsetsInRecords: the queue offset stands in the record, too.
func TestSequencerOffsetsInRecords(t *testing.T) {
	s := opened(t, storagetest.NewClock(now), 0)
	p := storagetest.NewWriter(rules()).Pending([]msg{{Queue: queue("T", 0)}, {Queue: queue("T", 1)}, {Queue: queue("T", 0)}})
	require.NoError(t, s.Assign(p, 0))
	off := 0
	for i, want := range []uint64{0, 0, 1} {
		require.Equal(t, want, binary.BigEndian.Uint64(p.Buf[off+20:]), "record %d", i)
		off += int(message.Size(p.Buf[off:]))
	}
}

func TestSequencerFits(t *testing.T) {
	s := opened(t, storagetest.NewClock(now), 0)
	require.True(t, s.Fits(segment-8))
	require.False(t, s.Fits(segment-7))
	require.Equal(t, uint64(3), s.Term())
}

func TestCorruptError(t *testing.T) {
	cause := errors.New("cause")
	var err error = &storage.CorruptError{File: "f", Offset: 7, Reason: "why", Err: cause}
	require.ErrorIs(t, err, cause)
	require.EqualError(t, err, "corrupt data in f at byte 7: why: cause")
}

func TestFacets(t *testing.T) {
	require.Empty(t, storage.Capabilities{}.Facets())
}

func TestReadStatusNames(t *testing.T) {
	require.Equal(t, "FOUND", storage.Found.String())
	require.Equal(t, "OFFSET_RESET", storage.OffsetReset.String())
	require.Equal(t, "UNKNOWN", storage.ReadStatus(200).String())
}

func TestChunkReset(t *testing.T) {
	l := &countLease{}
	c := storage.Chunk{Frags: [][]byte{{1}}, Units: make([]message.Unit, 3), Next: 4, Lease: l}
	c.Reset()
	c.Release()
	require.Equal(t, 1, l.n)
	require.Empty(t, c.Frags)
	require.Empty(t, c.Units)
	require.Equal(t, 3, cap(c.Units))
	require.Zero(t, c.Next)
}

type countLease struct{ n int }

func (l *countLease) Release() { l.n++ }

func TestPendingReset(t *testing.T) {
	s := opened(t, storagetest.NewClock(now), 0)
	w := storagetest.NewWriter(rules())
	p := w.Pending([]msg{{Queue: queue("T", 0), Keys: "k"}})
	require.NoError(t, s.Assign(p, 0))
	p.Reset()
	require.Empty(t, p.Buf)
	require.Empty(t, p.Batches)
	w.Add(p, msg{Queue: queue("T", 0)})
	require.NoError(t, s.Assign(p, 0))
	require.Equal(t, int64(1), p.Units[0].Offset)
}

// BenchmarkAssign reports the cost of a record of a combined batch: queues take
// turns by the record, or by eight.
func BenchmarkAssign(b *testing.B) {
	for _, n := range []int{1, 64, 1024} {
		for _, run := range []int{1, 8} {
			b.Run(fmt.Sprintf("records=%d/run=%d", n, run), func(b *testing.B) {
				s := storage.NewSequencer(nil)
				require.NoError(b, s.Open(1, storage.State{Segment: 1 << 30}, nil))
				w := storagetest.NewWriter(rules())
				p := &storage.Pending{}
				for i := range n {
					w.Add(p, msg{Queue: queue("BenchmarkTest", int32(i/run%8)), Tags: "TagA", UniqueKey: "0123456789ABCDEF0123456789ABCDEF", Body: make([]byte, 128)})
				}
				units, keys := slices.Clone(p.Units), slices.Clone(p.Keys)
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					if i%n == 0 {
						if err := s.Assign(p, 0); err != nil {
							b.Fatal(err)
						}
						copy(p.Units, units) // relative again
						copy(p.Keys, keys)
					}
					i++
				}
			})
		}
	}
}
