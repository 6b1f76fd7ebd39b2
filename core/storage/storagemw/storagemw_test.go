package storagemw_test

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagemw"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
	"github.com/hardpointmq/hardpoint/core/storage/storekit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kit is a factory of stores in memory.
func kit() storage.Factory {
	type config struct{}
	return storage.NewFactory("kit",
		func(config) plugin.Description { return plugin.Description{Version: "1", Facets: storekit.Facets()} },
		func() config { return config{} },
		func(_ context.Context, p storage.Params, _ config) (*storekit.Store, error) {
			return storekit.FromKV(p, &storekit.MemKV{}, storekit.Options{}), nil
		})
}

// TestCapabilitiesFields: whoever adds a facet wraps it in every decorator, then
// raises the number.
func TestCapabilitiesFields(t *testing.T) {
	require.Equal(t, 6, reflect.TypeFor[storage.Capabilities]().NumField(),
		"storage.Capabilities has a new field: wrap it in metrics.go and faults.go, test that here, then change this number")
}

func TestBaseOffersNoFacet(t *testing.T) {
	s, err := kit().Build(t.Context(), storage.Params{Segment: 1 << 20}, nil)
	require.NoError(t, err)
	require.Len(t, s.Capabilities().Facets(), 3)
	require.Empty(t, storagemw.Base{Store: s}.Capabilities().Facets())
}

// TestGuarded: a decorator offers exactly what the store offers.
func TestGuarded(t *testing.T) {
	for name, mw := range map[string]storagemw.Middleware{
		"metrics": storagemw.Metrics,
		"faults":  storagemw.Faults(func(context.Context, storagemw.Call) error { return nil }),
	} {
		t.Run(name, func(t *testing.T) {
			require.Empty(t, mw(storage.Params{}, storagetest.Nop{}).Capabilities().Facets())
			s, err := kit().Build(t.Context(), storage.Params{Segment: 1 << 20}, nil)
			require.NoError(t, err)
			c := mw(storage.Params{}, s).Capabilities()
			require.Equal(t, storekit.Facets(), c.Facets())
			require.NotSame(t, s, c.RawLog)
			require.NotSame(t, s, c.Retention)
			require.NotSame(t, s, c.KeyIndex)
		})
	}
}

func TestConformance(t *testing.T) {
	lacks := storagetest.Lacks{ProcessDeath: true, Reopen: true}
	storagetest.Run(t, storagetest.Harness{
		Factory: storagemw.Wrap(kit(), storagemw.Metrics, storagemw.Faults(func(context.Context, storagemw.Call) error { return nil })),
		Form:    storagetest.Decorated, Lacks: lacks,
	})
}

// meter keeps what was counted.
type meter struct {
	mu     sync.Mutex
	counts map[string]float64
	gauges map[string]func() float64
	// dropped counts the calls that removed a gauge.
	dropped int
}

func newMeter() *meter {
	return &meter{counts: map[string]float64{}, gauges: map[string]func() float64{}}
}

func (m *meter) name(name string, labels []plugin.Label) string {
	for _, l := range labels {
		if l.Name == "op" {
			name += "/" + l.Value
		}
	}
	return name
}

func (m *meter) Counter(name, _ string, labels ...plugin.Label) plugin.Counter {
	return counter{m, m.name(name, labels)}
}

func (m *meter) Histogram(name, _ string, labels ...plugin.Label) plugin.Histogram {
	return counter{m, m.name(name, labels)}
}

func (m *meter) Gauge(name, _ string, read func() float64, _ ...plugin.Label) func() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gauges[name] = read
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.dropped++
		delete(m.gauges, name)
	}
}

type counter struct {
	m    *meter
	name string
}

func (c counter) add(v float64) {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	c.m.counts[c.name] += v
}
func (c counter) Add(n uint64)    { c.add(float64(n)) }
func (c counter) Observe(float64) { c.add(1) }

func start(t *testing.T, f storage.Factory, p storage.Params) storage.Store {
	t.Helper()
	p.Segment = 1 << 20
	s, err := f.Build(t.Context(), p, nil)
	require.NoError(t, err)
	require.NoError(t, s.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, s.Shutdown(context.Background())) })
	return s
}

// put appends n records through a Sequencer.
func put(t *testing.T, s storage.Store, n int) *storage.Pending {
	t.Helper()
	seq := storagetest.OpenSequencer(t, s, nil, 1)
	w := storagetest.NewWriter(message.IndexRules{})
	p := &storage.Pending{}
	for range n {
		w.Add(p, storagetest.Message{Queue: message.Queue{Topic: "T"}, Keys: "k"})
	}
	require.NoError(t, seq.Assign(p, 0))
	return p
}

