package admin

import (
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
)

// progress registers what is about how far groups are.
func (a *Admin) progress() {
	k := a.k
	k.Handle(command.ReqGetConsumeStats, a.consumeStats)
	k.Handle(command.ReqGetBrokerConsumeStats, a.brokerConsumeStats)
	k.Handle(command.ReqQueryConsumeTimeSpan, a.timeSpan)
	k.Handle(command.ReqQueryCorrectionOffset, a.correction)
	k.Handle(command.ReqQueryTopicsByConsumer, a.topicsOf)
	k.Handle(command.ReqQuerySubscriptionByConsumer, a.subscription)
	k.Handle(command.ReqCloneGroupOffset, a.clone)
	k.Handle(command.ReqInvokeBrokerToResetOffset, a.reset)
}

// consumeStats serves GET_CONSUME_STATS (208). A group or topic without progress gives
// an empty table: tools ask for the connections then, to say why.
func (a *Admin) consumeStats(r *kernel.Request) {
	var h command.ConsumeStatsRequest
	err := h.Decode(r.Header)
	if err == nil {
		err = a.known("the progress of consumers is")
	}
	if err != nil {
		r.Fail(err)
		return
	}
	var topics []string
	switch {
	case h.TopicList != "":
		topics = strings.Split(h.TopicList, ";")
	case h.Topic != "":
		topics = []string{h.Topic}
	default:
		topics = a.k.Offsets.Of(h.ConsumerGroup)
	}
	out := command.ConsumeStats{OffsetTable: map[command.MessageQueue]command.OffsetWrapper{}}
	for _, name := range topics {
		s, err := a.statsOf(h.ConsumerGroup, name)
		if err != nil {
			r.Fail(err)
			return
		}
		if s != nil {
			maps.Copy(out.OffsetTable, s.OffsetTable)
			out.ConsumeTps += s.ConsumeTps
		}
	}
	reply(r, out.AppendJSON(nil))
}

// statsOf is how far a group is in a topic; nil: there is no such topic, or the group
// has members that do not subscribe it (any more).
func (a *Admin) statsOf(group, name string) (*command.ConsumeStats, error) {
	t := a.k.Topics.Named(name)
	if t == nil || t.Internal {
		return nil, nil
	}
	if sub, _, live := a.clients.Subscribed(group, name); live && sub == nil {
		return nil, nil
	}
	ends, err := a.q.Ends(a.reading(), name, t.Config.ReadQueueNums)
	if err != nil {
		return nil, err
	}
	out := &command.ConsumeStats{ConsumeTps: a.stats.GetTps(group, name), OffsetTable: make(map[command.MessageQueue]command.OffsetWrapper, len(ends))}
	for _, e := range ends {
		n, _ := a.k.Offsets.Committed(group, e.Queue)
		n = max(n, 0)
		out.OffsetTable[a.queue(e.Queue)] = command.OffsetWrapper{
			BrokerOffset: e.Max, ConsumerOffset: n, PullOffset: max(n, a.stats.Pulled(group, e.Queue)),
			LastTimestamp: a.q.StoreTime(a.reading(), e.Queue, n-1),
		}
	}
	return out, nil
}

// brokerConsumeStats serves GET_BROKER_CONSUME_STATS (317): how far all groups are.
func (a *Admin) brokerConsumeStats(r *kernel.Request) {
	var h command.BrokerConsumeStatsRequest
	err := h.Decode(r.Header)
	if err == nil {
		err = a.known("the progress of consumers is")
	}
	if err != nil {
		r.Fail(err)
		return
	}
	out := command.ConsumeStatsList{BrokerAddr: a.k.Config().Advertise.String()}
	groups, _ := a.k.Groups.All()
	for _, g := range groups {
		of := command.GroupConsumeStats{Group: g.GroupName}
		for _, name := range a.k.Offsets.Of(g.GroupName) {
			if t := a.k.Topics.Named(name); h.Order && (t == nil || !t.Config.Order) {
				continue
			}
			s, err := a.statsOf(g.GroupName, name)
			if err != nil {
				r.Fail(err)
				return
			}
			if s == nil {
				continue
			}
			of.Stats = append(of.Stats, *s)
			for _, o := range s.OffsetTable {
				out.TotalDiff += o.BrokerOffset - o.ConsumerOffset
				out.TotalInflightDiff += o.PullOffset - o.ConsumerOffset
			}
		}
		out.Groups = append(out.Groups, of)
	}
	reply(r, out.AppendJSON(nil))
}

