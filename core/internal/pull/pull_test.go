package pull_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
)

func send(t *testing.T, c *enginetest.Client, topic string, queue int32, tag, body string) {
	t.Helper()
	m := enginetest.Message{Topic: topic, Queue: queue, Body: body}
	if tag != "" {
		m.Properties = enginetest.Props("TAGS", tag)
	}
	r := c.Send(m)
	require.Zero(t, r.Code, r.Remark)
}

func topic(t *testing.T, e *enginetest.Engine, name string, queues, perm int32) {
	t.Helper()
	require.NoError(t, e.K.Topics.Put(t.Context(), command.TopicConfig{TopicName: name, ReadQueueNums: queues, WriteQueueNums: queues, Perm: perm}))
}

func bodies(r *enginetest.Reply) []string {
	var out []string
	for _, v := range r.Records() {
		out = append(out, string(v.Body))
	}
	return out
}

// BC-10 and the table of results of request 11.
func TestStatuses(t *testing.T) {
	each(t, func(t *testing.T, o enginetest.Options) {
		o.Segment = 100 << 10
		o.Config = func(c *kernel.Config) { c.MaxMessageSize = 32 << 10 }
		e := enginetest.Start(t, o)
		topic(t, e, "T", 2, 6)
		for _, typ := range []command.HeaderType{command.JSON, command.RocketMQ} {
			c := e.Connect(t)
			c.Type = typ
			for _, code := range []int32{command.ReqPullMessage, command.ReqLitePullMessage} {
				p := enginetest.Pull("G", "T", 1, 0)
				r := c.Do(code, p.Append, nil)
				require.Equal(t, command.RespPullNotFound, r.Code)
				require.Equal(t, typ, r.Type)
			}
		}
		c := e.Connect(t)
		for i := range 1000 {
			send(t, c, "T", 0, "", fmt.Sprint(i))
		}
		for _, x := range []struct {
			queue      int32
			at         int64
			code       int32
			remark     string
			next, most int64
		}{
			{0, 0, 0, "FOUND", 32, 1000},
			{0, 990, 0, "FOUND", 1000, 1000},
			{0, 1000, command.RespPullNotFound, "OFFSET_OVERFLOW_ONE", 1000, 1000},
			{0, 1001, command.RespPullOffsetMoved, "OFFSET_OVERFLOW_BADLY", 1000, 1000},
			{0, 1100, command.RespPullOffsetMoved, "OFFSET_OVERFLOW_BADLY", 1000, 1000},
			{0, -1, command.RespPullOffsetMoved, "OFFSET_TOO_SMALL", 0, 1000},
			{1, 0, command.RespPullNotFound, "", 0, 0},
			{1, 5, command.RespPullOffsetMoved, "", 0, 0},
		} {
			r := c.Pull(enginetest.Pull("G", "T", x.queue, x.at))
			require.Equal(t, x.code, r.Code, "queue %d at %d: %s", x.queue, x.at, r.Remark)
			require.Equal(t, x.next, r.Int("nextBeginOffset"), "queue %d at %d", x.queue, x.at)
			require.Equal(t, int64(0), r.Int("minOffset"))
			require.Equal(t, x.most, r.Int("maxOffset"))
			require.Equal(t, "0", r.Ext["suggestWhichBrokerId"], "Java reads it unconditionally")
			if x.remark != "" {
				require.Equal(t, x.remark, r.Remark)
			}
			require.Equal(t, x.code == 0, len(r.Body) > 0)
		}
		// Expired from the front: too small.
		ret := e.Store.Capabilities().Retention
		require.NoError(t, ret.Expire(t.Context(), message.Position(o.Segment)))
		r := c.Pull(enginetest.Pull("G", "T", 0, 0))
		require.Equal(t, command.RespPullOffsetMoved, r.Code)
		require.Positive(t, r.Int("nextBeginOffset"))
		require.Equal(t, r.Int("minOffset"), r.Int("nextBeginOffset"))
	})
}

