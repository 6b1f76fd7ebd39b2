// Package spans makes the spans of requests, with the attributes of OpenTelemetry's
// semantic conventions for messaging. Which requests have one is decided here, before
// anything is made: a request without a span costs a random number, and nothing at all
// when tracing is off (a nil [Spans]).
package spans

import (
	"context"
	"encoding/hex"
	"iter"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/hardpointmq/hardpoint/core/message"
)

// Scope is the name of the tracer.
const Scope = "github.com/hardpointmq/hardpoint/core/broker"

// maxLinks bounds what a span of a pull is linked with.
const maxLinks = 32

// Spans makes spans; nil makes none. Safe for concurrent use.
type Spans struct {
	tracer trace.Tracer
	ratio  float64
	own    []attribute.KeyValue
}

// New makes one whose spans are those of a provider that samples all it is asked for.
// ratio is the part of the requests without a trace of their own that get one, broker
// the name of the broker.
func New(tp trace.TracerProvider, ratio float64, broker string) *Spans {
	return &Spans{
		tracer: tp.Tracer(Scope), ratio: ratio,
		own: []attribute.KeyValue{semconv.MessagingSystemRocketMQ, attribute.String("hardpoint.broker", broker)},
	}
}

// Span is one of them; nil is none and does nothing.
type Span struct{ s trace.Span }

// Parse reads a traceparent (W3C Trace Context, version 00 and later ones that begin
// alike); false: it is none.
func Parse(b []byte) (trace.SpanContext, bool) {
	const n = 55 // 2-32-16-2 with hyphens
	if len(b) < n || len(b) > n && (b[n] != '-' || b[0] == '0' && b[1] == '0') || b[2] != '-' || b[35] != '-' || b[52] != '-' {
		return trace.SpanContext{}, false
	}
	var version, flags [1]byte
	var c trace.SpanContextConfig
	for _, part := range []struct{ dst, src []byte }{{version[:], b[:2]}, {c.TraceID[:], b[3:35]}, {c.SpanID[:], b[36:52]}, {flags[:], b[53:55]}} {
		for _, x := range part.src {
			if x >= 'A' && x <= 'F' { // hex takes them, the format does not
				return trace.SpanContext{}, false
			}
		}
		if _, err := hex.Decode(part.dst, part.src); err != nil {
			return trace.SpanContext{}, false
		}
	}
	c.TraceFlags, c.Remote = trace.TraceFlags(flags[0])&trace.FlagsSampled, true
	out := trace.NewSpanContext(c)
	return out, version[0] != 0xFF && out.IsValid()
}

// sample decides by the trace that a request is part of, or by chance.
func (s *Spans) sample(traceparent []byte) (context.Context, bool) {
	ctx := context.Background()
	if len(traceparent) > 0 {
		if c, ok := Parse(traceparent); ok {
			return trace.ContextWithRemoteSpanContext(ctx, c), c.IsSampled()
		}
	}
	return ctx, s.chance()
}

func (s *Spans) chance() bool {
	return s.ratio > 0 && rand.Float64() < s.ratio //nolint:gosec // who guesses which request has a span gains nothing
}

// longest is the most bytes of a name in a span: those of topics and groups fit.
const longest = 255

// text is a name that a client chose, which may be of no topic or group: collectors
// refuse all of a request for one text that is no UTF-8.
func text(name string) string {
	if len(name) > longest {
		name = strings.Clone(name[:longest])
	}
	return strings.ToValidUTF8(name, "\uFFFD")
}

func (s *Spans) start(ctx context.Context, operation string, kind attribute.KeyValue, q message.Queue, o ...trace.SpanStartOption) *Span {
	topic := text(q.Topic)
	all := append([]attribute.KeyValue{
		kind, semconv.MessagingOperationName(operation),
		semconv.MessagingDestinationName(topic), semconv.MessagingDestinationPartitionID(strconv.Itoa(int(q.ID))),
	}, s.own...)
	o = append(o, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(all...))
	_, span := s.tracer.Start(ctx, operation+" "+topic, o...)
	return &Span{span}
}

// Send begins the span of messages that a client sends; nil: it has none.
func (s *Spans) Send(traceparent []byte, q message.Queue, messages, bytes int, kind string) *Span {
	if s == nil {
		return nil
	}
	ctx, ok := s.sample(traceparent)
	if !ok {
		return nil
	}
	x := s.start(ctx, "send", semconv.MessagingOperationTypeSend, q)
	x.s.SetAttributes(semconv.MessagingMessageEnvelopeSize(bytes), semconv.MessagingRocketMQMessageTypeKey.String(kind))
	if messages > 1 {
		x.s.SetAttributes(semconv.MessagingBatchMessageCount(messages))
	}
	return x
}

// Pull is the span of a pull that got n messages, from began to now; records are these
// messages. It is linked with the sampled traces that they are of, and there if there
// are any.
func (s *Spans) Pull(began time.Time, group string, q message.Queue, n int, records iter.Seq2[int, []byte], bytes int) {
	if s == nil {
		return
	}
	var links []trace.Link
	for _, rec := range records {
		var v message.View
		if len(links) == maxLinks || message.Parse(rec, &v) != nil {
			break
		}
		if p, ok := message.Property(v.Properties, message.PropTraceParent); ok {
			if c, ok := Parse(p); ok && c.IsSampled() {
				links = append(links, trace.Link{SpanContext: c})
			}
		}
	}
	if len(links) == 0 && !s.chance() {
		return
	}
	x := s.start(context.Background(), "receive", semconv.MessagingOperationTypeReceive, q, trace.WithTimestamp(began), trace.WithLinks(links...))
	x.s.SetAttributes(semconv.MessagingConsumerGroupName(text(group)), semconv.MessagingBatchMessageCount(n), semconv.MessagingMessageEnvelopeSize(bytes))
	x.s.End()
}

// Settle begins the span of what a group says of messages: "commit" of its progress, or
// "send_back" of one that it could not handle. nil: it has none.
func (s *Spans) Settle(operation, group string, q message.Queue) *Span {
	if s == nil || !s.chance() {
		return nil
	}
	x := s.start(context.Background(), operation, semconv.MessagingOperationTypeSettle, q)
	x.s.SetAttributes(semconv.MessagingConsumerGroupName(text(group)))
	return x
}

// Stored adds where the (first) message is.
func (x *Span) Stored(id string, offset int64) {
	if x != nil {
		x.s.SetAttributes(semconv.MessagingMessageID(id), attribute.Int64("hardpoint.offset", offset))
	}
}

// End ends the span with RocketMQ's name of the response code; failed makes it an error.
func (x *Span) End(response string, failed bool) {
	if x == nil {
		return
	}
	x.s.SetAttributes(attribute.String("messaging.rocketmq.response_code", response))
	if failed {
		x.s.SetStatus(codes.Error, response)
	}
	x.s.End()
}
