package send

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/combine"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/internal/stats"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
)

// keepEntries is what a connection keeps of its room for collected records: many
// idle connections must not keep megabytes each.
const keepEntries = 256

// Send is the behaviour; it implements kernel.Sender.
type Send struct {
	k       *kernel.Kernel
	q       *combine.Queue
	ids     *idMaker
	deriver *message.Deriver
	stats   *stats.Stats

	sent    plugin.Counter
	refused plugin.Counter
}

// New makes the behaviour and registers it with the kernel.
func New(k *kernel.Kernel, q *combine.Queue, st *stats.Stats) *Send {
	s := &Send{
		k: k, q: q, stats: st, ids: newIDMaker(k),
		deriver: message.NewDeriver(k.Config().Index),
		sent:    k.Meter.Counter("messages_in_total", "Messages that clients sent and the log took."),
		refused: k.Meter.Counter("send_refused_total", "Sends refused before or after ordering."),
	}
	k.SetSender(s)
	return s
}

// connState is what the behaviour keeps of a connection; it implements
// combine.Receiver. The collected part belongs to the reader of the connection.
type connState struct {
	s    *Send
	c    *kernel.Conn
	req  command.SendDecoder
	recs []entry
	grps []group
	// topic is that of the last message until Flush: what one read brings is
	// judged by one state of the topic, and mostly of one topic.
	topic *kernel.Topic
	epoch uint64 // of the queue, from before the topics of grps were looked up
}

// entry is one record to be encoded.
type entry struct {
	rec   message.Record
	facts message.Facts
	size  int
}

// group is one request: one record, or the records of a batch.
type group struct {
	first, n int
	bytes    int
	keys     int
	ticket   combine.Ticket
	noWait   bool
}

// Flags of a ticket.
const (
	flagOneway = 1 << iota
	flagBatch
	flagFIFO // the (first) message has a sharding key
	// The code of the request; neither: SEND_MESSAGE_V2.
	flagV1
	flagBatchCode
)

// codeFlags are the flags of a request's code.
func codeFlags(code int32) uint16 {
	switch code {
	case command.ReqSendMessage:
		return flagV1
	case command.ReqSendBatchMessage:
		return flagBatchCode
	}
	return 0
}

// requestOf is the code that the flags stand for.
func requestOf(flags uint16) int32 {
	switch {
	case flags&flagV1 != 0:
		return command.ReqSendMessage
	case flags&flagBatchCode != 0:
		return command.ReqSendBatchMessage
	}
	return command.ReqSendMessageV2
}

// Opened implements kernel.Sender.
func (s *Send) Opened(c *kernel.Conn) any { return &connState{s: s, c: c} }

// Settle implements kernel.Sender.
func (s *Send) Settle() { s.q.Settle() }

// Collect implements kernel.Sender.
func (s *Send) Collect(c *kernel.Conn, h *command.Header, f *command.Frame) {
	st := c.Sender.(*connState)
	t := combine.Ticket{Opaque: h.Opaque, Kind: uint8(h.Type), Flags: codeFlags(h.Code), Began: c.Began()}
	if h.IsOneway() {
		t.Flags |= flagOneway
	}
	first := len(st.recs)
	refuse := func(err error) {
		clear(st.recs[first:])
		st.recs = st.recs[:first]
		s.refused.Add(1)
		st.refuse(&t, err)
	}
	defer func() {
		if p := recover(); p != nil {
			refuse(c.Recovered(p, h.Code))
		}
	}()
	if err := st.take(h, f, &t); err != nil {
		refuse(err)
	}
}

