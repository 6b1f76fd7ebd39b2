package e2e

import (
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/test/harness"
)

// TestResetOfRunningConsumers: a group that consumed everything, and goes on running, is
// put back to a time, by our tool and by the request of mqadmin resetOffsetByTime. It
// gets the messages from that time on again, each once and no others, and goes on from
// there when it is started again.
func TestResetOfRunningConsumers(t *testing.T) {
	t.Parallel()
	if harness.Long() {
		eachStore(t, resetRunning)
		return
	}
	resetRunning(t, harness.New(t, harness.Options{Race: true, Set: settings}))
}

func resetRunning(t *testing.T, n *harness.Node) {
	for name, x := range map[string]struct {
		members int
		reset   func(g *resetGroup, to time.Time)
	}{
		"tool":    {1, (*resetGroup).tool},
		"mqadmin": {2, (*resetGroup).mqadmin},
		// Who is stopped reports once more what he had.
		"stopped": {1, func(g *resetGroup, to time.Time) {
			g.mqadmin(to)
			g.leave()
			g.join(1)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &resetGroup{t: t, n: n, topic: "reset-" + name, group: "group-" + name}
			g.run(x.members, func(to time.Time) { x.reset(g, to) })
		})
	}
}

func (g *resetGroup) tool(to time.Time) {
	g.t.Helper()
	out, err := exec.Command(harness.Binary(g.t, true), "group", "reset", g.group, g.topic, "--yes", "--namesrv", g.n.Namesrv,
		"--to", to.UTC().Format("2006-01-02T15:04:05.000Z")).CombinedOutput()
	require.NoError(g.t, err, "%s", out)
}

// mqadmin is what mqadmin resetOffsetByTime asks.
func (g *resetGroup) mqadmin(to time.Time) {
	g.t.Helper()
	c, err := harness.Dial(g.n.Addr)
	require.NoError(g.t, err)
	defer c.Close()
	h := command.ResetOffsetRequest{Group: g.group, Topic: g.topic, Timestamp: to.UnixMilli(), Force: true, QueueID: -1, Offset: -1}
	a, err := c.Call(command.ReqInvokeBrokerToResetOffset, h.Append, nil)
	require.NoError(g.t, err)
	require.NoError(g.t, a.Err())
}

// resetGroup is a group whose members run.
type resetGroup struct {
	t            *testing.T
	n            *harness.Node
	topic, group string
	members      []*resetMember
}

type resetMember struct {
	seen atomic.Pointer[collector] // since the last turn of the test
	c    rocketmq.PushConsumer
}

const resetQueues = 4

// join starts members.
func (g *resetGroup) join(members int) (seen []*collector) {
	g.t.Helper()
	g.members = nil
	for range members {
		m := &resetMember{}
		m.seen.Store(newCollector())
		m.c = newPushConsumer(g.t, g.n.Namesrv, g.group, g.topic, "*", func(x *primitive.MessageExt) consumer.ConsumeResult {
			m.seen.Load().add(x.GetKeys(), x.Queue.QueueId)
			return consumer.ConsumeSuccess
		})
		g.members, seen = append(g.members, m), append(seen, m.seen.Load())
	}
	return seen
}

// leave stops the members.
func (g *resetGroup) leave() {
	g.t.Helper()
	for _, m := range g.members {
		require.NoError(g.t, m.c.Shutdown())
	}
}

// balanced waits until the members share the queues and consumed everything. It gives
// the keys of what was sent for that.
func (g *resetGroup) balanced(p rocketmq.Producer, name string, seen []*collector) []string {
	g.t.Helper()
	var want []int
	for range seen {
		want = append(want, resetQueues/len(seen))
	}
	sent := probe(g.t, p, g.topic, name, resetQueues, want, seen...)
	g.settled()
	return sent
}

// ends are the offsets behind the queues.
func (g *resetGroup) ends() (at [resetQueues]int64) {
	g.t.Helper()
	c, err := harness.Dial(g.n.Addr)
	require.NoError(g.t, err)
	defer c.Close()
	for q := range at {
		_, at[q], err = c.Range(g.topic, int32(q))
		require.NoError(g.t, err)
	}
	return at
}

// progress is how far the group is, as the broker knows.
func (g *resetGroup) progress() (at [resetQueues]int64) {
	g.t.Helper()
	for q := range at {
		at[q] = committed(g.t, g.n, g.group, g.topic, q)
	}
	return at
}

// settled waits until everything is consumed and reported.
func (g *resetGroup) settled() {
	g.t.Helper()
	ends := g.ends()
	harness.Until(g.t, 90*time.Second, "progress of the group", func() bool { return g.progress() == ends })
}

// turn is the beginning of something: what members get counts from now on.
func (g *resetGroup) turn() {
	for _, m := range g.members {
		m.seen.Store(newCollector())
	}
}

// seen is what each member got since the last turn.
func (g *resetGroup) seen() (all []*collector) {
	for _, m := range g.members {
		all = append(all, m.seen.Load())
	}
	return all
}

// gets requires that the members get each of keys once, and nothing else.
func (g *resetGroup) gets(keys []string) {
	g.t.Helper()
	exactlyOnce(g.t, keys, g.seen()...)
	g.settled()
	exactlyOnce(g.t, keys, g.seen()...)
	total := 0
	for _, s := range g.seen() {
		total += s.size()
	}
	require.Equal(g.t, len(keys), total, "messages besides those wanted")
}

// send sends to some of the queues, from the first on.
func (g *resetGroup) send(name string, count int, queues ...int32) (keys []string) {
	g.t.Helper()
	c, err := harness.Dial(g.n.Addr)
	require.NoError(g.t, err)
	defer c.Close()
	keys = numbered(name, count)
	for i, k := range keys {
		_, err := c.Send(&harness.Send{Topic: g.topic, Queue: queues[i%len(queues)], Props: "KEYS\x01" + k + "\x02", Body: []byte("body")})
		require.NoError(g.t, err)
	}
	return keys
}

// newest is the store time of the newest message.
func (g *resetGroup) newest() (ms int64) {
	g.t.Helper()
	stored(g.t, g.n, g.topic, resetQueues, func(v *message.View) { ms = max(ms, v.StoreTime) })
	return ms
}

func (g *resetGroup) run(members int, reset func(to time.Time)) {
	t := g.t
	createTopic(t, g.n, g.topic, resetQueues)
	p := newProducer(t, g.n.Namesrv)
	early := g.balanced(p, "first", g.join(members))
	// What the group is put back to; one queue has nothing of that time.
	to := time.UnixMilli(g.newest() + 1)
	harness.Until(t, time.Minute, "the clock goes on", func() bool { return !time.Now().Before(to) })
	before := g.ends()
	g.turn()
	again := g.send("again", 60, 0, 1, 2)
	g.gets(again)

	g.turn()
	reset(to)
	// The members go on reporting what they had until they have noticed.
	harness.Until(t, 90*time.Second, "the first message comes again", func() bool {
		// Asked for in this order: what came then had not come before the progress was.
		at, came := g.progress(), 0
		for _, s := range g.seen() {
			came += s.size()
		}
		if came == 0 {
			require.Equal(t, before, at, "progress of the group between its reset and the first message")
		}
		return came > 0
	})
	g.gets(again)

	g.leave()
	last := g.send("last", 20, 0, 1, 2, 3)
	seen := g.join(members)
	g.balanced(p, "started-again", seen)
	atLeastOnce(t, last, seen...)
	for _, s := range seen {
		counts, _ := s.of(append(early, again...))
		require.Empty(t, counts, "messages of before that came to a member that was started again")
	}
}
