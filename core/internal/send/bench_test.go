package send_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/plugins/replication/solo"
)

// load is 64 sends of 1 KiB that one read brings, as an official client sends
// them.
type load struct {
	e       *enginetest.Engine
	peer    *enginetest.NullPeer
	session transport.Session
	wire    []byte
	buf     []byte
	frames  []command.Frame
}

const perRead = 64

func newLoad(tb testing.TB, typ command.HeaderType, size int) *load {
	l := &load{peer: &enginetest.NullPeer{}}
	l.e = enginetest.Start(tb, enginetest.Options{
		Replication: solo.NewFactory(), Segment: 1 << 30,
		NewStore: func(storage.Params) storage.Store { return enginetest.NewNullStore() },
		Prepare:  func(e *enginetest.Engine) { e.K.Images = nil },
	})
	require.NoError(tb, l.e.K.Topics.Put(tb.Context(), command.TopicConfig{TopicName: "BenchTopic", ReadQueueNums: 8, WriteQueueNums: 8, Perm: 6}))
	l.session = l.e.K.Opened(l.peer)
	c := enginetest.Client{Type: typ}
	for i := range perRead {
		m := enginetest.Message{Topic: "BenchTopic", Queue: int32(i % 8), Properties: enginetest.Props(
			message.PropUniqueKey, "7F0000010001B4AAC2118E5A3F2C0001", message.PropWait, "true", message.PropTags, "TagA")}
		f, _ := c.Request(command.ReqSendMessageV2, 0, m.Header(false), []byte(strings.Repeat("x", size)))
		l.wire = f.Append(l.wire)
	}
	l.buf = make([]byte, len(l.wire))
	return l
}

func (l *load) read() {
	copy(l.buf, l.wire)
	l.frames, _, _, _ = command.Split(l.buf, l.frames[:0], command.DefaultLimits())
	l.session.Arrived(l.frames)
	l.e.K.Settle()
}

func BenchmarkSend(b *testing.B) {
	for _, x := range []struct {
		name string
		typ  command.HeaderType
		size int
	}{{"JSON 1 KiB", command.JSON, 1024}, {"JSON 128 B", command.JSON, 128}, {"binary 1 KiB", command.RocketMQ, 1024}} {
		b.Run(x.name, func(b *testing.B) {
			l := newLoad(b, x.typ, x.size)
			l.read()
			b.ReportAllocs()
			b.SetBytes(int64(perRead * x.size))
			for b.Loop() {
				l.read()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*perRead), "ns/msg")
		})
	}
}

// The send path allocates nothing per message in steady state.
func TestSendAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	l := newLoad(t, command.JSON, 1024)
	for range 100 {
		l.read()
	}
	before := l.peer.Sends.Load()
	if n := testing.AllocsPerRun(200, l.read); n > perRead/16 {
		t.Errorf("%v allocations for %d messages", n, perRead)
	}
	require.Equal(t, before+201, l.peer.Sends.Load(), "each read is answered by one write")
}
