package spans_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/internal/spans"
	"github.com/hardpointmq/hardpoint/core/message"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	sampled   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	unsampled = "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

func TestParse(t *testing.T) {
	c, ok := spans.Parse([]byte(sampled))
	require.True(t, ok)
	require.Equal(t, "0af7651916cd43dd8448eb211c80319c", c.TraceID().String())
	require.Equal(t, "b7ad6b7169203331", c.SpanID().String())
	require.True(t, c.IsSampled())
	require.True(t, c.IsRemote())
	c, ok = spans.Parse([]byte(unsampled))
	require.True(t, ok)
	require.False(t, c.IsSampled())
	_, ok = spans.Parse([]byte("cc" + sampled[2:] + "-later"))
	require.True(t, ok, "a later version begins alike")
	for _, bad := range []string{
		"", "x", sampled[:54], sampled + "-more", sampled + "x", "ff" + sampled[2:], "cc" + sampled[2:] + "later", strings.ToUpper(sampled), strings.Replace(sampled, "-", "_", 1),
		"00-00000000000000000000000000000000-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", "0g" + sampled[2:],
	} {
		_, ok := spans.Parse([]byte(bad))
		require.False(t, ok, bad)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(sampled))
	f.Add([]byte("cc" + sampled[2:] + "-later"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, ok := spans.Parse(b)
		if !ok {
			return
		}
		if got := c.TraceID().String() + "-" + c.SpanID().String(); got != string(b[3:52]) {
			t.Errorf("%q was read as %s", b, got)
		}
		if last := strings.IndexByte("0123456789abcdef", b[54]); c.IsSampled() != (last&1 == 1) {
			t.Errorf("%q was read as sampled: %t", b, c.IsSampled())
		}
	})
}

// engine has spans of part of its requests.
func engine(t *testing.T, ratio float64) (*enginetest.Engine, *tracetest.SpanRecorder) {
	rec := tracetest.NewSpanRecorder()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.AlwaysSample()), sdktrace.WithSpanProcessor(rec))
	e := enginetest.Start(t, enginetest.Options{Spans: spans.New(tp, ratio, "broker-a")})
	require.NoError(t, e.K.Topics.Put(t.Context(), command.TopicConfig{TopicName: "T", ReadQueueNums: 2, WriteQueueNums: 2, Perm: 6}))
	return e, rec
}

func attributes(s sdktrace.ReadOnlySpan) map[attribute.Key]string {
	out := map[attribute.Key]string{}
	for _, a := range s.Attributes() {
		out[a.Key] = a.Value.String()
	}
	return out
}

// A message that is part of a sampled trace has a span in it; one of a trace that is
// not sampled, and one without, have none as long as nothing is sampled by chance.
func TestTracesOfMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, rec := engine(t, 0)
		c := e.Connect(t)
		var sent *enginetest.Reply
		for _, parent := range []string{"", unsampled, "garbage", sampled} {
			props := enginetest.Props(message.PropTraceParent, parent)
			if parent == "" {
				props = ""
			}
			sent = c.Send(enginetest.Message{Topic: "T", Queue: 1, Body: "hello", Properties: props})
			require.Zero(t, sent.Code)
		}
		all := rec.Ended()
		require.Len(t, all, 1)
		s := all[0]
		require.Equal(t, "send T", s.Name())
		require.Equal(t, trace.SpanKindServer, s.SpanKind())
		require.Equal(t, "0af7651916cd43dd8448eb211c80319c", s.SpanContext().TraceID().String())
		require.Equal(t, "b7ad6b7169203331", s.Parent().SpanID().String())
		a := attributes(s)
		for key, want := range map[attribute.Key]string{
			"messaging.system": "rocketmq", "messaging.operation.name": "send", "messaging.operation.type": "send", "messaging.destination.name": "T",
			"messaging.destination.partition.id": "1", "messaging.message.id": sent.Ext["msgId"], "messaging.rocketmq.message.type": "normal",
			"messaging.rocketmq.response_code": "SUCCESS", "hardpoint.offset": "3", "hardpoint.broker": "broker-a",
		} {
			require.Equal(t, want, a[key], key)
		}

		<-time.After(time.Second)
		require.Len(t, c.Pull(enginetest.Pull("G", "T", 1, 0)).Records(), 4)
		all = rec.Ended()
		require.Len(t, all, 2)
		p := all[1]
		require.Equal(t, "receive T", p.Name())
		require.Len(t, p.Links(), 1)
		require.Equal(t, s.SpanContext().TraceID(), p.Links()[0].SpanContext.TraceID())
		a = attributes(p)
		require.Equal(t, "G", a["messaging.consumer.group.name"])
		require.Equal(t, "4", a["messaging.batch.message_count"])
		require.Equal(t, "receive", a["messaging.operation.type"])

		// What is refused by the log is an error.
		e.K.RefuseSends("the disk is full")
		require.NotZero(t, c.Send(enginetest.Message{Topic: "T", Queue: 1, Body: "x", Properties: enginetest.Props(message.PropTraceParent, sampled)}).Code)
		require.Len(t, rec.Ended(), 2, "refused before it is looked at")
		require.Len(t, rec.Started(), 2, "none is left open")
	})
}

