// Package tracing is the decorator of stores that makes a span of each call, with
// the API of OpenTelemetry. It is a package of its own so that nobody else links
// that API; the provider, with its exporter and sampling, is the program's.
package tracing

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagemw"
)

// Scope is the name of the tracer.
const Scope = "github.com/hardpointmq/hardpoint/core/storage"

// Store makes a Middleware whose stores, with the facets that they offer, make a
// span of each call but State and Capabilities. A span is named "storage." and the
// call (storagemw.Op, or Shutdown), is a child of the span in the caller's context,
// has the attribute hardpoint.store (the configured name) and those that the call
// has: hardpoint.position, hardpoint.bytes, hardpoint.records, hardpoint.topic,
// hardpoint.queue, hardpoint.offset, hardpoint.status, hardpoint.cold. An error is
// recorded and makes the span's status Error. Keys and bodies of messages are never
// part of it. The context given on has the span.
//
// A call whose span is not sampled costs what the provider takes for it.
func Store(tp trace.TracerProvider) storagemw.Middleware {
	tracer := tp.Tracer(Scope)
	return func(p storage.Params, next storage.Store) storage.Store {
		t := &spans{tracer: tracer, store: []trace.SpanStartOption{trace.WithAttributes(attribute.String("hardpoint.store", p.Name))}}
		s := &store{Base: storagemw.Base{Store: next}, t: t}
		c := next.Capabilities()
		s.caps.Survives, s.caps.ExpiresBeside = c.Survives, c.ExpiresBeside
		if c.RawLog != nil {
			s.caps.RawLog = &rawLog{c.RawLog, t}
		}
		if c.Retention != nil {
			s.caps.Retention = &retention{c.Retention, t}
		}
		if c.KeyIndex != nil {
			s.caps.KeyIndex = &keyIndex{c.KeyIndex, t}
		}
		if c.Reopener != nil {
			s.caps.Reopener = &reopener{c.Reopener, t}
		}
		return s
	}
}

const (
	// prefix begins the names of spans.
	prefix     storagemw.Op = "storage."
	opShutdown storagemw.Op = "Shutdown"
)

// spans makes the spans of one store.
type spans struct {
	tracer trace.Tracer
	store  []trace.SpanStartOption
}

// start begins a span. Its name is a constant, and the options are made once: a call
// that is not sampled must cost next to nothing.
func (t *spans) start(ctx context.Context, name storagemw.Op) (context.Context, trace.Span) {
	return t.tracer.Start(ctx, string(name), t.store...)
}

func (t *spans) startAt(ctx context.Context, name storagemw.Op, at message.Position) (context.Context, trace.Span) {
	ctx, span := t.start(ctx, name)
	if span.IsRecording() {
		span.SetAttributes(attribute.Int64("hardpoint.position", int64(at)))
	}
	return ctx, span
}

