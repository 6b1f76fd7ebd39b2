package enginematrix_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
)

// cases are what every store shows under every replicator, but for those that
// need a script or a disk.
var cases = []struct {
	name                string
	scripted, powerLoss bool
	async               bool // what is lost when acknowledged messages may be
	run                 func(t *testing.T, w *world)
}{
	{"send", false, false, false, testSend},
	{"pull", false, false, false, testPull},
	{"long_poll", false, false, false, testLongPoll},
	{"send_back", false, false, false, testSendBack},
	{"query_by_key", false, false, false, testQuery},
	{"key_queries", false, false, false, testKeyQueries},
	{"bounds_after_expiry", false, false, false, testBounds},
	{"reset_by_time", false, false, false, testResetByTime},
	{"progress_of_deleted", false, false, false, testDeleted},
	{"locks", false, false, false, testLocks},
	{"offset_commit", false, false, false, testOffsets},
	{"catalog_after_kill", false, false, false, testCatalog},
	{"messages_after_kill", false, false, false, testKill},
	{"clean_restart", false, false, false, testRestart},
	{"power_loss", false, true, false, testPowerLoss},
	{"power_loss_async", false, true, true, testPowerLossAsync},
	{"late_publish", true, false, false, testLatePublish},
	{"office_lost", true, false, false, testOfficeLost},
	{"offices_under_load", true, false, false, testOfficesUnderLoad},
	{"outcomes", true, false, false, testOutcomes},
	{"cut_below_published", true, false, false, testCut},
	{"unpublished_after_kill", true, false, false, testUnpublished},
}