func TestChance(t *testing.T) {
	e, rec := engine(t, 1)
	c := e.Connect(t)
	require.Zero(t, c.Send(enginetest.Message{Topic: "T", Body: "hello", Properties: enginetest.Props(message.PropTraceParent, unsampled)}).Code)
	require.Empty(t, rec.Ended(), "who began the trace decides")
	require.Zero(t, c.Send(enginetest.Message{Topic: "T", Body: "hello"}).Code)
	got := c.Pull(enginetest.Pull("G", "T", 0, 0)).Records()
	require.Len(t, got, 2)
	require.Zero(t, c.Do(command.ReqUpdateConsumerOffset, (&command.UpdateConsumerOffsetRequest{ConsumerGroup: []byte("G"), Topic: []byte("T"), CommitOffset: 1}).Append, nil).Code)
	require.NotZero(t, c.Do(command.ReqUpdateConsumerOffset, (&command.UpdateConsumerOffsetRequest{ConsumerGroup: []byte("nobody"), Topic: []byte("T"), CommitOffset: 1}).Append, nil).Code)
	require.Zero(t, c.Do(command.ReqConsumerSendMsgBack, (&command.SendBackRequest{Group: []byte("G"), Offset: int64(got[0].Position), MaxReconsumeTimes: 16}).Append, nil).Code)
	var names []string
	for _, s := range rec.Ended() {
		names = append(names, s.Name()+" "+s.Status().Code.String())
	}
	require.ElementsMatch(t, []string{"send T Unset", "receive T Unset", "commit T Unset", "commit T Error", "send_back %RETRY%G Unset"}, names)
	require.Equal(t, codes.Unset, rec.Ended()[0].Status().Code)
	require.Len(t, rec.Started(), len(names), "none is left open")
}

// A client may name what is no topic and no group, and no text at all: the span of its
// refusal must not make a collector refuse those of others.
func TestStrangeNames(t *testing.T) {
	rec := tracetest.NewSpanRecorder()
	all := spans.New(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(rec)), 1, "broker-a")
	for _, name := range []string{"\xff\xfe", strings.Repeat("\u00e9", 5000), strings.Repeat("\xff", 5000)} {
		all.Settle("commit", name, message.Queue{Topic: name}).End("TOPIC_NOT_EXIST", true)
	}
	require.Len(t, rec.Ended(), 3)
	for _, s := range rec.Ended() {
		require.True(t, utf8.ValidString(s.Name()), "%q", s.Name())
		for key, v := range attributes(s) {
			require.True(t, utf8.ValidString(v), "%s=%q", key, v)
			require.Less(t, len(v), 260, key)
		}
	}
}
