package assign_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/assign"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
	"github.com/hardpointmq/hardpoint/plugins/allocate/averagely"
	"github.com/hardpointmq/hardpoint/plugins/allocate/circle"
	"github.com/hardpointmq/hardpoint/plugins/allocate/sticky"
	"github.com/hardpointmq/hardpoint/plugins/allocate/zone"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock stands still until it is put forward; its timers are the system's.
type clock struct {
	plugin.SystemClock
	began time.Time
	ahead atomic.Int64
}

func newClock() *clock { return &clock{began: time.Now()} }

func (c *clock) Now() time.Time       { return c.began.Add(time.Duration(c.ahead.Load())) }
func (c *clock) pass(d time.Duration) { c.ahead.Add(int64(d)) }

// shop is the allocators of a broker; it counts calls and fails as told.
type shop struct {
	calls atomic.Int64

	mu      sync.Mutex
	err     error // of Allocate
	missing error // of the look-up
	version string
	says    func(*allocate.Request) allocate.Assignment
}

func (s *shop) tell(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *shop) get(_ context.Context, name string) (assign.Instance, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := map[string]allocate.Func{
		"averagely": averagely.Allocate, "circle": circle.Allocate, "sticky": sticky.Allocate, "zone": zone.Allocate,
	}[name]
	if f == nil {
		return assign.Instance{}, fmt.Errorf("%w: %s", assign.ErrUnknown, name)
	}
	if s.missing != nil {
		return assign.Instance{}, s.missing
	}
	return assign.Instance{Version: s.version, Plugin: allocate.Func(func(ctx context.Context, r *allocate.Request) (allocate.Assignment, error) {
		s.calls.Add(1)
		s.mu.Lock()
		err, says := s.err, s.says
		s.mu.Unlock()
		if err != nil {
			return allocate.Assignment{}, err
		}
		if says != nil {
			return says(r), nil
		}
		return f(ctx, r)
	})}, nil
}

// world is an engine with topic T of eight queues and group G.
type world struct {
	*enginetest.Engine
	t     *testing.T
	shop  *shop
	clock *clock
	asks  *enginetest.Client
	peers map[string]*enginetest.Client
}

func newWorld(t *testing.T, change func(o *enginetest.Options)) *world {
	w := &world{t: t, shop: &shop{version: "1"}, clock: newClock(), peers: map[string]*enginetest.Client{}}
	o := enginetest.Options{Clock: w.clock, Assign: assign.Params{Allocator: w.shop.get}}
	if change != nil {
		change(&o)
	}
	w.Engine = enginetest.Start(t, o)
	w.asks = w.Connect(t)
	require.NoError(t, w.K.Topics.Put(t.Context(), command.TopicConfig{TopicName: "T", ReadQueueNums: 8, WriteQueueNums: 8, Perm: 6}))
	require.NoError(t, w.K.Groups.Put(t.Context(), command.DefaultSubscriptionGroup("G")))
	return w
}

// again goes on with what is left after a kill.
func (w *world) again() {
	w.Engine = w.Again(w.Kill(memfs.KeepNone))
	w.asks, w.peers = w.Connect(w.t), map[string]*enginetest.Client{}
}

// join has members send a heartbeat.
func (w *world) join(ids ...string) {
	w.t.Helper()
	for _, id := range ids {
		w.joinIn(id, "")
	}
}

func (w *world) joinIn(id, in string) {
	w.t.Helper()
	c := w.peers[id]
	if c == nil {
		c = w.Connect(w.t)
		w.peers[id] = c
	}
	r := c.Do(command.ReqHeartBeat, func(h *command.Writer) {
		if in != "" {
			h.Ext("__ZONE_NAME", in)
		}
	}, c.Body(enginetest.Heartbeat(id, "G", 1, "T")))
	require.Equal(w.t, command.RespSuccess, r.Code, r.Remark)
}

func (w *world) leave(id string) {
	w.peers[id].Close(nil)
	delete(w.peers, id)
}