func TestRefusals(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	c := e.Connect(t)
	topic(t, e, "T", 2, 6)
	topic(t, e, "unreadable", 2, 2)
	group := func(name string, change func(*command.SubscriptionGroupConfig)) {
		g := command.DefaultSubscriptionGroup(name)
		change(&g)
		require.NoError(t, e.K.Groups.Put(t.Context(), g))
	}
	group("off", func(g *command.SubscriptionGroupConfig) { g.ConsumeEnable = false })
	group("nobroadcast", func(g *command.SubscriptionGroupConfig) { g.ConsumeBroadcastEnable = false })
	hb := enginetest.Heartbeat("c1", "registered", 10, "T")
	require.Zero(t, c.Do(command.ReqHeartBeat, nil, c.Body(hb)).Code)
	hb = enginetest.Heartbeat("c1", "nobroadcast", 10, "T")
	hb.ConsumerDataSet[0].MessageModel = command.Broadcasting
	require.Zero(t, c.Do(command.ReqHeartBeat, nil, c.Body(hb)).Code)
	for name, x := range map[string]struct {
		p         func(p *command.PullRequest)
		code      int32
		forbidden string
		text      string
	}{
		"group off":     {func(p *command.PullRequest) { p.ConsumerGroup = []byte("off") }, 16, "2", "subscription group no permission, off"},
		"bad group":     {func(p *command.PullRequest) { p.ConsumerGroup = []byte("a b") }, 29, "", "group"},
		"no topic":      {func(p *command.PullRequest) { p.Topic = []byte("none") }, 17, "", "topic[none] not exist"},
		"internal":      {func(p *command.PullRequest) { p.Topic = []byte(message.CatalogTopic) }, 17, "", "not exist"},
		"unreadable":    {func(p *command.PullRequest) { p.Topic = []byte("unreadable") }, 16, "3", "forbidden"},
		"queue":         {func(p *command.PullRequest) { p.QueueID = 2 }, 29, "", "queueId[2] is illegal"},
		"queue below":   {func(p *command.PullRequest) { p.QueueID = -1 }, 29, "", "queueId[-1] is illegal"},
		"expression":    {func(p *command.PullRequest) { p.Subscription = []byte("||") }, 23, "", "names no tag"},
		"SQL":           {func(p *command.PullRequest) { p.ExpressionType = []byte("SQL92") }, 1, "", "does not support consumer to filter message by SQL92"},
		"no live group": {func(p *command.PullRequest) { p.SysFlag = 0 }, 24, "", "group info not exist"},
		"not subscribed": {func(p *command.PullRequest) {
			p.SysFlag, p.ConsumerGroup, p.Topic = 0, []byte("registered"), []byte("BenchmarkTest")
		}, 24, "", "subscription not exist"},
		"not latest": {func(p *command.PullRequest) { p.SysFlag, p.ConsumerGroup, p.SubVersion = 0, []byte("registered"), 11 }, 25, "", "not latest"},
		"broadcast":  {func(p *command.PullRequest) { p.SysFlag, p.ConsumerGroup = 0, []byte("nobroadcast") }, 16, "4", "broadcast"},
		"latest":     {func(p *command.PullRequest) { p.SysFlag, p.ConsumerGroup, p.SubVersion = 0, []byte("registered"), 10 }, 19, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := enginetest.Pull("G", "T", 0, 0)
			x.p(&p)
			r := c.Pull(p)
			require.Equal(t, x.code, r.Code, r.Remark)
			require.Contains(t, r.Remark, x.text)
			require.Equal(t, x.forbidden, r.Ext["forbiddenType"])
		})
	}
	require.NotNil(t, e.K.Groups.Named("G"), "a group is created with its first pull")
	none := enginetest.Start(t, enginetest.Options{Config: func(c *kernel.Config) { c.AutoCreateGroup, c.Permission = false, 6 }})
	require.Equal(t, command.RespSubscriptionGroupNotExist, none.Connect(t).Pull(enginetest.Pull("G", "TBW102", 0, 0)).Code)
	closed := enginetest.Start(t, enginetest.Options{Config: func(c *kernel.Config) { c.Permission = 2 }})
	r := closed.Connect(t).Pull(enginetest.Pull("G", "TBW102", 0, 0))
	require.Equal(t, command.RespNoPermission, r.Code)
	require.Equal(t, "1", r.Ext["forbiddenType"])
}

func TestLimits(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{Segment: 4 << 20})
	c := e.Connect(t)
	topic(t, e, "T", 1, 6)
	for range 40 {
		send(t, c, "T", 0, "", strings.Repeat("x", 20<<10))
	}
	p := enginetest.Pull("G", "T", 0, 0)
	require.Len(t, c.Pull(p).Records(), 12, "256 KiB")
	p.MaxMsgNums = 3
	require.Len(t, c.Pull(p).Records(), 3)
	p.MaxMsgNums = 0
	require.Len(t, c.Pull(p).Records(), 1)
	send(t, c, "T", 0, "", strings.Repeat("x", 600<<10))
	p = enginetest.Pull("G", "T", 0, 40)
	require.Len(t, c.Pull(p).Records(), 1, "one at least")
}