func end(span trace.Span, err error) error {
	if err != nil && span.IsRecording() {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
	return err
}

// took adds what a chunk brought.
func took(span trace.Span, c *storage.Chunk, err error) {
	if err != nil || !span.IsRecording() {
		return
	}
	n := 0
	for _, f := range c.Frags {
		n += len(f)
	}
	span.SetAttributes(attribute.Int("hardpoint.bytes", n), attribute.Int("hardpoint.records", len(c.Units)), attribute.Bool("hardpoint.cold", c.Cold))
}

type store struct {
	storagemw.Base
	t    *spans
	caps storage.Capabilities
}

func (s *store) Capabilities() storage.Capabilities { return s.caps }

func (s *store) Start(ctx context.Context) error {
	ctx, span := s.t.start(ctx, prefix+storagemw.OpStart)
	return end(span, s.Store.Start(ctx))
}

func (s *store) Shutdown(ctx context.Context) error {
	ctx, span := s.t.start(ctx, prefix+opShutdown)
	return end(span, s.Store.Shutdown(ctx))
}

func (s *store) Append(ctx context.Context, b *storage.Batch) error {
	ctx, span := s.t.startAt(ctx, prefix+storagemw.OpAppend, b.At)
	if span.IsRecording() { // now: b may be the caller's again after Append
		span.SetAttributes(attribute.Int("hardpoint.bytes", len(b.Buf)), attribute.Int("hardpoint.records", len(b.Units)))
	}
	return end(span, s.Store.Append(ctx, b))
}

func (s *store) Sync(ctx context.Context, to message.Position) error {
	ctx, span := s.t.startAt(ctx, prefix+storagemw.OpSync, to)
	return end(span, s.Store.Sync(ctx, to))
}

func (s *store) Read(ctx context.Context, r storage.ReadRequest, c *storage.Chunk) error {
	ctx, span := s.t.start(ctx, prefix+storagemw.OpRead)
	err := s.Store.Read(ctx, r, c)
	took(span, c, err)
	if span.IsRecording() {
		span.SetAttributes(attribute.String("hardpoint.topic", r.Queue.Topic), attribute.Int("hardpoint.queue", int(r.Queue.ID)), attribute.Int64("hardpoint.offset", r.Offset))
		if err == nil {
			span.SetAttributes(attribute.String("hardpoint.status", c.Status.String()))
		}
	}
	return end(span, err)
}

func (s *store) Get(ctx context.Context, at []message.Position, c *storage.Chunk) error {
	ctx, span := s.t.start(ctx, prefix+storagemw.OpGet)
	err := s.Store.Get(ctx, at, c)
	took(span, c, err)
	return end(span, err)
}

func (s *store) Offsets(ctx context.Context, q []storage.OffsetQuery, a *storage.OffsetAnswers) error {
	ctx, span := s.t.start(ctx, prefix+storagemw.OpOffsets)
	return end(span, s.Store.Offsets(ctx, q, a))
}

type rawLog struct {
	next storage.RawLog
	t    *spans
}

func (l *rawLog) ReadLog(ctx context.Context, from message.Position, most int, c *storage.Chunk) error {
	ctx, span := l.t.startAt(ctx, prefix+storagemw.OpReadLog, from)
	err := l.next.ReadLog(ctx, from, most, c)
	took(span, c, err)
	return end(span, err)
}

func (l *rawLog) Publish(ctx context.Context, upTo message.Position) error {
	ctx, span := l.t.startAt(ctx, prefix+storagemw.OpPublish, upTo)
	return end(span, l.next.Publish(ctx, upTo))
}

func (l *rawLog) Truncate(ctx context.Context, at message.Position) error {
	ctx, span := l.t.startAt(ctx, prefix+storagemw.OpTruncate, at)
	return end(span, l.next.Truncate(ctx, at))
}

func (l *rawLog) Reset(ctx context.Context, first message.Position, ends []message.Unit) error {
	ctx, span := l.t.startAt(ctx, prefix+storagemw.OpReset, first)
	return end(span, l.next.Reset(ctx, first, ends))
}

type retention struct {
	next storage.Retention
	t    *spans
}

func (r *retention) Segments(ctx context.Context) ([]storage.Segment, error) {
	ctx, span := r.t.start(ctx, prefix+storagemw.OpSegments)
	out, err := r.next.Segments(ctx)
	return out, end(span, err)
}

func (r *retention) Expire(ctx context.Context, first message.Position) error {
	ctx, span := r.t.startAt(ctx, prefix+storagemw.OpExpire, first)
	return end(span, r.next.Expire(ctx, first))
}

func (r *retention) Drop(ctx context.Context, q []message.Queue) error {
	ctx, span := r.t.start(ctx, prefix+storagemw.OpDrop)
	return end(span, r.next.Drop(ctx, q))
}

type keyIndex struct {
	next storage.KeyIndex
	t    *spans
}

func (k *keyIndex) Find(ctx context.Context, q storage.KeyQuery, at []message.Position) ([]message.Position, error) {
	ctx, span := k.t.start(ctx, prefix+storagemw.OpFind)
	out, err := k.next.Find(ctx, q, at)
	if span.IsRecording() {
		span.SetAttributes(attribute.String("hardpoint.topic", q.Topic), attribute.Int("hardpoint.records", len(out)))
	}
	return out, end(span, err)
}

// reopener makes no span of Gone, which waits as long as all is well.
type reopener struct {
	storage.Reopener
	t *spans
}

func (r *reopener) Reopened(ctx context.Context) error {
	ctx, span := r.t.start(ctx, prefix+storagemw.OpReopened)
	return end(span, r.Reopener.Reopened(ctx))
}