func TestMetricsCount(t *testing.T) {
	m := newMeter()
	s := start(t, storagemw.Wrap(kit(), storagemw.Metrics), storage.Params{Settings: plugin.Settings{Name: "x", Meter: m}, Publish: storage.Explicit})
	ctx := t.Context()
	p := put(t, s, 5)
	size := float64(len(p.Buf))
	require.NoError(t, s.Append(ctx, &p.Batches[0]))
	require.Equal(t, size, m.gauges["storage_unpublished_bytes"]())
	caps := s.Capabilities()
	require.NoError(t, caps.RawLog.Publish(ctx, p.End))
	require.NoError(t, s.Sync(ctx, p.End))
	var c storage.Chunk
	require.NoError(t, s.Read(ctx, storage.ReadRequest{Queue: message.Queue{Topic: "T"}}, &c))
	require.NoError(t, s.Get(ctx, []message.Position{0}, &c))
	require.NoError(t, s.Offsets(ctx, nil, &storage.OffsetAnswers{}))
	require.NoError(t, caps.RawLog.ReadLog(ctx, 0, 50, &c))
	require.ErrorIs(t, caps.RawLog.Truncate(ctx, 1), storage.ErrGap)
	_, err := caps.Retention.Segments(ctx)
	require.NoError(t, err)
	require.NoError(t, caps.Retention.Expire(ctx, 0))
	require.NoError(t, caps.Retention.Drop(ctx, nil))
	_, err = caps.KeyIndex.Find(ctx, storage.KeyQuery{Topic: "T", Key: "k", To: 1 << 62, Max: 1}, nil)
	require.NoError(t, err)
	require.NoError(t, caps.RawLog.Reset(ctx, 0, nil))
	c.Release()
	for name, want := range map[string]float64{
		"storage_appended_records_total":     5,
		"storage_appended_bytes_total":       size,
		"storage_read_records_total":         6,
		"storage_read_bytes_total":           size + size/5,
		"storage_log_read_bytes_total":       50,
		"storage_call_errors_total/truncate": 1,
		"storage_call_errors_total/append":   0,
	} {
		require.InDelta(t, want, m.counts[name], 0.1, name)
	}
	for _, op := range []string{"append", "sync", "read", "get", "read_log", "publish", "truncate", "reset", "segments", "expire", "drop", "find"} {
		require.InDelta(t, 1, m.counts["storage_call_seconds/"+op], 0.1, op)
	}
	require.Len(t, m.gauges, 4)
	require.NoError(t, s.Shutdown(ctx))
	require.Empty(t, m.gauges)
}

// TestMetricsShutdownAtOnce: each gauge goes once, whoever stops the store.
func TestMetricsShutdownAtOnce(t *testing.T) {
	m := newMeter()
	s := start(t, storagemw.Wrap(kit(), storagemw.Metrics), storage.Params{Settings: plugin.Settings{Name: "x", Meter: m}})
	require.NotEmpty(t, m.gauges)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { assert.NoError(t, s.Shutdown(t.Context())) })
	}
	wg.Wait()
	require.Empty(t, m.gauges)
	require.Equal(t, 4, m.dropped)
}

func TestMetricsAllocateNothing(t *testing.T) {
	s := storagemw.Metrics(storage.Params{}, storagetest.Nop{})
	b := storage.Batch{Buf: make([]byte, 200)}
	var c storage.Chunk
	require.Zero(t, testing.AllocsPerRun(100, func() {
		_ = s.Append(context.Background(), &b)
		_ = s.Read(context.Background(), storage.ReadRequest{}, &c)
	}))
}

