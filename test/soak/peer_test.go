package soak

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/test/harness"
)

// peer is a client that does everything.
type peer struct {
	n   *harness.Node
	m   *model
	id  int
	rng *rand.Rand

	c    *harness.Conn
	sent int
	last command.SendResponse // of the newest message that was acknowledged
	from string               // its topic
}

// fleeting is the topic that a client makes and deletes.
func fleeting(id int) string { return fmt.Sprintf("fleeting-%d", id) }

// ext writes fields by their names.
func ext(kv ...string) func(*command.Writer) {
	return func(w *command.Writer) {
		for i := 0; i+1 < len(kv); i += 2 {
			w.Ext(kv[i], kv[i+1])
		}
	}
}

// action is one thing that a client does; its error is one of the connection.
type action struct {
	weight int
	do     func(p *peer) error
}

var actions = []action{
	{20, (*peer).send}, {10, (*peer).sendMany}, {6, (*peer).sendBatch}, {4, (*peer).sendOneway},
	{15, (*peer).pull}, {8, (*peer).pullLong}, {6, (*peer).commit}, {4, (*peer).sendBack},
	{4, (*peer).heartbeat}, {3, (*peer).share}, {3, (*peer).lock}, {2, (*peer).leave},
	{2, (*peer).topic}, {4, (*peer).query}, {6, (*peer).admin}, {2, (*peer).reset}, {1, (*peer).configure},
	{2, (*peer).reconnect}, {2, (*peer).halfFrame},
}

var weights = func() (sum int) {
	for _, a := range actions {
		sum += a.weight
	}
	return sum
}()

// run does one thing after the other until over.
func (p *peer) run(over <-chan struct{}) {
	if !p.dial() {
		return
	}
	defer func() { _ = p.c.Close() }()
	if err := p.pull(); err != nil { // which makes the client's own group
		p.m.fault("client %d: %v", p.id, err)
		return
	}
	for {
		select {
		case <-over:
			return
		default:
		}
		w := p.rng.IntN(weights)
		i := slices.IndexFunc(actions, func(a action) bool { w -= a.weight; return w < 0 })
		if err := actions[i].do(p); err != nil {
			p.m.fault("client %d, action %d: %v", p.id, i, err)
			return
		}
	}
}

func (p *peer) dial() bool {
	c, err := harness.Dial(p.n.Addr)
	if err != nil {
		p.m.fault("client %d does not get in: %v", p.id, err)
		return false
	}
	p.c = c
	return true
}

func (p *peer) group() string    { return fmt.Sprintf("soak-group-%d", p.id%8) }
func (p *peer) own() string      { return fmt.Sprintf("own-group-%d", p.id) }
func (p *peer) clientID() string { return fmt.Sprintf("client-%02d", p.id) }
func (p *peer) anyTopic() string { return stable(p.rng.IntN(topics)) }
func (p *peer) anyQueue() int32  { return p.rng.Int32N(queues) }
func (p *peer) tag() string      { return string(rune('a' + p.rng.IntN(4))) }

// call is a request whose answer may say no, but not that the broker failed.
func (p *peer) call(code int32, fields func(*command.Writer), body []byte) (*harness.Answer, error) {
	a, err := p.c.Call(code, fields, body)
	if err == nil && strings.Contains(string(a.Header.Remark()), "internal error") {
		err = a.Err()
	}
	return a, err
}

// ask is call for those who need no answer.
func (p *peer) ask(code int32, fields func(*command.Writer), body []byte) error {
	_, err := p.call(code, fields, body)
	return err
}

// key makes the key and the properties of a new message.
func (p *peer) key() (key, props string) {
	p.sent++
	key = fmt.Sprintf("%d-%d-%d", p.id, p.sent, p.rng.IntN(1000))
	b := message.AppendProperty(nil, "KEYS", key)
	b = message.AppendProperty(b, "UNIQ_KEY", "U"+key)
	return key, string(message.AppendProperty(b, "TAGS", p.tag()))
}

func (p *peer) body() []byte {
	size := 1 + p.rng.IntN(400)
	if p.rng.IntN(200) == 0 {
		size = 100_000
	}
	return []byte(strings.Repeat("x", size))
}