// take validates a request and adds its records and its group.
func (st *connState) take(h *command.Header, f *command.Frame, t *combine.Ticket) error {
	s, k := st.s, st.s.k
	r := &st.req.SendRequest
	if err := st.req.Decode(h); err != nil {
		return err
	}
	if err := k.Sendable(); err != nil {
		return err
	}
	if len(st.grps) == 0 {
		st.epoch = s.q.Epoch() // before the first look-up
	}
	topic := st.topic
	if topic == nil || topic.Config.TopicName != string(r.Topic) {
		var err error
		if topic, err = s.topicOf(r); err != nil {
			return err
		}
		st.topic = topic
	}
	if r.QueueID >= max(topic.Config.WriteQueueNums, topic.Config.ReadQueueNums) {
		return &api.Error{ID: api.InvalidParameter, Text: fmt.Sprintf("request queueId[%d] is illegal, topic %s has %d write and %d read queues", r.QueueID, topic.Config.TopicName, topic.Config.WriteQueueNums, topic.Config.ReadQueueNums)}
	}
	queue := r.QueueID
	if queue < 0 {
		queue = rand.Int32N(max(topic.Config.WriteQueueNums, 1))
	}
	g := group{first: len(st.recs)}
	e := st.entry()
	st.base(&e.rec, r, topic.Config.TopicName, queue)
	var err error
	if r.Batch {
		t.Flags |= flagBatch
		// The batch as a whole has a unique key and a wish to wait in the header's
		// properties; its answer carries that key.
		var whole message.Facts
		whole.Scan(r.Properties)
		t.Text, g.noWait = string(whole.UniqueKey), whole.NoWait
		err = st.takeBatch(e, f.Body, &g)
	} else {
		e.rec.Flag, e.rec.ReconsumeTimes, e.rec.Body, e.rec.Properties = r.Flag, max(r.ReconsumeTimes, 0), f.Body, r.Properties
		err = st.takeOne(e, r, &g)
	}
	if err != nil {
		return err
	}
	if n := k.Sequencer.Segment(); int64(g.bytes)+message.BlankSize > n {
		return tooLarge(g.bytes, n)
	}
	g.n = len(st.recs) - g.first
	if st.recs[g.first].facts.Sharded {
		t.Flags |= flagFIFO
	}
	if k.Spans != nil {
		e := &st.recs[g.first]
		t.Span = k.Spans.Send(e.facts.TraceParent, message.Queue{Topic: e.rec.Topic, ID: e.rec.QueueID}, g.n, g.bytes, kindOf(t.Flags).String())
	}
	g.ticket = *t
	st.grps = append(st.grps, g)
	return nil
}

// entry adds an empty entry. It is filled where it stands: a copy of each record
// would be a tenth of what it costs to take one. It moves when the next is added.
func (st *connState) entry() *entry {
	n := len(st.recs)
	if n == cap(st.recs) {
		st.recs = append(st.recs, entry{})
	} else {
		st.recs = st.recs[:n+1] // Flush and Collect clear what they give back
	}
	return &st.recs[n]
}

// base sets what all messages of a request have in common in an empty record.
func (st *connState) base(rec *message.Record, r *command.SendRequest, topic string, queue int32) {
	rec.Topic, rec.QueueID = topic, queue
	rec.SysFlag = r.SysFlag &^ (message.SysTxMask | message.SysBornHostV6 | message.SysStoreHostV6 | message.SysNeedUnwrap | message.SysInnerBatch)
	rec.BornTime, rec.BornHost, rec.StoreHost = r.BornTimestamp, st.c.Born, st.s.k.StoreHost
	rec.BrokerProperties = st.s.k.Config().BrokerProperties
}

// takeOne checks a single message; it may be redirected to the dead letters.
func (st *connState) takeOne(e *entry, r *command.SendRequest, g *group) error {
	base, f := &e.rec, &e.facts
	if len(base.Body) == 0 {
		return &api.Error{ID: api.MessageIllegal, Text: "the message body is empty"}
	}
	if n := st.s.k.Config().MaxMessageSize; len(base.Body) > n {
		return &api.Error{ID: api.MessageIllegal, Text: fmt.Sprintf("the message body has %d bytes, at most %d (maxMessageSize) are allowed", len(base.Body), n)}
	}
	f.Scan(base.Properties)
	retry := strings.HasPrefix(base.Topic, message.RetryPrefix)
	if retry {
		if err := st.s.retry(base, r, st.c); err != nil {
			return err
		}
		// A client that re-sends a failed message names a delay; until delays
		// exist the retry comes at once, like that of request 36.
		if f.Delay > 0 {
			base.Properties = message.AppendWithout(nil, base.Properties, message.PropDelay)
			f.Scan(base.Properties)
		}
	}
	g.noWait = f.NoWait
	return st.add(e, g)
}

