package replicationwire_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/replication/replicationtest"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagemw"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
	"github.com/hardpointmq/hardpoint/internal/wiretest"
	"github.com/hardpointmq/hardpoint/plugins/replication/solo"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/replicationwire"
	"github.com/hardpointmq/hardpoint/sdk/wire/replicationwire/replicationpb"
)

const patience = time.Minute

// social is the scripted replicator with members.
type social struct {
	*replicationtest.Scripted
	net replication.Network

	mu    sync.Mutex
	calls []string
	err   error
}

func (s *social) call(ctx context.Context, format string, args ...any) error {
	s.mu.Lock()
	s.calls = append(s.calls, fmt.Sprintf(format, args...))
	err := s.err
	s.mu.Unlock()
	if err == nil {
		return nil
	}
	if errors.Is(err, context.Canceled) {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func (s *social) AddLearner(ctx context.Context, id, addr string) error {
	return s.call(ctx, "add %s %s", id, addr)
}
func (s *social) Promote(ctx context.Context, id string) error { return s.call(ctx, "promote %s", id) }
func (s *social) Remove(ctx context.Context, id string) error  { return s.call(ctx, "remove %s", id) }
func (s *social) Transfer(ctx context.Context, id string) error {
	return s.call(ctx, "transfer %s", id)
}
func (s *social) Resign(ctx context.Context) error { return s.call(ctx, "resign") }

func (s *social) Capabilities() replication.Capabilities {
	return replication.Capabilities{Members: s}
}

func (s *social) Status() replication.Status {
	return replication.Status{Role: s.Role(), Replicas: []replication.Replica{{ID: "other", Acked: 7, Why: "slow"}}}
}

func socialFactory(facets []string, made func(*social)) replication.Factory {
	type config struct{}
	return replication.NewFactory("social",
		func(config) plugin.Description {
			return plugin.Description{Version: "1", Publish: storage.Explicit.String(), Facets: facets}
		},
		func() config { return config{} },
		func(_ context.Context, p replication.Params, _ config) (*social, error) {
			x, err := replicationtest.NewScripted(p)
			s := &social{Scripted: x, net: p.Network}
			made(s)
			return s, err
		})
}

// node is a replicator on a store, and its engine.
type node struct {
	replication.Replicator
	store storage.Store
	seq   *storage.Sequencer
	w     *storagetest.Writer
	told  chan replication.Outcome
	units chan message.Unit
	away  chan string // why the engine was told to be read-only
}

func (n *node) Done(_ *storage.Pending, from, to int, o replication.Outcome, _ error) {
	for range to - from {
		n.told <- o
	}
}

func build(t *testing.T, f replication.Factory) *node {
	t.Helper()
	return buildUnder(t, nil, f, func(s storage.Store) storage.Store { return s })
}

// buildUnder is build with a clock of its own for the replicator, and a store that is
// wrapped for it.
func buildUnder(t *testing.T, clock plugin.Clock, f replication.Factory, wrap func(storage.Store) storage.Store) *node {
	t.Helper()
	n := &node{
		seq: storage.NewSequencer(nil), w: storagetest.NewWriter(message.IndexRules{}),
		told: make(chan replication.Outcome, 1000), units: make(chan message.Unit, 1000), away: make(chan string, 1000),
	}
	p := storage.Params{Settings: plugin.Settings{Name: "store"}.WithDefaults(), Segment: 1 << 20, Publish: storage.Explicit}
	p.Events.Published = func(_ message.Position, units []message.Unit) {
		for i := range units {
			n.units <- units[i]
		}
	}
	n.store = newStore(t, p)
	require.NoError(t, n.store.Start(t.Context()))
	var err error
	n.Replicator, err = f.Build(t.Context(), replication.Params{
		Settings: plugin.Settings{Name: f.Name(), Clock: clock}.WithDefaults(), Store: wrap(n.store), Sequencer: n.seq,
		OnRole: func(_ context.Context, r replication.Role) error {
			if r.ReadOnly != "" {
				n.away <- r.ReadOnly
			}
			return nil
		},
	}, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, n.Shutdown(context.WithoutCancel(t.Context())))
		require.NoError(t, n.store.Shutdown(context.WithoutCancel(t.Context())))
	})
	return n
}

func (n *node) append(t *testing.T, q message.Queue) *storage.Pending {
	t.Helper()
	p := n.w.Pending([]storagetest.Message{{Queue: q, Body: []byte("x")}})
	require.NoError(t, n.Append(t.Context(), p, n))
	return p
}