// refused tells whether the broker took no more for now: on a busy machine it may.
func (p *peer) refused(a *harness.Answer) bool {
	no := a.Header.Code == command.RespServiceNotAvailable && strings.Contains(string(a.Header.Remark()), "[TIMEOUT_CLEAN_QUEUE]")
	if no {
		p.m.refused.Add(1)
	}
	return no
}

// acknowledged notes the answer to a send.
func (p *peer) acknowledged(a *harness.Answer, topic, key string) error {
	if p.refused(a) {
		return nil
	}
	if err := a.Err(); err != nil {
		return err
	}
	var r command.SendResponse
	if err := r.Decode(&a.Header); err != nil {
		return err
	}
	p.m.stored(place{topic, r.QueueID, r.QueueOffset}, key)
	r.MsgID = slices.Clone(r.MsgID)
	p.last, p.from = r, topic
	return nil
}

func (p *peer) send() error {
	topic := p.anyTopic()
	key, props := p.key()
	a, err := p.c.CallSend(&harness.Send{Topic: topic, Queue: p.anyQueue(), Props: props, Body: p.body()})
	if err != nil {
		return err
	}
	return p.acknowledged(a, topic, key)
}

// sendMany has several sends under way.
func (p *peer) sendMany() error {
	type open struct{ topic, key string }
	wait := map[int32]open{}
	for range 1 + p.rng.IntN(30) {
		o := open{topic: p.anyTopic()}
		var props string
		o.key, props = p.key()
		opaque, err := p.c.WriteSend(&harness.Send{Topic: o.topic, Queue: p.anyQueue(), Props: props, Body: p.body()})
		if err != nil {
			return err
		}
		wait[opaque] = o
	}
	for a := new(harness.Answer); len(wait) > 0; {
		if err := p.c.Read(30*time.Second, a); err != nil {
			return err
		}
		o, ok := wait[a.Header.Opaque]
		if !ok || !a.Header.IsResponse() {
			continue // a pull that waited, or what the broker asks
		}
		delete(wait, a.Header.Opaque)
		if err := p.acknowledged(a, o.topic, o.key); err != nil {
			return err
		}
	}
	return nil
}

func (p *peer) sendBatch() error {
	topic, count := p.anyTopic(), 1+p.rng.IntN(10)
	var body []byte
	keys := make([]string, count)
	for i := range keys {
		var props string
		keys[i], props = p.key()
		body = message.AppendBatchItem(body, message.BatchItem{Body: []byte("of a batch"), Properties: []byte(props)})
	}
	a, err := p.c.CallSend(&harness.Send{Topic: topic, Queue: p.anyQueue(), Body: body, Batch: true})
	if err != nil || p.refused(a) {
		return err
	}
	if err := a.Err(); err != nil {
		return err
	}
	var r command.SendResponse
	if err := r.Decode(&a.Header); err != nil {
		return err
	}
	for i, k := range keys {
		p.m.stored(place{topic, r.QueueID, r.QueueOffset + int64(i)}, k)
	}
	return nil
}

// sendOneway writes frames that want no answer.
func (p *peer) sendOneway() error {
	c, err := net.Dial("tcp", p.n.Addr)
	if err != nil {
		return err
	}
	defer c.Close()
	_, props := p.key()
	_, err = c.Write(p.frame(props, command.FlagOneway))
	return ended(err)
}

// frame is one whole send.
func (p *peer) frame(props string, flag int32) []byte {
	w := command.Begin(nil, command.JSON, command.ReqSendMessageV2, 1, flag)
	h := command.SendRequest{
		ProducerGroup: []byte("raw"), Topic: []byte(p.anyTopic()), DefaultTopic: []byte("TBW102"), DefaultTopicQueueNums: 4,
		QueueID: p.anyQueue(), BornTimestamp: time.Now().UnixMilli(), Properties: []byte(props), MaxReconsumeTimes: -1,
	}
	h.Append(&w)
	body := p.body()
	return append(w.End(len(body)), body...)
}

