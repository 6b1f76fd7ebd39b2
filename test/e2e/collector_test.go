package e2e

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/test/harness"
)

// collector counts messages by key.
type collector struct {
	mu     sync.Mutex
	count  map[string]int
	queues map[int]int // messages by queue since the last reset of it
}

func newCollector() *collector {
	return &collector{count: map[string]int{}, queues: map[int]int{}}
}

func (c *collector) add(key string, queue int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count[key]++
	c.queues[queue]++
}

func (c *collector) size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.count)
}

// of returns how often each of keys came, and how many of them did not.
func (c *collector) of(keys []string) (counts map[string]int, missing []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts = map[string]int{}
	for _, k := range keys {
		if n := c.count[k]; n > 0 {
			counts[k] = n
		} else {
			missing = append(missing, k)
		}
	}
	return counts, missing
}

// await waits until all keys came.
func (c *collector) await(t testing.TB, within time.Duration, keys []string) {
	t.Helper()
	var missing []string
	if !harness.Poll(within, func() bool {
		_, missing = c.of(keys)
		return len(missing) == 0
	}) {
		t.Fatalf("%d of %d messages did not come within %v, e.g. %v", len(missing), len(keys), within, missing[:min(5, len(missing))])
	}
}

// takeQueues returns the queues from which messages came since the last call.
func (c *collector) takeQueues() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := slices.Sorted(maps.Keys(c.queues))
	clear(c.queues)
	return q
}

// numbered makes n keys.
func numbered(prefix string, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("%s-%d", prefix, i)
	}
	return keys
}

// awaitRoute waits until the name server knows a topic.
func awaitRoute(t testing.TB, ns, topic string) {
	t.Helper()
	harness.Until(t, time.Minute, "route of "+topic, func() bool { return brokersOf(ns, topic) >= 0 })
}

// awaitBrokers waits until the route of a topic has so many brokers.
func awaitBrokers(t testing.TB, ns, topic string, brokers int) {
	t.Helper()
	harness.Until(t, 30*time.Second, fmt.Sprintf("%d brokers of %s", brokers, topic), func() bool { return brokersOf(ns, topic) == brokers })
}

// brokersOf counts the brokers of a topic that a name server knows; -1: it does not
// know the topic, or does not answer.
func brokersOf(ns, topic string) int {
	c, err := harness.Dial(ns)
	if err != nil {
		return -1
	}
	defer c.Close()
	h := command.RouteRequest{Topic: topic}
	a, err := c.Call(command.ReqGetRouteInfoByTopic, h.Append, nil)
	var route command.TopicRouteData
	if err != nil || a.Err() != nil || command.DecodeBody(a.Body, &route) != nil {
		return -1
	}
	return len(route.BrokerDatas)
}

// stored reads a whole topic with raw pulls and counts keys; each record is also
// given to each, if there is one.
func stored(t testing.TB, n *harness.Node, topic string, queues int, each func(v *message.View)) *collector {
	t.Helper()
	c, err := harness.Dial(n.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got := newCollector()
	for q := range int32(queues) {
		if _, err := c.ReadQueue(topic, q, 0, func(v *message.View) error {
			k, _ := message.Property(v.Properties, "KEYS")
			got.add(string(k), int(q))
			if each != nil {
				each(v)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return got
}

// committed asks the broker for the offset of a group.
func committed(t testing.TB, n *harness.Node, group, topic string, queue int) int64 {
	t.Helper()
	c, err := harness.Dial(n.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	q := command.QueryConsumerOffsetRequest{ConsumerGroup: []byte(group), Topic: []byte(topic), QueueID: int32(queue), SetZeroIfNotFound: true}
	a, err := c.Call(command.ReqQueryConsumerOffset, q.Append, nil)
	if err == nil {
		err = a.Err()
	}
	var r command.OffsetResponse
	if err == nil {
		err = r.Decode(&a.Header)
	}
	if err != nil {
		t.Fatalf("offset of %s in %s/%d: %v", group, topic, queue, err)
	}
	return r.Offset
}
