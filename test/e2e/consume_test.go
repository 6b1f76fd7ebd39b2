package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/test/harness"
)

// sendAll sends a message for each key, from queue to queue.
func sendAll(t testing.TB, p rocketmq.Producer, topic string, keys []string) {
	t.Helper()
	for _, k := range keys {
		r, err := p.SendSync(t.Context(), newMessage(topic, k, "body"))
		require.NoError(t, err)
		require.Equal(t, primitive.SendOK, r.Status)
	}
}

// probe sends rounds of messages over all queues until each member consumed
// those of as many queues as it should have. It returns the keys of all rounds.
func probe(t *testing.T, p rocketmq.Producer, topic, name string, queues int, want []int, members ...*collector) (sent []string) {
	t.Helper()
	round := 0
	var got [][]int
	ok := harness.Poll(90*time.Second, func() bool {
		for _, m := range members {
			m.takeQueues()
		}
		round++
		keys := numbered(fmt.Sprintf("%s-probe-%d", name, round), 2*queues)
		sendAll(t, p, topic, keys)
		sent = append(sent, keys...)
		arrived := harness.Poll(5*time.Second, func() bool {
			have := map[string]bool{}
			for _, m := range members {
				counts, _ := m.of(keys)
				for k := range counts {
					have[k] = true
				}
			}
			return len(have) == len(keys)
		})
		got = nil
		taken := map[int]bool{}
		balanced := arrived
		for i, m := range members {
			q := m.takeQueues()
			got = append(got, q)
			balanced = balanced && len(q) == want[i]
			for _, id := range q {
				balanced = balanced && !taken[id]
				taken[id] = true
			}
		}
		return balanced && len(taken) == queues
	})
	if !ok {
		t.Fatalf("%s: after %d rounds the members consume from queues %v, wanted are %v of %d", name, round, got, want, queues)
	}
	t.Logf("%s: balanced after %d rounds: %v", name, round, got)
	return sent
}

// atLeastOnce requires that each key came to one of the members.
func atLeastOnce(t *testing.T, keys []string, members ...*collector) {
	t.Helper()
	var missing []string
	if !harness.Poll(60*time.Second, func() bool {
		missing = keys
		for _, m := range members {
			_, missing = m.of(missing)
		}
		return len(missing) == 0
	}) {
		t.Fatalf("%d of %d messages came to no member, e.g. %v", len(missing), len(keys), missing[:min(5, len(missing))])
	}
}

// exactlyOnce requires that each key came once to one of the members.
func exactlyOnce(t *testing.T, keys []string, members ...*collector) {
	t.Helper()
	total := map[string]int{}
	if !harness.Poll(60*time.Second, func() bool {
		clear(total)
		for _, m := range members {
			counts, _ := m.of(keys)
			for k, n := range counts {
				total[k] += n
			}
		}
		return len(total) == len(keys)
	}) {
		t.Fatalf("%d of %d messages came", len(total), len(keys))
	}
	for k, n := range total {
		require.Equal(t, 1, n, "deliveries of %s to a group that is balanced", k)
	}
}

