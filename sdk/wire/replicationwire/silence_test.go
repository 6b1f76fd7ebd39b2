package replicationwire_test

import (
	"context"
	"sync"
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
	"github.com/hardpointmq/hardpoint/internal/wiretest"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/replicationwire"
)

const (
	callLimit = 8 * time.Second
	callLook  = time.Second
)

// mute is the scripted replicator, which does not answer what a test says, until its
// process ends.
type mute struct {
	*replicationtest.Scripted
	replicas []replication.Replica
	gone     chan struct{}

	mu      sync.Mutex
	silent  string // on this call
	entered chan struct{}
}

func (m *mute) hush(call string) {
	m.mu.Lock()
	silent := m.silent == call
	m.mu.Unlock()
	if silent {
		m.entered <- struct{}{}
		<-m.gone
	}
}

func (m *mute) Start(ctx context.Context) error {
	m.hush("Start")
	return m.Scripted.Start(ctx)
}

func (m *mute) Append(ctx context.Context, p *replication.Pending, s replication.Sink) error {
	m.hush("Append")
	return m.Scripted.Append(ctx, p, s)
}

func (m *mute) Barrier(ctx context.Context) error {
	m.hush("Barrier")
	return m.Scripted.Barrier(ctx)
}

func (m *mute) Resign(context.Context) error {
	m.hush("Resign")
	return nil
}

func (m *mute) Shutdown(ctx context.Context) error {
	if m.Role().Kind != replication.RoleNone { // not that of one that was only probed
		m.hush("Shutdown")
	}
	return m.Scripted.Shutdown(ctx)
}

func (m *mute) Status() replication.Status {
	return replication.Status{Role: m.Role(), Replicas: m.replicas}
}

func (*mute) AddLearner(context.Context, string, string) error { return nil }
func (*mute) Promote(context.Context, string) error            { return nil }
func (*mute) Remove(context.Context, string) error             { return nil }
func (*mute) Transfer(context.Context, string) error           { return nil }

func (m *mute) Capabilities() replication.Capabilities {
	return replication.Capabilities{Members: m}
}

// quietNode is a node under callLimit whose first process does not answer one call.
type quietNode struct {
	*node
	clock *wiretest.Clock
	store *slowStore

	mu  sync.Mutex
	all []*mute
}

// process is the newest one, in which the first was probed.
func (q *quietNode) process() *mute {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.all[len(q.all)-1]
}

func quietly(t *testing.T, silent string, replicas ...replication.Replica) *quietNode {
	t.Helper()
	q := &quietNode{clock: wiretest.NewClock(callLook)}
	type config struct{}
	processes := 0
	var gone chan struct{}
	l := wiretest.NewLauncher(t, func() []wire.Served {
		q.mu.Lock()
		defer q.mu.Unlock()
		if processes++; processes > 1 {
			close(gone)
		}
		gone = make(chan struct{})
		mine, first := gone, processes == 1
		return []wire.Served{replicationwire.NewServer(nil, replication.NewFactory("mute",
			func(config) plugin.Description {
				return plugin.Description{Version: "1", Publish: storage.Explicit.String(), Facets: []string{replication.FacetMembers}}
			},
			func() config { return config{} },
			func(_ context.Context, p replication.Params, _ config) (*mute, error) {
				x, err := replicationtest.NewScripted(p)
				m := &mute{Scripted: x, replicas: replicas, gone: mine, entered: make(chan struct{}, 10)}
				if first {
					m.silent = silent
				} else {
					m.StartAs(replication.Role{Kind: replication.RoleLeader, Term: p.Sequencer.Term() + 1})
				}
				q.mu.Lock()
				defer q.mu.Unlock()
				q.all = append(q.all, m)
				return m, err
			}))}
	})
	t.Cleanup(func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		close(gone)
	})
	l.Limit = callLimit
	q.node = buildUnder(t, q.clock, replicationwire.NewFactory("mute", l), func(s storage.Store) storage.Store {
		q.store = &slowStore{Base: storagemw.Base{Store: s}}
		return q.store
	})
	return q
}

// slowStore takes the time that a test gives it.
type slowStore struct {
	storagemw.Base
	mu   sync.Mutex
	wait chan struct{}
	at   chan struct{}
}

func (s *slowStore) Capabilities() storage.Capabilities { return s.Store.Capabilities() }

func (s *slowStore) Append(ctx context.Context, b *storage.Batch) error {
	s.mu.Lock()
	wait := s.wait
	s.mu.Unlock()
	if wait != nil {
		s.at <- struct{}{}
		<-wait
	}
	return s.Base.Append(ctx, b)
}

func (q *quietNode) pending() *storage.Pending {
	return q.w.Pending([]storagetest.Message{{Queue: message.Queue{Topic: "T"}, Body: []byte("x")}})
}

