package solo_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/replication/replicationtest"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagemw"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
	"github.com/hardpointmq/hardpoint/plugins/replication/solo"
	"github.com/hardpointmq/hardpoint/plugins/storage/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newStore(tb testing.TB, p storage.Params) storage.Store {
	tb.Helper()
	s, err := memory.NewFactory().Build(tb.Context(), p, nil)
	require.NoError(tb, err)
	return s
}

var harnesses = []replicationtest.Harness{
	{
		Factory: solo.NewFactory(), NewStore: newStore, Form: "async",
		Lacks: replicationtest.Lacks{Members: true, Sync: true},
	},
	{
		Factory: solo.NewFactory(), NewStore: newStore, Form: "sync",
		Config: plugin.Raw(`{"flushDiskType":"SYNC_FLUSH"}`),
		Lacks:  replicationtest.Lacks{Members: true},
	},
}

func TestConformance(t *testing.T) { replicationtest.Run(t, harnesses...) }

// sinkhole takes everything and keeps nothing, also where it is published late.
type sinkhole struct {
	storagetest.Nop
	published *atomic.Int64
}

func (s sinkhole) Capabilities() storage.Capabilities { return storage.Capabilities{RawLog: s} }

func (s sinkhole) State() storage.State {
	st := s.Nop.State()
	st.Published = message.Position(s.published.Load())
	st.Tail = st.Published
	return st
}

func (s sinkhole) Publish(_ context.Context, upTo message.Position) error {
	s.published.Store(int64(upTo))
	return nil
}

func (sinkhole) ReadLog(context.Context, message.Position, int, *storage.Chunk) error { return nil }
func (sinkhole) Truncate(context.Context, message.Position) error                     { return nil }
func (sinkhole) Reset(context.Context, message.Position, []message.Unit) error        { return nil }

func BenchmarkReplicator(b *testing.B) {
	for _, h := range harnesses {
		h.NewStore = func(testing.TB, storage.Params) storage.Store { return sinkhole{published: &atomic.Int64{}} }
		b.Run(h.Form, func(b *testing.B) { replicationtest.Benchmark(b, h) })
	}
}

// told is an outcome of a run of groups.
type told struct {
	p        *storage.Pending
	from, to int
	o        replication.Outcome
	err      error
}

type sink chan told

func (s sink) Done(p *storage.Pending, from, to int, o replication.Outcome, err error) {
	s <- told{p, from, to, o, err}
}

// node is a solo on a store whose calls a hook meets.
type node struct {
	*solo.Solo
	store storage.Store
	w     *storagetest.Writer
	sink  sink
}

const segment = 16 << 10

func newNode(t *testing.T, cfg solo.Config, hook storagemw.Hook) *node {
	t.Helper()
	require.NoError(t, cfg.Validate())
	n := &node{w: storagetest.NewWriter(message.IndexRules{}), sink: make(sink, 1000)}
	mode := storage.Immediate
	if cfg.FlushDiskType == solo.SyncFlush {
		mode = storage.Explicit
	}
	p := storage.Params{Settings: plugin.Settings{Name: "memory"}.WithDefaults(), Segment: segment, Publish: mode}
	n.store = newStore(t, p)
	if hook != nil {
		n.store = storagemw.Faults(hook)(p, n.store)
	}
	require.NoError(t, n.store.Start(t.Context()))
	n.build(t, cfg)
	t.Cleanup(func() {
		require.NoError(t, n.Shutdown(context.WithoutCancel(t.Context())))
		require.NoError(t, n.store.Shutdown(context.WithoutCancel(t.Context())))
	})
	return n
}

func (n *node) build(t *testing.T, cfg solo.Config) {
	t.Helper()
	s, err := solo.New(t.Context(), replication.Params{
		Settings: plugin.Settings{Name: "solo"}, Store: n.store, Sequencer: storage.NewSequencer(nil),
	}, cfg)
	require.NoError(t, err)
	n.Solo = s
}

var queue = message.Queue{Topic: "T"}

func (n *node) append(t *testing.T, groups int) *storage.Pending {
	t.Helper()
	p := &storage.Pending{}
	for range groups {
		n.w.Add(p, storagetest.Message{Queue: queue, Body: make([]byte, 100)})
	}
	require.NoError(t, n.Append(t.Context(), p, n.sink))
	return p
}

func syncConfig() solo.Config {
	c := solo.NewDefaultConfig()
	c.FlushDiskType, c.SyncFlushTimeoutMs = solo.SyncFlush, 1000
	return c
}

// gate lets a test hold and count the flushes of a store.
type gate struct {
	began chan message.Position
	open  chan error
}

func newGate() *gate { return &gate{make(chan message.Position), make(chan error)} }

