package e2e

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/test/harness"
)

// load sends at a steady rate, by turns synchronously and not, without a second
// attempt: each failure is one of the broker's. A message has the time at which it is due:
// what a slow moment held up is sent late, and none is left out.
type load struct {
	t         *testing.T
	ns, topic string
	rate      int // per second

	next  atomic.Int64
	began time.Time
	stop  chan struct{}
	wg    sync.WaitGroup // of workers

	mu    sync.RWMutex
	now   *age
	ended time.Time

	amu   sync.Mutex
	acked []string
	fails []string
}

// age is a producer and who uses it.
type age struct {
	p   rocketmq.Producer
	use sync.WaitGroup
}

// startLoad begins with rate messages per second.
func startLoad(t *testing.T, ns, topic string, rate int) *load {
	t.Helper()
	l := &load{t: t, ns: ns, topic: topic, rate: rate, stop: make(chan struct{})}
	l.now = l.age()
	l.began = time.Now()
	for range 32 {
		l.wg.Go(func() {
			for i := l.next.Add(1) - 1; l.await(l.due(i)); i = l.next.Add(1) - 1 {
				l.send(fmt.Sprintf("drain-%d", i), i%2 == 0)
			}
		})
	}
	t.Cleanup(func() { l.end() })
	return l
}

func (l *load) due(i int64) time.Time {
	return l.began.Add(time.Duration(i) * time.Second / time.Duration(l.rate))
}

// await waits for a time, or tells that the load ended before it.
func (l *load) await(due time.Time) bool {
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.stop:
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.ended.IsZero() || !due.After(l.ended)
}

// age makes a producer; its route is of now.
func (l *load) age() *age {
	p, err := rocketmq.NewProducer(producer.WithNameServer(primitive.NamesrvAddr{l.ns}), producer.WithInstanceName(instance()),
		producer.WithGroupName("drain-producer"), producer.WithSendMsgTimeout(10*time.Second), producer.WithRetry(0))
	if err == nil {
		err = p.Start()
	}
	if err != nil {
		l.t.Errorf("a producer did not start: %v", err)
	}
	return &age{p: p}
}

func (l *load) send(key string, wait bool) {
	l.mu.RLock()
	a := l.now
	a.use.Add(1)
	l.mu.RUnlock()
	done := func(r *primitive.SendResult, err error) {
		defer a.use.Done()
		l.amu.Lock()
		defer l.amu.Unlock()
		if err == nil && r.Status == primitive.SendOK {
			l.acked = append(l.acked, key)
		} else {
			l.fails = append(l.fails, fmt.Sprintf("%s at %s: %v %v", key, time.Now().Format(time.TimeOnly), r, err))
		}
	}
	m := newMessage(l.topic, key, "a body")
	if wait {
		done(a.p.SendSync(context.Background(), m))
		return
	}
	if err := a.p.SendAsync(context.Background(), func(_ context.Context, r *primitive.SendResult, err error) { done(r, err) }, m); err != nil {
		done(nil, err)
	}
}

// replace has another producer go on: the client's route poll of 30 s, at once.
func (l *load) replace() {
	next := l.age()
	l.mu.Lock()
	old := l.now
	l.now = next
	l.mu.Unlock()
	old.use.Wait()
	_ = old.p.Shutdown()
}

// more waits until n more messages are acknowledged.
func (l *load) more(n int) {
	l.t.Helper()
	count := func() int {
		l.amu.Lock()
		defer l.amu.Unlock()
		return len(l.acked)
	}
	want := count() + n
	harness.Until(l.t, 60*time.Second, "more messages acknowledged", func() bool { return count() >= want })
}

// end stops, when what is due until now is sent, and returns what was acknowledged, and
// the failures. Twice is legal.
func (l *load) end() (acked, fails []string) {
	select {
	case <-l.stop:
	default:
		l.mu.Lock()
		l.ended = time.Now()
		l.mu.Unlock()
		close(l.stop)
		l.wg.Wait()
		l.now.use.Wait()
		_ = l.now.p.Shutdown()
	}
	return l.acked, l.fails
}

