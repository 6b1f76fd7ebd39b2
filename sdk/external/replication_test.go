package external_test

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/replication/replicationtest"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
	"github.com/hardpointmq/hardpoint/plugins/replication/solo"
	"github.com/hardpointmq/hardpoint/plugins/storage/memory"
	"github.com/hardpointmq/hardpoint/sdk/external"
)

var syncFlush = plugin.Raw(`{"flushDiskType":"SYNC_FLUSH"}`)

func replicator(tb testing.TB) replication.Factory {
	tb.Helper()
	return external.Replication(solo.Name, command(tb, "serve"), external.Options{})
}

func memoryStore(tb testing.TB, p storage.Params) storage.Store {
	tb.Helper()
	s, err := memory.NewFactory().Build(tb.Context(), p, nil)
	require.NoError(tb, err)
	return s
}

// replicationConformance runs the suite against real processes, one for all
// cases. The scripted replicator is not among them: a test drives it by calls from
// beside the broker, which has no way to the process.
func replicationConformance(t *testing.T) {
	t.Helper()
	for _, h := range []replicationtest.Harness{
		{Form: "process_async", Lacks: replicationtest.Lacks{Members: true, Sync: true}},
		{Form: "process_sync", Config: syncFlush, Lacks: replicationtest.Lacks{Members: true}},
	} {
		h.Factory, h.NewStore = replicator(t), memoryStore
		keep(t, h.Factory)
		replicationtest.Run(t, h)
	}
}

// keep holds the process of a factory until the test ends.
func keep(tb testing.TB, f replication.Factory) { lead(tb, f, nil, storage.Immediate) }

// node is a leading replicator in a process, on a store in this one.
type node struct {
	replication.Replicator
	store storage.Store
	w     *storagetest.Writer

	mu    sync.Mutex
	roles []replication.Role
	moved chan struct{}
	told  chan replication.Outcome
	errs  chan error
}

func lead(tb testing.TB, f replication.Factory, raw plugin.Raw, mode storage.PublishMode) *node {
	tb.Helper()
	n := &node{
		w: storagetest.NewWriter(message.IndexRules{}), moved: make(chan struct{}),
		told: make(chan replication.Outcome, 1000), errs: make(chan error, 1000),
	}
	p := params(tb.TempDir(), storage.Events{})
	p.Publish = mode
	n.store = memoryStore(tb, p)
	require.NoError(tb, n.store.Start(tb.Context()))
	var err error
	n.Replicator, err = f.Build(tb.Context(), replication.Params{
		Settings: plugin.Settings{Name: "test", Dir: tb.TempDir()}.WithDefaults(),
		Store:    n.store, Sequencer: storage.NewSequencer(nil), OnRole: n.onRole,
	}, raw)
	require.NoError(tb, err)
	require.NoError(tb, n.Start(tb.Context()))
	tb.Cleanup(func() {
		require.NoError(tb, n.Shutdown(context.WithoutCancel(tb.Context())))
		require.NoError(tb, n.store.Shutdown(context.WithoutCancel(tb.Context())))
	})
	return n
}

func (n *node) onRole(_ context.Context, r replication.Role) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.roles = append(n.roles, r)
	close(n.moved)
	n.moved = make(chan struct{})
	return nil
}

// until waits for a role that the engine was told.
func (n *node) until(t *testing.T, what string, ok func(replication.Role) bool) replication.Role {
	t.Helper()
	end := time.NewTimer(patience)
	defer end.Stop()
	for {
		n.mu.Lock()
		last, moved := n.roles[len(n.roles)-1], n.moved
		n.mu.Unlock()
		if ok(last) {
			return last
		}
		select {
		case <-moved:
		case <-end.C:
			t.Fatalf("waited in vain until %s; the last role is %+v", what, last)
		}
	}
}

// Done implements replication.Sink.
func (n *node) Done(_ *storage.Pending, from, to int, o replication.Outcome, err error) {
	for range to - from {
		n.told <- o
		n.errs <- err
	}
}

func (n *node) append(t *testing.T) error {
	return n.Append(t.Context(), n.w.Pending([]storagetest.Message{{Queue: message.Queue{Topic: "T"}, Body: make([]byte, 1000)}}), n)
}

// TestReplicationKilled kills the process: the node is read-only by name, reads go
// on, and a new process takes a new office.
func TestReplicationKilled(t *testing.T) {
	for name, raw := range map[string]plugin.Raw{"async": nil, "sync": syncFlush} {
		t.Run(name, func(t *testing.T) {
			mode := storage.Immediate
			if raw != nil {
				mode = storage.Explicit
			}
			n := lead(t, replicator(t), raw, mode)
			stored := int64(0)
			for round := range 3 {
				for range 10 {
					require.NoError(t, n.append(t))
					require.Equal(t, replication.Stored, <-n.told)
					require.NoError(t, <-n.errs)
					stored++
				}
				term := n.Role().Term
				pids := children(t)
				require.Len(t, pids, 1)
				child, err := os.FindProcess(pids[0])
				require.NoError(t, err)
				require.NoError(t, child.Kill())
				down := n.until(t, "it is read-only", func(r replication.Role) bool { return r.ReadOnly != "" })
				require.Contains(t, down.ReadOnly, `"solo"`)
				require.Contains(t, down.ReadOnly, "signal: killed")
				require.NoError(t, n.Barrier(t.Context()), "a node that is alone knows what was acknowledged")
				up := n.until(t, "it leads again", func(r replication.Role) bool { return r.ReadOnly == "" })
				require.Equal(t, replication.RoleLeader, up.Kind)
				require.Greater(t, up.Term, term, "round %d", round)
			}
			require.NoError(t, n.append(t))
			require.Equal(t, replication.Stored, <-n.told)
			require.NoError(t, <-n.errs)
			var a storage.OffsetAnswers
			require.NoError(t, n.store.Offsets(t.Context(), []storage.OffsetQuery{{Queue: message.Queue{Topic: "T"}}}, &a))
			require.Equal(t, stored+1, a.Answers[0].Max)
		})
	}
	require.Empty(t, children(t))
}