// Producers of both encodings, beside each other: every queue is dense, every
// message lies where its answer says.
func testSend(t *testing.T, w *world) {
	w.topic("T", 4)
	var wg sync.WaitGroup
	var mu sync.Mutex
	at := map[string]int64{} // by body, from the answers
	for n := range 4 {
		c := w.e.Connect(t)
		if n%2 == 1 {
			c.Type = command.RocketMQ
		}
		wg.Go(func() {
			for i := range 20 {
				m := enginetest.Message{Topic: "T", Queue: int32(i % 4), Body: fmt.Sprint(n, "-", i, strings.Repeat(".", i*100))}
				r := c.Send(m)
				if !assert.Zero(t, r.Code, r.Remark) {
					return
				}
				mu.Lock()
				at[m.Body] = r.Int("queueOffset")
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.Len(t, at, 80)
	for q := range int32(4) {
		got := w.read("T", q)
		require.Len(t, got, 20)
		for i, body := range got {
			require.Equal(t, int64(i), at[body], body)
		}
	}
	pos := w.send(enginetest.Message{Topic: "T", Body: "by position"})
	r := w.c.Do(command.ReqViewMessageByID, (&command.ViewMessageRequest{Offset: int64(pos)}).Append, nil)
	require.Zero(t, r.Code, r.Remark)
	require.Equal(t, "by position", string(r.Records()[0].Body))
}

// Pulls over several segments, by tag, and outside the queue.
func testPull(t *testing.T, w *world) {
	w.topic("T", 2)
	var all, tagged []string
	for i := range 100 {
		m := enginetest.Message{Topic: "T", Body: fmt.Sprint(i, strings.Repeat("x", 3000)), Properties: enginetest.Props("TAGS", fmt.Sprint("tag", i%10))}
		w.send(m)
		if all = append(all, m.Body); i%10 == 3 {
			tagged = append(tagged, m.Body)
		}
	}
	require.Greater(t, w.e.Store.State().Tail, message.Position(4*segment))
	require.Equal(t, all, w.read("T", 0))
	require.Empty(t, w.read("T", 1))

	var got []string
	for next := int64(0); next < 100; {
		p := enginetest.Pull("reader", "T", 0, next)
		p.Subscription = []byte("tag3 || none")
		r := w.c.Pull(p)
		if r.Code == command.RespSuccess {
			for _, v := range r.Records() {
				got = append(got, string(v.Body))
			}
		} else {
			require.Equal(t, command.RespPullRetryImmediately, r.Code, r.Remark)
		}
		require.Greater(t, r.Int("nextBeginOffset"), next)
		next = r.Int("nextBeginOffset")
	}
	require.Equal(t, tagged, got)
	r := w.c.Pull(enginetest.Pull("reader", "T", 0, 5000))
	require.Equal(t, command.RespPullOffsetMoved, r.Code, r.Remark)
	require.Equal(t, int64(100), r.Int("nextBeginOffset"))
}

func park(w *world, topic string, at int64, tag string, wait time.Duration) int32 {
	p := enginetest.Pull("reader", topic, 0, at)
	p.SysFlag |= command.PullSuspend
	p.SuspendTimeoutMillis, p.Subscription = wait.Milliseconds(), []byte(tag)
	return w.c.Begin(command.ReqPullMessage, p.Append, nil)
}

func testLongPoll(t *testing.T, w *world) {
	w.topic("T", 1)
	producer := w.e.Connect(t)
	send := func(tag, body string) {
		r := producer.Send(enginetest.Message{Topic: "T", Body: body, Properties: enginetest.Props("TAGS", tag)})
		require.Zero(t, r.Code, r.Remark)
	}
	// A pull of a store in another process is parked a while after Begin: it may see
	// what was sent meanwhile, and is told to go on behind it.
	rareAfter := func(call int32) *enginetest.Reply {
		for {
			r := w.c.Wait(call)
			if r.Code != command.RespPullRetryImmediately {
				return r
			}
			call = park(w, "T", r.Int("nextBeginOffset"), "rare", time.Minute)
		}
	}
	for i := range int64(10) { // a wake-up that is lost shows sooner or later
		all, rare := park(w, "T", 2*i, "*", time.Minute), park(w, "T", 2*i, "rare", time.Minute)
		require.False(t, w.c.Answered(all))
		send("common", "1")
		r := w.c.Wait(all)
		require.Zero(t, r.Code, r.Remark)
		require.Equal(t, "1", string(r.Records()[0].Body))
		send("rare", "2")
		r = rareAfter(rare)
		require.Zero(t, r.Code, r.Remark)
		require.Equal(t, "2", string(r.Records()[0].Body))
	}
	require.Equal(t, command.RespPullNotFound, w.c.Wait(park(w, "T", 20, "*", time.Millisecond)).Code)
}

func testSendBack(t *testing.T, w *world) {
	w.topic("T", 1)
	w.group("G")
	at := w.send(enginetest.Message{Topic: "T", Body: "body", Properties: enginetest.Props("UNIQ_KEY", "U1", "TAGS", "A")})
	back := func(at message.Position, level int32) {
		r := w.c.Do(command.ReqConsumerSendMsgBack, (&command.SendBackRequest{
			Group: []byte("G"), Offset: int64(at), DelayLevel: level, OriginTopic: []byte("T"), MaxReconsumeTimes: 2,
		}).Append, nil)
		require.Zero(t, r.Code, r.Remark)
	}
	last := func(topic string, offset int64) message.View {
		r := w.c.Pull(enginetest.Pull("reader", topic, 0, offset))
		require.Zero(t, r.Code, r.Remark)
		return r.Records()[0]
	}
	for i := range int64(2) {
		back(at, 0)
		v := last("%RETRY%G", i)
		require.Equal(t, "body", string(v.Body))
		require.Equal(t, int32(i+1), v.ReconsumeTimes)
		at = v.Position
	}
	w.kill(memfs.KeepAll)
	require.Len(t, w.read("%RETRY%G", 0), 2)
	back(at, 0)
	v := last("%DLQ%G", 0)
	require.Equal(t, "body", string(v.Body))
	require.Equal(t, int32(3), v.ReconsumeTimes)
	origin, _ := message.Property(v.Properties, "RETRY_TOPIC")
	require.Equal(t, "T", string(origin))
}

func testQuery(t *testing.T, w *world) {
	w.topic("T", 1)
	w.topic("other", 1)
	for i := range 30 {
		w.send(enginetest.Message{Topic: "T", Body: fmt.Sprintf("%02d%s", i, strings.Repeat("x", 3000)),
			Properties: enginetest.Props("KEYS", fmt.Sprintf("each%d all", i), "UNIQ_KEY", fmt.Sprint("U", i))})
	}
	w.send(enginetest.Message{Topic: "other", Body: "elsewhere", Properties: enginetest.Props("KEYS", "all each7")})
	check := func() {
		t.Helper()
		require.Len(t, w.find("T", "all", false), 30)
		for _, found := range [][]string{w.find("T", "each7", false), w.find("T", "U7", true)} {
			require.Len(t, found, 1)
			require.Equal(t, "07", found[0][:2])
		}
		require.Equal(t, []string{"elsewhere"}, w.find("other", "each7", false))
		require.Empty(t, w.find("T", "each", false))
	}
	check()
	w.kill(memfs.KeepAll)
	check()
}

func testLocks(t *testing.T, w *world) {
	w.topic("T", 4)
	w.group("G")
	lock := func(id string, queues ...int32) []int32 {
		t.Helper()
		body := command.LockBatchBody{ClientID: id, ConsumerGroup: "G"}
		for _, q := range queues {
			body.MQSet = append(body.MQSet, command.MessageQueue{Topic: "T", BrokerName: "broker-a", QueueID: q})
		}
		r := w.c.Do(command.ReqLockBatchMQ, nil, w.c.Body(body))
		require.Zero(t, r.Code, r.Remark)
		var got command.LockBatchResponse
		require.NoError(t, command.DecodeBody(r.Body, &got))
		var ids []int32
		for _, q := range got.LockOKMQSet {
			ids = append(ids, q.QueueID)
		}
		slices.Sort(ids)
		return ids
	}
	require.Equal(t, []int32{0, 1}, lock("a", 0, 1))
	require.Equal(t, []int32{2}, lock("b", 0, 1, 2))
	w.kill(memfs.KeepAll)
	require.Equal(t, []int32{3}, lock("c", 0, 1, 2, 3), "locks survive the broker")
	require.Equal(t, []int32{0, 1}, lock("a", 0, 1), "so does their owner")
}

func (w *world) progress(group, topic string, queue int32) int64 {
	w.t.Helper()
	r := w.c.Do(command.ReqQueryConsumerOffset, (&command.QueryConsumerOffsetRequest{
		ConsumerGroup: []byte(group), Topic: []byte(topic), QueueID: queue,
	}).Append, nil)
	require.Zero(w.t, r.Code, r.Remark)
	return r.Int("offset")
}

func (w *world) commit(group, topic string, queue int32, offset int64) {
	w.t.Helper()
	r := w.c.Do(command.ReqUpdateConsumerOffset, (&command.UpdateConsumerOffsetRequest{
		ConsumerGroup: []byte(group), Topic: []byte(topic), QueueID: queue, CommitOffset: offset,
	}).Append, nil)
	require.Zero(w.t, r.Code, r.Remark)
}

func testOffsets(t *testing.T, w *world) {
	w.topic("T", 2)
	w.group("G")
	w.send(enginetest.Message{Topic: "T", Body: "x"})
	w.logged(func() { w.commit("G", "T", 0, 42) })
	w.logged(func() { w.commit("G", "T", 1, 7) })
	w.kill(memfs.KeepAll)
	require.Equal(t, int64(42), w.progress("G", "T", 0))
	require.Equal(t, int64(7), w.progress("G", "T", 1))
	w.commit("G", "T", 0, 43)
	require.Equal(t, int64(43), w.progress("G", "T", 0))
	w.restart()
	require.Equal(t, int64(43), w.progress("G", "T", 0), "a clean stop loses nothing")
}

// catalog is what clients create, comparable.
func catalog(e *enginetest.Engine) map[string]any {
	out := map[string]any{}
	topics, _ := e.K.Topics.All()
	for _, x := range topics {
		out["topic "+x.Config.TopicName] = x.Config
	}
	groups, _ := e.K.Groups.All()
	for _, x := range groups {
		out["group "+x.GroupName] = *x
	}
	return out
}

// Topics and groups are in the log alone, over several segments and deaths.
func testCatalog(t *testing.T, w *world) {
	for round := range 3 {
		for i := range 8 {
			w.topic(fmt.Sprintf("T%d%d", round, i), int32(i+1))
			w.group(fmt.Sprintf("G%d%d", round, i))
		}
		require.NoError(t, w.e.K.Topics.Remove(t.Context(), fmt.Sprintf("T%d5", round)))
		w.topic(fmt.Sprintf("T%d6", round), 16)
		for range 25 {
			w.send(enginetest.Message{Topic: "T00", Body: strings.Repeat("x", 3000)})
		}
		want := catalog(w.e)
		require.NotContains(t, want, fmt.Sprintf("topic T%d5", round))
		// The files are as the last clean stop left them: there was none.
		w.dead.Store(true)
		w.medium.crash(t, memfs.KeepAll)
		disk := w.e.Kill(memfs.KeepAll)
		disk.FS = memfs.New(1)
		w.use(w.e.Again(disk))
		require.Equal(t, want, catalog(w.e))
	}
	require.Greater(t, w.e.Store.State().Tail, message.Position(2*segment))
	require.Len(t, w.read("T00", 0), 75)
}

// Kill under four producers: what was acknowledged is there, once and at its
// offset, what was not may be; offsets are dense.
func testKill(t *testing.T, w *world) {
	w.topic("T", 2)
	acked := [2]map[int64]string{{}, {}}
	var mu sync.Mutex
	for round := range 4 {
		var wg sync.WaitGroup
		enough := make(chan struct{})
		goal := len(acked[0]) + len(acked[1]) + 60
		dead := w.dead
		for n := range 4 {
			c := w.e.Connect(t)
			wg.Go(func() {
				for i := 0; ; i++ {
					q, body := i%2, fmt.Sprint(round, "-", n, "-", i, strings.Repeat(".", i%50*40))
					m := enginetest.Message{Topic: "T", Queue: int32(q)}
					f, _ := c.Request(command.ReqSendMessageV2, 0, m.Header(false), []byte(body))
					if c.FeedFrames(f) != nil {
						return
					}
					got, err := c.Peer.Wait(t.Context(), 1)
					if err != nil {
						return
					}
					r, err := enginetest.Decode(&got[0])
					if !assert.NoError(t, err) || dead.Load() || r.Code != 0 {
						return // an answer after the crash is none
					}
					mu.Lock()
					assert.NotContains(t, acked[q], r.Int("queueOffset"), "two messages at one offset")
					acked[q][r.Int("queueOffset")] = body
					if len(acked[0])+len(acked[1]) == goal {
						close(enough)
					}
					mu.Unlock()
				}
			})
		}
		select {
		case <-enough:
		case <-time.After(enginetest.Patience):
			t.Error("the producers do not get on")
		}
		w.kill(memfs.KeepAll)
		wg.Wait()
		for q := range acked {
			got := w.read("T", int32(q))
			for offset, body := range acked[q] {
				require.Less(t, offset, int64(len(got)), "acknowledged and lost: %s", body)
				require.Equal(t, body, got[offset])
			}
			slices.Sort(got)
			require.Len(t, slices.Compact(slices.Clone(got)), len(got), "nothing twice")
		}
	}
}

func testRestart(t *testing.T, w *world) {
	w.topic("T", 1)
	var want []string
	for round := range 3 {
		for i := range 30 {
			m := enginetest.Message{Topic: "T", Body: fmt.Sprint(round, "-", i, strings.Repeat(".", 100*i)), Properties: enginetest.Props("KEYS", "k")}
			w.send(m)
			want = append(want, m.Body)
		}
		before := catalog(w.e)
		w.restart()
		require.Equal(t, want, w.read("T", 0))
		require.Equal(t, before, catalog(w.e))
		require.Len(t, w.find("T", "k", false), min(len(want), 64))
	}
}

func testLatePublish(t *testing.T, w *world) {
	w.topic("T", 1)
	producer := w.e.Connect(t)
	parked := park(w, "T", 0, "*", time.Minute)
	w.e.Script.Hold()
	m := enginetest.Message{Topic: "T", Properties: enginetest.Props("KEYS", "k")}
	sent := producer.Begin(command.ReqSendMessageV2, m.Header(false), []byte("x"))
	require.NoError(t, w.e.Script.WaitHeld(t.Context(), 1))
	require.Empty(t, w.read("T", 0))
	require.Empty(t, w.find("T", "k", false))
	require.False(t, w.c.Answered(parked))
	require.False(t, producer.Answered(sent))
	require.NoError(t, w.e.Script.Release(t.Context()))
	require.Zero(t, producer.Wait(sent).Code)
	require.Equal(t, "x", string(w.c.Wait(parked).Records()[0].Body))
	require.Equal(t, []string{"x"}, w.find("T", "k", false))
}

func testOfficeLost(t *testing.T, w *world) {
	w.topic("T", 1)
	w.send(enginetest.Message{Topic: "T", Body: "first"})
	s, ctx, producer := w.e.Script, t.Context(), w.e.Connect(t)
	lose := func(body string, keep bool) {
		t.Helper()
		s.Hold()
		m := enginetest.Message{Topic: "T"}
		sent := producer.Begin(command.ReqSendMessageV2, m.Header(false), []byte(body))
		require.NoError(t, s.WaitHeld(ctx, 1))
		require.NoError(t, s.Lose(ctx, "192.0.2.1:10911", false))
		require.Equal(t, command.RespServiceNotAvailable, producer.Wait(sent).Code, "its fate is unknown")
		require.Equal(t, command.RespServiceNotAvailable, producer.Send(enginetest.Message{Topic: "T", Body: "refused"}).Code)
		require.NoError(t, s.Win(ctx, keep))
		require.NoError(t, s.Release(ctx))
	}
	lose("cut", false)
	require.Equal(t, []string{"first"}, w.read("T", 0))
	lose("kept", true)
	require.Equal(t, []string{"first", "kept"}, w.read("T", 0))
	w.send(enginetest.Message{Topic: "T", Body: "last"})
	w.kill(memfs.KeepAll)
	require.Equal(t, []string{"first", "kept", "last"}, w.read("T", 0))
}

// Offices come and go while producers send: a replicator opens the Sequencer for
// its office whenever the office begins, whoever has the engine's turn then.
func testOfficesUnderLoad(t *testing.T, w *world) {
	w.topic("T", 1)
	s, ctx := w.e.Script, t.Context()
	var wg sync.WaitGroup
	var mu sync.Mutex
	acked := map[int64]string{}
	stop := make(chan struct{})
	for n := range 3 {
		c := w.e.Connect(t)
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				m := enginetest.Message{Topic: "T", Body: fmt.Sprint(n, "-", i, strings.Repeat(".", 2000))}
				if r := c.Send(m); r.Code == command.RespSuccess {
					mu.Lock()
					acked[r.Int("queueOffset")] = m.Body
					mu.Unlock()
				}
			}
		})
	}
	for range 20 {
		require.NoError(t, s.Lose(ctx, "192.0.2.1:10911", false))
		require.NoError(t, s.Win(ctx, true))
		w.send(enginetest.Message{Topic: "T", Body: "between"})
	}
	close(stop)
	wg.Wait()
	got := w.read("T", 0)
	for offset, body := range acked {
		require.Less(t, offset, int64(len(got)), "acknowledged and lost: %s", body)
		require.Equal(t, body, got[offset])
	}
}

// Stored, NotStored, Unknown and a cut of what was never published, among each
// other.
func testOutcomes(t *testing.T, w *world) {
	w.topic("T", 1)
	s, ctx := w.e.Script, t.Context()
	s.Refuse(1, replication.ErrBusy)
	require.Equal(t, command.RespServiceNotAvailable, w.c.Send(enginetest.Message{Topic: "T", Body: "refused"}).Code)
	s.Hold()
	var ids []int32
	for i, body := range []string{"stored", "dropped", "unknown", "cut"} {
		if body == "dropped" {
			s.Drop(1)
		}
		m := enginetest.Message{Topic: "T"}
		ids = append(ids, w.c.Begin(command.ReqSendMessageV2, m.Header(false), []byte(body)))
		require.NoError(t, s.WaitHeld(ctx, i+1))
	}
	require.NoError(t, s.Publish(ctx, 1))
	require.Zero(t, w.c.Wait(ids[0]).Code)
	s.Answer(2, replication.Unknown)
	require.Equal(t, command.RespServiceNotAvailable, w.c.Wait(ids[1]).Code)
	require.Equal(t, command.RespServiceNotAvailable, w.c.Wait(ids[2]).Code)
	require.NoError(t, s.Truncate(ctx, replication.NotStored))
	require.Equal(t, command.RespServiceNotAvailable, w.c.Wait(ids[3]).Code)
	require.NoError(t, s.Release(ctx))
	w.send(enginetest.Message{Topic: "T", Body: "after"})
	require.Equal(t, []string{"stored", "after"}, w.read("T", 0))
	s.FailBarrier(replication.ErrNotLeader)
	body := command.LockBatchBody{ClientID: "a", ConsumerGroup: "G", MQSet: []command.MessageQueue{{Topic: "T", BrokerName: "broker-a"}}}
	require.Equal(t, command.RespServiceNotAvailable, w.c.Do(command.ReqLockBatchMQ, nil, w.c.Body(body)).Code)
	s.FailBarrier(nil)
}

// A foreign leader's log wins: what was published here is taken back, tables,
// queues and keys.
func testCut(t *testing.T, w *world) {
	w.topic("T", 1)
	w.send(enginetest.Message{Topic: "T", Body: "stays", Properties: enginetest.Props("KEYS", "k")})
	before, cut := catalog(w.e), w.e.Store.State().Tail
	w.send(enginetest.Message{Topic: "T", Body: "goes", Properties: enginetest.Props("KEYS", "k")})
	w.topic("gone", 1)
	w.send(enginetest.Message{Topic: "gone", Body: "goes"})
	s, ctx := w.e.Script, t.Context()
	require.NoError(t, s.Lose(ctx, "192.0.2.1:10911", true))
	require.NoError(t, s.Cut(ctx, cut))
	require.NoError(t, s.Win(ctx, false))
	require.Equal(t, before, catalog(w.e))
	require.Equal(t, []string{"stays"}, w.read("T", 0))
	require.Equal(t, []string{"stays"}, w.find("T", "k", false))
	w.send(enginetest.Message{Topic: "T", Body: "instead"})
	w.kill(memfs.KeepAll)
	require.Equal(t, []string{"stays", "instead"}, w.read("T", 0))
	require.Nil(t, w.e.K.Topics.Named("gone"))
}

// What nobody was told to be stored is cut by the replicator when it starts.
func testUnpublished(t *testing.T, w *world) {
	w.topic("T", 1)
	w.send(enginetest.Message{Topic: "T", Body: "published", Properties: enginetest.Props("KEYS", "k")})
	w.e.Script.Hold()
	for i := range 3 {
		m := enginetest.Message{Topic: "T", Properties: enginetest.Props("KEYS", "k")}
		w.c.Begin(command.ReqSendMessageV2, m.Header(false), []byte(strings.Repeat("x", 20_000)))
		require.NoError(t, w.e.Script.WaitHeld(t.Context(), i+1))
	}
	w.kill(memfs.KeepAll)
	require.Equal(t, []string{"published"}, w.read("T", 0))
	require.Equal(t, []string{"published"}, w.find("T", "k", false))
	w.send(enginetest.Message{Topic: "T", Body: "next"})
	require.Equal(t, []string{"published", "next"}, w.read("T", 0))
}