func (w *world) reply(id, strategy string) *enginetest.Reply {
	w.t.Helper()
	return w.asks.Do(command.ReqQueryAssignment, nil, w.asks.Body(command.QueryAssignmentBody{
		ClientID: id, ConsumerGroup: "G", MessageModel: command.Clustering, StrategyName: strategy, Topic: "T",
	}))
}

// queues asks what a member has: nil when nothing is said.
func (w *world) queues(id, strategy string) []int32 {
	w.t.Helper()
	return ids(w.t, w.reply(id, strategy))
}

func ids(t *testing.T, r *enginetest.Reply) []int32 {
	t.Helper()
	require.Equal(t, command.RespSuccess, r.Code, r.Remark)
	var out command.QueryAssignmentResponse
	require.NoError(t, command.DecodeBody(r.Body, &out))
	if out.Assignments == nil {
		require.Equal(t, "{}", string(r.Body))
		require.NotEmpty(t, r.Remark, "why nothing is said")
		return nil
	}
	got := []int32{}
	for _, a := range out.Assignments {
		require.Equal(t, command.ModePull, a.Mode)
		got = append(got, a.MessageQueue.QueueID)
	}
	return got
}

// all asks for all members and checks that each queue has one owner.
func (w *world) all(strategy string) map[string][]int32 {
	w.t.Helper()
	out, seen := map[string][]int32{}, []int32{}
	for id := range w.peers {
		out[id] = w.queues(id, strategy)
		seen = append(seen, out[id]...)
	}
	slices.Sort(seen)
	require.Equal(w.t, []int32{0, 1, 2, 3, 4, 5, 6, 7}, seen, "%v", out)
	return out
}

func (w *world) mode(q command.SetMessageRequestModeBody) *enginetest.Reply {
	w.t.Helper()
	return w.asks.Do(command.ReqSetMessageRequestMode, nil, w.asks.Body(q))
}

func TestStrategies(t *testing.T) {
	w := newWorld(t, nil)
	require.Nil(t, w.queues("a", "AVG"), "nobody is there")
	w.join("a", "b", "c")
	require.Equal(t, map[string][]int32{"a": {0, 1, 2}, "b": {3, 4, 5}, "c": {6, 7}}, w.all("AVG"))
	require.Equal(t, map[string][]int32{"a": {0, 3, 6}, "b": {1, 4, 7}, "c": {2, 5}}, w.all("AVG_BY_CIRCLE"))
	require.Equal(t, map[string][]int32{"a": {0, 3, 6}, "b": {1, 4, 7}, "c": {2, 5}}, w.all("circle"), "a plugin's own name")
	require.Nil(t, w.queues("a", "NO_SUCH"), "as in the reference, the client keeps what it has")
	require.Nil(t, w.queues("stranger", "AVG"))
	n := w.shop.calls.Load()
	require.EqualValues(t, 2, n, "an allocator is asked when something has changed")
	w.join("a", "b", "c")
	w.all("AVG")
	w.all("AVG_BY_CIRCLE")
	require.Equal(t, n, w.shop.calls.Load())
	require.True(t, w.HasLog("shared anew", "generation=2", "allocator=circle", "members=3", "queues=8", "moved=6", "without_owner=0"), w.Log.String())
	w.leave("c")
	require.Equal(t, map[string][]int32{"a": {0, 1, 2, 3}, "b": {4, 5, 6, 7}}, w.all("AVG"))
	require.NoError(t, w.K.Topics.Put(t.Context(), command.TopicConfig{TopicName: "T", ReadQueueNums: 2, WriteQueueNums: 2, Perm: 6}))
	require.Equal(t, []int32{0}, w.queues("a", "AVG"))
	require.NoError(t, w.K.Topics.Put(t.Context(), command.TopicConfig{TopicName: "T", ReadQueueNums: 2, WriteQueueNums: 2, Perm: 2}))
	require.Equal(t, []int32{}, w.queues("a", "AVG"), "a topic that cannot be read has no queues")
	require.NoError(t, w.K.Topics.Remove(t.Context(), "T"))
	require.Nil(t, w.queues("a", "AVG"))
}

