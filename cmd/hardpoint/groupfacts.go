package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/internal/adminclient"
)

// groupOn is how one broker has a group.
type groupOn struct {
	adminclient.Broker
	// Has: the broker has the group; else all of its form is that of a new one.
	Has bool `json:"has"`
	groupForm
	// Forbidden are the topics that the group may not read there.
	Forbidden []string `json:"forbidden,omitempty"`
}

// groupMember is a client of a group.
type groupMember struct {
	ClientID string `json:"clientId"`
	Address  string `json:"address"`
	Language string `json:"language"`
	Version  string `json:"version"`
	// Brokers are those that it is connected to.
	Brokers []string `json:"brokers"`
	// Queues is how many it holds, by its own account; -1: it does not tell.
	Queues  int    `json:"queues"`
	Silence string `json:"silence,omitempty"` // why it does not tell

	subscriptions map[string]string // topic → expression, by its own account
}

// groupSubscription is what a group wants of a topic.
type groupSubscription struct {
	Topic      string `json:"topic"`
	Type       string `json:"type"` // TAG or SQL92
	Expression string `json:"expression"`
}

// groupQueue is how far a group is in one queue.
type groupQueue struct {
	Topic  string `json:"topic"`
	Broker string `json:"broker"`
	Queue  int32  `json:"queue"`
	Min    int64  `json:"minOffset"`
	Max    int64  `json:"maxOffset"`
	// Committed is the offset of the next message to consume; 0 also when nothing was
	// committed yet. Pulled is behind the last one that was handed out.
	Committed int64 `json:"committed"`
	Pulled    int64 `json:"pulled"`
	Lag       int64 `json:"lag"`
	InFlight  int64 `json:"inFlight"`
	// LagMs is how long the next message waits, 0: none does. Consumed is when the last
	// one that was consumed was stored.
	LagMs    int64   `json:"lagMs"`
	Consumed instant `json:"lastConsumedStored"`
	// By the account of the client that holds the queue; empty: nobody says so.
	Owner    string  `json:"owner"`
	LastPull instant `json:"lastPull"`
	LastWork instant `json:"lastConsume"`
	Cached   int64   `json:"cached"`

	others []string // who says it holds the queue besides Owner
}

func (q *groupQueue) name() string { return fmt.Sprintf("%s %s/%d", q.Topic, q.Broker, q.Queue) }

// groupFacts is all that brokers and members say of a group.
type groupFacts struct {
	Group         string                   `json:"group"`
	Brokers       []groupOn                `json:"brokers"`
	ConsumeType   command.ConsumeType      `json:"consumeType"` // empty: no member is connected
	MessageModel  command.MessageModel     `json:"messageModel"`
	From          command.ConsumeFromWhere `json:"consumeFromWhere"`
	Members       []groupMember            `json:"members"`
	Subscriptions []groupSubscription      `json:"subscriptions"`

	only   string // the one topic that was asked for
	queues []groupQueue
	topics map[string]*factTopic
	dead   int64    // dead letters
	known  []string // topics of all clusters, when one is missing
}

// factTopic is what is known of a topic that the group has to do with.
type factTopic struct {
	on        map[string]int32 // broker → permission; only brokers that have it
	routes    map[string]int32 // broker → permission that clients are told
	hasRoutes bool
}

// asking says what is asked for besides form, members and subscriptions.
type asking struct {
	topic    string // only this one
	progress bool
	running  bool // what members say of their queues
}

// at is what one broker says of a group.
type factsAt struct {
	cfg       *command.SubscriptionGroupConfig
	forbidden map[string]int32 // topics that the group is kept from, as bits of permissions
	conns     *command.ConsumerConnection
	queues    []groupQueue
	topics    map[string]int32 // permissions
	dead      int64
}