// Hashes collide: "Aa" and "BB" have the same.
func TestTags(t *testing.T) {
	each(t, func(t *testing.T, o enginetest.Options) {
		e := enginetest.Start(t, o)
		c := e.Connect(t)
		for i, tag := range []string{"Aa", "BB", "C", "", "Aa", "BB", "Aa"} {
			send(t, c, "T", 0, tag, fmt.Sprint(i))
		}
		pull := func(expr string, at int64) *enginetest.Reply {
			p := enginetest.Pull("G", "T", 0, at)
			p.Subscription = []byte(expr)
			return c.Pull(p)
		}
		for expr, want := range map[string][]string{
			"Aa": {"0", "4", "6"}, "BB": {"1", "5"}, "C": {"2"}, "Aa || C": {"0", "2", "4", "6"}, "*": {"0", "1", "2", "3", "4", "5", "6"},
			"": {"0", "1", "2", "3", "4", "5", "6"},
		} {
			r := pull(expr, 0)
			require.Zero(t, r.Code, r.Remark)
			require.Equal(t, want, bodies(r), expr)
			require.Equal(t, int64(7), r.Int("nextBeginOffset"), expr)
		}
		r := pull("none", 0)
		require.Equal(t, command.RespPullRetryImmediately, r.Code)
		require.Equal(t, "NO_MATCHED_MESSAGE", r.Remark)
		require.Equal(t, int64(7), r.Int("nextBeginOffset"))
		r = pull("Aa", 5) // BB and Aa are left: the hash passes for both
		require.Equal(t, []string{"6"}, bodies(r))
		send(t, c, "T", 0, "BB", "7")
		r = pull("Aa", 7)
		require.Equal(t, command.RespPullRetryImmediately, r.Code, "only the hash matches")
		require.Equal(t, int64(8), r.Int("nextBeginOffset"))
		require.Empty(t, r.Body)
	})
}

func parked(p command.PullRequest, wait time.Duration) command.PullRequest {
	p.SysFlag |= command.PullSuspend
	p.SuspendTimeoutMillis = wait.Milliseconds()
	return p
}

func TestLongPolling(t *testing.T) {
	each(t, func(t *testing.T, o enginetest.Options) {
		synctest.Test(t, func(t *testing.T) {
			e := enginetest.Start(t, o)
			c := e.Connect(t)
			producer := e.Connect(t)
			topic(t, e, "T", 2, 6)
			step := func(name string, f func()) { t.Log(name); f() }
			park := func(queue int32, at int64, tag string, wait time.Duration) int32 {
				p := parked(enginetest.Pull("G", "T", queue, at), wait)
				p.Subscription = []byte(tag)
				n := c.Begin(command.ReqPullMessage, p.Append, nil)
				synctest.Wait()
				return n
			}
			step("woken", func() {
				n := park(0, 0, "*", 15*time.Second)
				require.False(t, c.Answered(n))
				send(t, producer, "T", 1, "", "elsewhere")
				synctest.Wait()
				require.False(t, c.Answered(n), "another queue wakes nobody")
				began := time.Now()
				send(t, producer, "T", 0, "", "0")
				r := c.Wait(n)
				require.Zero(t, r.Code, r.Remark)
				require.Equal(t, []string{"0"}, bodies(r))
				require.Zero(t, time.Since(began), "no sweep")
			})
			step("by tag only", func() {
				rare, all := park(0, 1, "rare", time.Minute), park(0, 1, "*", time.Minute)
				send(t, producer, "T", 0, "common", "1")
				synctest.Wait()
				require.True(t, c.Answered(all))
				require.False(t, c.Answered(rare))
				send(t, producer, "T", 0, "rare", "2")
				require.Equal(t, []string{"2"}, bodies(c.Wait(rare)))
				require.Equal(t, []string{"1"}, bodies(c.Wait(all)))
			})
			step("deadline", func() {
				began := time.Now()
				short, long := park(0, 3, "*", 2*time.Second), park(0, 3, "*", 20*time.Second)
				r := c.Wait(short)
				require.Equal(t, command.RespPullNotFound, r.Code)
				require.Equal(t, int64(3), r.Int("nextBeginOffset"))
				require.Equal(t, 2*time.Second, time.Since(began))
				require.Equal(t, command.RespPullNotFound, c.Wait(long).Code)
				require.Equal(t, 20*time.Second, time.Since(began))
				never := park(0, 3, "*", 0)
				require.Equal(t, command.RespPullNotFound, c.Wait(never).Code)
			})
			step("only when nothing is there", func() {
				for _, at := range []int64{0, 100, -1} {
					n := park(0, at, "*", time.Hour)
					require.True(t, c.Answered(n), at)
					c.Wait(n)
				}
			})
			step("disconnect", func() {
				gone := e.Connect(t)
				for i := range 100 {
					p := parked(enginetest.Pull("G", "T", 0, 3), time.Duration(i+1)*time.Second)
					gone.Begin(command.ReqPullMessage, p.Append, nil)
				}
				stays := park(0, 3, "*", time.Minute)
				gone.Close(io.EOF)
				send(t, producer, "T", 0, "", "3")
				require.Equal(t, []string{"3"}, bodies(c.Wait(stays)))
				synctest.Wait()
				require.Zero(t, gone.Peer.Sends())
			})
			step("many", func() {
				var ns []int32
				for range 300 {
					ns = append(ns, park(0, 4, "*", time.Minute))
				}
				send(t, producer, "T", 0, "", "4")
				for _, n := range ns {
					require.Equal(t, []string{"4"}, bodies(c.Wait(n)))
				}
			})
			step("the broker leaves", func() {
				began := time.Now()
				waiting := []int32{park(0, 5, "*", time.Minute), park(1, 1, "*", time.Hour)}
				e.K.Hooks.Leave()
				for i, n := range waiting {
					r := c.Wait(n)
					require.Equal(t, command.RespPullNotFound, r.Code)
					require.Equal(t, []int64{5, 1}[i], r.Int("nextBeginOffset"))
				}
				require.Equal(t, command.RespPullNotFound, c.Wait(park(0, 5, "*", time.Minute)).Code, "nobody waits any more")
				require.Zero(t, time.Since(began))
			})
		})
	})
}