// TestVersion: an allocator that took the place of another one is asked, and
// members keep what fits.
func TestVersion(t *testing.T) {
	w := newWorld(t, nil)
	w.join("a", "b")
	before := w.all("sticky")
	w.shop.tell(func() { w.shop.version = "2" })
	require.Equal(t, before, w.all("sticky"))
	require.EqualValues(t, 2, w.shop.calls.Load())
}

func TestBroadcasting(t *testing.T) {
	w := newWorld(t, nil)
	r := w.asks.Do(command.ReqQueryAssignment, nil, w.asks.Body(command.QueryAssignmentBody{ClientID: "a", ConsumerGroup: "G", MessageModel: command.Broadcasting, Topic: "T"}))
	require.Len(t, ids(t, r), 8)
}

func TestBadRequests(t *testing.T) {
	w := newWorld(t, nil)
	for _, body := range []string{"", "{", `{"topic":"T"}`, `{"consumerGroup":"G"}`} {
		r := w.asks.Do(command.ReqQueryAssignment, nil, []byte(body))
		require.Equal(t, command.RespInvalidParameter, r.Code, "%q: %s", body, r.Remark)
	}
	require.Equal(t, command.RespInvalidParameter, w.asks.Do(command.ReqSetMessageRequestMode, nil, []byte("{")).Code)
}

// TestSetting: the request mode beats the group's attribute, and that the client's
// strategy. Settings survive a kill, and members hear of a new one.
func TestSetting(t *testing.T) {
	w := newWorld(t, nil)
	w.join("a", "b")
	for _, c := range w.peers {
		c.Pushes()
	}
	g := command.DefaultSubscriptionGroup("G")
	g.Attributes = command.StringMap{assign.AttrAllocator: "circle"}
	require.NoError(t, w.K.Groups.Put(t.Context(), g))
	require.Equal(t, []int32{0, 2, 4, 6}, w.queues("a", "AVG"))

	pull := command.SetMessageRequestModeBody{ConsumerGroup: "G", Topic: "T", Mode: command.ModePull}
	set := pull
	set.Allocator = "AVG"
	require.Equal(t, command.RespSuccess, w.mode(set).Code)
	for _, c := range w.peers {
		p := c.Pushes()
		require.Len(t, p, 1)
		require.Equal(t, command.ReqNotifyConsumerIDsChanged, p[0].Code)
	}
	require.Equal(t, []int32{0, 1, 2, 3}, w.queues("a", "AVG_BY_CIRCLE"))
	w.again()
	w.join("a", "b")
	require.Equal(t, []int32{0, 1, 2, 3}, w.queues("a", "AVG_BY_CIRCLE"))
	r := w.asks.Do(command.ReqGetAllMessageRequestMode, nil, nil)
	require.JSONEq(t, `{"messageRequestModeMap":{"T":{"G":{"consumerGroup":"G","mode":"PULL","popShareQueueNum":0,"topic":"T","allocator":"AVG"}}}}`, string(r.Body))
	require.Equal(t, command.RespSuccess, w.mode(pull).Code)
	require.Equal(t, []int32{0, 2, 4, 6}, w.queues("a", "AVG"), "without one of its own, the group's holds again")

	bad := func(code int32, text string, change func(q *command.SetMessageRequestModeBody)) {
		t.Helper()
		q := pull
		change(&q)
		r := w.mode(q)
		require.Equal(t, code, r.Code)
		require.Equal(t, 1, strings.Count(r.Remark, text), r.Remark)
	}
	bad(command.RespNoPermission, "retry topic", func(q *command.SetMessageRequestModeBody) { q.Topic = "%RETRY%G" })
	bad(command.RespTopicNotExist, "topic[U]", func(q *command.SetMessageRequestModeBody) { q.Topic = "U" })
	bad(command.RespSubscriptionGroupNotExist, "[H]", func(q *command.SetMessageRequestModeBody) { q.ConsumerGroup = "H" })
	bad(command.RespSystemError, "no POP", func(q *command.SetMessageRequestModeBody) { q.Mode = command.ModePop })
	bad(command.RespInvalidParameter, "has no mode", func(q *command.SetMessageRequestModeBody) { q.Mode = "" })
	bad(command.RespInvalidParameter, "group G: unknown allocator: no_such", func(q *command.SetMessageRequestModeBody) { q.Allocator = "no_such" })
	for _, weights := range []string{"a", "a=0", "=1", "[=1", "a=1;b"} {
		bad(command.RespInvalidParameter, "PATTERN=WEIGHT", func(q *command.SetMessageRequestModeBody) { q.Weights = weights })
	}
	for weights, text := range map[string]string{
		strings.Repeat("a=2;", 501):        "more than 500 rules",
		strings.Repeat("a", 64<<10) + "=2": "65538 bytes are too long",
	} {
		bad(command.RespInvalidParameter, text, func(q *command.SetMessageRequestModeBody) { q.Weights = weights })
	}
	w.K.Refuse("closed for a test")
	bad(command.RespServiceNotAvailable, "closed for a test", func(*command.SetMessageRequestModeBody) {})
	w.K.Refuse("")
}