// gatherGroup asks brokers for a group. A group that no broker has, and that has
// neither a member nor, where it is asked for, progress, is a *adminclient.NotFoundError. The error may be of some brokers only: then
// there are facts as well.
func gatherGroup(ctx context.Context, c *adminclient.Client, s adminclient.Selection, group string, a asking) (*groupFacts, error) {
	brokers, err := c.Brokers(ctx, s)
	if err != nil {
		return nil, err
	}
	f := &groupFacts{Group: group, only: a.topic, Brokers: []groupOn{}, Members: []groupMember{}, Subscriptions: []groupSubscription{}, topics: map[string]*factTopic{}}
	// First who subscribes what: a broker may not know it of the topics that it has.
	results := adminclient.Each(ctx, brokers, func(ctx context.Context, b adminclient.Broker) (*factsAt, error) {
		at := &factsAt{topics: map[string]int32{}}
		var err error
		if at.cfg, at.forbidden, err = groupAndForbidden(ctx, c, b, group); err == nil {
			at.conns, err = connectionsAt(ctx, c, b, group)
		}
		return at, err
	})
	known := false
	for _, r := range results {
		if r.Err == nil {
			f.take(r.Broker, r.Value)
			known = known || r.Value.cfg != nil || r.Value.conns != nil
		}
	}
	failed := adminclient.Failed(results)
	if !known && failed == nil && !a.progress {
		return nil, groupEntity().missing(ctx, c, group, len(brokers))
	}
	if a.progress {
		wanted := make([]string, len(f.Subscriptions))
		for i, s := range f.Subscriptions {
			wanted[i] = s.Topic
		}
		var there []adminclient.Broker
		for _, r := range results {
			if r.Err == nil {
				there = append(there, r.Broker)
			}
		}
		more := adminclient.Each(ctx, there, func(ctx context.Context, b adminclient.Broker) (*factsAt, error) {
			return progressAt(ctx, c, b, group, wanted, a.topic)
		})
		for _, r := range more {
			if r.Err == nil {
				f.progress(r.Broker, r.Value)
			}
		}
		failed = joinFailures(len(brokers), failed, adminclient.Failed(more))
		if !known && failed == nil && len(f.queues) == 0 {
			return nil, groupEntity().missing(ctx, c, group, len(brokers))
		}
		f.askRoutes(ctx, c)
		if slices.ContainsFunc(f.Subscriptions, func(s groupSubscription) bool { return f.topics[s.Topic] == nil }) {
			f.known, _ = c.TopicNames(ctx) // for suggestions only
		}
	}
	if a.running {
		f.askMembers(ctx, c, brokers)
	}
	return f, failed
}

// joinFailures makes one error of two about the same n brokers.
func joinFailures(n int, errs ...error) error {
	e := &adminclient.PartialError{Asked: n}
	for _, err := range errs {
		e.Failures = append(e.Failures, adminclient.FailuresOf(err)...)
	}
	if len(e.Failures) == 0 {
		return nil
	}
	return e
}

// take adds what a broker says of form and members.
func (f *groupFacts) take(b adminclient.Broker, at *factsAt) {
	on := groupOn{Broker: b, Has: at.cfg != nil}
	if at.cfg != nil {
		on.groupForm = formOf(at.cfg)
	}
	for _, topic := range slices.Sorted(maps.Keys(at.forbidden)) {
		if at.forbidden[topic]&command.PermRead != 0 {
			on.Forbidden = append(on.Forbidden, topic)
		}
	}
	f.Brokers = append(f.Brokers, on)
	if at.conns == nil {
		return
	}
	f.ConsumeType, f.MessageModel, f.From = cmp.Or(f.ConsumeType, at.conns.ConsumeType), cmp.Or(f.MessageModel, at.conns.MessageModel), cmp.Or(f.From, at.conns.ConsumeFromWhere)
	for _, m := range at.conns.ConnectionSet {
		i := slices.IndexFunc(f.Members, func(o groupMember) bool { return o.ClientID == m.ClientID })
		if i < 0 {
			i = len(f.Members)
			f.Members = append(f.Members, groupMember{ClientID: m.ClientID, Address: m.ClientAddr, Language: m.Language, Version: versionText(m.Version), Queues: -1})
		}
		f.Members[i].Brokers = append(f.Members[i].Brokers, b.Name)
	}
	slices.SortFunc(f.Members, func(a, b groupMember) int { return strings.Compare(a.ClientID, b.ClientID) })
	for topic, s := range at.conns.SubscriptionTable {
		if !slices.ContainsFunc(f.Subscriptions, func(o groupSubscription) bool { return o.Topic == topic }) {
			f.Subscriptions = append(f.Subscriptions, groupSubscription{topic, cmp.Or(s.ExpressionType, "TAG"), s.SubString})
		}
	}
	slices.SortFunc(f.Subscriptions, func(a, b groupSubscription) int { return strings.Compare(a.Topic, b.Topic) })
}