func TestShortPolling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := enginetest.Start(t, enginetest.Options{Config: func(c *kernel.Config) { c.LongPolling = false }})
		c := e.Connect(t)
		topic(t, e, "T", 1, 6)
		began := time.Now()
		p := parked(enginetest.Pull("G", "T", 0, 0), time.Minute)
		require.Equal(t, command.RespPullNotFound, c.Pull(p).Code)
		require.Equal(t, time.Second, time.Since(began))
	})
}

// A message that arrives between "nothing is there" and "parked" is not missed:
// 1,000 rounds of a pull racing a send.
func TestNoLostWakeUp(t *testing.T) {
	each(t, func(t *testing.T, o enginetest.Options) {
		o.Segment = 8 << 20
		e := enginetest.Start(t, o)
		c, producer := e.Connect(t), e.Connect(t)
		topic(t, e, "T", 1, 6)
		began := time.Now()
		for i := range int64(1000) {
			var wg sync.WaitGroup
			wg.Go(func() {
				p := parked(enginetest.Pull("G", "T", 0, i), 5*time.Minute)
				p.Subscription = []byte("rare")
				r := c.Pull(p)
				if r.Code != 0 || len(r.Records()) != 1 || r.Records()[0].QueueOffset != i {
					t.Errorf("round %d: %d %s", i, r.Code, r.Remark)
				}
			})
			wg.Go(func() {
				m := enginetest.Message{Topic: "T", Body: "x", Properties: enginetest.Props("TAGS", "rare")}
				if r := producer.Send(m); r.Code != 0 {
					t.Error(r.Remark)
				}
			})
			wg.Wait()
		}
		require.Less(t, time.Since(began), 5*time.Minute, "nobody waited for a deadline")
	})
}

// A pull carries the progress of its group.
func TestCommit(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	c := e.Connect(t)
	send(t, c, "T", 0, "", "x")
	p := enginetest.Pull("G", "T", 0, 0)
	p.CommitOffset = 7
	c.Pull(p)
	q := message.Queue{Topic: "T"}
	_, ok := e.K.Offsets.Committed("G", q)
	require.False(t, ok, "only with the bit set")
	p.SysFlag |= command.PullCommitOffset
	c.Pull(p)
	n, ok := e.K.Offsets.Committed("G", q)
	require.True(t, ok)
	require.Equal(t, int64(7), n)
}

// A pull of what is not yet published does not show it; Publish wakes.
func TestUnpublished(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	c, producer := e.Connect(t), e.Connect(t)
	topic(t, e, "T", 1, 6)
	_, err := e.K.Groups.Ensure(t.Context(), "G")
	require.NoError(t, err)
	e.Script.Hold()
	m := enginetest.Message{Topic: "T"}
	sent := producer.Begin(command.ReqSendMessageV2, m.Header(false), []byte("x"))
	require.NoError(t, e.Script.WaitHeld(t.Context(), 1))
	require.Equal(t, command.RespPullNotFound, c.Pull(enginetest.Pull("G", "T", 0, 0)).Code)
	p := parked(enginetest.Pull("G", "T", 0, 0), time.Minute)
	n := c.Begin(command.ReqPullMessage, p.Append, nil)
	require.False(t, c.Answered(n))
	require.NoError(t, e.Script.Release(t.Context()))
	require.Equal(t, []string{"x"}, bodies(c.Wait(n)))
	require.Zero(t, producer.Wait(sent).Code)
}

var errClosed = errors.New("closed")

// A peer that is too slow for its answer loses it, and nothing else happens.
func TestSlowPeer(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	c := e.Connect(t)
	send(t, c, "T", 0, "", "x")
	slow := e.Connect(t)
	slow.Peer.Refuse(errClosed)
	p := enginetest.Pull("G", "T", 0, 0)
	slow.Begin(command.ReqPullMessage, p.Append, nil)
	require.Len(t, c.Pull(p).Records(), 1)
}