// TestZonesAndWeights: a zone comes with the heartbeat, a weight from the group.
func TestZonesAndWeights(t *testing.T) {
	w := newWorld(t, nil)
	var mu sync.Mutex
	var seen []allocate.Member
	w.shop.tell(func() {
		w.shop.says = func(r *allocate.Request) allocate.Assignment {
			mu.Lock()
			defer mu.Unlock()
			seen = r.Members
			return allocate.Assignment{Owner: make([]int, len(r.Queues))}
		}
	})
	require.Equal(t, command.RespSuccess, w.mode(command.SetMessageRequestModeBody{
		ConsumerGroup: "G", Topic: "T", Mode: command.ModePull, Weights: "big-*=4; x=y=2",
	}).Code)
	w.joinIn("big-1", "east")
	w.joinIn("small", "west")
	w.joinIn("x=y", "")
	require.Len(t, w.queues("big-1", "AVG"), 8)
	require.Equal(t, []int32{}, w.queues("small", "AVG"))
	mu.Lock()
	require.Equal(t, []allocate.Member{{ClientID: "big-1", Zone: "east", Weight: 4}, {ClientID: "small", Zone: "west", Weight: 1}, {ClientID: "x=y", Weight: 2}}, seen)
	mu.Unlock()
	n := w.shop.calls.Load()
	w.joinIn("small", "east")
	w.queues("small", "AVG")
	require.Equal(t, n+1, w.shop.calls.Load(), "another zone, another assignment")
	g := command.DefaultSubscriptionGroup("G")
	g.Attributes = command.StringMap{assign.AttrWeights: "nonsense"}
	require.NoError(t, w.K.Groups.Put(t.Context(), g))
	require.Equal(t, command.RespSuccess, w.mode(command.SetMessageRequestModeBody{ConsumerGroup: "G", Topic: "T", Mode: command.ModePull}).Code)
	w.queues("small", "AVG")
	mu.Lock()
	require.EqualValues(t, 1, seen[0].Weight)
	mu.Unlock()
	require.True(t, w.HasLog("weights of a group cannot be read"))
}