// TestSilent: a plugin that answers health calls, and does not do what it can without
// anybody else, is given up; the next one leads.
func TestSilent(t *testing.T) {
	for name, call := range map[string]func(*quietNode) error{
		"Append": func(q *quietNode) error {
			if err := q.Append(context.Background(), q.pending(), q); err != nil {
				return err
			}
			if o := <-q.told; o != replication.Unknown {
				return nil
			}
			return plugin.ErrUnavailable // who asked does not hear why; the role says it
		},
		"Barrier": func(q *quietNode) error { return q.Barrier(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			q := quietly(t, name)
			require.NoError(t, q.Start(t.Context()))
			before := q.process()
			out := make(chan error, 1)
			go func() { out <- call(q) }()
			<-before.entered
			require.ErrorIs(t, wiretest.Outcome(t, q.clock, out), plugin.ErrUnavailable)
			q.leadsAgain(t, before)
			require.Contains(t, <-q.away, "did not answer "+name+" for 8s, though it answers health calls")
		})
	}
}

// leadsAgain waits for the process after one that was given up.
func (q *quietNode) leadsAgain(t *testing.T, before *mute) {
	t.Helper()
	require.Eventually(t, func() bool {
		r := q.Role()
		return r.ReadOnly == "" && r.Term > 1
	}, patience, time.Millisecond)
	require.NotSame(t, before, q.process())
	q.append(t, message.Queue{Topic: "T"})
	require.Equal(t, replication.Stored, <-q.told)
}

// TestSilentAtStart: the first start fails, one after a death is tried again.
func TestSilentAtStart(t *testing.T) {
	q := quietly(t, "Start")
	out := make(chan error, 1)
	go func() { out <- q.Start(context.WithoutCancel(t.Context())) }()
	err := wiretest.Outcome(t, q.clock, out)
	require.ErrorIs(t, err, plugin.ErrUnavailable)
	require.ErrorContains(t, err, "did not answer Start for 8s")
}

// TestSilentAtShutdown: nobody waits for it without limit.
func TestSilentAtShutdown(t *testing.T) {
	q := quietly(t, "Shutdown")
	require.NoError(t, q.Start(t.Context()))
	out := make(chan error, 1)
	go func() { out <- q.Shutdown(context.WithoutCancel(t.Context())) }()
	require.NoError(t, wiretest.Outcome(t, q.clock, out), "it is gone; nothing of it is left to be shut down")
}

// TestSilentToNobody: a call whose caller has gone waits for no replica.
func TestSilentToNobody(t *testing.T) {
	for name, call := range map[string]func(*quietNode, context.Context) error{
		"Barrier": func(q *quietNode, ctx context.Context) error { return q.Barrier(ctx) },
		"Resign":  func(q *quietNode, ctx context.Context) error { return q.Capabilities().Members.Resign(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			q := quietly(t, name, replication.Replica{ID: "other"})
			require.NoError(t, q.Start(t.Context()))
			before := q.process()
			require.Eventually(t, func() bool { return len(q.Status().Replicas) == 1 }, patience, time.Millisecond)
			ctx, cancel := context.WithCancel(t.Context())
			out := make(chan error, 1)
			go func() { out <- call(q, ctx) }()
			<-before.entered
			for range 30 {
				require.True(t, wiretest.Pass(q.clock, callLook, out), "it may wait for the replica")
			}
			cancel()
			require.ErrorIs(t, <-out, context.Canceled)
			// The clock stops then: it is faster than the start of the next one.
			require.Contains(t, wiretest.Outcome(t, q.clock, q.away), "did not answer ")
			q.leadsAgain(t, before)
		})
	}
}

// TestNotSilent: outcomes may wait for as long as they like, and while the store is
// slow the plugin owes nothing.
func TestNotSilent(t *testing.T) {
	t.Run("outcomes", func(t *testing.T) {
		q := quietly(t, "")
		require.NoError(t, q.Start(t.Context()))
		before := q.process()
		before.Hold()
		require.NoError(t, q.Append(t.Context(), q.pending(), q))
		for range 30 {
			require.True(t, wiretest.Pass(q.clock, callLook, q.told))
		}
		require.NoError(t, before.Release(t.Context()))
		require.Equal(t, replication.Stored, <-q.told)
		require.Same(t, before, q.process())
	})
	t.Run("store", func(t *testing.T) {
		q := quietly(t, "")
		require.NoError(t, q.Start(t.Context()))
		before, wait := q.process(), make(chan struct{})
		q.store.mu.Lock()
		q.store.wait, q.store.at = wait, make(chan struct{}, 1)
		q.store.mu.Unlock()
		out := make(chan error, 1)
		go func() { out <- q.Append(context.WithoutCancel(t.Context()), q.pending(), q) }()
		<-q.store.at
		for range 30 {
			require.True(t, wiretest.Pass(q.clock, callLook, out))
		}
		close(wait)
		require.NoError(t, <-out)
		require.Equal(t, replication.Stored, <-q.told)
		require.Same(t, before, q.process())
	})
}