// TestClustering: the members of a group share the queues, and share them anew
// when one joins, leaves and crashes.
func TestClustering(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, n *harness.Node) {
		const topic, group, queues = "cluster", "cluster-group", 6
		createTopic(t, n, topic, queues)
		p := newProducer(t, n.Namesrv)
		member := func() (*collector, rocketmq.PushConsumer) {
			seen := newCollector()
			return seen, newPushConsumer(t, n.Namesrv, group, topic, "*", func(m *primitive.MessageExt) consumer.ConsumeResult {
				seen.add(m.GetKeys(), m.Queue.QueueId)
				return consumer.ConsumeSuccess
			})
		}

		a, _ := member()
		sent := probe(t, p, topic, "one", queues, []int{6}, a)
		b, leaver := member()
		sent = append(sent, probe(t, p, topic, "joined", queues, []int{3, 3}, a, b)...)
		c := startMember(t, n.Namesrv, group, topic, "clustering")
		sent = append(sent, probe(t, p, topic, "joined-again", queues, []int{2, 2, 2}, a, b, c.seen)...)
		keys := numbered("three", 300)
		sendAll(t, p, topic, keys)
		exactlyOnce(t, keys, a, b, c.seen)

		c.kill()
		began := time.Now()
		sent = append(sent, probe(t, p, topic, "crashed", queues, []int{3, 3}, a, b)...)
		t.Logf("the queues of a crashed member were taken over within %v", time.Since(began).Round(time.Millisecond))
		require.NoError(t, leaver.Shutdown())
		sent = append(sent, probe(t, p, topic, "left", queues, []int{6}, a)...)
		keys = numbered("last", 100)
		sendAll(t, p, topic, keys)
		exactlyOnce(t, keys, a)
		// Also of what was sent while queues changed hands nothing is lost.
		atLeastOnce(t, sent, a, b, c.seen)
	})
}

// TestBroadcasting: every member gets every message.
func TestBroadcasting(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, n *harness.Node) {
		const topic, group = "broadcast", "broadcast-group"
		createTopic(t, n, topic, 4)
		p := newProducer(t, n.Namesrv)
		a := startMember(t, n.Namesrv, group, topic, "broadcasting")
		b := startMember(t, n.Namesrv, group, topic, "broadcasting")
		keys := numbered("all", 100)
		sendAll(t, p, topic, keys)
		exactlyOnce(t, keys, a.seen)
		exactlyOnce(t, keys, b.seen)
	})
}

// TestPull: the three ways of the client's pull consumer.
func TestPull(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, n *harness.Node) {
		const topic, queues = "pull", 2
		createTopic(t, n, topic, queues)
		p := newProducer(t, n.Namesrv)
		keys := numbered("pull", 100)
		sendAll(t, p, topic, keys)
		all := consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}
		newPull := func(group string) rocketmq.PullConsumer {
			c, err := rocketmq.NewPullConsumer(consumer.WithNameServer(primitive.NamesrvAddr{n.Namesrv}), consumer.WithInstance(instance()),
				consumer.WithGroupName(group), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
			require.NoError(t, err)
			require.NoError(t, c.Subscribe(topic, all))
			require.NoError(t, c.Start())
			t.Cleanup(func() { _ = c.Shutdown() })
			return c
		}

		t.Run("poll", func(t *testing.T) {
			c := newPull("pull-poll")
			seen := newCollector()
			harness.Until(t, 60*time.Second, "all messages polled", func() bool {
				r, err := c.Poll(t.Context(), time.Second)
				if err != nil {
					if !consumer.IsNoNewMsgError(err) {
						t.Error(err)
					}
					return false
				}
				for _, m := range r.GetMsgList() {
					seen.add(m.GetKeys(), m.Queue.QueueId)
				}
				c.ACK(context.Background(), r, consumer.ConsumeSuccess)
				return seen.size() == len(keys)
			})
			exactlyOnce(t, keys, seen)
		})

		t.Run("pull-from", func(t *testing.T) {
			c := newPull("pull-from")
			mqs, err := c.GetTopicRouteInfo(topic)
			require.NoError(t, err)
			require.Len(t, mqs, queues)
			seen := newCollector()
			for _, mq := range mqs {
				for offset := int64(0); ; {
					r, err := c.PullFrom(t.Context(), mq, offset, 7)
					require.NoError(t, err)
					if r.Status != primitive.PullFound {
						require.Equal(t, primitive.PullNoNewMsg, r.Status)
						break
					}
					for _, m := range r.GetMessageExts() {
						require.Equal(t, offset, m.QueueOffset)
						offset++
						seen.add(m.GetKeys(), m.Queue.QueueId)
					}
					require.Equal(t, offset, r.NextBeginOffset)
					if offset == r.MaxOffset { // asking on would wait for new ones
						break
					}
				}
			}
			exactlyOnce(t, keys, seen)
			for _, mq := range mqs {
				// The client forgets an offset when its first rebalance comes after.
				harness.Until(t, time.Minute, "offset 11 stored by the broker", func() bool {
					require.NoError(t, c.UpdateOffset(mq, 11))
					require.NoError(t, c.PersistOffset(t.Context(), topic))
					return committed(t, n, "pull-from", topic, mq.QueueId) == 11
				})
			}
		})
	})
}