// TestReplicationReplaced replaces the program while messages are appended: what was
// taken has an outcome, what is stored is stored once, what is refused is refused as
// something to try again, and each version has an office of its own.
func TestReplicationReplaced(t *testing.T) {
	for name, raw := range map[string]plugin.Raw{"async": nil, "sync": syncFlush} {
		t.Run(name, func(t *testing.T) {
			mode := storage.Immediate
			if raw != nil {
				mode = storage.Explicit
			}
			var up external.Replacer
			n := lead(t, external.Replication(solo.Name, versionedProgram(t, 1), external.Options{Replacer: &up, Linger: -1}), raw, mode)
			var stored, refused atomic.Int64
			stop, done := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				for {
					select {
					case <-stop:
						return
					default:
					}
					err := n.append(t)
					if err != nil {
						if !errors.Is(err, replication.ErrReadOnly) && !errors.Is(err, replication.ErrNotRunning) {
							t.Errorf("an append during a replacement: %v", err)
							return
						}
						refused.Add(1)
						runtime.Gosched()
						continue
					}
					if o, err := <-n.told, <-n.errs; o != replication.Stored {
						t.Errorf("what was taken is %v (%v)", o, err)
						return
					}
					stored.Add(1)
				}
			}()
			for i := range 10 {
				before, pids := stored.Load(), children(t)
				term := n.Role().Term
				require.NoError(t, up.Replace(t.Context(), versionedProgram(t, 2+i)))
				n.until(t, "the next office", func(r replication.Role) bool { return r.ReadOnly == "" && r.Term > term })
				require.Eventually(t, func() bool { return stored.Load() > before }, patience, time.Millisecond)
				require.Eventually(t, func() bool { now := children(t); return len(now) == 1 && now[0] != pids[0] }, patience, 10*time.Millisecond, "the old process ends")
			}
			close(stop)
			<-done
			// No upgrade was a death: the pause after the first one is the shortest.
			term := n.Role().Term
			p, err := os.FindProcess(children(t)[0])
			require.NoError(t, err)
			require.NoError(t, p.Kill())
			n.until(t, "the office after a death", func(r replication.Role) bool { return r.ReadOnly == "" && r.Term > term })
			var a storage.OffsetAnswers
			require.NoError(t, n.store.Offsets(t.Context(), []storage.OffsetQuery{{Queue: message.Queue{Topic: "T"}}}, &a))
			require.Equal(t, stored.Load(), a.Answers[0].Max)
			t.Logf("%d stored, %d refused", stored.Load(), refused.Load())
		})
	}
	require.Empty(t, children(t))
}

// TestReplicationReplacedByAnother: a version that a broker would have had to ask
// about when it started is refused, and the old one goes on.
func TestReplicationReplacedByAnother(t *testing.T) {
	for version, want := range map[int]string{
		5: `it publishes "explicit", the one in use "immediate"; that takes a restart of the broker`,
		6: `it needs ["storage.KeyIndex"], the one in use []; that takes a restart of the broker`,
		7: `it offers the facets ["Members"], the one in use []; that takes a restart of the broker`,
	} {
		t.Run(strconv.Itoa(version), func(t *testing.T) {
			var up external.Replacer
			f := external.Replication("moody", versionedProgram(t, 1), external.Options{Replacer: &up, Linger: -1})
			_, err := f.Describe(t.Context(), nil)
			require.NoError(t, err)
			n := lead(t, f, nil, storage.Immediate)
			err = up.Replace(t.Context(), versionedProgram(t, version))
			require.ErrorIs(t, err, plugin.ErrUnavailable)
			require.ErrorContains(t, err, want)
			require.NoError(t, n.append(t))
			require.Equal(t, replication.Stored, <-n.told)
			require.EqualValues(t, 1, n.Role().Term)
		})
	}
}

// moody is a replicator of which each version describes itself in another way.
func moody() replication.Factory {
	return replication.NewFactory("moody",
		func(struct{}) plugin.Description {
			d := plugin.Description{Version: os.Getenv(versionEnv), Publish: storage.Immediate.String()}
			switch d.Version {
			case "5":
				d.Publish = storage.Explicit.String()
			case "6":
				d.Needs = []string{"storage." + storage.FacetKeyIndex}
			case "7":
				d.Facets = []string{replication.FacetMembers}
			}
			return d
		},
		func() struct{} { return struct{}{} },
		func(ctx context.Context, p replication.Params, _ struct{}) (*solo.Solo, error) {
			return solo.New(ctx, p, solo.NewDefaultConfig())
		})
}

// BenchmarkReplicationProcess is the shared benchmark through a process, beside the
// same replicator in this one. The store keeps nothing.
func BenchmarkReplicationProcess(b *testing.B) {
	for _, h := range []replicationtest.Harness{
		{Factory: solo.NewFactory(), Form: "in_process"},
		{Factory: replicator(b), Form: "process"},
	} {
		h.NewStore = func(testing.TB, storage.Params) storage.Store { return storagetest.Nop{} }
		b.Run(h.Form, func(b *testing.B) { replicationtest.Benchmark(b, h) })
	}
}
