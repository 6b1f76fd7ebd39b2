package replicationwire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/replication/replicationtest"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagemw"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
	"github.com/hardpointmq/hardpoint/core/storage/storekit"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire"
)

// Bodies of all kinds survive encoding.
func TestBodiesCross(t *testing.T) {
	role := replication.Role{Kind: replication.RoleLeader, Term: 1 << 63, Leader: "a:1", Foreign: true, ReadOnly: "why"}
	st := replication.Status{Role: role, Replicas: []replication.Replica{
		{ID: "a", Acked: 1, Durable: 2, LastContact: time.Unix(5, 6), InSync: true}, {ID: "b", Why: "slow"},
	}}
	gotStatus, err := readStatus(putStatus(nil, &st))
	require.NoError(t, err)
	require.Equal(t, st, gotStatus)
	ends := []storage.OffsetAnswer{{Queue: message.Queue{Topic: "T", ID: -1}, Known: true, Max: 7}, {Queue: message.Queue{Topic: "T", ID: 2}, Known: true}}
	o := opened{9, 1 << 30, 5, 6, ends}
	gotOpened, err := readOpened(putOpened(nil, &o))
	require.NoError(t, err)
	require.Equal(t, o, gotOpened)
	a := assigned{lead: 3, last: 4, at: 5, end: 6}
	gotAssigned, err := readAssigned(putAssigned(nil, &a))
	require.NoError(t, err)
	require.Equal(t, a, gotAssigned)
	m := moved{5, 6, ends}
	gotMoved, err := readMoved(putMoved(nil, &m))
	require.NoError(t, err)
	require.Equal(t, m, gotMoved)
	r := batchRef{1, 2, 3, 4}
	gotRef, err := readBatchRef(putBatchRef(nil, &r))
	require.NoError(t, err)
	require.Equal(t, r, gotRef)
	x := outcome{1, 2, replication.NotStored, storage.ErrFull}
	gotOutcome, err := readOutcome(putOutcome(nil, &x))
	require.NoError(t, err)
	require.ErrorIs(t, gotOutcome.err, storage.ErrFull)
	gotOutcome.err = x.err
	require.Equal(t, x, gotOutcome)
	c := change{transfer, "id", "addr"}
	gotChange, err := readChange(putChange(nil, &c))
	require.NoError(t, err)
	require.Equal(t, c, gotChange)
	q, err := readQueue(putQueue(nil, ends[0].Queue))
	require.NoError(t, err)
	require.Equal(t, ends[0].Queue, q)
	from, rewind, err := readUndone(putUndone(nil, 3, true))
	require.NoError(t, err)
	require.Equal(t, 3, from)
	require.True(t, rewind)
}