// takeBatch adds the messages of a client batch; e, the first one's entry, holds
// what they have in common.
func (st *connState) takeBatch(e *entry, body []byte, g *group) error {
	base := e.rec
	if strings.HasPrefix(base.Topic, message.RetryPrefix) {
		return &api.Error{ID: api.MessageIllegal, Text: "a batch may not be sent to a retry topic"}
	}
	if len(body) == 0 {
		return &api.Error{ID: api.MessageIllegal, Text: "the batch is empty"}
	}
	noWait := true
	for n := 0; len(body) > 0; n++ {
		var it message.BatchItem
		var err error
		if body, err = message.NextBatchItem(body, &it); err != nil {
			return &api.Error{ID: api.MessageIllegal, Text: "the batch cannot be read", Err: err}
		}
		if len(it.Body) == 0 {
			return &api.Error{ID: api.MessageIllegal, Text: fmt.Sprintf("message %d of the batch has an empty body", n)}
		}
		if n > 0 {
			e = st.entry()
			e.rec = base
		}
		e.rec.Flag, e.rec.Body, e.rec.Properties = it.Flag, it.Body, it.Properties
		e.facts.Scan(it.Properties)
		if e.facts.Delay > 0 {
			return &api.Error{ID: api.MessageIllegal, Text: "messages of a batch may not be delayed"}
		}
		noWait = noWait && e.facts.NoWait
		if err := st.add(e, g); err != nil {
			return err
		}
	}
	g.noWait = g.noWait || noWait
	if n := st.s.k.Config().MaxMessageSize; g.bytes > n {
		return &api.Error{ID: api.MessageIllegal, Text: fmt.Sprintf("the batch needs %d bytes in the log, at most %d (maxMessageSize) are allowed", g.bytes, n)}
	}
	return nil
}

// add checks a record and counts it in the group under way.
func (st *connState) add(e *entry, g *group) error {
	rec, f := &e.rec, &e.facts
	switch {
	case f.Transaction:
		return &api.Error{ID: api.NoPermission, Text: "this broker takes no transactional messages yet"}
	case f.Delay > 0 || f.Timer:
		return &api.Error{ID: api.MessageIllegal, Text: "this broker does not delay messages yet (property DELAY or TIMER_*)"}
	case f.PopCheckPoint:
		rec.Properties = message.AppendWithout(nil, rec.Properties, message.PropPopCheckPoint)
		f.Scan(rec.Properties)
	}
	if len(f.UniqueKey) == 0 {
		rec.Properties = message.AppendProperty(bytes.Clone(rec.Properties), message.PropUniqueKey, st.s.ids.next())
		f.Scan(rec.Properties)
	}
	if n := rec.PropertiesSize(); n > message.MaxProperties {
		return &api.Error{ID: api.MessageIllegal, Text: fmt.Sprintf("the message's properties have %d bytes with the broker's own, at most %d are allowed", n, message.MaxProperties)}
	}
	e.size = rec.Size()
	_, keys := combine.Count(rec, f)
	g.bytes += e.size
	g.keys += keys
	return nil
}

// topicOf finds or creates the topic of a send.
func (s *Send) topicOf(r *command.SendRequest) (*kernel.Topic, error) {
	k := s.k
	t := k.Topics.Lookup(r.Topic)
	if t == nil {
		name := string(r.Topic)
		if err := message.CheckTopic(name); err != nil {
			return nil, &api.Error{ID: api.InvalidParameter, Text: err.Error()}
		}
		if !message.MaySend(name) {
			return nil, forbidden(name)
		}
		var err error
		ctx, cancel := k.Waiting()
		defer cancel()
		if group, ok := strings.CutPrefix(name, message.RetryPrefix); ok {
			if k.Groups.Named(group) == nil {
				return nil, groupUnknown(group)
			}
			t, err = k.Topics.Ensure(ctx, kernel.DerivedTopic(name, 1))
		} else {
			t, err = k.Topics.AutoCreate(ctx, name, string(r.DefaultTopic), r.DefaultTopicQueueNums, r.UnitMode)
			if err == nil {
				k.TellNameServers()
			}
		}
		if err != nil {
			return nil, err
		}
	}
	if (t.System || t.Internal) && !message.MaySend(t.Config.TopicName) {
		return nil, forbidden(t.Config.TopicName)
	}
	if t.Config.Perm&command.PermWrite == 0 {
		return nil, &api.Error{ID: api.NoPermission, Text: fmt.Sprintf("the topic[%s] sending message is forbidden: its permission %d lacks write (2)", t.Config.TopicName, t.Config.Perm)}
	}
	if k.Config().Permission&command.PermWrite == 0 && t.Config.Order {
		return nil, &api.Error{ID: api.NoPermission, Text: fmt.Sprintf("the broker[%s] sending message is forbidden: brokerPermission %d lacks write (2)", k.Config().BrokerName, k.Config().Permission)}
	}
	return t, nil
}

func forbidden(topic string) error {
	return &api.Error{ID: api.NoPermission, Text: fmt.Sprintf("sending message to topic[%s] is forbidden: it is reserved", topic)}
}