// TestTags: subscriptions by tag, two tags with the same hash among them.
func TestTags(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, n *harness.Node) {
		const topic = "tags"
		createTopic(t, n, topic, 4)
		p := newProducer(t, n.Namesrv)
		byTag := map[string][]string{}
		subscriptions := map[string][]string{
			"TagA || TagB": {"TagA", "TagB"}, "Aa": {"Aa"}, "BB": {"BB"}, "*": {"TagA", "TagB", "TagC", "Aa", "BB", ""},
		}
		members := map[string]*collector{}
		i := 0
		for expression := range subscriptions {
			i++
			seen := newCollector()
			members[expression] = seen
			newPushConsumer(t, n.Namesrv, fmt.Sprintf("tags-group-%d", i), topic, expression, func(m *primitive.MessageExt) consumer.ConsumeResult {
				seen.add(m.GetKeys(), m.Queue.QueueId)
				return consumer.ConsumeSuccess
			})
		}
		for _, tag := range subscriptions["*"] {
			for i := range 40 {
				k := fmt.Sprintf("tag%s-%d", tag, i)
				byTag[tag] = append(byTag[tag], k)
				m := newMessage(topic, k, "body")
				if tag != "" {
					m.WithTag(tag)
				}
				_, err := p.SendSync(t.Context(), m)
				require.NoError(t, err)
			}
		}
		for expression, tags := range subscriptions {
			var keys []string
			for _, tag := range tags {
				keys = append(keys, byTag[tag]...)
			}
			exactlyOnce(t, keys, members[expression])
			require.Equal(t, len(keys), members[expression].size(), "subscription %q delivers nothing else", expression)
		}
	})
}

// TestRetry: a message that a consumer refuses once comes back from the retry
// topic of its group, under its own topic.
func TestRetry(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, n *harness.Node) {
		const topic = "retry"
		createTopic(t, n, topic, 2)
		p := newProducer(t, n.Namesrv)
		keys := numbered("again", 10)
		var refused atomic.Int64
		seen := newCollector()
		failed := make(chan error, len(keys)*4)
		newPushConsumer(t, n.Namesrv, "retry-group", topic, "*", func(m *primitive.MessageExt) consumer.ConsumeResult {
			if m.ReconsumeTimes == 0 {
				refused.Add(1)
				return consumer.ConsumeRetryLater
			}
			switch {
			case m.ReconsumeTimes != 1:
				failed <- fmt.Errorf("%s: reconsumeTimes %d", m.GetKeys(), m.ReconsumeTimes)
			case m.Topic != topic:
				failed <- fmt.Errorf("%s: topic %q", m.GetKeys(), m.Topic)
			case m.GetProperty(primitive.PropertyOriginMessageId) == "":
				failed <- fmt.Errorf("%s: no ORIGIN_MESSAGE_ID", m.GetKeys())
			case !strings.Contains(string(m.Body), "body"):
				failed <- errors.New("another body")
			}
			seen.add(m.GetKeys(), m.Queue.QueueId)
			return consumer.ConsumeSuccess
		})
		sendAll(t, p, topic, keys)
		// The client learns of the retry topic with its next poll of routes.
		seen.await(t, 120*time.Second, keys)
		require.GreaterOrEqual(t, refused.Load(), int64(len(keys)))
		for len(failed) > 0 { // not closed: the consumer may still be called
			t.Error(<-failed)
		}
	})
}