// TestAllocatorGone: the last assignment stays, whatever the allocator does.
func TestAllocatorGone(t *testing.T) {
	w := newWorld(t, nil)
	w.join("a", "b")
	w.shop.tell(func() { w.shop.err = plugin.ErrUnavailable })
	require.Nil(t, w.queues("a", "sticky"), "there is no last one")
	w.shop.tell(func() { w.shop.err = nil })
	require.Nil(t, w.queues("a", "sticky"), "one that failed is left alone for a moment")
	w.clock.pass(time.Second)
	before := w.all("sticky")
	generation := w.present().Generation

	for name, fault := range map[string]func(){
		"gone":        func() { w.shop.err = fmt.Errorf("calling the plugin: %w", plugin.ErrUnavailable) },
		"not started": func() { w.shop.missing = plugin.ErrUnavailable },
		"too few":     func() { w.shop.says = func(*allocate.Request) allocate.Assignment { return allocate.Assignment{} } },
		"nobody": func() {
			w.shop.says = func(r *allocate.Request) allocate.Assignment {
				return allocate.Assignment{Owner: slices.Repeat([]int{len(r.Members)}, len(r.Queues))}
			}
		},
		"panic": func() { w.shop.says = func(*allocate.Request) allocate.Assignment { panic(errors.New("broken")) } },
		"reasons": func() {
			w.shop.says = func(r *allocate.Request) allocate.Assignment {
				return allocate.Assignment{Owner: make([]int, len(r.Queues)), Why: []string{"x"}}
			}
		},
	} {
		w.shop.tell(fault)
		w.clock.pass(time.Minute)
		w.join("c")
		for _, id := range []string{"a", "b"} {
			require.Equal(t, before[id], w.queues(id, "sticky"), name)
		}
		r := w.reply("c", "sticky")
		require.Nil(t, ids(t, r), name)
		if remark := w.reply("a", "sticky").Remark; name == "panic" {
			require.Contains(t, remark, "it panicked: broken")
			require.NotContains(t, remark, "goroutine", "stacks are not for clients")
			require.True(t, w.HasLog("an allocator panicked"))
		}
		w.leave("c")
		require.Equal(t, before, w.all("sticky"), name)
		w.shop.tell(func() { w.shop.err, w.shop.missing, w.shop.says = nil, nil, nil })
		w.clock.pass(time.Minute)
		require.Equal(t, before, w.all("sticky"), name)
	}
	require.Equal(t, generation, w.present().Generation, "nothing changed, so nobody was asked anew")
	w.join("c")
	after := w.all("sticky")
	require.Len(t, after["c"], 2)
	require.Eventually(t, func() bool { return w.present().Generation > generation }, enginetest.Patience, time.Millisecond)
	require.True(t, w.HasLog("an allocator failed"))
}

// TestSlow: an allocator that never comes back costs half a second, and the last
// assignment stays. It is not asked again and again, and is forgiven when it does.
func TestSlow(t *testing.T) {
	w := newWorld(t, nil)
	w.join("a")
	require.Len(t, w.queues("a", "sticky"), 8)
	hang := make(chan struct{})
	w.shop.tell(func() {
		w.shop.says = func(r *allocate.Request) allocate.Assignment {
			<-hang // it does not look at its context
			return allocate.Assignment{Owner: make([]int, len(r.Queues))}
		}
	})
	w.join("b")
	before := w.shop.calls.Load()
	for range 10 {
		w.clock.pass(time.Minute)
		r := w.reply("a", "sticky")
		require.Len(t, ids(t, r), 8)
		require.Contains(t, r.Remark, "allocator sticky failed")
	}
	require.EqualValues(t, 4, w.shop.calls.Load()-before, "no more than so many calls hang")
	require.True(t, w.HasLog("an allocator failed", "has not answered for 500ms"), w.Log.String())
	require.True(t, w.HasLog("an allocator failed", "4 calls of it have not come back yet"), w.Log.String())
	w.shop.tell(func() { w.shop.says = nil })
	close(hang)
	require.Eventually(t, func() bool {
		w.clock.pass(time.Minute)
		return len(w.queues("b", "sticky")) == 4
	}, enginetest.Patience, time.Millisecond)
}

// present is the assignment in the catalog.
func (w *world) present() command.GroupAssignment {
	w.t.Helper()
	var g command.GroupAssignment
	require.Eventually(w.t, func() bool {
		b := w.K.Values.Value(kernel.ValueKey{Kind: "assignment", Group: "G", Topic: "T"})
		return b != nil && json.Unmarshal(b, &g) == nil
	}, enginetest.Patience, time.Millisecond)
	return g
}