// ended takes errors of a connection that its owner did not expect to last.
func ended(err error) error {
	var no net.Error
	if errors.As(err, &no) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// pull reads somewhere and compares.
func (p *peer) pull() error {
	topic, queue := p.anyTopic(), p.anyQueue()
	low, high, err := p.c.Range(topic, queue)
	if err != nil {
		return err
	}
	at := low
	if high > low {
		at += p.rng.Int64N(high - low)
	}
	at += p.rng.Int64N(3) - 1 // sometimes outside
	tags := "*"
	if p.rng.IntN(2) == 0 {
		tags = p.tag() + " || " + p.tag()
	}
	last := at - 1
	_, r, err := p.c.Pull(harness.Pull{Topic: topic, Queue: queue, Offset: at, Tags: tags, Group: p.own()}, func(v *message.View) error {
		if v.QueueOffset <= last || string(v.Topic) != topic || v.QueueID != queue {
			return fmt.Errorf("%s/%d at %d: a record of %s/%d at %d", topic, queue, last, v.Topic, v.QueueID, v.QueueOffset)
		}
		last = v.QueueOffset
		if tag, _ := message.Property(v.Properties, "TAGS"); tags != "*" && !strings.Contains(tags, string(tag)) {
			return fmt.Errorf("%s/%d at %d has tag %s, wanted was %s", topic, queue, last, tag, tags)
		}
		p.m.audit(topic, v)
		return nil
	})
	if err == nil && r.MaxOffset < high {
		err = fmt.Errorf("%s/%d ends at %d, it was %d before", topic, queue, r.MaxOffset, high)
	}
	return err
}

// pullLong leaves a pull waiting at the end of a queue.
func (p *peer) pullLong() error {
	topic, queue := p.anyTopic(), p.anyQueue()
	_, high, err := p.c.Range(topic, queue)
	if err != nil {
		return err
	}
	h := command.PullRequest{
		ConsumerGroup: []byte(p.own()), Topic: []byte(topic), QueueID: queue, QueueOffset: high, MaxMsgNums: 32,
		SysFlag: command.PullSubscription | command.PullSuspend, SuspendTimeoutMillis: int64(1 + p.rng.IntN(3000)),
		Subscription: []byte(p.tag()), ExpressionType: []byte("TAG"),
	}
	_, err = p.c.Write(command.ReqPullMessage, h.Append, nil)
	return err
}

// commit moves the client's own group, whose progress nobody else changes.
func (p *peer) commit() error {
	at := progress{p.own(), p.anyTopic(), p.anyQueue()}
	to := p.rng.Int64N(1 << 40)
	h := command.UpdateConsumerOffsetRequest{ConsumerGroup: []byte(at.group), Topic: []byte(at.topic), QueueID: at.queue, CommitOffset: to}
	a, err := p.call(command.ReqUpdateConsumerOffset, h.Append, nil)
	if err != nil {
		return err
	}
	if err := a.Err(); err != nil {
		return err
	}
	p.m.committed(at, to)
	return nil
}

// sendBack has a message consumed again.
func (p *peer) sendBack() error {
	if p.from == "" {
		return nil
	}
	_, at, err := message.ParseOffsetID(string(p.last.MsgID))
	if err != nil {
		return err
	}
	return p.ask(command.ReqConsumerSendMsgBack, ext("group", p.group(), "originTopic", p.from, "offset", strconv.FormatInt(int64(at), 10),
		"delayLevel", "0", "originMsgId", string(p.last.MsgID), "maxReconsumeTimes", "16"), nil)
}

func (p *peer) heartbeat() error {
	b, err := command.EncodeBody(command.HeartbeatData{
		ClientID:        p.clientID(),
		ProducerDataSet: []command.ProducerData{{GroupName: "soak-producers"}},
		ConsumerDataSet: []command.ConsumerData{{
			GroupName: p.group(), ConsumeType: command.ConsumePassively, MessageModel: command.Clustering,
			SubscriptionDataSet: []command.SubscriptionData{{Topic: p.anyTopic(), SubString: p.tag(), SubVersion: command.Int(time.Now().UnixMilli())}},
		}},
	})
	if err != nil {
		return err
	}
	return p.ask(command.ReqHeartBeat, nil, b)
}

// share asks who is there and for the client's queues.
func (p *peer) share() error {
	if err := p.ask(command.ReqGetConsumerListByGroup, ext("consumerGroup", p.group()), nil); err != nil {
		return err
	}
	b, err := command.EncodeBody(command.QueryAssignmentBody{
		ClientID: p.clientID(), ConsumerGroup: p.group(), MessageModel: command.Clustering, StrategyName: "AVG", Topic: p.anyTopic(),
	})
	if err != nil {
		return err
	}
	return p.ask(command.ReqQueryAssignment, nil, b)
}

func (p *peer) lock() error {
	b, err := command.EncodeBody(command.LockBatchBody{
		ClientID: p.clientID(), ConsumerGroup: p.group(), MQSet: []command.MessageQueue{{Topic: p.anyTopic(), BrokerName: "broker-a", QueueID: p.anyQueue()}},
	})
	if err != nil {
		return err
	}
	code := command.ReqLockBatchMQ
	if p.rng.IntN(2) == 0 {
		code = command.ReqUnlockBatchMQ
	}
	return p.ask(code, nil, b)
}

func (p *peer) leave() error {
	return p.ask(command.ReqUnregisterClient, ext("clientID", p.clientID(), "consumerGroup", p.group(), "producerGroup", "soak-producers"), nil)
}

// topic makes and deletes topics, with messages in them.
func (p *peer) topic() error {
	name := fleeting(p.id)
	if p.rng.IntN(2) == 0 {
		return p.ask(command.ReqDeleteTopicInBroker, ext("topic", name), nil)
	}
	n := 1 + p.rng.Int32N(8)
	h := command.CreateTopicRequest{Topic: name, DefaultTopic: "TBW102", TopicFilterType: "SINGLE_TAG", ReadQueueNums: n, WriteQueueNums: n, Perm: 6}
	if err := p.ask(command.ReqUpdateAndCreateTopic, h.Append, nil); err != nil {
		return err
	}
	for _, t := range []string{name, name + "-auto"} {
		_, props := p.key()
		if _, err := p.c.CallSend(&harness.Send{Topic: t, Props: props, Body: p.body()}); err != nil {
			return err
		}
	}
	return p.ask(command.ReqDeleteTopicInBroker, ext("topic", name+"-auto"), nil)
}

// query looks for the newest message by its keys and its id.
func (p *peer) query() error {
	if p.from == "" {
		return nil
	}
	h := command.QueryMessageRequest{Topic: []byte(p.from), Key: []byte(fmt.Sprintf("%d-%d", p.id, p.sent)), EndTimestamp: 1 << 60, MaxNum: 32, UniqueKey: p.rng.IntN(2) == 0}
	if err := p.ask(command.ReqQueryMessage, h.Append, nil); err != nil {
		return err
	}
	_, at, err := message.ParseOffsetID(string(p.last.MsgID))
	if err != nil {
		return err
	}
	v := command.ViewMessageRequest{Offset: int64(at)}
	if err := p.ask(command.ReqViewMessageByID, v.Append, nil); err != nil {
		return err
	}
	s := command.SearchOffsetRequest{Topic: []byte(p.from), QueueID: p.anyQueue(), Timestamp: time.Now().UnixMilli() - p.rng.Int64N(5000), Upper: p.rng.IntN(2) == 0}
	return p.ask(command.ReqSearchOffsetByTimestamp, s.Append, nil)
}

// admin asks what tools ask.
func (p *peer) admin() error {
	topic, group := p.anyTopic(), p.group()
	all := []struct {
		code   int32
		fields func(*command.Writer)
	}{
		{command.ReqGetAllTopicConfig, nil}, {command.ReqGetBrokerConfig, nil}, {command.ReqGetBrokerRuntimeInfo, nil},
		{command.ReqGetAllConsumerOffset, nil}, {command.ReqGetAllSubscriptionGroupConfig, nil}, {command.ReqGetSystemTopicListFromBroker, nil},
		{command.ReqCleanExpiredConsumeQueue, nil}, {command.ReqDeleteExpiredCommitLog, nil}, {command.ReqCleanUnusedTopic, nil},
		{command.ReqGetAllMessageRequestMode, nil}, {command.ReqGetAllProducerInfo, nil},
		{command.ReqGetTopicStatsInfo, ext("topic", topic)}, {command.ReqQueryTopicConsumeByWho, ext("topic", topic)},
		{command.ReqGetConsumerConnectionList, ext("consumerGroup", group)}, {command.ReqGetProducerConnectionList, ext("producerGroup", "soak-producers")},
		{command.ReqGetConsumeStats, ext("consumerGroup", group)}, {command.ReqQueryTopicsByConsumer, ext("group", group)},
		{command.ReqQueryConsumeTimeSpan, ext("group", group, "topic", topic)}, {command.ReqQuerySubscriptionByConsumer, ext("group", group, "topic", topic)},
		{command.ReqGetBrokerConsumeStats, ext("isOrder", "false")}, {command.ReqViewBrokerStatsData, ext("statsName", "TOPIC_PUT_NUMS", "statsKey", topic)},
		{command.ReqQueryConsumeQueue, ext("topic", topic, "queueId", "0", "index", "0", "count", "10")},
		{command.ReqGetTopicConfig, ext("topic", topic)}, {command.ReqGetSubscriptionGroupConfig, ext("group", group)},
		{command.ReqQueryCorrectionOffset, ext("compareGroup", group, "topic", topic)},
		{command.ReqCloneGroupOffset, ext("srcGroup", group, "destGroup", "soak-clone", "topic", topic, "offline", "true")},
		{9999, nil},
	}
	a := all[p.rng.IntN(len(all))]
	return p.ask(a.code, a.fields, nil)
}

// reset moves the progress of a group that several clients use.
func (p *peer) reset() error {
	r := command.ResetOffsetRequest{Group: p.group(), Topic: p.anyTopic(), Timestamp: time.Now().UnixMilli() - p.rng.Int64N(5000), Offset: -1, QueueID: -1, Force: p.rng.IntN(2) == 0}
	return p.ask(command.ReqInvokeBrokerToResetOffset, r.Append, nil)
}

// configure changes the configuration of the broker while it is used.
func (p *peer) configure() error {
	lines := []string{
		fmt.Sprintf("cleanResourceInterval=%d", 10+p.rng.IntN(40)), fmt.Sprintf("maxTransferCountOnMessageInMemory=%d", 16+p.rng.IntN(32)),
		fmt.Sprintf("brokerPermission=6\ntraceOn=%v", p.rng.IntN(2) == 0), "diskMaxUsedSpaceRatio=" + strconv.Itoa(70+p.rng.IntN(10)),
	}
	a, err := p.call(command.ReqUpdateBrokerConfig, nil, []byte(lines[p.rng.IntN(len(lines))]+"\n"))
	if err == nil {
		err = a.Err()
	}
	return err
}

// reconnect leaves whatever is under way behind.
func (p *peer) reconnect() error {
	if p.rng.IntN(2) == 0 {
		if _, err := p.c.WriteSend(&harness.Send{Topic: p.anyTopic(), Props: "", Body: p.body()}); err != nil {
			return err
		}
	}
	_ = p.c.Close()
	if !p.dial() {
		return errors.New("no connection")
	}
	return nil
}

// halfFrame ends in the middle of a frame, or sends what is none.
func (p *peer) halfFrame() error {
	c, err := net.Dial("tcp", p.n.Addr)
	if err != nil {
		return err
	}
	defer c.Close()
	_, props := p.key()
	f := p.frame(props, 0)
	switch p.rng.IntN(4) {
	case 0: // whole ones and a half one
		f = append(slices.Clone(f), f[:p.rng.IntN(len(f))]...)
	case 1:
		f = f[:p.rng.IntN(len(f))]
	case 2:
		for i := range f[4:] {
			f[4+i] = byte(p.rng.Uint32())
		}
	default: // a length that is too large
		f = append([]byte{0x7f, 0xff, 0xff, 0xff}, f[4:]...)
	}
	_, err = c.Write(f)
	if tcp, ok := c.(*net.TCPConn); ok && p.rng.IntN(2) == 0 {
		_ = tcp.SetLinger(0)
	}
	return ended(err)
}