func (g *gate) hook(_ context.Context, c storagemw.Call) error {
	if c.Op != storagemw.OpSync || c.Done {
		return nil
	}
	g.began <- c.At
	return <-g.open
}

func TestGroupCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		n := newNode(t, syncConfig(), g.hook)
		require.NoError(t, n.Start(t.Context()))
		first := n.append(t, 1)
		require.Equal(t, first.End, <-g.began)
		var last *storage.Pending
		for range 20 {
			last = n.append(t, 2)
		}
		require.Empty(t, n.sink, "nothing is told before the flush")
		g.open <- nil
		require.Equal(t, last.End, <-g.began, "one flush for all that came meanwhile")
		require.Equal(t, first, (<-n.sink).p)
		require.Empty(t, n.sink)
		g.open <- nil
		for range 20 {
			x := <-n.sink
			require.Equal(t, replication.Stored, x.o)
			require.Equal(t, [2]int{0, 2}, [2]int{x.from, x.to})
		}
	})
}

// A flush waits for those whom the last one answered and who are about to send
// again, so that two halves of the clients do not take turns; not for long, and
// not when all are there.
func TestGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes = 8 * time.Millisecond
		g := newGate()
		n := newNode(t, syncConfig(), g.hook)
		require.NoError(t, n.Start(t.Context()))
		flush := func() message.Position {
			end := <-g.began
			<-time.After(takes)
			g.open <- nil
			return end
		}
		for range 50 { // it learns what a flush takes
			p := n.append(t, 1)
			began := time.Now()
			require.Equal(t, p.End, <-g.began)
			require.Zero(t, time.Since(began), "who is alone does not wait")
			<-time.After(takes)
			g.open <- nil
			<-n.sink
		}
		n.append(t, 1)
		<-g.began
		other := n.append(t, 1)
		<-time.After(takes)
		g.open <- nil
		require.Equal(t, replication.Stored, (<-n.sink).o)
		again := n.append(t, 1) // who was answered comes back
		require.Equal(t, again.End, flush(), "both halves in one flush")
		<-n.sink
		<-n.sink
		require.Greater(t, again.End, other.End)

		alone := n.append(t, 1) // the other one does not come back
		began := time.Now()
		require.Equal(t, alone.End, <-g.began)
		waited := time.Since(began)
		require.Greater(t, waited, takes/8)
		require.LessOrEqual(t, waited, takes/4)
		g.open <- nil
		<-n.sink
		alone = n.append(t, 1)
		began = time.Now()
		require.Equal(t, alone.End, <-g.began)
		require.Zero(t, time.Since(began), "nobody else is expected any more")
		g.open <- nil
		<-n.sink
	})
}

func TestFlushDiskTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		n := newNode(t, syncConfig(), g.hook)
		require.NoError(t, n.Start(t.Context()))
		p := n.append(t, 2)
		<-g.began
		<-time.After(600 * time.Millisecond)
		late := n.append(t, 1)
		<-time.After(800 * time.Millisecond) // the watch looks every quarter of the timeout
		x := <-n.sink
		require.Equal(t, told{p, 0, 2, replication.FlushDiskTimeout, nil}, x)
		require.Empty(t, n.sink, "the later one has time left")
		g.open <- nil
		require.Equal(t, late.End, <-g.began)
		require.Equal(t, p.End, n.store.State().Published, "what timed out is published all the same")
		g.open <- nil
		require.Equal(t, told{late, 0, 1, replication.Stored, nil}, <-n.sink)
		require.Empty(t, n.sink, "nothing is told twice")
	})
}

// A refused Pending is told behind the ones that wait for a flush, and Append
// does not wait for that flush.
func TestRefusedWaitsForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		full := false
		n := newNode(t, syncConfig(), func(ctx context.Context, c storagemw.Call) error {
			if c.Op == storagemw.OpAppend && !c.Done && full {
				return storage.ErrFull
			}
			return g.hook(ctx, c)
		})
		require.NoError(t, n.Start(t.Context()))
		p := n.append(t, 1)
		<-g.began
		full = true
		refused := n.append(t, 3)
		full = false
		after := n.append(t, 1)
		require.Equal(t, p.End, after.At, "the refused one's place is given again")
		require.Equal(t, int64(1), after.Units[0].Offset)
		require.Empty(t, n.sink)
		g.open <- nil
		x := <-n.sink
		require.Equal(t, told{p, 0, 1, replication.Stored, nil}, x)
		x = <-n.sink
		require.Equal(t, refused, x.p)
		require.Equal(t, replication.NotStored, x.o)
		require.ErrorIs(t, x.err, storage.ErrFull)
		<-g.began
		full = true
		refused = n.append(t, 1)
		<-time.After(1400 * time.Millisecond)
		require.Equal(t, replication.FlushDiskTimeout, (<-n.sink).o)
		require.Equal(t, refused, (<-n.sink).p, "told as soon as those before it timed out")
		g.open <- nil
		full = true
		alone := n.append(t, 1)
		require.Equal(t, alone, (<-n.sink).p, "told at once when nothing waits")
	})
}

func TestFailedFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("input/output error")
		g := newGate()
		n := newNode(t, syncConfig(), g.hook)
		require.NoError(t, n.Start(t.Context()))
		p := n.append(t, 1)
		<-g.began
		q := n.append(t, 2)
		g.open <- broken
		for _, want := range []*storage.Pending{p, q} {
			x := <-n.sink
			require.Equal(t, want, x.p)
			require.Equal(t, replication.Unknown, x.o)
			require.ErrorIs(t, x.err, broken)
		}
		require.Contains(t, n.Role().ReadOnly, "input/output error")
		err := n.Append(t.Context(), n.w.Pending([]storagetest.Message{{Queue: queue}}), n.sink)
		require.ErrorIs(t, err, replication.ErrReadOnly)
		// Shutdown, in Cleanup, would hang in the gate if it flushed again.
	})
}

func TestFailedFlushAsync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		n := newNode(t, solo.NewDefaultConfig(), g.hook)
		require.NoError(t, n.Start(t.Context()))
		p := n.append(t, 1)
		require.Equal(t, told{p, 0, 1, replication.Stored, nil}, <-n.sink)
		<-time.After(500 * time.Millisecond)
		require.Equal(t, p.End, <-g.began)
		g.open <- errors.New("broken")
		synctest.Wait()
		require.NotEmpty(t, n.Role().ReadOnly)
		require.NoError(t, n.Barrier(t.Context()), "reads go on")
	})
}

// An error that the contract does not name says nothing about what was written.
func TestUnknownWriteError(t *testing.T) {
	fail := false
	n := newNode(t, solo.NewDefaultConfig(), func(_ context.Context, c storagemw.Call) error {
		if fail && c.Op == storagemw.OpAppend && c.Done {
			return plugin.ErrUnavailable
		}
		return nil
	})
	require.NoError(t, n.Start(t.Context()))
	fail = true
	n.append(t, 1)
	require.Equal(t, replication.Unknown, (<-n.sink).o)
	require.NotEmpty(t, n.Role().ReadOnly)
	fail = false
}

// What an unclean end left unpublished is flushed and published.
func TestUnpublishedTail(t *testing.T) {
	n := newNode(t, syncConfig(), nil)
	seq := storagetest.OpenSequencer(t, n.store, nil, 1)
	p := n.w.Pending([]storagetest.Message{{Queue: queue}}, []storagetest.Message{{Queue: queue}})
	require.NoError(t, seq.Assign(p, 0))
	require.NoError(t, n.store.Append(t.Context(), &p.Batches[0]))
	require.Less(t, n.store.State().Published, p.End)
	require.NoError(t, n.Start(t.Context()))
	st := n.store.State()
	require.Equal(t, p.End, st.Published)
	require.Equal(t, p.End, st.Durable)
	require.Equal(t, int64(2), n.append(t, 1).Units[0].Offset)
	<-n.sink
}

func TestStartFails(t *testing.T) {
	t.Run("offsets", func(t *testing.T) {
		n := newNode(t, syncConfig(), func(_ context.Context, c storagemw.Call) error {
			if c.Op == storagemw.OpOffsets {
				return storage.ErrFailed
			}
			return nil
		})
		require.ErrorIs(t, n.Start(t.Context()), storage.ErrFailed)
		require.ErrorIs(t, n.Barrier(t.Context()), replication.ErrNotRunning)
	})
	t.Run("no raw log", func(t *testing.T) {
		_, err := solo.New(t.Context(), replication.Params{Store: storagetest.Nop{}, Sequencer: storage.NewSequencer(nil)}, syncConfig())
		require.ErrorContains(t, err, "RawLog")
	})
}

func TestConfig(t *testing.T) {
	for _, raw := range []string{`{"flushDiskType":"SOMETIMES"}`, `{"flushIntervalCommitLog":0}`, `{"syncFlushTimeout":600001}`, `{"flushdisk":1}`} {
		_, err := solo.NewFactory().Build(t.Context(), replication.Params{Store: storagetest.Nop{}}, plugin.Raw(raw))
		require.ErrorIs(t, err, plugin.ErrConfig, raw)
	}
	d, err := solo.NewFactory().Describe(t.Context(), plugin.Raw(`{"flushDiskType":"SYNC_FLUSH"}`))
	require.NoError(t, err)
	require.Equal(t, []string{"storage.RawLog"}, d.Needs)
	require.Equal(t, "explicit", d.Publish)
}