// TestRestart: members keep their queues over a kill, and generations go on.
func TestRestart(t *testing.T) {
	w := newWorld(t, nil)
	w.join("a", "b", "c")
	w.all("sticky")
	w.leave("a")
	before := w.all("sticky") // b and c have what sticky would not give from scratch
	require.Eventually(t, func() bool { return len(w.present().Owners) == 2 }, enginetest.Patience, time.Millisecond)
	generation := w.present().Generation
	w.again()
	w.join("b", "c")
	require.Equal(t, before, w.all("sticky"))
	require.Eventually(t, func() bool { return w.present().Generation > generation }, enginetest.Patience, time.Millisecond)

	require.NoError(t, w.K.Groups.Remove(t.Context(), "G", true))
	require.Nil(t, w.K.Values.Value(kernel.ValueKey{Kind: "assignment", Group: "G", Topic: "T"}))
}

// TestPlan: what would be, with Why, and nothing changes.
func TestPlan(t *testing.T) {
	w := newWorld(t, nil)
	ask := func(p command.PlanRequest) (*command.AssignmentPlan, *enginetest.Reply) {
		r := w.asks.Do(command.ReqQueryAssignment, nil, w.asks.Body(command.QueryAssignmentBody{ConsumerGroup: "G", Topic: "T", StrategyName: "AVG", Plan: &p}))
		var out command.QueryAssignmentResponse
		if r.Code == command.RespSuccess {
			require.NoError(t, command.DecodeBody(r.Body, &out))
		}
		return out.Plan, r
	}
	p, r := ask(command.PlanRequest{Allocator: "sticky"})
	require.NotNil(t, p, r.Remark)
	require.Empty(t, p.Members)
	require.Equal(t, 8, p.Unowned)
	require.Zero(t, w.shop.calls.Load(), "of a group without members nobody is asked")
	require.Equal(t, []command.PlanBroker{{BrokerName: "broker-a", Address: w.K.Config().Advertise.String()}}, p.Brokers)
	_, r = ask(command.PlanRequest{Allocator: "no_such"})
	require.Equal(t, command.RespInvalidParameter, r.Code)
	_, r = ask(command.PlanRequest{Weights: "x"})
	require.Equal(t, command.RespInvalidParameter, r.Code)
	require.Contains(t, r.Remark, "PATTERN=WEIGHT")

	p, r = ask(command.PlanRequest{Members: []command.PlanMember{{ClientID: "b"}, {ClientID: "a"}}})
	require.NotNil(t, p, r.Remark)
	require.Equal(t, "averagely", p.Allocator)
	require.Equal(t, []command.PlanMember{{ClientID: "a", Weight: 1, After: 4}, {ClientID: "b", Weight: 1, After: 4}}, p.Members)
	require.Zero(t, p.Moved)

	w.join("a", "b")
	before := w.all("AVG")
	p, r = ask(command.PlanRequest{Allocator: "circle"})
	require.NotNil(t, p, r.Remark)
	require.Equal(t, "averagely", p.Present)
	require.Equal(t, 4, p.Moved)
	require.Equal(t, command.PlanQueue{BrokerName: "broker-a", QueueID: 1, From: "a", To: "b", Why: "moved: circle gives it to another member"}, p.Queues[1])
	require.Equal(t, command.PlanQueue{BrokerName: "broker-a", QueueID: 0, From: "a", To: "a", Why: "kept"}, p.Queues[0])
	p, _ = ask(command.PlanRequest{Allocator: "averagely", Members: []command.PlanMember{{ClientID: "b"}, {ClientID: "c"}}})
	require.Equal(t, command.PlanQueue{BrokerName: "broker-a", QueueID: 0, From: "a", To: "b", Why: "moved: a is no member"}, p.Queues[0])
	w.shop.tell(func() {
		w.shop.says = func(r *allocate.Request) allocate.Assignment {
			return allocate.Assignment{Owner: slices.Repeat([]int{-1}, len(r.Queues)), Why: slices.Repeat([]string{"\x1b[31mred\xff\n" + strings.Repeat("ö", 1000)}, len(r.Queues))}
		}
	})
	p, _ = ask(command.PlanRequest{})
	require.Equal(t, " [31mred\uFFFD "+strings.Repeat("ö", 190), p.Queues[0].Why, "what an allocator says is for people, and for their terminals")
	w.shop.tell(func() { w.shop.says = nil })
	p, _ = ask(command.PlanRequest{Allocator: "sticky", Members: []command.PlanMember{{ClientID: "a"}, {ClientID: "b"}, {ClientID: "c"}}})
	require.Equal(t, 2, p.Moved)
	require.Equal(t, command.PlanMember{ClientID: "c", Weight: 1, After: 2}, p.Members[2])
	require.NotEmpty(t, p.Queues[0].Why)
	require.Equal(t, before, w.all("AVG"))
	_, r = ask(command.PlanRequest{Allocator: "sticky", Members: []command.PlanMember{{ClientID: "a"}, {ClientID: "a"}}})
	require.NotEqual(t, command.RespSuccess, r.Code)
	require.Equal(t, 1, strings.Count(r.Remark, "twice"), r.Remark)
	_, r = ask(command.PlanRequest{Members: make([]command.PlanMember, 10_001)})
	require.Equal(t, command.RespInvalidParameter, r.Code)
	r = w.asks.Do(command.ReqQueryAssignment, nil, w.asks.Body(command.QueryAssignmentBody{ConsumerGroup: "G", Topic: "U", Plan: &command.PlanRequest{}}))
	require.Equal(t, command.RespSystemError, r.Code)
}