// progressAt asks a broker how far a group is, in the topics that it has progress in
// and in those that it wants.
func progressAt(ctx context.Context, c *adminclient.Client, b adminclient.Broker, group string, wanted []string, only string) (*factsAt, error) {
	at := &factsAt{topics: map[string]int32{}}
	stats, err := adminclient.Get[command.ConsumeStats](ctx, c, b.Address, command.ReqGetConsumeStats, &command.ConsumeStatsRequest{ConsumerGroup: group, Topic: only}, nil)
	if code, _ := adminclient.CodeOf(err); code == command.RespTopicNotExist { // Apache's
		err = nil
	}
	if err != nil {
		return nil, err
	}
	offsets := stats.OffsetTable
	if offsets == nil {
		offsets = map[command.MessageQueue]command.OffsetWrapper{}
	}
	topics := slices.Clone(wanted)
	for q := range offsets {
		topics = append(topics, q.Topic)
	}
	slices.Sort(topics)
	topics = slices.DeleteFunc(slices.Compact(topics), func(t string) bool { return only != "" && t != only })
	for _, topic := range topics {
		if err := at.topic(ctx, c, b, group, topic, offsets); err != nil {
			return nil, err
		}
	}
	letters, err := adminclient.Get[command.TopicStatsTable](ctx, c, b.Address, command.ReqGetTopicStatsInfo, &command.TopicRequest{Topic: message.DLQPrefix + group}, nil)
	for _, o := range letters.OffsetTable {
		at.dead += o.MaxOffset - o.MinOffset
	}
	if code, _ := adminclient.CodeOf(err); code == command.RespTopicNotExist {
		err = nil
	}
	return at, err
}

// topic adds the queues that a broker has of a topic.
func (at *factsAt) topic(ctx context.Context, c *adminclient.Client, b adminclient.Broker, group, topic string, offsets map[command.MessageQueue]command.OffsetWrapper) error {
	cfg, err := topicConfig(ctx, c, b, topic)
	if cfg == nil {
		return err
	}
	at.topics[topic] = cfg.Perm
	if !slices.ContainsFunc(slices.Collect(maps.Keys(offsets)), func(q command.MessageQueue) bool { return q.Topic == topic }) {
		stats, err := adminclient.Get[command.ConsumeStats](ctx, c, b.Address, command.ReqGetConsumeStats, &command.ConsumeStatsRequest{ConsumerGroup: group, Topic: topic}, nil)
		if err != nil {
			return err
		}
		maps.Copy(offsets, stats.OffsetTable)
	}
	ends, err := adminclient.Get[command.TopicStatsTable](ctx, c, b.Address, command.ReqGetTopicStatsInfo, &command.TopicRequest{Topic: topic}, nil)
	if err != nil {
		return err
	}
	spans, err := adminclient.Get[command.ConsumeTimeSpans](ctx, c, b.Address, command.ReqQueryConsumeTimeSpan, &command.GroupTopicRequest{Group: group, Topic: topic}, nil)
	if err != nil {
		return err
	}
	waits := map[int32]int64{}
	for _, s := range spans.Spans {
		if s.DelayTime < longestWait.Milliseconds() {
			waits[s.MessageQueue.QueueID] = s.DelayTime
		}
	}
	for q, o := range offsets {
		if q.Topic != topic {
			continue
		}
		e := ends.OffsetTable[q]
		l := groupQueue{
			Topic: topic, Broker: q.BrokerName, Queue: q.QueueID, Min: e.MinOffset, Max: max(e.MaxOffset, o.BrokerOffset), Committed: o.ConsumerOffset, Pulled: o.PullOffset,
			Consumed: instant(o.LastTimestamp), LagMs: waits[q.QueueID],
		}
		// What is gone is not waited for.
		l.Lag = max(l.Max-max(l.Committed, l.Min), 0)
		l.InFlight = max(min(o.PullOffset, l.Max)-o.ConsumerOffset, 0)
		if l.Lag == 0 {
			l.LagMs = 0
		}
		at.queues = append(at.queues, l)
	}
	return nil
}