func TestFaults(t *testing.T) {
	broken := errors.New("broken")
	var mu sync.Mutex
	fail := map[storagemw.Call]bool{}
	met := map[storagemw.Op]bool{}
	hook := func(_ context.Context, c storagemw.Call) error {
		mu.Lock()
		defer mu.Unlock()
		met[c.Op] = true
		if c.At = 0; fail[c] {
			return broken
		}
		return nil
	}
	s := start(t, storagemw.Wrap(kit(), storagemw.Faults(hook)), storage.Params{Publish: storage.Explicit})
	ctx := t.Context()
	caps := s.Capabilities()
	p := put(t, s, 1)
	freed := 0
	p.Batches[0].Free = func(*storage.Batch) { freed++ }
	fail[storagemw.Call{Op: storagemw.OpAppend}] = true
	require.ErrorIs(t, s.Append(ctx, &p.Batches[0]), broken)
	require.Equal(t, 1, freed)
	require.Zero(t, s.State().Tail, "the store has not seen it")
	fail = map[storagemw.Call]bool{{Op: storagemw.OpAppend, Done: true}: true}
	require.ErrorIs(t, s.Append(ctx, &p.Batches[0]), broken)
	require.Equal(t, p.End, s.State().Tail, "the store has taken it")

	var c storage.Chunk
	calls := map[storagemw.Op]func() error{
		storagemw.OpSync:     func() error { return s.Sync(ctx, 0) },
		storagemw.OpRead:     func() error { return s.Read(ctx, storage.ReadRequest{}, &c) },
		storagemw.OpGet:      func() error { return s.Get(ctx, nil, &c) },
		storagemw.OpOffsets:  func() error { return s.Offsets(ctx, nil, &storage.OffsetAnswers{}) },
		storagemw.OpReadLog:  func() error { return caps.RawLog.ReadLog(ctx, 0, 1, &c) },
		storagemw.OpPublish:  func() error { return caps.RawLog.Publish(ctx, p.End) },
		storagemw.OpTruncate: func() error { return caps.RawLog.Truncate(ctx, p.End) },
		storagemw.OpReset:    func() error { return caps.RawLog.Reset(ctx, 0, nil) },
		storagemw.OpSegments: func() error { _, err := caps.Retention.Segments(ctx); return err },
		storagemw.OpExpire:   func() error { return caps.Retention.Expire(ctx, 0) },
		storagemw.OpDrop:     func() error { return caps.Retention.Drop(ctx, nil) },
		storagemw.OpFind:     func() error { _, err := caps.KeyIndex.Find(ctx, storage.KeyQuery{}, nil); return err },
	}
	ops := slices.Sorted(maps.Keys(calls))
	ops = append(slices.DeleteFunc(ops, func(o storagemw.Op) bool { return o == storagemw.OpReset }), storagemw.OpReset) // last
	for _, op := range ops {
		for _, done := range []bool{false, true} {
			fail = map[storagemw.Call]bool{{Op: op, Done: done}: true}
			require.ErrorIs(t, calls[op](), broken, "%s, done %t", op, done)
		}
		fail = nil
		require.NoError(t, calls[op](), op)
		require.True(t, met[op], op)
	}
	c.Release()
	refused := storagemw.Faults(func(_ context.Context, c storagemw.Call) error {
		if c.Op == storagemw.OpStart {
			return broken
		}
		return nil
	})(storage.Params{}, storagetest.Nop{})
	require.ErrorIs(t, refused.Start(ctx), broken)
}

// leaving is a store that went away and is back when it is asked a second time.
type leaving struct {
	storagetest.Nop
	asked int
}

func (l *leaving) Capabilities() storage.Capabilities { return storage.Capabilities{Reopener: l} }
func (l *leaving) Gone(context.Context) error         { return plugin.ErrUnavailable }
func (l *leaving) Reopened(context.Context) error {
	if l.asked++; l.asked == 1 {
		return plugin.ErrUnavailable
	}
	return nil
}

// TestReopener: a store that goes away does so behind decorators, too.
func TestReopener(t *testing.T) {
	m := newMeter()
	p := storage.Params{Settings: plugin.Settings{Name: "x", Meter: m}}
	broken := errors.New("broken")
	calls := 0
	faults := storagemw.Faults(func(_ context.Context, c storagemw.Call) error {
		require.Equal(t, storagemw.OpReopened, c.Op)
		if calls++; calls == 1 {
			return broken
		}
		return nil
	})
	r := storagemw.Metrics(p, faults(p, &leaving{})).Capabilities().Reopener
	require.ErrorIs(t, r.Gone(t.Context()), plugin.ErrUnavailable)
	require.ErrorIs(t, r.Reopened(t.Context()), broken)
	require.ErrorIs(t, r.Reopened(t.Context()), plugin.ErrUnavailable)
	require.NoError(t, r.Reopened(t.Context()))
	require.InDelta(t, 1, m.counts["storage_reopens_total"], 0.1)
	require.InDelta(t, 2, m.counts["storage_reopen_failures_total"], 0.1)
}

func TestWrapPassesErrors(t *testing.T) {
	_, err := storagemw.Wrap(kit(), storagemw.Metrics).Build(t.Context(), storage.Params{}, plugin.Raw(`{"x": 1}`))
	require.ErrorIs(t, err, plugin.ErrConfig)
}