// seedFrames has one frame of each kind at least.
func seedFrames() [][]byte {
	var all [][]byte
	add := func(k data.Kind, id uint64, fill func([]byte) []byte) {
		all = append(all, frame(nil, k, id, 0, fill))
	}
	role := replication.Role{Kind: replication.RoleLeader, Term: 1}
	add(kindOpened, 0, func(b []byte) []byte { return putOpened(b, &opened{term: 1, segment: fuzzSegment}) })
	add(kindRole, 1, func(b []byte) []byte { return putRole(b, &role) })
	add(kindAssigned, 1, func(b []byte) []byte {
		return putAssigned(b, &assigned{last: 5, at: 0, end: message.Position(len(fuzzPending().Buf))})
	})
	add(kindUndone, 1, func(b []byte) []byte { return putUndone(b, 0, true) })
	add(kindUndone, 1, func(b []byte) []byte { return putUndone(b, 0, false) })
	add(kindStore, 2, func(b []byte) []byte { return putBatchRef(b, &batchRef{pending: 1, term: 1}) })
	add(kindPublish, 3, func(b []byte) []byte { return data.PutInt(b, message.Position(100)) })
	add(kindOutcome, 1, func(b []byte) []byte { return putOutcome(b, &outcome{0, 2, replication.Stored, nil}) })
	add(kindDone, 1, nil)
	add(kindOver, 1, nil)
	add(kindTruncate, 4, func(b []byte) []byte { return data.PutInt(b, message.Position(0)) })
	add(kindReset, 5, func(b []byte) []byte { return data.PutEnds(data.PutInt(b, message.Position(0)), nil) })
	add(kindMoved, 0, func(b []byte) []byte { return putMoved(b, &moved{tail: 5}) })
	add(kindFreed, 1, func(b []byte) []byte { return data.PutUint(b, 0) })
	add(kindStatus, 0, func(b []byte) []byte { return putStatus(b, &replication.Status{Role: role}) })
	add(kindGone, 6, nil)
	add(kindCancel, 6, nil)
	add(kindReopened, 7, nil)
	lender := storagewire.NewLender(storagetest.Nop{}, slog.New(slog.DiscardHandler))
	add(kindStart, 8, func(b []byte) []byte { return putState(b, lender.State()) })
	add(kindState, 0, func(b []byte) []byte { return putState(b, lender.State()) })
	p := fuzzPending()
	var w data.TopicWriter
	body := append(data.PutBatch(nil, &w, &storage.Batch{Buf: p.Buf, Units: p.Units, Keys: p.Keys, Groups: p.Groups}), p.Buf...)
	add(kindAppend, 9, func(b []byte) []byte { return append(b, body...) })
	add(kindWhole, 9, func(b []byte) []byte { return append(b, body...) })
	add(kindBarrier, 10, nil)
	add(kindMembers, 11, func(b []byte) []byte { return putChange(b, &change{op: resign}) })
	add(kindForget, 0, func(b []byte) []byte { return putQueue(b, message.Queue{Topic: "T"}) })
	add(kindCancel, 10, nil)
	add(kindLogDone, 2, func(b []byte) []byte { return data.PutFailure(lender.AppendMarks(b), storage.ErrFull) })
	add(kindRoleDone, 1, func(b []byte) []byte { return data.PutFailure(b, errors.New("no")) })
	add(kindShutdown, 12, nil)
	return all
}

// seeds adds each frame alone and all of them in a row.
func seeds(f *testing.F) {
	f.Helper()
	all := seedFrames()
	for _, b := range all {
		f.Add(b)
	}
	f.Add(bytes.Join(all, nil))
}

// A kind that is added gets a seed.
func TestSeedsHaveAllKinds(t *testing.T) {
	seen := map[data.Kind]bool{}
	for _, b := range seedFrames() {
		h, _, err := data.NewReader(bytes.NewReader(b), kindLast).Next()
		require.NoError(t, err)
		seen[h.Kind] = true
	}
	for k := data.Kind(1); k <= kindLast; k++ {
		require.True(t, seen[k], "kind %d", k)
	}
}

// leaving is a store with facet Reopener: it never goes, and is always back.
type leaving struct{ storagemw.Base }

// Capabilities implements storage.Store.
func (s leaving) Capabilities() storage.Capabilities {
	c := s.Store.Capabilities()
	c.Reopener = s
	return c
}

