package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/test/harness"
)

func newMessage(topic, key, body string) *primitive.Message {
	return primitive.NewMessage(topic, []byte(body)).WithKeys([]string{key})
}

// TestProducer: every way to send, counted in the store, each at the offset that
// its acknowledgement told.
func TestProducer(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, n *harness.Node) {
		const topic, queues = "produce", 4
		createTopic(t, n, topic, queues)
		p := newProducer(t, n.Namesrv)
		type place struct {
			queue  int
			offset int64
		}
		var mu sync.Mutex
		acked := map[string]place{}
		ack := func(key string, r *primitive.SendResult) {
			mu.Lock()
			defer mu.Unlock()
			acked[key] = place{r.MessageQueue.QueueId, r.QueueOffset}
		}
		large := strings.Repeat("compressed by the client above 4 KiB ", 1000)

		syncKeys := numbered("sync", 100)
		for i, k := range syncKeys {
			body := "sync body"
			if i%10 == 0 {
				body = large
			}
			r, err := p.SendSync(t.Context(), newMessage(topic, k, body))
			require.NoError(t, err)
			require.Equal(t, primitive.SendOK, r.Status)
			ack(k, r)
		}

		asyncKeys := numbered("async", 200)
		var wg sync.WaitGroup
		for _, k := range asyncKeys {
			wg.Add(1)
			require.NoError(t, p.SendAsync(t.Context(), func(_ context.Context, r *primitive.SendResult, err error) {
				defer wg.Done()
				if err != nil {
					t.Errorf("async %s: %v", k, err)
					return
				}
				ack(k, r)
			}, newMessage(topic, k, "async body")))
		}
		wg.Wait()

		onewayKeys := numbered("oneway", 100)
		for _, k := range onewayKeys {
			require.NoError(t, p.SendOneWay(t.Context(), newMessage(topic, k, "oneway body")))
		}

		var batchKeys []string
		for b := range 10 {
			keys := numbered(fmt.Sprintf("batch-%d", b), 10)
			batchKeys = append(batchKeys, keys...)
			var ms []*primitive.Message
			for _, k := range keys {
				ms = append(ms, newMessage(topic, k, "batch body"))
			}
			r, err := p.SendSync(t.Context(), ms...)
			require.NoError(t, err)
			require.Equal(t, primitive.SendOK, r.Status)
			for i, k := range keys { // members of a batch are adjacent
				acked[k] = place{r.MessageQueue.QueueId, r.QueueOffset + int64(i)}
			}
		}

		all := append(append(append(syncKeys, asyncKeys...), onewayKeys...), batchKeys...)
		var got *collector
		harness.Until(t, time.Minute, "one-way messages stored", func() bool {
			got = stored(t, n, topic, queues, nil)
			return got.size() >= len(all)
		})
		found := map[string]place{}
		got = stored(t, n, topic, queues, func(v *message.View) {
			k, _ := message.Property(v.Properties, "KEYS")
			found[string(k)] = place{int(v.QueueID), v.QueueOffset}
		})
		counts, missing := got.of(all)
		require.Empty(t, missing)
		require.Len(t, counts, len(all))
		require.Equal(t, len(all), got.size(), "nothing else is in the topic")
		for k, n := range counts {
			require.Equal(t, 1, n, "messages with key %s", k)
		}
		for k, at := range acked {
			require.Equal(t, at, found[k], "place of %s", k)
		}

		// What the client compressed it also expands.
		seen := newCollector()
		var bad sync.Map
		newPushConsumer(t, n.Namesrv, "produce-group", topic, "*", func(m *primitive.MessageExt) consumer.ConsumeResult {
			if b := string(m.Body); b != large && !strings.HasSuffix(b, " body") {
				bad.Store(m.GetKeys(), len(b))
			}
			seen.add(m.GetKeys(), m.Queue.QueueId)
			return consumer.ConsumeSuccess
		})
		seen.await(t, 60*time.Second, all)
		bad.Range(func(k, v any) bool {
			t.Errorf("message %v was consumed with a body of %v bytes that nobody sent", k, v)
			return true
		})
	})
}

// TestAutoCreate: a topic begins with its first message.
func TestAutoCreate(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, n *harness.Node) {
		const topic = "made-by-its-first-message"
		p := newProducer(t, n.Namesrv)
		keys := numbered("auto", 20)
		for _, k := range keys {
			r, err := p.SendSync(t.Context(), newMessage(topic, k, "body"))
			require.NoError(t, err)
			require.Equal(t, primitive.SendOK, r.Status)
		}
		awaitRoute(t, n.Namesrv, topic)
		seen := newCollector()
		newPushConsumer(t, n.Namesrv, "auto-group", topic, "*", func(m *primitive.MessageExt) consumer.ConsumeResult {
			seen.add(m.GetKeys(), m.Queue.QueueId)
			return consumer.ConsumeSuccess
		})
		seen.await(t, 60*time.Second, keys)
	})
}
