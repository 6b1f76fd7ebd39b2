package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
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

// paced sends at a rate, whether or not what was sent before is answered.
type paced struct {
	wg    sync.WaitGroup
	stop  chan struct{}
	mu    sync.Mutex
	acked []string
	fails []error
	took  []time.Duration // from when a message was due
}

func startPaced(p rocketmq.Producer, topic string, perSecond int) *paced {
	l := &paced{stop: make(chan struct{})}
	l.wg.Go(func() {
		l.send(p, topic, "paced-first", time.Now()) // alone: first sends at once find the client's route half stored
		start := time.Now()
		timer := time.NewTimer(0)
		defer timer.Stop()
		for n := 0; ; n++ {
			due := start.Add(time.Duration(n) * time.Second / time.Duration(perSecond))
			timer.Reset(time.Until(due))
			select {
			case <-l.stop:
				return
			case <-timer.C:
			}
			l.wg.Go(func() { l.send(p, topic, fmt.Sprintf("paced-%d", n), due) })
		}
	})
	return l
}

func (l *paced) send(p rocketmq.Producer, topic, key string, due time.Time) {
	r, err := p.SendSync(context.Background(), newMessage(topic, key, "body"))
	if err == nil && r.Status != primitive.SendOK {
		err = fmt.Errorf("status %d", r.Status)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took = append(l.took, time.Since(due))
	if err != nil {
		l.fails = append(l.fails, err)
		return
	}
	l.acked = append(l.acked, key)
}

func (l *paced) more(t *testing.T, n int, after string) {
	t.Helper()
	count := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.acked)
	}
	want := count() + n
	harness.Until(t, 60*time.Second, fmt.Sprintf("%d more messages acknowledged after %s", n, after), func() bool { return count() >= want })
}

// end waits for the last answers; times are sorted then.
func (l *paced) end() {
	close(l.stop)
	l.wg.Wait()
	slices.Sort(l.took)
}

// TestUpgrades: while an official client sends 1,000 messages a second and a group
// consumes them, the processes of the transport and of an allocator are replaced,
// ten times in the long form. No send fails, each message is consumed, and the
// members that let the broker share a topic keep their queues.
func TestUpgrades(t *testing.T) {
	t.Parallel()
	const topic, queues, perSecond = "upgrades", 4, 1000
	bin := harness.Binary(t, false)
	n := harness.New(t, harness.Options{Set: append([]string{
		transportProcess, "plugins.allocate.sticky.path=" + bin, "plugins.allocate.sticky.args=plugin serve allocate sticky",
	}, settings...)})
	createTopic(t, n, topic, queues)
	seen := newCollector()
	newPushConsumer(t, n.Namesrv, "upgrades-group", topic, "*", func(m *primitive.MessageExt) consumer.ConsumeResult {
		seen.add(m.GetKeys(), m.Queue.QueueId)
		return consumer.ConsumeSuccess
	})
	share := &sharers{t, "upgrades-shared", "upgrades-sharers", []string{"m1", "m2"}}
	share.create(n, 8)
	conn := share.join(n, share.members...)
	share.choose(conn, "sticky")
	have, all := share.shares(conn)
	require.Len(t, all, 8)
	load := startPaced(newProducer(t, n.Namesrv, producer.WithSendMsgTimeout(3*time.Second)), topic, perSecond)
	load.more(t, perSecond, "the start")
	rounds := 3
	if harness.Long() {
		rounds = 10
	}
	for round := 1; round <= rounds; round++ {
		before := hosttest.Children(t, n.Pid())
		require.NoError(t, syscall.Kill(n.Pid(), syscall.SIGHUP))
		for _, which := range []string{"transport.remoting", "allocate.sticky"} {
			said := `"the program of a plugin is replaced","plugin":"` + which + `"`
			harness.Until(t, 30*time.Second, said, func() bool { return strings.Count(n.Log(), said) == round })
		}
		harness.Until(t, 30*time.Second, "the old process of the transport is gone", func() bool {
			return !slices.ContainsFunc(before, hosttest.Running)
		})
		load.more(t, perSecond, "an upgrade")
		now, _ := share.shares(conn) // over the connection from before the upgrade
		require.Equal(t, have, now)
	}
	load.end()
	require.Empty(t, load.fails, "%d of %d sends failed", len(load.fails), len(load.took))
	seen.await(t, 90*time.Second, load.acked)
	counts, _ := stored(t, n, topic, queues, nil).of(load.acked)
	again := 0
	for _, c := range counts {
		if c > 1 {
			again++
		}
	}
	last := len(load.took) - 1
	t.Logf("%d upgrades under %d msg/s: %d sends, none failed, all consumed, %d stored again by the client; median %v, 99 %% %v, worst %v; %d took longer than 1 s", rounds, perSecond,
		len(load.acked), again, load.took[last/2], load.took[last*99/100], load.took[last], slow(load.took))
}

// slow counts those that took longer than a second.
func slow(sorted []time.Duration) int {
	i, _ := slices.BinarySearch(sorted, time.Second)
	return len(sorted) - i
}