// Gone implements storage.Reopener.
func (leaving) Gone(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

// Reopened implements storage.Reopener.
func (leaving) Reopened(context.Context) error { return nil }

const fuzzSegment = 64 << 10

func fuzzPending() *storage.Pending {
	w := storagetest.NewWriter(message.IndexRules{})
	return w.Pending([]storagetest.Message{{Queue: message.Queue{Topic: "T"}, UniqueKey: "k"}}, []storagetest.Message{{Queue: message.Queue{Topic: "U"}}})
}

// deaf is a connection that takes everything and says nothing.
type deaf struct {
	net.Conn
	closed chan struct{}
}

func newDeaf() deaf { return deaf{closed: make(chan struct{}, 1)} }

func (deaf) Write(b []byte) (int, error) { return len(b), nil }

func (d deaf) Read([]byte) (int, error) { <-d.closed; return 0, io.EOF }

func (d deaf) Close() error {
	select {
	case d.closed <- struct{}{}:
	default:
	}
	return nil
}

type counter struct{ told int }

func (c *counter) Done(_ *storage.Pending, from, to int, _ replication.Outcome, _ error) {
	c.told += to - from
}

// here is a process that is this one.
type here struct {
	wire.Process
	gone chan struct{}
}

func (h here) Gone() <-chan struct{} { return h.gone }
func (here) Cause() error            { return plugin.ErrUnavailable }
func (here) Release(bool)            {}
func (here) Fail(error)              {}

// FuzzHost gives a host arbitrary frames of a plugin that has a Pending: it does what
// they say or ends the session, each group gets one outcome, each batch is freed.
func FuzzHost(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, in []byte) {
		p := storage.Params{Settings: plugin.Settings{Name: "store"}.WithDefaults(), Segment: fuzzSegment, Publish: storage.Explicit}
		store := storekit.FromKV(p, &storekit.MemKV{}, storekit.Options{})
		require.NoError(t, store.Start(t.Context()))
		settings := plugin.Settings{Name: "fuzz", Logger: slog.New(slog.DiscardHandler)}.WithDefaults()
		seq := storage.NewSequencer(nil)
		lent := leaving{storagemw.Base{Store: store}}
		r := newReplicator(&host{name: "fuzz"}, replication.Params{Settings: settings, Store: lent, Sequencer: seq}, nil, nil)
		_ = r.life.Start(t.Context(), func(_ context.Context, run func()) error { run(); return nil })
		conn := newDeaf()
		s := &session{
			r: r, ended: make(chan struct{}), calls: map[uint64]waiting{}, pending: map[uint64]*ordered{}, cancels: map[uint64]context.CancelFunc{},
			conns: []net.Conn{conn, newDeaf()},
		}
		s.proc = here{gone: make(chan struct{})}
		s.send.Conn = conn
		s.ctx, s.cancel = context.WithCancel(t.Context())
		s.lender = storagewire.NewLender(lent, settings.Logger)
		r.cur = s
		var sink counter
		x := fuzzPending()
		frees := 0
		x.Free = func(*storage.Batch) { frees++ }
		_, done, err := s.begin(kindAppend, &ordered{p: x, sink: &sink, groups: len(x.Groups)})
		require.NoError(t, err)
		rd := data.NewReader(bytes.NewReader(in), kindLast)
		for err == nil {
			var h data.Head
			var body []byte
			if h, body, err = rd.Next(); err == nil && h.Kind != kindWhole { // a store trusts its caller with those
				err = s.handle(&h, body)
			}
		}
		s.end(err)
		if failure := <-done; failure == nil {
			require.Equal(t, len(x.Groups), sink.told)
		} else {
			require.Zero(t, sink.told)
		}
		require.NoError(t, store.Shutdown(t.Context()))
		require.Equal(t, len(x.Batches), frees)
	})
}

// FuzzPlugin gives a plugin arbitrary frames of a host.
func FuzzPlugin(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, in []byte) {
		i := newInstance()
		i.logger, i.clock = slog.New(slog.DiscardHandler), plugin.SystemClock{}
		i.store.caps.RawLog, i.store.caps.Reopener = i.store, reopener{i}
		i.out.conn = newDeaf()
		i.seq = storage.NewSequencer(nil)
		i.seq.Watch(i)
		var err error
		i.rep, err = replicationtest.NewScripted(replication.Params{Store: i.store, Sequencer: i.seq, OnRole: i.onRole})
		require.NoError(t, err)
		i.tasks.Go(i.appender)
		rd := data.NewReader(bytes.NewReader(in), kindLast)
		for err == nil {
			var h data.Head
			var body []byte
			if h, body, err = rd.Next(); err == nil {
				err = i.handle(&h, body)
			}
		}
		i.cancel()
		i.tasks.Wait()
	})
}
