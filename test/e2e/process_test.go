package e2e

import (
	"syscall"
	"testing"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/internal/hosttest"
	"github.com/hardpointmq/hardpoint/test/harness"
)

// killProcess kills the one process of a broker's plugin again and again, under two
// producers and a push consumer of the official client: they find their way back
// without a restart, and what was acknowledged is stored and consumed.
func killProcess(t *testing.T, n *harness.Node, topic string, rounds int) {
	t.Helper()
	const queues = 4
	createTopic(t, n, topic, queues)
	var ps []rocketmq.Producer
	for range 2 {
		ps = append(ps, newProducer(t, n.Namesrv, producer.WithSendMsgTimeout(3*time.Second)))
	}
	seen := newCollector()
	newPushConsumer(t, n.Namesrv, topic+"-group", topic, "*", func(m *primitive.MessageExt) consumer.ConsumeResult {
		seen.add(m.GetKeys(), m.Queue.QueueId)
		return consumer.ConsumeSuccess
	})
	load := startSenders(ps, topic)
	load.more(t, 100, "the start")
	broker := n.Pid()
	for range rounds {
		var pids []int
		harness.Until(t, 60*time.Second, "the broker has one child, its plugin", func() bool {
			pids = hosttest.Children(t, broker)
			return len(pids) == 1
		})
		require.NoError(t, syscall.Kill(pids[0], syscall.SIGKILL))
		load.more(t, 100, "kill -9 of the plugin")
	}
	acked := load.end()
	require.Equal(t, broker, n.Pid())
	require.Contains(t, n.Log(), "signal: killed")
	_, missing := stored(t, n, topic, queues, nil).of(acked)
	require.Empty(t, missing, "acknowledged but not stored")
	seen.await(t, 90*time.Second, acked)
	t.Logf("%d acknowledged, stored and consumed; %d sends failed", len(acked), load.fails)
}

// killRounds are so few because the circuit breaker opens after the fifth death
// within a minute; the long form goes on when it has.
func killRounds() int {
	if harness.Long() {
		return 10
	}
	return 3
}

// TestTransportKilled: the process that has the connections of all clients dies.
func TestTransportKilled(t *testing.T) {
	t.Parallel()
	killProcess(t, harness.New(t, harness.Options{Race: true, Set: append([]string{transportProcess}, settings...)}), "transport-killed", killRounds())
}

// TestStoreKilled: the process that has the log dies.
func TestStoreKilled(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"pebble", "commitlog"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			killProcess(t, harness.New(t, harness.Options{Store: harness.Store{Name: name, Process: true}, Race: true, Set: settings}), "store-killed", killRounds())
		})
	}
}