func TestMembersCross(t *testing.T) {
	var s *social
	n := build(t, wired(t, socialFactory([]string{replication.FacetMembers}, func(x *social) { s = x })))
	m := n.Capabilities().Members
	require.NotNil(t, m)
	require.ErrorIs(t, m.Resign(t.Context()), replication.ErrNotRunning)
	require.NoError(t, n.Start(t.Context()))
	require.NoError(t, m.AddLearner(t.Context(), "id", "host:1"))
	require.NoError(t, m.Promote(t.Context(), "id"))
	require.NoError(t, m.Remove(t.Context(), "id"))
	require.NoError(t, m.Transfer(t.Context(), "id"))
	require.NoError(t, m.Resign(t.Context()))
	s.mu.Lock()
	require.Equal(t, []string{"add id host:1", "promote id", "remove id", "transfer id", "resign"}, s.calls)
	s.err = fmt.Errorf("%w: wait", replication.ErrBusy)
	s.mu.Unlock()
	err := m.Resign(t.Context())
	require.ErrorIs(t, err, replication.ErrBusy)
	require.EqualError(t, err, "replication is busy: wait")
	s.mu.Lock()
	s.err = context.Canceled
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	require.ErrorIs(t, m.Resign(ctx), context.DeadlineExceeded)
	require.Eventually(t, func() bool { return len(n.Status().Replicas) == 1 }, patience, time.Millisecond)
	require.Equal(t, replication.Replica{ID: "other", Acked: 7, Why: "slow"}, n.Status().Replicas[0])
	require.Equal(t, n.Role(), n.Status().Role)

	_, err = s.net.Dial(t.Context(), "127.0.0.1:1")
	require.ErrorContains(t, err, "package net")
	_, err = s.net.Listen(t.Context(), "127.0.0.1:0")
	require.ErrorContains(t, err, "package net")
}

// TestFacetsDisagree: what is described and what is offered must be one.
func TestFacetsDisagree(t *testing.T) {
	p := storage.Params{Settings: plugin.Settings{Name: "store"}.WithDefaults(), Segment: 1 << 20, Publish: storage.Explicit}
	_, err := wired(t, socialFactory(nil, func(*social) {})).Build(t.Context(), replication.Params{
		Store: newStore(t, p), Sequencer: storage.NewSequencer(nil),
	}, nil)
	require.ErrorIs(t, err, plugin.ErrUnavailable)
	require.ErrorContains(t, err, "fault of the plugin")
}

// TestFollow: batches that the replicator made itself cross whole, and the host's
// Sequencer knows of them.
func TestFollow(t *testing.T) {
	var s *replicationtest.Scripted
	n := build(t, wired(t, replicationtest.ScriptedFactory(func(x *replicationtest.Scripted) { s = x })))
	require.NoError(t, n.Start(t.Context()))
	q := message.Queue{Topic: "T", ID: 1}
	n.append(t, q)
	require.Equal(t, replication.Stored, <-n.told)
	require.Equal(t, int64(0), (<-n.units).Offset)
	require.NoError(t, s.Lose(t.Context(), "192.0.2.1:10911", false))
	require.Equal(t, replication.Role{Kind: replication.RoleFollower, Term: 2, Leader: "192.0.2.1:10911"}, n.Role())
	require.ErrorIs(t, n.Append(t.Context(), n.w.Pending([]storagetest.Message{{Queue: q}}), n), replication.ErrNotLeader)
	for i := range 3 {
		require.NoError(t, s.Follow(t.Context(), n.w.Pending([]storagetest.Message{{Queue: q, Body: []byte("y")}})))
		u := <-n.units
		require.Equal(t, q, u.Queue)
		require.Equal(t, int64(i+1), u.Offset)
		require.Equal(t, n.store.State().Tail, n.seq.Tail())
	}
	require.NoError(t, s.Win(t.Context(), true))
	require.Equal(t, uint64(3), n.seq.Term())
	require.Equal(t, int64(4), n.append(t, q).Units[0].Offset)
}

// TestForget: a queue that the engine dropped begins at 0 on both sides.
func TestForget(t *testing.T) {
	n := build(t, wired(t, replicationtest.ScriptedFactory(nil)))
	require.NoError(t, n.Start(t.Context()))
	q := message.Queue{Topic: "T"}
	require.Equal(t, int64(0), n.append(t, q).Units[0].Offset)
	require.Equal(t, int64(1), n.append(t, q).Units[0].Offset)
	require.NoError(t, n.store.Capabilities().Retention.Drop(t.Context(), []message.Queue{q}))
	n.seq.Forget(q)
	require.Equal(t, int64(0), n.append(t, q).Units[0].Offset)
}

