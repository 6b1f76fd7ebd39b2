package e2e

import (
	"os/exec"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/test/harness"
)

// TestProgressOfDeleted is BC-19 with the official client: a topic that was deleted and
// made again is consumed from its first message by the group that consumed the old one,
// and a group that was deleted begins anew; the broker stopped or was killed between.
func TestProgressOfDeleted(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, n *harness.Node) {
		const topic, group = "deleted", "deleted-group"
		tool := func(args ...string) {
			t.Helper()
			out, err := exec.Command(harness.Binary(t, true), append(args, "--namesrv", n.Namesrv)...).CombinedOutput()
			require.NoError(t, err, "%v: %s", args, out)
		}
		// consume has the group consume keys, and nothing else, and stop.
		consume := func(keys []string, end int64) {
			t.Helper()
			seen := newCollector()
			c, err := startPushConsumer(n.Namesrv, group, topic, "*", func(m *primitive.MessageExt) consumer.ConsumeResult {
				seen.add(m.GetKeys(), m.Queue.QueueId)
				return consumer.ConsumeSuccess
			})
			require.NoError(t, err)
			seen.await(t, 90*time.Second, keys)
			// It reports it every five seconds. What it reports at its end is one-way, and
			// may be lost with the connection that it closes behind it.
			harness.Until(t, 90*time.Second, "progress of the group", func() bool { return committed(t, n, group, topic, 0) == end })
			require.NoError(t, c.Shutdown())
			require.Equal(t, len(keys), seen.size(), "messages besides those wanted")
		}
		send := func(name string, count int) []string {
			t.Helper()
			createTopic(t, n, topic, 1)
			keys := numbered(name, count)
			sendAll(t, newProducer(t, n.Namesrv), topic, keys)
			return keys
		}

		consume(send("first", 100), 100)
		for name, again := range map[string]func(){"stopped": n.Stop, "killed": n.Kill} {
			tool("topic", "delete", topic, "--yes")
			again()
			n.Start()
			keys := send(name, 5)
			consume(keys, 5)
			tool("group", "delete", group, "--yes")
			again()
			n.Start()
			awaitRoute(t, n.Namesrv, topic)
			consume(keys, 5)
		}
	})
}
