package tracing_test

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagemw"
	"github.com/hardpointmq/hardpoint/core/storage/storagemw/tracing"
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

// recorder is a provider that keeps its spans.
type recorder struct {
	noop.TracerProvider
	mu    sync.Mutex
	scope string
	ended []*span
}

func (r *recorder) Tracer(name string, _ ...trace.TracerOption) trace.Tracer {
	r.scope = name
	return &tracer{r: r}
}

type tracer struct {
	noop.Tracer
	r *recorder
}

func (t *tracer) Start(ctx context.Context, name string, o ...trace.SpanStartOption) (context.Context, trace.Span) {
	s := &span{r: t.r, name: name, attrs: map[string]any{}}
	if up, ok := trace.SpanFromContext(ctx).(*span); ok {
		s.parent = up.name
	}
	c := trace.NewSpanStartConfig(o...)
	s.SetAttributes(c.Attributes()...)
	return trace.ContextWithSpan(ctx, s), s
}

type span struct {
	noop.Span
	r            *recorder
	name, parent string
	attrs        map[string]any
	err          error
	status       codes.Code
}

func (s *span) IsRecording() bool                             { return true }
func (s *span) RecordError(err error, _ ...trace.EventOption) { s.err = err }
func (s *span) SetStatus(c codes.Code, _ string)              { s.status = c }

func (s *span) SetAttributes(kv ...attribute.KeyValue) {
	for _, a := range kv {
		s.attrs[string(a.Key)] = a.Value.AsInterface()
	}
}

func (s *span) End(...trace.SpanEndOption) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	s.r.ended = append(s.r.ended, s)
}

func (r *recorder) take(t *testing.T) *span {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	require.NotEmpty(t, r.ended)
	s := r.ended[len(r.ended)-1]
	r.ended = nil
	return s
}

func TestConformance(t *testing.T) {
	storagetest.Run(t, storagetest.Harness{
		Factory: storagemw.Wrap(kit(), tracing.Store(&recorder{})), Form: storagetest.Decorated,
		Lacks: storagetest.Lacks{ProcessDeath: true, Reopen: true},
	})
}

// TestCapabilitiesFields: whoever adds a facet wraps it here, then raises the
// number.
func TestCapabilitiesFields(t *testing.T) {
	require.Equal(t, 6, reflect.TypeFor[storage.Capabilities]().NumField(),
		"storage.Capabilities has a new field: wrap it in tracing.go, test that here, then change this number")
}

// TestFacets: what is offered is what the store offers, and goes through spans.
func TestFacets(t *testing.T) {
	mw := tracing.Store(noop.NewTracerProvider())
	require.Empty(t, mw(storage.Params{}, storagetest.Nop{}).Capabilities().Facets())
	s, err := kit().Build(t.Context(), storage.Params{Segment: 1 << 20}, nil)
	require.NoError(t, err)
	c := mw(storage.Params{}, s).Capabilities()
	require.Equal(t, storekit.Facets(), c.Facets())
	require.Equal(t, s.Capabilities().Survives, c.Survives)
	require.NotSame(t, s, c.RawLog)
	require.NotSame(t, s, c.Retention)
	require.NotSame(t, s, c.KeyIndex)
}

