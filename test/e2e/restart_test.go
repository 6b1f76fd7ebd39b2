package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/test/harness"
)

// senders send without end and remember what was acknowledged. A message that
// was not acknowledged is given up, the next one has another key.
type senders struct {
	wg    sync.WaitGroup
	stop  chan struct{}
	mu    sync.Mutex
	acked []string
	fails int
}

func startSenders(ps []rocketmq.Producer, topic string) *senders {
	s := &senders{stop: make(chan struct{})}
	for i, p := range ps {
		s.wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-s.stop:
					return
				default:
				}
				k := fmt.Sprintf("load-%d-%d", i, n)
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				r, err := p.SendSync(ctx, newMessage(topic, k, "body"))
				cancel()
				s.mu.Lock()
				if err == nil && r.Status == primitive.SendOK {
					s.acked = append(s.acked, k)
				} else {
					s.fails++
				}
				s.mu.Unlock()
			}
		})
	}
	return s
}

func (s *senders) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.acked)
}

// more waits until n more messages are acknowledged.
func (s *senders) more(t *testing.T, n int, after string) {
	t.Helper()
	want := s.count() + n
	harness.Until(t, 60*time.Second, fmt.Sprintf("%d more messages acknowledged after %s", n, after), func() bool { return s.count() >= want })
}

func (s *senders) end() []string {
	close(s.stop)
	s.wg.Wait()
	return s.acked
}

// TestRestart: producers and a group at work while the broker is stopped, killed
// and frozen and the name server is killed; every acknowledged message is stored
// once and consumed.
func TestRestart(t *testing.T) {
	t.Parallel()
	for _, s := range harness.Durable() {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			const topic, queues = "restart", 4
			ns := harness.New(t, harness.Options{Role: "namesrv", Race: true})
			broker := harness.New(t, harness.Options{Role: "broker", Store: s, Namesrv: ns.Addr, Race: true, Set: settings})
			createTopic(t, broker, topic, queues)
			var ps []rocketmq.Producer
			for range 2 {
				ps = append(ps, newProducer(t, ns.Addr, producer.WithSendMsgTimeout(3*time.Second)))
			}
			seen := newCollector()
			newPushConsumer(t, ns.Addr, "restart-group", topic, "*", func(m *primitive.MessageExt) consumer.ConsumeResult {
				seen.add(m.GetKeys(), m.Queue.QueueId)
				return consumer.ConsumeSuccess
			})
			load := startSenders(ps, topic)
			const some = 200
			load.more(t, some, "the start")

			broker.Stop()
			broker.Start()
			load.more(t, some, "a restart of the broker")

			broker.Kill()
			broker.Start()
			load.more(t, some, "kill -9 of the broker")

			broker.Pause()
			still, since := load.count(), time.Now()
			harness.Until(t, time.Minute, "no message acknowledged for a second by a frozen broker", func() bool {
				if n := load.count(); n != still {
					still, since = n, time.Now()
				}
				return time.Since(since) > time.Second
			})
			broker.Continue()
			load.more(t, some, "the broker was frozen")

			ns.Kill()
			load.more(t, some, "the name server was killed") // the route is known
			ns.Start()
			load.more(t, some, "a restart of the name server")
			// A name server remembers nothing: the broker registers again.
			createTopic(t, broker, "made-after-restart", 1)
			sendAll(t, newProducer(t, ns.Addr), "made-after-restart", numbered("late", 10))

			acked := load.end()
			require.NotEmpty(t, acked)
			got := stored(t, broker, topic, queues, nil)
			counts, missing := got.of(acked)
			require.Empty(t, missing, "acknowledged but not stored")
			doubled := 0
			for _, n := range counts {
				// The client itself sends again what got no answer in time.
				if n > 1 {
					doubled++
				}
			}
			// The client finds a broker that was away with its next heartbeat.
			seen.await(t, 90*time.Second, acked)
			t.Logf("%d acknowledged, stored and consumed; %d sends failed, %d were stored again by the client", len(acked), load.fails, doubled)
		})
	}
}
