package pull_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/plugins/replication/solo"
)

// BenchmarkPull is a pull of 32 messages of 1 KiB from the store in memory.
func BenchmarkPull(b *testing.B) {
	for name, expression := range map[string]string{"all": "*", "by tag": "TagA"} {
		b.Run(name, func(b *testing.B) {
			e := enginetest.Start(b, enginetest.Options{Replication: solo.NewFactory(), Segment: 1 << 20})
			c := e.Connect(b)
			for range 64 {
				m := enginetest.Message{Topic: "T", Body: strings.Repeat("x", 1024), Properties: enginetest.Props(message.PropTags, "TagA")}
				require.Zero(b, c.Send(m).Code)
			}
			peer := &enginetest.NullPeer{}
			session := e.K.Opened(peer)
			p := enginetest.Pull("G", "T", 0, 0)
			p.Subscription = []byte(expression)
			f, _ := c.Request(command.ReqPullMessage, 0, p.Append, nil)
			wire := f.Append(nil)
			buf := make([]byte, len(wire))
			var frames []command.Frame
			read := func() {
				copy(buf, wire)
				frames, _, _, _ = command.Split(buf, frames[:0], command.DefaultLimits())
				session.Arrived(frames)
			}
			read()
			require.Greater(b, peer.Bytes.Load(), int64(32<<10))
			b.ReportAllocs()
			for b.Loop() {
				read()
			}
		})
	}
}