func groupUnknown(group string) error {
	return &api.Error{ID: api.GroupNotExist, Text: fmt.Sprintf("subscription group [%s] does not exist", group)}
}

// retry handles a message that a client sends to a retry topic itself: beyond
// the limit, or from a group that consumes in order, it goes to the dead letters.
func (s *Send) retry(rec *message.Record, r *command.SendRequest, c *kernel.Conn) error {
	name := strings.TrimPrefix(rec.Topic, message.RetryPrefix)
	g := s.k.Groups.Named(name)
	if g == nil {
		return groupUnknown(name)
	}
	limit := int32(g.RetryMaxTimes)
	if r.MaxReconsumeTimes >= 0 && c.Version() >= command.Version349 {
		limit = r.MaxReconsumeTimes
	}
	// An orderly consumer sends a message back itself only to give it up.
	if r.ReconsumeTimes <= limit && !s.k.Locks.Held(name) {
		return nil
	}
	ctx, cancel := s.k.Waiting()
	defer cancel()
	dlq, err := s.k.Topics.Ensure(ctx, kernel.DerivedTopic(message.DLQPrefix+name, 1))
	if err != nil {
		return err
	}
	s.stats.Dead(name, rec.Topic)
	rec.Topic, rec.QueueID = dlq.Config.TopicName, 0
	return nil
}

// Flush implements kernel.Sender.
func (s *Send) Flush(c *kernel.Conn) {
	st := c.Sender.(*connState)
	limit := s.q.Limit()
	for at := 0; at < len(st.grps); {
		n := combine.Need{}
		to := at
		for ; to < len(st.grps); to++ {
			g := &st.grps[to]
			if to > at && (n.Bytes+g.bytes > limit || n.Units+g.n > combine.MaxRecords || n.Keys+g.keys > 2*combine.MaxRecords) {
				break
			}
			n.Bytes += g.bytes
			n.Units += g.n
			n.Keys += g.keys
			n.Groups++
		}
		n.Epoch = st.epoch
		st.put(st.grps[at:to], n)
		at = to
	}
	clear(st.recs)
	st.recs, st.grps, st.topic = st.recs[:0], st.grps[:0], nil
	if cap(st.recs) > keepEntries {
		st.recs, st.grps = nil, nil
	}
}

// put encodes groups into one reservation.
func (st *connState) put(grps []group, n combine.Need) {
	slot, err := st.s.q.Reserve(st, n)
	for errors.Is(err, combine.ErrOutdated) { // somebody deletes a topic, or segments expire
		if grps, n = st.again(grps, n); len(grps) == 0 {
			return
		}
		slot, err = st.s.q.Reserve(st, n)
	}
	if err != nil {
		st.s.refused.Add(uint64(len(grps)))
		for i := range grps {
			st.refuse(&grps[i].ticket, err)
		}
		return
	}
	var v message.View
	for i := range grps {
		g := &grps[i]
		slot.Begin()
		for j := g.first; j < g.first+g.n; j++ {
			e := &st.recs[j]
			at := slot.Record(&e.rec, e.size, st.s.deriver, &e.facts, &v)
			if j == g.first {
				g.ticket.TextAt, g.ticket.TextLen = uniqueAt(at, &v, &e.facts)
			}
		}
		slot.End(g.ticket, g.noWait, false)
	}
	slot.Commit()
}

// again looks the topics of groups up anew. Those whose topic is not there any more are
// refused; what is left and its size are returned.
func (st *connState) again(grps []group, n combine.Need) ([]group, combine.Need) {
	n.Epoch = st.s.q.Epoch()
	left := grps[:0]
	for i := range grps {
		g := &grps[i]
		rec := &st.recs[g.first].rec
		t := st.s.k.Topics.Named(rec.Topic)
		if t != nil && rec.QueueID < max(t.Config.WriteQueueNums, t.Config.ReadQueueNums) {
			left = append(left, *g)
			continue
		}
		n.Bytes -= g.bytes
		n.Units -= g.n
		n.Keys -= g.keys
		n.Groups--
		st.s.refused.Add(1)
		st.refuse(&g.ticket, &api.Error{ID: api.TopicNotExist, Text: fmt.Sprintf("topic[%s] was deleted while the message was on its way", rec.Topic)})
	}
	return left, n
}

// uniqueAt is the place of the unique key, which stands in the record's properties
// as it did in those of the request, in the batch's Buf.
func uniqueAt(rec int32, v *message.View, f *message.Facts) (at, n int32) {
	return rec + v.Size - int32(len(v.Properties)) + f.UniqueAt, int32(len(f.UniqueKey))
}
