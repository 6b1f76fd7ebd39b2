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

// TestTransportKilled: the process that has the connections of all clients is
// killed again and again; clients find their way back, and what was acknowledged
// is stored and consumed.
func TestTransportKilled(t *testing.T) {
	t.Parallel()
	const topic, queues = "transport-killed", 4
	n := harness.New(t, harness.Options{Race: true, Set: append([]string{transportProcess}, settings...)})
	createTopic(t, n, topic, queues)
	ps := []rocketmq.Producer{newProducer(t, n.Namesrv, producer.WithSendMsgTimeout(3*time.Second)), newProducer(t, n.Namesrv, producer.WithSendMsgTimeout(3*time.Second))}
	seen := newCollector()
	newPushConsumer(t, n.Namesrv, "transport-group", topic, "*", func(m *primitive.MessageExt) consumer.ConsumeResult {
		seen.add(m.GetKeys(), m.Queue.QueueId)
		return consumer.ConsumeSuccess
	})
	load := startSenders(ps, topic)
	load.more(t, 100, "the start")
	rounds := 3
	if harness.Long() {
		rounds = 10
	}
	broker := n.Pid()
	for range rounds {
		pids := hosttest.Children(t, broker)
		require.Len(t, pids, 1, "the broker has one child, its transport")
		require.NoError(t, syscall.Kill(pids[0], syscall.SIGKILL))
		load.more(t, 100, "kill -9 of the transport")
	}
	acked := load.end()
	require.Equal(t, broker, n.Pid())
	require.Contains(t, n.Log(), "signal: killed")
	_, missing := stored(t, n, topic, queues, nil).of(acked)
	require.Empty(t, missing, "acknowledged but not stored")
	seen.await(t, 90*time.Second, acked)
	t.Logf("%d acknowledged, stored and consumed; %d sends failed", len(acked), load.fails)
}
