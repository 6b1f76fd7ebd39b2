package pull

import (
	"fmt"
	"slices"
	"sync"

	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/client"
	"github.com/hardpointmq/hardpoint/core/internal/filter"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/internal/stats"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// Reasons of a refusal (forbiddenType).
const (
	forbidBroker    = 1
	forbidGroup     = 2
	forbidTopic     = 3
	forbidBroadcast = 4
	forbidGroupIn   = 5
)

// Pull is the behaviour.
type Pull struct {
	k       *kernel.Kernel
	clients *client.Manager
	stats   *stats.Stats
	cache   filter.Cache
	park    *park
	beside  beside
	pool    sync.Pool

	messages plugin.Counter
	empty    plugin.Counter
}

// task is one read: what is asked, for whom, and room for the answer.
type task struct {
	ticket  kernel.Ticket
	req     storage.ReadRequest
	tags    *filter.Tags
	group   string
	sysFlag int32 // of the topic
	wait    int64 // for how long it may be parked, ms
	chunk   storage.Chunk
	frags   [][]byte
	units   []message.Unit
	hdr     []byte
	out     []command.Frame // of one: a frame passed by itself is allocated by each Send
	run     func()          // reads and answers in a goroutine of its own
}

// New makes the behaviour and registers it.
func New(k *kernel.Kernel, clients *client.Manager, st *stats.Stats) *Pull {
	p := &Pull{
		k: k, clients: clients, stats: st,
		messages: k.Meter.Counter("messages_out_total", "Messages that consumers got."),
		empty:    k.Meter.Counter("pull_empty_total", "Pulls answered without a message."),
	}
	p.pool.New = func() any {
		t := &task{}
		t.run = func() {
			defer p.beside.End()
			p.pullBeside(t)
		}
		return t
	}
	p.park = newPark(p)
	k.Handle(command.ReqPullMessage, p.serve)
	k.Handle(command.ReqLitePullMessage, p.serve)
	k.Hooks.OnPublished(p.park.published)
	k.Hooks.OnOffsetReset(p.park.reset)
	k.Hooks.OnStart(p.park.start)
	k.Hooks.OnLeave(p.park.leaveAll)
	k.Hooks.OnStop(p.park.stop)
	k.Hooks.OnStart(p.beside.start(k))
	k.Hooks.OnStop(p.beside.Stop)
	return p
}

func (p *Pull) get() *task { return p.pool.Get().(*task) }

func (p *Pull) put(t *task) {
	t.chunk.Reset()
	clear(t.frags)
	clear(t.out)
	*t = task{chunk: t.chunk, frags: t.frags[:0], units: t.units[:0], hdr: t.hdr[:0], out: t.out[:0], run: t.run}
	p.pool.Put(t)
}

// refusal is an answer other than an offset.
type refusal struct {
	code      int32
	forbidden int32
	text      string
}

func (no *refusal) fill(w *command.Writer) {
	w.Remark(no.text)
	if no.forbidden != 0 {
		w.ExtInt("forbiddenType", int64(no.forbidden))
	}
}

func (p *Pull) serve(r *kernel.Request) {
	var h command.PullRequest
	if err := h.Decode(r.Header); err != nil {
		r.Fail(err)
		return
	}
	t := p.get()
	no := p.check(t, &h)
	if no != nil {
		p.put(t)
		w := r.Begin(no.code)
		no.fill(&w)
		r.Reply(w)
		return
	}
	t.ticket = r.Ticket()
	if h.SysFlag&command.PullCommitOffset != 0 && h.CommitOffset >= 0 {
		p.k.Offsets.Commit(string(h.ConsumerGroup), t.req.Queue, h.CommitOffset)
	}
	if h.SysFlag&command.PullSuspend != 0 {
		t.wait = h.SuspendTimeoutMillis
		if !p.k.Config().LongPolling {
			t.wait = min(t.wait, p.k.Config().ShortPolling.Milliseconds())
		}
	}
	if p.beside.Begin() {
		go t.run()
		return
	}
	p.pull(t)
}

// pullBeside is pull beside the session.
func (p *Pull) pullBeside(t *task) {
	ticket := t.ticket
	defer func() { // as the session does
		if x := recover(); x != nil {
			ticket.Panicked(x)
		}
	}()
	p.pull(t)
	if !ticket.Conn.Open() {
		p.park.disconnected(ticket.Conn) // it may have been parked behind that
	}
}

// pull reads, and answers or parks; t is not the caller's any more.
func (p *Pull) pull(t *task) {
	err := p.read(t)
	if err == nil && t.wait > 0 && codeOf(t) == command.RespPullNotFound {
		var parked bool
		if parked, err = p.park.hold(t, t.wait); parked {
			return // t belongs to the park now
		}
	}
	if err != nil {
		t.ticket.Fail(err)
	} else {
		p.answer(t)
	}
	p.put(t)
}

// check goes through the conditions in the reference's order and fills in t.
func (p *Pull) check(t *task, h *command.PullRequest) *refusal {
	k := p.k
	group := h.ConsumerGroup
	if no := p.closed(); no != nil {
		return no
	}
	g := k.Groups.Named(string(group))
	if g == nil {
		if err := message.CheckGroup(string(group)); err != nil {
			return &refusal{command.RespInvalidParameter, 0, err.Error()}
		}
		ctx, cancel := k.Waiting()
		defer cancel()
		var err error
		if g, err = k.Groups.Ensure(ctx, string(group)); err != nil {
			return &refusal{kernel.CodeOf(err), 0, err.Error()}
		}
	}
	if no := suspended(g); no != nil {
		return no
	}
	topic := k.Topics.Lookup(h.Topic)
	if topic == nil || topic.Internal {
		return &refusal{command.RespTopicNotExist, 0, fmt.Sprintf("topic[%s] not exist, apply first please!", h.Topic)}
	}
	cfg := &topic.Config
	if no := p.barred(g.GroupName, cfg, h.QueueID); no != nil {
		return no
	}
	if no := p.filterOf(t, h, g, cfg.TopicName); no != nil {
		return no
	}
	hot, cold := k.Config().Hot, k.Config().Cold
	n := max(h.MaxMsgNums, 0)
	hot.Count, cold.Count = least(hot.Count, n), least(cold.Count, n)
	t.req.Queue = message.Queue{Topic: cfg.TopicName, ID: h.QueueID}
	t.req.Offset, t.req.Hot, t.req.Cold = h.QueueOffset, hot, cold
	t.req.Scan = max(k.Config().FilterScan, n)
	t.group, t.sysFlag = g.GroupName, cfg.TopicSysFlag
	return nil
}

// closed refuses while nobody may read from the broker.
func (p *Pull) closed() *refusal {
	if c := p.k.Config(); c.Permission&command.PermRead == 0 {
		return &refusal{command.RespNoPermission, forbidBroker, fmt.Sprintf("the broker[%s] pulling message is forbidden", c.BrokerName)}
	}
	return nil
}

// suspended refuses a group that may not consume.
func suspended(g *command.SubscriptionGroupConfig) *refusal {
	if !g.ConsumeEnable {
		return &refusal{command.RespNoPermission, forbidGroup, fmt.Sprintf("subscription group no permission, %s", g.GroupName)}
	}
	return nil
}

// barred refuses a group that may not read a queue of a topic.
func (p *Pull) barred(group string, cfg *command.TopicConfig, queue int32) *refusal {
	if cfg.Perm&command.PermRead == 0 {
		return &refusal{command.RespNoPermission, forbidTopic, fmt.Sprintf("the topic[%s] pulling message is forbidden", cfg.TopicName)}
	}
	if queue < 0 || queue >= cfg.ReadQueueNums {
		return &refusal{command.RespInvalidParameter, 0, fmt.Sprintf("queueId[%d] is illegal, topic:[%s] topicConfig.readQueueNums:[%d]", queue, cfg.TopicName, cfg.ReadQueueNums)}
	}
	// Apache's broker lets a group pass that brings its own subscription.
	if kernel.Forbidden(p.k.Values, group, cfg.TopicName)&kernel.ForbiddenRead != 0 {
		return &refusal{command.RespNoPermission, forbidGroupIn, fmt.Sprintf("the consumer group[%s] is forbidden for topic[%s]", group, cfg.TopicName)}
	}
	return nil
}

// again is what of check may have changed while t was parked: what came meanwhile is
// not for those who may not read any more.
func (p *Pull) again(t *task) *refusal {
	if no := p.closed(); no != nil {
		return no
	}
	if g := p.k.Groups.Named(t.group); g != nil {
		if no := suspended(g); no != nil {
			return no
		}
	}
	topic := p.k.Topics.Named(t.req.Queue.Topic)
	if topic == nil { // deleted: there is nothing to be read
		return nil
	}
	return p.barred(t.group, &topic.Config, t.req.Queue.ID)
}

// least is the smaller of a limit, where 0 is none, and what is asked.
func least(limit, asked int32) int32 {
	if limit == 0 || asked < limit {
		return max(asked, 1)
	}
	return limit
}

func (p *Pull) filterOf(t *task, h *command.PullRequest, g *command.SubscriptionGroupConfig, topic string) *refusal {
	fail := func(err error) *refusal { return &refusal{kernel.CodeOf(err), 0, err.Error()} }
	if h.SysFlag&command.PullSubscription != 0 {
		if err := filter.CheckType(string(h.ExpressionType)); err != nil {
			return fail(err)
		}
		tags, err := p.cache.Get(h.Subscription)
		if err != nil {
			return fail(err)
		}
		t.setTags(tags)
		return nil
	}
	sub, model, known := p.clients.Subscribed(g.GroupName, topic)
	switch {
	case !known:
		return &refusal{command.RespSubscriptionNotExist, 0, fmt.Sprintf("the consumer's group info not exist, group: %s", g.GroupName)}
	case model == command.Broadcasting && !g.ConsumeBroadcastEnable:
		return &refusal{command.RespNoPermission, forbidBroadcast, fmt.Sprintf("the consumer group[%s] can not consume by broadcast way", g.GroupName)}
	case sub == nil:
		return &refusal{command.RespSubscriptionNotExist, 0, fmt.Sprintf("the consumer's subscription not exist, group: %s, topic:%s", g.GroupName, topic)}
	case int64(sub.Data.SubVersion) < h.SubVersion:
		return &refusal{command.RespSubscriptionNotLatest, 0, fmt.Sprintf("the consumer's subscription not latest, group: %s, topic: %s", g.GroupName, topic)}
	}
	if err := filter.CheckType(sub.Data.ExpressionType); err != nil {
		return fail(err)
	}
	if sub.Tags == nil {
		_, err := filter.Parse(sub.Data.SubString)
		if err == nil {
			err = &api.Error{ID: api.SubscriptionParseFailed, Text: fmt.Sprintf("the subscription %q of group %s cannot be used", sub.Data.SubString, g.GroupName)}
		}
		return fail(err)
	}
	t.setTags(sub.Tags)
	return nil
}

func (t *task) setTags(tags *filter.Tags) {
	t.tags = tags
	t.req.Tags = tags.Codes
}

// read reads into t.chunk and leaves what is to be sent in t.frags and t.units.
func (p *Pull) read(t *task) error {
	t.chunk.Reset()
	t.frags, t.units = t.frags[:0], t.units[:0]
	if at, reset := p.k.Offsets.Meets(t.group, t.req.Queue, t.req.Offset); reset {
		return p.reset(t, at)
	}
	if err := p.k.Store.Read(p.k.Serving(), t.req, &t.chunk); err != nil {
		return fmt.Errorf("reading %v at %d: %w", t.req.Queue, t.req.Offset, err)
	}
	if t.chunk.Status != storage.Found || t.tags.All {
		t.frags, t.units = append(t.frags, t.chunk.Frags...), append(t.units, t.chunk.Units...)
		return nil
	}
	t.exact()
	if len(t.units) == 0 {
		t.chunk.Status = storage.NoMatchedMessage
	}
	return nil
}

// reset tells a consumer to go on elsewhere: a tool reset the progress of its group.
func (p *Pull) reset(t *task, at int64) error {
	var a storage.OffsetAnswers
	if err := p.k.Store.Offsets(p.k.Serving(), []storage.OffsetQuery{{Queue: t.req.Queue}}, &a); err != nil || len(a.Answers) != 1 {
		return fmt.Errorf("reading the ends of %v: %w", t.req.Queue, err)
	}
	t.chunk.Status, t.chunk.Next, t.chunk.Min, t.chunk.Max = storage.OffsetReset, at, a.Answers[0].Min, a.Answers[0].Max
	return nil
}

// exact keeps the records whose tag really is wanted.
func (t *task) exact() {
	var v message.View
	for i, rec := range t.chunk.Records {
		if message.Parse(rec, &v) == nil && t.tags.MatchProperties(v.Properties) {
			t.frags = append(t.frags, rec)
			t.units = append(t.units, t.chunk.Units[i])
		}
	}
}

// codeOf maps the status of a read to the response code.
func codeOf(t *task) int32 {
	switch t.chunk.Status {
	case storage.Found:
		return command.RespSuccess
	case storage.NoMatchedMessage, storage.MessageWasRemoving:
		return command.RespPullRetryImmediately
	case storage.NoMatchedLogicQueue, storage.NoMessageInQueue:
		if t.req.Offset != 0 {
			return command.RespPullOffsetMoved
		}
		return command.RespPullNotFound
	case storage.OffsetFoundNull, storage.OffsetOverflowOne:
		return command.RespPullNotFound
	default:
		return command.RespPullOffsetMoved
	}
}

// answer sends what read left in t; any goroutine that owns t may call it.
func (p *Pull) answer(t *task) {
	size := 0
	for _, f := range t.frags {
		size += len(f)
	}
	if n := len(t.units); n > 0 {
		p.messages.Add(uint64(n))
		p.stats.Got(t.group, t.req.Queue, n, int64(size), next(t))
		if p.k.Spans != nil {
			p.span(t, size)
		}
	} else {
		p.empty.Add(1)
		p.stats.Missed()
	}
	code := codeOf(t)
	if t.ticket.Oneway {
		t.ticket.Answered(code, nil)
		return
	}
	c := &t.chunk
	w := command.Begin(t.hdr[:0], t.ticket.Type, code, t.ticket.Opaque, command.FlagResponse)
	w.Remark(c.Status.String())
	h := command.PullResponse{NextBeginOffset: next(t), MinOffset: c.Min, MaxOffset: c.Max, TopicSysFlag: t.sysFlag}
	h.Append(&w)
	t.hdr = w.End(size)
	// A peer that is gone or too slow loses its answer and pulls again.
	t.out = append(t.out[:0], command.Frame{Header: t.hdr, Bodies: t.frags})
	t.ticket.Answered(code, t.ticket.Conn.Peer.Send(t.out...))
}

// span makes the span of an answer with messages.
func (p *Pull) span(t *task, size int) {
	records := slices.All(t.frags) // one record each, if a filter chose them
	if t.tags.All {
		records = t.chunk.Records
	}
	p.k.Spans.Pull(p.k.Clock.Now().Add(t.ticket.Began-p.k.Uptime()), t.group, t.req.Queue, len(t.units), records, size)
}

// next is where the client goes on.
func next(t *task) int64 {
	switch t.chunk.Status {
	case storage.NoMatchedLogicQueue, storage.NoMessageInQueue:
		return 0
	case storage.OffsetOverflowOne:
		return t.req.Offset
	case storage.OffsetOverflowBadly:
		return t.chunk.Max
	case storage.OffsetTooSmall:
		return t.chunk.Min
	default:
		return t.chunk.Next
	}
}