// TestPlanOfSettings: a plan goes by the settings that would be, not only by those
// that are.
func TestPlanOfSettings(t *testing.T) {
	w := newWorld(t, nil)
	w.join("a", "big-1")
	g := command.DefaultSubscriptionGroup("G")
	g.Attributes = command.StringMap{assign.AttrAllocator: "circle", assign.AttrWeights: "a=3"}
	require.NoError(t, w.K.Groups.Put(t.Context(), g))
	require.Equal(t, command.RespSuccess, w.mode(command.SetMessageRequestModeBody{ConsumerGroup: "G", Topic: "T", Mode: command.ModePull, Allocator: "zone", Weights: "big-*=3"}).Code)
	after := func(p command.PlanRequest) (allocator string, shares [2]int) {
		t.Helper()
		r := w.asks.Do(command.ReqQueryAssignment, nil, w.asks.Body(command.QueryAssignmentBody{ConsumerGroup: "G", Topic: "T", StrategyName: "AVG", Plan: &p}))
		require.Equal(t, command.RespSuccess, r.Code, r.Remark)
		var out command.QueryAssignmentResponse
		require.NoError(t, command.DecodeBody(r.Body, &out))
		return out.Plan.Allocator, [2]int{out.Plan.Members[0].After, out.Plan.Members[1].After}
	}
	for _, tc := range []struct {
		plan      command.PlanRequest
		allocator string
		shares    [2]int
	}{
		{command.PlanRequest{}, "zone", [2]int{2, 6}},
		{command.PlanRequest{Weights: "big-*=1"}, "zone", [2]int{4, 4}},
		{command.PlanRequest{Allocator: "sticky"}, "sticky", [2]int{4, 4}},
		{command.PlanRequest{Unset: true}, "circle", [2]int{4, 4}},
		{command.PlanRequest{Unset: true, Allocator: "zone"}, "zone", [2]int{6, 2}},
	} {
		allocator, shares := after(tc.plan)
		require.Equal(t, tc.allocator, allocator, "%+v", tc.plan)
		require.Equal(t, tc.shares, shares, "%+v", tc.plan)
	}
}