// longestWait bounds what is believed: Apache's brokers count from 1970 when they do not
// know when a message was stored.
const longestWait = 20 * 365 * 24 * time.Hour

// progress adds what a broker says of topics and queues.
func (f *groupFacts) progress(b adminclient.Broker, at *factsAt) {
	for topic, perm := range at.topics {
		f.topicNamed(topic).on[b.Name] = perm
	}
	f.queues = append(f.queues, at.queues...)
	f.dead += at.dead
	slices.SortFunc(f.queues, func(a, b groupQueue) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), strings.Compare(a.Broker, b.Broker), cmp.Compare(a.Queue, b.Queue))
	})
}

func (f *groupFacts) topicNamed(name string) *factTopic {
	t := f.topics[name]
	if t == nil {
		t = &factTopic{on: map[string]int32{}, routes: map[string]int32{}}
		f.topics[name] = t
	}
	return t
}

// askRoutes asks a name server what clients are told of the topics. Without one
// nothing is known of it.
func (f *groupFacts) askRoutes(ctx context.Context, c *adminclient.Client) {
	for topic, t := range f.topics {
		r, err := c.Route(ctx, topic)
		if err != nil {
			continue
		}
		t.hasRoutes = true
		for _, q := range r.QueueDatas {
			t.routes[q.BrokerName] = q.Perm
		}
	}
}

// askMembers asks each member, by way of a broker, which queues it holds.
func (f *groupFacts) askMembers(ctx context.Context, c *adminclient.Client, brokers []adminclient.Broker) {
	// Members take the place of brokers in Each.
	asked := make([]adminclient.Broker, len(f.Members))
	for i, m := range f.Members {
		asked[i] = adminclient.Broker{Name: m.ClientID}
		for _, b := range brokers {
			if slices.Contains(m.Brokers, b.Name) {
				asked[i].Address = b.Address
			}
		}
	}
	results := adminclient.Each(ctx, asked, func(ctx context.Context, m adminclient.Broker) (command.ConsumerRunningInfo, error) {
		return adminclient.Get[command.ConsumerRunningInfo](ctx, c, m.Address, command.ReqGetConsumerRunningInfo, &command.ConsumerRunningInfoRequest{ConsumerGroup: f.Group, ClientID: m.Name}, nil)
	})
	for i, r := range results {
		m := &f.Members[i]
		if r.Err != nil {
			m.Silence = r.Err.Error()
			continue
		}
		m.Queues = 0
		m.subscriptions = map[string]string{}
		for _, s := range r.Value.SubscriptionSet {
			m.subscriptions[s.Topic] = s.SubString
		}
		for q, info := range r.Value.MQTable {
			if info.Dropped {
				continue
			}
			m.Queues++
			f.owned(m.ClientID, q, info)
		}
	}
}

// owned books what a member says of a queue.
func (f *groupFacts) owned(client string, q command.MessageQueue, info command.ProcessQueueInfo) {
	for i := range f.queues {
		l := &f.queues[i]
		if l.Topic != q.Topic || l.Broker != q.BrokerName || l.Queue != q.QueueID {
			continue
		}
		if l.Owner != "" {
			l.others = append(l.others, client)
			continue
		}
		l.Owner, l.LastPull, l.LastWork, l.Cached = client, instant(info.LastPullTimestamp), instant(info.LastConsumeTimestamp), info.CachedMsgCount
	}
}

// versionText is a version of RocketMQ's protocol as of releases: from 4.5 on its
// numbers go by two, snapshots being the even ones.
func versionText(ordinal int32) string {
	const since, first = 303, 445 // 4.4.5
	if ordinal < since {
		return fmt.Sprintf("protocol %d", ordinal)
	}
	n := first + (ordinal-since)/2
	text := fmt.Sprintf("%d.%d.%d", n/100, n/10%10, n%10)
	if ordinal%2 == 0 {
		n++
		text = fmt.Sprintf("%d.%d.%d-SNAPSHOT", n/100, n/10%10, n%10)
	}
	return text
}
