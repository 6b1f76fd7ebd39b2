package pull_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagemw"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/plugins/replication/solo"
)

// load is one pull of up to 32 messages of 1 KiB, sent again and again.
type load struct {
	peer    *enginetest.NullPeer
	session transport.Session
	wire    []byte
	buf     []byte
	frames  []command.Frame
}

func newLoad(tb testing.TB, expression string, store storagemw.Middleware) *load {
	e := enginetest.Start(tb, enginetest.Options{Replication: solo.NewFactory(), Segment: 1 << 20, Store: store})
	c := e.Connect(tb)
	for range 64 {
		m := enginetest.Message{Topic: "T", Body: strings.Repeat("x", 1024), Properties: enginetest.Props(message.PropTags, "TagA")}
		require.Zero(tb, c.Send(m).Code)
	}
	l := &load{peer: &enginetest.NullPeer{}}
	l.session = e.K.Opened(l.peer)
	p := enginetest.Pull("G", "T", 0, 0)
	p.Subscription = []byte(expression)
	f, _ := c.Request(command.ReqPullMessage, 0, p.Append, nil)
	l.wire = f.Append(nil)
	l.buf = make([]byte, len(l.wire))
	l.read()
	require.Greater(tb, l.peer.Bytes.Load(), int64(32<<10))
	return l
}

func (l *load) read() {
	copy(l.buf, l.wire)
	l.frames, _, _, _ = command.Split(l.buf, l.frames[:0], command.DefaultLimits())
	l.session.Arrived(l.frames)
}

// BenchmarkPull is a pull of 32 messages of 1 KiB from the store in memory.
func BenchmarkPull(b *testing.B) {
	for name, expression := range map[string]string{"all": "*", "by tag": "TagA"} {
		b.Run(name, func(b *testing.B) {
			l := newLoad(b, expression, nil)
			b.ReportAllocs()
			for b.Loop() {
				l.read()
			}
		})
	}
}

// remembering is a store that answers every read of T with what it read first:
// what remains is the pull path itself.
type remembering struct {
	storagemw.Base
	first storage.Chunk
}

func (s *remembering) Read(ctx context.Context, r storage.ReadRequest, c *storage.Chunk) error {
	if r.Queue.Topic != "T" {
		return s.Store.Read(ctx, r, c)
	}
	if len(s.first.Units) == 0 {
		if err := s.Store.Read(ctx, r, &s.first); err != nil {
			return err
		}
	}
	f := &s.first
	c.Units, c.Frags = append(c.Units, f.Units...), append(c.Frags, f.Frags...)
	c.Status, c.Next, c.Min, c.Max = f.Status, f.Next, f.Min, f.Max
	return nil
}

// The pull path allocates nothing in steady state, whatever the store does.
func TestPullAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for name, expression := range map[string]string{"all": "*", "by tag": "TagA"} {
		t.Run(name, func(t *testing.T) {
			s := &remembering{}
			l := newLoad(t, expression, func(_ storage.Params, next storage.Store) storage.Store {
				s.Base = storagemw.Base{Store: next}
				return s
			})
			for range 100 {
				l.read()
			}
			before := l.peer.Sends.Load()
			require.Zero(t, testing.AllocsPerRun(200, l.read))
			require.Equal(t, before+201, l.peer.Sends.Load())
			s.first.Release()
		})
	}
}