// writers are the brokers to which a route sends messages.
func writers(t testing.TB, ns, topic string) map[string]bool {
	t.Helper()
	c, err := harness.Dial(ns)
	require.NoError(t, err)
	defer c.Close()
	h := command.RouteRequest{Topic: topic, AcceptStandardJSONOnly: true}
	a, err := c.Call(command.ReqGetRouteInfoByTopic, h.Append, nil)
	require.NoError(t, err)
	require.NoError(t, a.Err())
	var r command.TopicRouteData
	require.NoError(t, command.DecodeBody(a.Body, &r))
	out := map[string]bool{}
	for _, q := range r.QueueDatas {
		if q.Perm&2 != 0 {
			out[q.BrokerName] = true
		}
	}
	return out
}

// TestDrain restarts the two brokers of a cluster in turn while messages are sent: no
// send fails, not once, and every acknowledged message is there. In the short form a
// new producer stands for a client that asked for its routes again, and the drain
// ends, by a second SIGTERM, when that is done. The long one restarts ten times, with
// the times of production.
func TestDrain(t *testing.T) {
	t.Parallel()
	const topic, queues, each = "drain", 4, 300
	rounds, rate, set := 2, 200, append([]string{"drainTimeout=1h"}, settings...)
	if harness.Long() {
		rounds, rate, set = 10, 1000, append([]string{"drainTimeout=35s"}, settings...)
	}
	ns := harness.New(t, harness.Options{Role: "namesrv", Race: true})
	var brokers []*harness.Node
	for _, name := range []string{"broker-a", "broker-b"} {
		b := harness.New(t, harness.Options{Role: "broker", Broker: name, Namesrv: ns.Addr, Race: !harness.Long(), Set: set})
		createTopic(t, b, topic, queues)
		harness.Until(t, time.Minute, "route with "+name, func() bool { return writers(t, ns.Addr, topic)[name] })
		brokers = append(brokers, b)
	}
	seen := newCollector()
	if harness.Long() {
		newPushConsumer(t, ns.Addr, "drain-group", topic, "*", func(m *primitive.MessageExt) consumer.ConsumeResult {
			seen.add(m.GetKeys(), m.Queue.QueueId)
			return consumer.ConsumeSuccess
		})
	}
	l := startLoad(t, ns.Addr, topic, rate)
	for i := range rounds {
		l.more(each)
		b, name, other := brokers[i%2], [...]string{"broker-a", "broker-b"}[i%2], [...]string{"broker-b", "broker-a"}[i%2]
		if !harness.Long() {
			require.NoError(t, syscall.Kill(b.Pid(), syscall.SIGTERM))
			harness.Until(t, time.Minute, "route without "+name, func() bool { return !writers(t, ns.Addr, topic)[name] })
			require.True(t, writers(t, ns.Addr, topic)[other])
			l.replace()
			l.more(each) // by the other one
			require.False(t, b.Ready(), "a broker that drains is not ready")
		}
		b.Stop()
		if harness.Long() {
			require.Contains(t, b.LastLog(), `"messages_per_second_at_the_end":0`)
		}
		b.Start()
		harness.Until(t, time.Minute, "route with "+name, func() bool { return writers(t, ns.Addr, topic)[name] })
		if !harness.Long() {
			l.replace() // it sends to both again
		}
	}
	l.more(each)
	acked, fails := l.end()
	took := time.Since(l.began)
	require.Empty(t, fails, "%d of %d sends failed", len(fails), len(fails)+len(acked))
	sent, due := len(acked), int(l.ended.Sub(l.began)*time.Duration(rate)/time.Second)+1 // the first one at once
	require.Equal(t, due, sent, "all that was due was sent")
	perSecond := float64(sent) / took.Seconds()
	if harness.Long() {
		require.GreaterOrEqual(t, perSecond, 0.99*float64(rate), "sent late: the brokers, or this machine, were too slow")
	}
	got := newCollector()
	for _, b := range brokers {
		for k, n := range stored(t, b, topic, queues, nil).count {
			for range n {
				got.add(k, 0)
			}
		}
	}
	counts, missing := got.of(acked)
	require.Empty(t, missing, "acknowledged but not stored")
	for k, n := range counts {
		require.Equal(t, 1, n, k)
	}
	if harness.Long() {
		seen.await(t, 90*time.Second, acked) // the client finds a broker that was away with its next heartbeat
	}
	fmt.Fprintf(os.Stderr, "%d restarts in %v: %d messages acknowledged (%.0f/s) and stored once, %d sends failed\n",
		rounds, took.Round(time.Second), sent, perSecond, len(fails))
}