// TestSpans: each call makes one, below the caller's.
func TestSpans(t *testing.T) {
	var r recorder
	f := storagemw.Wrap(kit(), tracing.Store(&r))
	s, err := f.Build(t.Context(), storage.Params{Settings: plugin.Settings{Name: "mine"}, Segment: 1 << 20, Publish: storage.Explicit}, nil)
	require.NoError(t, err)
	require.NoError(t, s.Start(t.Context()))
	require.Equal(t, tracing.Scope, r.scope)
	require.Equal(t, "storage.Start", r.take(t).name)
	seq := storagetest.OpenSequencer(t, s, nil, 1)
	w := storagetest.NewWriter(message.IndexRules{})
	q := message.Queue{Topic: "T", ID: 2}
	p := w.Pending([]storagetest.Message{{Queue: q, Keys: "k"}, {Queue: q, Keys: "k"}})
	require.NoError(t, seq.Assign(p, 0))
	size, caps := int64(len(p.Buf)), s.Capabilities()
	ctx, caller := r.Tracer("").Start(t.Context(), "caller")
	var c storage.Chunk
	for _, call := range []struct {
		op   storagemw.Op
		do   func() error
		want map[string]any
	}{
		{storagemw.OpAppend, func() error { return s.Append(ctx, &p.Batches[0]) }, map[string]any{"position": int64(0), "bytes": size, "records": int64(2)}},
		{storagemw.OpPublish, func() error { return caps.RawLog.Publish(ctx, p.End) }, map[string]any{"position": size}},
		{storagemw.OpSync, func() error { return s.Sync(ctx, p.End) }, map[string]any{"position": size}},
		{storagemw.OpRead, func() error { return s.Read(ctx, storage.ReadRequest{Queue: q, Offset: 1}, &c) },
			map[string]any{"topic": "T", "queue": int64(2), "offset": int64(1), "records": int64(1), "bytes": size / 2, "cold": false, "status": "FOUND"}},
		{storagemw.OpGet, func() error { return s.Get(ctx, []message.Position{0}, &c) }, map[string]any{"records": int64(1), "bytes": size / 2, "cold": false}},
		{storagemw.OpOffsets, func() error { return s.Offsets(ctx, nil, &storage.OffsetAnswers{}) }, nil},
		{storagemw.OpReadLog, func() error { return caps.RawLog.ReadLog(ctx, 7, 50, &c) }, map[string]any{"position": int64(7), "records": int64(0), "bytes": int64(50), "cold": false}},
		{storagemw.OpFind, func() error {
			_, err := caps.KeyIndex.Find(ctx, storage.KeyQuery{Topic: "T", Key: "k", To: 1 << 62, Max: 1}, nil)
			return err
		}, map[string]any{"topic": "T", "records": int64(1)}},
		{storagemw.OpSegments, func() error { _, err := caps.Retention.Segments(ctx); return err }, nil},
		{storagemw.OpExpire, func() error { return caps.Retention.Expire(ctx, 0) }, map[string]any{"position": int64(0)}},
		{storagemw.OpDrop, func() error { return caps.Retention.Drop(ctx, nil) }, nil},
		{storagemw.OpTruncate, func() error { return caps.RawLog.Truncate(ctx, p.End) }, map[string]any{"position": size}},
		{storagemw.OpReset, func() error { return caps.RawLog.Reset(ctx, 0, nil) }, map[string]any{"position": int64(0)}},
	} {
		t.Run(string(call.op), func(t *testing.T) {
			require.NoError(t, call.do())
			got := r.take(t)
			want := map[string]any{"hardpoint.store": "mine"}
			for _, k := range slices.Sorted(maps.Keys(call.want)) {
				want["hardpoint."+k] = call.want[k]
			}
			require.Equal(t, "storage."+string(call.op), got.name)
			require.Equal(t, "caller", got.parent)
			require.Equal(t, want, got.attrs)
			require.Equal(t, codes.Unset, got.status)
		})
	}
	c.Release()
	caller.End()

	require.ErrorIs(t, caps.RawLog.Truncate(ctx, 1), storage.ErrGap)
	got := r.take(t)
	require.ErrorIs(t, got.err, storage.ErrGap)
	require.Equal(t, codes.Error, got.status)
	require.NoError(t, s.Shutdown(t.Context()))
	require.Equal(t, "storage.Shutdown", r.take(t).name)
}

// TestUnsampled spans get no attributes made.
func TestUnsampled(t *testing.T) {
	s := tracing.Store(noop.NewTracerProvider())(storage.Params{}, storagetest.Nop{})
	require.NoError(t, s.Append(t.Context(), &storage.Batch{}))
	require.NoError(t, s.Read(t.Context(), storage.ReadRequest{}, &storage.Chunk{}))
}

// leaving is a store that does not come back.
type leaving struct{ storagetest.Nop }

func (l leaving) Capabilities() storage.Capabilities { return storage.Capabilities{Reopener: l} }
func (leaving) Gone(context.Context) error           { return plugin.ErrUnavailable }
func (leaving) Reopened(context.Context) error       { return storage.ErrFailed }

// TestReopened: coming back is a span, waiting for the store to go is none.
func TestReopened(t *testing.T) {
	r := &recorder{}
	s := tracing.Store(r)(storage.Params{}, leaving{})
	require.ErrorIs(t, s.Capabilities().Reopener.Gone(t.Context()), plugin.ErrUnavailable)
	require.ErrorIs(t, s.Capabilities().Reopener.Reopened(t.Context()), storage.ErrFailed)
	got := r.take(t)
	require.Equal(t, "storage.Reopened", got.name)
	require.ErrorIs(t, got.err, storage.ErrFailed)
}

// unsampled is a provider whose spans are one, so that only what the decorator takes
// counts.
type unsampled struct{ noop.TracerProvider }

func (unsampled) Tracer(string, ...trace.TracerOption) trace.Tracer { return unsampledTracer{} }

type unsampledTracer struct{ noop.Tracer }

func (unsampledTracer) Start(ctx context.Context, _ string, _ ...trace.SpanStartOption) (context.Context, trace.Span) {
	return ctx, noop.Span{}
}

// TestUnsampledIsFree: a store whose calls are not sampled takes no memory for them.
func TestUnsampledIsFree(t *testing.T) {
	s := tracing.Store(unsampled{})(storage.Params{}, storagetest.Nop{})
	ctx, b := t.Context(), &storage.Batch{}
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = s.Append(ctx, b) }))
}
