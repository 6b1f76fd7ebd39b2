package replicationmw_test

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/replication/replicationmw"
	"github.com/hardpointmq/hardpoint/core/replication/replicationtest"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
	"github.com/hardpointmq/hardpoint/core/storage/storekit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newStore(_ testing.TB, p storage.Params) storage.Store {
	return storekit.FromKV(p, &storekit.MemKV{}, storekit.Options{})
}

func TestConformance(t *testing.T) {
	none := replicationmw.Faults(func(context.Context, replicationmw.Op) error { return nil })
	replicationtest.Run(t, replicationtest.Harness{
		Factory:  replicationmw.Wrap(replicationtest.ScriptedFactory(nil), replicationmw.Metrics, none),
		NewStore: newStore, Form: replicationtest.Decorated,
		Lacks: replicationtest.Lacks{Members: true, Sync: true},
	})
}

// fake offers Members and counts its calls.
type fake struct {
	replication.Replicator
	calls []string
	fail  error
}

func (f *fake) Capabilities() replication.Capabilities { return replication.Capabilities{Members: f} }
func (f *fake) Barrier(context.Context) error          { return f.call("Barrier") }
func (f *fake) call(name string) error                 { f.calls = append(f.calls, name); return f.fail }
func (f *fake) AddLearner(_ context.Context, id, addr string) error {
	return f.call("AddLearner " + id + " " + addr)
}
func (f *fake) Promote(_ context.Context, id string) error  { return f.call("Promote " + id) }
func (f *fake) Remove(_ context.Context, id string) error   { return f.call("Remove " + id) }
func (f *fake) Transfer(_ context.Context, id string) error { return f.call("Transfer " + id) }
func (f *fake) Resign(context.Context) error                { return f.call("Resign") }

func callAll(ctx context.Context, r replication.Replicator) []error {
	m := r.Capabilities().Members
	return []error{
		r.Barrier(ctx), m.AddLearner(ctx, "n1", "h:1"), m.Promote(ctx, "n1"), m.Remove(ctx, "n2"), m.Transfer(ctx, "n3"), m.Resign(ctx),
	}
}

func TestFacetsAreGuarded(t *testing.T) {
	f := &fake{}
	require.Nil(t, replicationmw.Base{Replicator: f}.Capabilities().Members, "Base offers nothing")
	injected := errors.New("injected")
	var fail error
	for name, mw := range map[string]replicationmw.Middleware{
		"Metrics": replicationmw.Metrics,
		"Faults":  replicationmw.Faults(func(context.Context, replicationmw.Op) error { return fail }),
	} {
		f.calls, fail = nil, nil
		r := mw(replication.Params{}, f)
		require.NotSame(t, f, r.Capabilities().Members, name)
		for _, err := range callAll(t.Context(), r) {
			require.NoError(t, err, name)
		}
		require.Equal(t, []string{"Barrier", "AddLearner n1 h:1", "Promote n1", "Remove n2", "Transfer n3", "Resign"}, f.calls, name)
		if name == "Faults" {
			fail = injected
			for _, err := range callAll(t.Context(), r) {
				require.ErrorIs(t, err, injected)
			}
			require.Len(t, f.calls, 6, "the replicator is not called")
		}
	}
	// A facet added to the contract must be thought of in every decorator.
	require.Equal(t, 1, reflect.TypeFor[replication.Capabilities]().NumField())
}

type meter struct {
	plugin.NopMeter
	mu sync.Mutex
	n  map[string]*counter
}

type counter struct{ atomic.Uint64 }

func (c *counter) Add(n uint64)    { c.Uint64.Add(n) }
func (c *counter) Observe(float64) { c.Uint64.Add(1) }

func (m *meter) get(name string, labels []plugin.Label) *counter {
	for _, l := range labels {
		if l.Name == "outcome" {
			name += " " + l.Value
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.n[name] == nil {
		m.n[name] = &counter{}
	}
	return m.n[name]
}

func (m *meter) Counter(name, _ string, l ...plugin.Label) plugin.Counter     { return m.get(name, l) }
func (m *meter) Histogram(name, _ string, l ...plugin.Label) plugin.Histogram { return m.get(name, l) }

type sink struct{ groups int }

func (s *sink) Done(_ *storage.Pending, from, to int, _ replication.Outcome, _ error) {
	s.groups += to - from
}

func TestMetrics(t *testing.T) {
	st := newStore(t, storage.Params{Settings: plugin.Settings{}.WithDefaults(), Segment: 1 << 20, Publish: storage.Explicit})
	require.NoError(t, st.Start(t.Context()))
	var script *replicationtest.Scripted
	m := &meter{n: map[string]*counter{}}
	f := replicationmw.Wrap(replicationtest.ScriptedFactory(func(s *replicationtest.Scripted) { script = s }), replicationmw.Metrics)
	r, err := f.Build(t.Context(), replication.Params{Settings: plugin.Settings{Meter: m}, Store: st, Sequencer: storage.NewSequencer(nil)}, nil)
	require.NoError(t, err)
	require.NoError(t, r.Start(t.Context()))
	w := storagetest.NewWriter(message.IndexRules{})
	pending := func(n int) *storage.Pending {
		p := &storage.Pending{}
		for range n {
			w.Add(p, storagetest.Message{Queue: message.Queue{Topic: "T"}})
		}
		return p
	}
	one, two := &sink{}, &sink{}
	require.NoError(t, r.Append(t.Context(), pending(3), one))
	require.NoError(t, r.Append(t.Context(), pending(2), two))
	script.Drop(1)
	require.NoError(t, r.Append(t.Context(), pending(4), one))
	script.Refuse(1, replication.ErrBusy)
	require.ErrorIs(t, r.Append(t.Context(), pending(5), one), replication.ErrBusy)
	require.Equal(t, 7, one.groups)
	require.Equal(t, 2, two.groups, "each sink gets its own")
	for name, want := range map[string]uint64{
		"replication_outcomes_total Stored": 5, "replication_outcomes_total NotStored": 4,
		"replication_ordered_groups_total": 9, "replication_refused_groups_total": 5, "replication_append_seconds": 4,
	} {
		require.Equal(t, want, m.get(name, nil).Load(), name)
	}
	require.NoError(t, r.Shutdown(t.Context()))
	require.NoError(t, st.Shutdown(t.Context()))
}