// TestGroupAttributes: tools set the allocator of a group with all its topics
// (UPDATE_AND_CREATE_SUBSCRIPTIONGROUP), and members hear of it.
func TestGroupAttributes(t *testing.T) {
	w := newWorld(t, nil)
	w.join("a", "b")
	put := func(attributes command.StringMap) *enginetest.Reply {
		g := command.DefaultSubscriptionGroup("G")
		g.Attributes = attributes
		return w.asks.Do(command.ReqUpdateAndCreateSubscriptionGroup, nil, w.asks.Body(g))
	}
	for _, c := range w.peers {
		c.Pushes()
	}
	require.Equal(t, command.RespSuccess, put(command.StringMap{"+allocator": "circle"}).Code)
	for _, c := range w.peers {
		require.Len(t, c.Pushes(), 1)
	}
	require.Equal(t, []int32{0, 2, 4, 6}, w.queues("a", "AVG"))
	require.Equal(t, command.RespSuccess, put(nil).Code)
	require.Equal(t, []int32{0, 2, 4, 6}, w.queues("a", "AVG"), "what is not named stays")
	for _, c := range w.peers {
		require.Empty(t, c.Pushes())
	}
	for attr, value := range map[string]string{"+allocator": "no_such", "+allocator.weights": "x"} {
		r := put(command.StringMap{attr: value})
		require.Equal(t, command.RespSystemError, r.Code)
		require.Contains(t, r.Remark, "attribute "+attr[1:])
	}
	require.Equal(t, command.RespSuccess, put(command.StringMap{"-allocator": ""}).Code)
	require.Equal(t, []int32{0, 1, 2, 3}, w.queues("a", "AVG"))
}

// TestRecorded: the official client's requests, and what Apache's broker answered
// to them while the group was in mode PULL.
func TestRecorded(t *testing.T) {
	type side struct {
		Code  int32  `json:"code"`
		Frame []byte `json:"frame"`
	}
	type exchange struct{ Request, Response side }
	f, err := os.Open("../../command/testdata/frames/java-5.5.0.jsonl.gz")
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	e := enginetest.Start(t, enginetest.Options{Assign: assign.Params{Allocator: (&shop{}).get}})
	require.NoError(t, e.K.Topics.Put(t.Context(), command.TopicConfig{TopicName: "rec_5_5_0", ReadQueueNums: 4, WriteQueueNums: 4, Perm: 6}))
	c := e.Connect(t)
	require.Equal(t, command.RespSuccess, c.Do(command.ReqHeartBeat, nil, c.Body(enginetest.Heartbeat("192.0.2.2@pop", "rec_pop", 1, "rec_5_5_0"))).Code)
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 1<<20)
	n := 0
	for lines.Scan() {
		var x exchange
		require.NoError(t, json.Unmarshal(lines.Bytes(), &x))
		if x.Request.Code != command.ReqQueryAssignment {
			continue
		}
		n++
		frames := func(wire []byte) command.Frame {
			all, _, _, err := command.Split(wire, nil, command.DefaultLimits())
			require.NoError(t, err)
			require.Len(t, all, 1)
			return all[0]
		}
		q, want := frames(x.Request.Frame), frames(x.Response.Frame)
		var h command.Header
		require.NoError(t, h.Decode(&q))
		require.NoError(t, c.FeedFrames(q))
		got := c.Wait(h.Opaque)
		require.Equal(t, x.Response.Code, got.Code, got.Remark)
		var theirs, ours command.QueryAssignmentResponse
		require.NoError(t, command.DecodeBody(want.Body, &theirs))
		require.NoError(t, command.DecodeBody(got.Body, &ours))
		require.NotEmpty(t, ours.Assignments)
		require.ElementsMatch(t, theirs.Assignments, ours.Assignments)
	}
	require.NoError(t, lines.Err())
	require.Equal(t, 3, n)
}

func FuzzQuery(f *testing.F) {
	for _, s := range []string{
		"", "{", "null", `{"clientId":"a","consumerGroup":"G","messageModel":"CLUSTERING","strategyName":"AVG","topic":"T"}`,
		`{"consumerGroup":"G","topic":"T","plan":{"members":[{"clientId":"a","weight":4294967295}]}}`, `{"topic":"TBW102","consumerGroup":"x","messageModel":0}`,
	} {
		f.Add([]byte(s))
	}
	e := enginetest.Start(f, enginetest.Options{Assign: assign.Params{Allocator: (&shop{}).get}})
	f.Fuzz(func(t *testing.T, body []byte) {
		c := e.Connect(t)
		defer c.Close(nil)
		r := c.Do(command.ReqQueryAssignment, nil, body)
		if e.HasLog("panicked") {
			t.Fatalf("the handler panicked on %q: %s", body, r.Remark)
		}
	})
}