// timeSpan serves QUERY_CONSUME_TIME_SPAN (303): when what a group read was stored.
func (a *Admin) timeSpan(r *kernel.Request) {
	var h command.GroupTopicRequest
	err := h.Decode(r.Header)
	var t *kernel.Topic
	if err == nil {
		t, err = a.topicNamed(h.Topic)
	}
	if err == nil {
		err = a.known("the progress of consumers is")
	}
	if err != nil {
		r.Fail(err)
		return
	}
	ends, err := a.q.Ends(a.reading(), h.Topic, t.Config.WriteQueueNums)
	if err != nil {
		r.Fail(err)
		return
	}
	var out command.ConsumeTimeSpans
	for _, e := range ends {
		s := command.QueueTimeSpan{MessageQueue: a.queue(e.Queue)}
		if e.Max > e.Min {
			s.MinTimeStamp = a.q.StoreTime(a.reading(), e.Queue, e.Min)
			s.MaxTimeStamp = a.q.StoreTime(a.reading(), e.Queue, e.Max-1)
		}
		n, _ := a.k.Offsets.Committed(h.Group, e.Queue)
		n = max(n, e.Min) // what is gone is not waited for
		s.ConsumeTimeStamp = s.MinTimeStamp
		if n > e.Min {
			s.ConsumeTimeStamp = a.q.StoreTime(a.reading(), e.Queue, n-1)
		}
		if n < e.Max {
			if at := a.q.StoreTime(a.reading(), e.Queue, n); at > 0 {
				s.DelayTime = max(a.k.Clock.Now().UnixMilli()-at, 0)
			}
		}
		out.Spans = append(out.Spans, s)
	}
	answer(r, out, nil)
}

// correction serves QUERY_CORRECTION_OFFSET (308): in each queue the least progress of
// all groups but some; 2^63-1 where the compared group is behind that.
func (a *Admin) correction(r *kernel.Request) {
	var h command.CorrectionOffsetRequest
	err := h.Decode(r.Header)
	var t *kernel.Topic
	if err == nil {
		t, err = a.topicNamed(h.Topic)
	}
	if err != nil {
		r.Fail(err)
		return
	}
	ends, err := a.q.Ends(a.reading(), h.Topic, max(t.Config.ReadQueueNums, t.Config.WriteQueueNums))
	if err != nil {
		r.Fail(err)
		return
	}
	not := strings.Split(h.FilterGroups, ",")
	out := command.CorrectionOffsets{Offsets: map[int32]int64{}}
	for _, group := range a.k.Offsets.In(h.Topic) {
		if slices.Contains(not, group) {
			continue
		}
		for _, e := range ends {
			n, ok := a.k.Offsets.Committed(group, e.Queue)
			if !ok || n < e.Min {
				continue
			}
			if old, had := out.Offsets[e.Queue.ID]; !had || n < old {
				out.Offsets[e.Queue.ID] = n
			}
		}
	}
	for id, least := range out.Offsets {
		if n, ok := a.k.Offsets.Committed(h.CompareGroup, message.Queue{Topic: h.Topic, ID: id}); ok && least > n {
			out.Offsets[id] = math.MaxInt64
		}
	}
	answer(r, out, nil)
}

// topicsOf serves QUERY_TOPICS_BY_CONSUMER (343): where a group has progress.
func (a *Admin) topicsOf(r *kernel.Request) {
	var h command.GroupRequest
	err := h.Decode(r.Header)
	answer(r, command.TopicList{Topics: a.k.Offsets.Of(h.Group), BrokerAddr: a.k.Config().Advertise.String()}, err)
}

// subscription serves QUERY_SUBSCRIPTION_BY_CONSUMER (345).
func (a *Admin) subscription(r *kernel.Request) {
	var h command.GroupTopicRequest
	err := h.Decode(r.Header)
	out := command.ConsumerSubscription{Group: h.Group, Topic: h.Topic}
	if sub, _, _ := a.clients.Subscribed(h.Group, h.Topic); sub != nil {
		out.SubscriptionData = &sub.Data
	}
	answer(r, out, err)
}

// clone serves CLONE_GROUP_OFFSET (314): one group goes on where another one is. It is
// a reset: members of the group that live obey it.
func (a *Admin) clone(r *kernel.Request) {
	var h command.CloneGroupOffsetRequest
	err := h.Decode(r.Header)
	switch {
	case err != nil:
	case a.k.Groups.Named(h.SrcGroup) == nil:
		err = noGroup(h.SrcGroup)
	case message.CheckGroup(h.DestGroup) != nil:
		err = &api.Error{ID: api.InvalidParameter, Text: message.CheckGroup(h.DestGroup).Error()}
	default:
		err = a.known("the progress of consumers is")
	}
	topics := []string{h.Topic}
	if h.Topic == "" {
		topics = a.k.Offsets.Of(h.SrcGroup)
	}
	ctx, cancel := a.k.Waiting()
	defer cancel()
	if err == nil {
		_, err = a.k.Groups.Ensure(ctx, h.DestGroup)
	}
	for _, name := range topics {
		t := a.k.Topics.Named(name)
		if err != nil || t == nil || t.Internal {
			continue
		}
		if sub, _, live := a.clients.Subscribed(h.SrcGroup, name); !h.Offline && live && sub == nil {
			continue
		}
		at := map[int32]int64{}
		for id := range max(t.Config.ReadQueueNums, t.Config.WriteQueueNums) {
			if n, ok := a.k.Offsets.Committed(h.SrcGroup, message.Queue{Topic: name, ID: id}); ok {
				at[id] = n
			}
		}
		if len(at) > 0 {
			err = a.k.Offsets.Reset(ctx, h.DestGroup, name, at)
		}
	}
	if err != nil {
		r.Fail(err)
		return
	}
	r.OK()
}