// TestGone: whoever has replicas knows nothing for sure without its process.
func TestGone(t *testing.T) {
	var all []*social
	var mu sync.Mutex
	l := wiretest.NewLauncher(t, func() []wire.Served {
		return []wire.Served{replicationwire.NewServer(nil, socialFactory([]string{replication.FacetMembers}, func(x *social) {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, x)
		}))}
	})
	n := build(t, replicationwire.NewFactory("social", l))
	require.NoError(t, n.Start(t.Context()))
	require.Eventually(t, func() bool { return len(n.Status().Replicas) == 1 }, patience, time.Millisecond)
	l.Refuse(errors.New("no"))
	l.Kill()
	require.Eventually(t, func() bool { return n.Role().ReadOnly != "" }, patience, time.Millisecond)
	require.ErrorIs(t, n.Barrier(t.Context()), plugin.ErrUnavailable)
	err := n.Append(t.Context(), n.w.Pending([]storagetest.Message{{Queue: message.Queue{Topic: "T"}}}), n)
	require.ErrorIs(t, err, replication.ErrReadOnly)
	require.ErrorContains(t, err, `"social"`)
	require.ErrorIs(t, n.Capabilities().Members.Resign(t.Context()), replication.ErrReadOnly)
	require.NoError(t, n.Shutdown(t.Context()), "nobody waits for a process that is gone")
	require.ErrorIs(t, n.Barrier(t.Context()), replication.ErrNotRunning)
	require.Equal(t, replication.Role{}, n.Role())
}

// TestStartFails: nothing is left behind, and nobody tries again.
func TestStartFails(t *testing.T) {
	l := wiretest.NewLauncher(t, func() []wire.Served { return []wire.Served{replicationwire.NewServer(nil, solo.NewFactory())} })
	n := build(t, replicationwire.NewFactory(solo.Name, l))
	l.Kill()
	l.Refuse(fmt.Errorf("%w: no memory", plugin.ErrUnavailable))
	require.ErrorIs(t, n.Start(t.Context()), plugin.ErrUnavailable)
	require.ErrorIs(t, n.Barrier(t.Context()), replication.ErrNotRunning)
	require.ErrorContains(t, n.Start(t.Context()), "already")
}

// socketless is a plugin's half whose instances have no data sockets.
type socketless struct{ *replicationwire.Server }

func (s socketless) Register(r grpc.ServiceRegistrar) {
	replicationpb.RegisterReplicationServer(r, s)
}

func (s socketless) Open(ctx context.Context, r *replicationpb.OpenRequest) (*replicationpb.OpenResponse, error) {
	out, err := s.Server.Open(ctx, r)
	out.Socket = ""
	return out, err
}

// TestNoSocket: a plugin that forgets its data sockets does not harm the host.
func TestNoSocket(t *testing.T) {
	f := socialFactory([]string{replication.FacetMembers}, func(*social) {})
	p := storage.Params{Settings: plugin.Settings{Name: "store"}.WithDefaults(), Segment: 1 << 20, Publish: storage.Explicit}
	r, err := replicationwire.NewFactory(f.Name(), wiretest.New(t, socketless{replicationwire.NewServer(nil, f)})).
		Build(t.Context(), replication.Params{Store: newStore(t, p), Sequencer: storage.NewSequencer(nil)}, nil)
	require.NoError(t, err)
	err = r.Start(t.Context())
	require.ErrorIs(t, err, plugin.ErrUnavailable)
	require.ErrorContains(t, err, `replication plugin "`+f.Name()+`"`)
	require.ErrorContains(t, err, "fault of the plugin")
}

// hasty is a store whose caller has no time left for Append.
type hasty struct{ storagemw.Base }

func (h hasty) Capabilities() storage.Capabilities { return h.Store.Capabilities() }

func (h hasty) Append(ctx context.Context, b *storage.Batch) error {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return h.Base.Append(ctx, b)
}

// TestAppendWithoutTime: a batch that never crosses to the host's store is freed
// there, or the engine would never have its Pending back.
func TestAppendWithoutTime(t *testing.T) {
	n := build(t, wired(t, replication.NewFactory("hasty",
		func(struct{}) plugin.Description {
			return plugin.Description{Version: "1", Publish: storage.Explicit.String()}
		},
		func() struct{} { return struct{}{} },
		func(_ context.Context, p replication.Params, _ struct{}) (*replicationtest.Scripted, error) {
			p.Store = hasty{storagemw.Base{Store: p.Store}}
			return replicationtest.NewScripted(p)
		})))
	require.NoError(t, n.Start(t.Context()))
	p := n.w.Pending([]storagetest.Message{{Queue: message.Queue{Topic: "T"}, Body: []byte("x")}})
	freed := make(chan struct{}, 1)
	p.Free = func(*storage.Batch) { freed <- struct{}{} }
	_ = n.Append(t.Context(), p, n)
	select {
	case <-freed:
	case <-time.After(patience):
		t.Fatal("the batch is not freed")
	}
	require.NotEqual(t, replication.Stored, <-n.told)
}
