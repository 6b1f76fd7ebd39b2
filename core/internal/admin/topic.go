package admin

import (
	"context"
	"fmt"
	"slices"

	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/internal/stats"
	"github.com/hardpointmq/hardpoint/core/message"
)

// topics registers what is about topics.
func (a *Admin) topics() {
	k := a.k
	k.Handle(command.ReqUpdateAndCreateTopic, a.timed(stats.Creation{}, a.createTopic))
	k.Handle(command.ReqUpdateAndCreateTopicList, a.timed(stats.Creation{}, a.createTopics))
	k.Handle(command.ReqGetAllTopicConfig, a.allTopics)
	k.Handle(command.ReqGetTopicConfig, a.topicConfig)
	k.Handle(command.ReqDeleteTopicInBroker, a.deleteTopic)
	k.Handle(command.ReqGetTopicStatsInfo, a.topicStats)
	k.Handle(command.ReqQueryTopicConsumeByWho, a.consumers)
	k.Handle(command.ReqGetSystemTopicListFromBroker, a.systemTopics)
	k.Handle(command.ReqCleanUnusedTopic, a.cleanUnused)
	k.Hooks.OnTopicRemoved(a.dropQueues)
	k.Hooks.OnStart(a.finishDeletes)
}

// timed is a handler whose requests are counted as c. A list counts once.
func (a *Admin) timed(c stats.Creation, handle func(*kernel.Request)) func(*kernel.Request) {
	return func(r *kernel.Request) {
		c, began := c, a.k.Uptime()
		if r.Header.Code == command.ReqUpdateAndCreateTopic {
			var h command.CreateTopicRequest
			c.System = h.Decode(r.Header) == nil && message.IsSystem(h.Topic)
		}
		handle(r)
		c.Failed = r.Code() != command.RespSuccess
		a.stats.Created(c, a.k.Uptime()-began)
	}
}

func (a *Admin) createTopic(r *kernel.Request) {
	var h command.CreateTopicRequest
	if err := h.Decode(r.Header); err != nil {
		r.Fail(err)
		return
	}
	if err := a.k.Writable(); err != nil {
		r.Fail(err)
		return
	}
	t := command.TopicConfig{
		TopicName: string(h.Topic), ReadQueueNums: h.ReadQueueNums, WriteQueueNums: h.WriteQueueNums, Perm: h.Perm,
		TopicFilterType: string(h.TopicFilterType), TopicSysFlag: h.TopicSysFlag, Order: h.Order,
	}
	err := Check(&t)
	if err == nil {
		t.Attributes, err = attributes(string(h.Attributes), a.k.Topics.Named(t.TopicName))
	}
	ctx, cancel := a.k.Waiting()
	defer cancel()
	if err == nil {
		err = a.k.Topics.Put(ctx, t)
	}
	if err != nil {
		r.Fail(err)
		return
	}
	a.k.TellNameServers()
	r.OK()
}

// createTopics serves UPDATE_AND_CREATE_TOPIC_LIST (18): all that may be are checked
// before the first is stored. Attributes are whole, not changes.
func (a *Admin) createTopics(r *kernel.Request) {
	var list command.TopicConfigList
	err := command.DecodeBody(r.Frame.Body, &list)
	if err != nil {
		err = badBody(err)
	} else {
		err = a.k.Writable()
	}
	for i := range list.Topics {
		if err == nil {
			err = Check(&list.Topics[i])
		}
	}
	ctx, cancel := a.k.Waiting()
	defer cancel()
	if err == nil {
		err = a.k.Topics.Put(ctx, list.Topics...)
	}
	if err != nil {
		r.Fail(err)
		return
	}
	a.k.TellNameServers()
	r.OK()
}

// page cuts the part of a table that a request asks for: slaves of 5.3 fetch large
// tables in parts. The whole table is given when none is asked for.
func page[T any](r *kernel.Request, all []T, version command.DataVersion) ([]T, *command.TablePageRequest, error) {
	var h command.TablePageRequest
	if err := h.Decode(r.Header); err != nil {
		return nil, nil, err
	}
	if h.Max <= 0 {
		return all, nil, nil
	}
	from := int(max(h.Seq, 0))
	var of command.DataVersion
	if h.DataVersion != "" && (command.DecodeBody([]byte(h.DataVersion), &of) != nil || of != version) {
		from = 0 // the table changed meanwhile
	}
	from = min(from, len(all))
	return all[from:min(from+int(min(h.Max, maxPage)), len(all))], &h, nil
}

// maxPage bounds a part of a table (splitMetadataSize).
const maxPage = 2000

// allTopics serves GET_ALL_TOPIC_CONFIG (21).
func (a *Admin) allTopics(r *kernel.Request) {
	all, version := a.k.Topics.All()
	part, asked, err := page(r, all, version)
	if err != nil {
		r.Fail(err)
		return
	}
	out := command.TopicConfigSerializeWrapper{
		DataVersion: version, TopicConfigTable: make(map[string]command.TopicConfig, len(part)), MappingDataVersion: &command.DataVersion{},
	}
	for _, t := range part {
		out.TopicConfigTable[t.Config.TopicName] = t.Config
	}
	answerTable(r, out, asked, len(all))
}

// answerTable answers with a table, or with a part of it and how long it is.
func answerTable(r *kernel.Request, v any, asked *command.TablePageRequest, total int) {
	body, err := command.EncodeBody(v)
	if err != nil {
		r.Fail(err)
		return
	}
	w := r.Begin(command.RespSuccess)
	if asked != nil {
		w.AppendTotal(r.Header.Code, total)
	}
	r.Reply(w, body)
}

// named decodes the topic of a request and looks it up; the error has the code that
// tools know.
func (a *Admin) named(r *kernel.Request) (*kernel.Topic, error) {
	var h command.TopicRequest
	if err := h.Decode(r.Header); err != nil {
		return nil, err
	}
	return a.topicNamed(h.Topic)
}

func (a *Admin) topicNamed(name string) (*kernel.Topic, error) {
	t := a.k.Topics.Named(name)
	if t == nil || t.Internal {
		return nil, &api.Error{ID: api.TopicNotExist, Text: fmt.Sprintf("topic[%s] not exist", name)}
	}
	return t, nil
}

// topicConfig serves GET_TOPIC_CONFIG (351).
func (a *Admin) topicConfig(r *kernel.Request) {
	t, err := a.named(r)
	if err != nil {
		if api.IDOf(err) == api.TopicNotExist {
			err = &api.Error{ID: api.TopicNotExist, Text: fmt.Sprintf("No topic in this broker. topic: %s", r.Header.ExtString("topic"))}
		}
		r.Fail(err)
		return
	}
	answer(r, t.Config, nil)
}

// topicStats serves GET_TOPIC_STATS_INFO (202). All queues are in the answer, empty
// ones with zeros: tools that reset progress look each of them up.
func (a *Admin) topicStats(r *kernel.Request) {
	t, err := a.named(r)
	if err == nil {
		err = a.known("the ends of queues are")
	}
	if err != nil {
		r.Fail(err)
		return
	}
	name := t.Config.TopicName
	ends, err := a.q.Ends(a.reading(), name, max(t.Config.ReadQueueNums, t.Config.WriteQueueNums))
	if err != nil {
		r.Fail(err)
		return
	}
	out := command.TopicStatsTable{OffsetTable: make(map[command.MessageQueue]command.TopicOffset, len(ends)), TopicPutTps: a.stats.PutTps(name)}
	for _, e := range ends {
		o := command.TopicOffset{MinOffset: e.Min, MaxOffset: e.Max}
		if e.Max > e.Min {
			o.LastUpdateTimestamp = a.q.StoreTime(a.reading(), e.Queue, e.Max-1)
		}
		out.OffsetTable[a.queue(e.Queue)] = o
	}
	reply(r, out.AppendJSON(nil))
}

// queue is a queue as tools name it.
func (a *Admin) queue(q message.Queue) command.MessageQueue {
	return command.MessageQueue{BrokerName: a.k.Config().BrokerName, QueueID: q.ID, Topic: q.Topic}
}

// consumers serves QUERY_TOPIC_CONSUME_BY_WHO (300): the groups that subscribe a topic
// now, and those that have progress in it.
func (a *Admin) consumers(r *kernel.Request) {
	var h command.TopicRequest
	if err := h.Decode(r.Header); err != nil {
		r.Fail(err)
		return
	}
	groups := append(a.clients.Subscribers(h.Topic), a.k.Offsets.In(h.Topic)...)
	slices.Sort(groups)
	answer(r, command.GroupList{Groups: slices.Compact(groups)}, nil)
}

// systemTopics serves GET_SYSTEM_TOPIC_LIST_FROM_BROKER (305): the reserved names, of
// topics that are there or not, and those of the cluster and the broker.
func (a *Admin) systemTopics(r *kernel.Request) {
	cfg := a.k.Config()
	list := append(message.SystemTopics(), cfg.ClusterName, cfg.BrokerName, cfg.ClusterName+message.ReplyTopicSuffix)
	all, _ := a.k.Topics.All()
	for _, t := range all {
		if t.System {
			list = append(list, t.Config.TopicName)
		}
	}
	slices.Sort(list)
	answer(r, command.TopicList{Topics: slices.Compact(list)}, nil)
}

// valueDelete is the kind of values that hold the deletions of topics whose messages
// may still be there; the group is deleteMark and the topic's name, which no group
// is called.
const (
	valueDelete = "delete-topic"
	deleteMark  = "topic/"
)

// deleteTopic serves DELETE_TOPIC_IN_BROKER (215): the topic, its messages and all
// progress in it. A topic that is not there is deleted. When the broker dies
// meanwhile, the next start ends what was begun.
func (a *Admin) deleteTopic(r *kernel.Request) {
	var h command.TopicRequest
	err := h.Decode(r.Header)
	if err == nil {
		err = a.mayDelete(h.Topic)
	}
	if err == nil {
		err = a.k.Writable()
	}
	if err == nil && a.k.Topics.Named(h.Topic) != nil {
		ctx, cancel := a.k.Waiting()
		defer cancel()
		mark := kernel.ValueKey{Kind: valueDelete, Group: deleteMark + h.Topic}
		if err = a.k.Values.PutValue(ctx, mark, []byte{1}); err == nil {
			err = a.k.Topics.Remove(ctx, h.Topic) // dropQueues runs in it
		}
		if left, ok := a.undropped.LoadAndDelete(h.Topic); ok && err == nil {
			err = fmt.Errorf("topic %s is deleted, but its messages are still there; the next start of the broker removes them: %w", h.Topic, left.(error))
		}
		if err == nil {
			err = a.k.Values.PutValue(ctx, mark, nil)
		}
	}
	if err != nil {
		r.Fail(err)
		return
	}
	a.k.TellNameServers()
	r.OK()
}

// mayDelete refuses what is the broker's own.
func (a *Admin) mayDelete(topic string) error {
	cfg := a.k.Config()
	switch {
	case topic == "":
		return &api.Error{ID: api.InvalidParameter, Text: "The specified topic is blank."}
	case message.IsSystem(topic), topic == cfg.ClusterName, topic == cfg.BrokerName, topic == cfg.ClusterName+message.ReplyTopicSuffix:
		return &api.Error{ID: api.InvalidParameter, Text: fmt.Sprintf("The topic[%s] is conflict with system topic.", topic)}
	}
	return nil
}

// dropQueues is called when a topic was removed, before another one with its name can
// be made: that one begins empty, at 0.
func (a *Admin) dropQueues(topic string) {
	if a.k.Writable() != nil {
		return // the node that leads decides
	}
	ctx, cancel := a.k.Waiting()
	defer cancel()
	if err := a.drop(ctx, func(name string) bool { return name == topic }); err != nil {
		a.k.Log.Warn("the messages of a deleted topic are still there; the next start removes them", "topic", topic, "error", err)
		a.undropped.Store(topic, err)
	}
}

// drop forgets the queues of some topics and what is in them. Without the facet
// Retention of the store nobody gets at that any more, and the numbers go on.
func (a *Admin) drop(ctx context.Context, of func(topic string) bool) error {
	keep := a.k.Store.Capabilities().Retention
	switch {
	case keep == nil && a.k.Bury == nil:
		return nil
	case keep == nil:
		return a.k.Bury(ctx, of)
	}
	return a.k.Journal.Alone(ctx, func(ctx context.Context) error {
		var gone []message.Queue
		a.k.Sequencer.Ends(func(q message.Queue, _ int64) bool {
			if of(q.Topic) {
				gone = append(gone, q)
			}
			return true
		})
		if len(gone) == 0 {
			return nil
		}
		if err := keep.Drop(ctx, gone); err != nil {
			return err
		}
		for _, q := range gone {
			a.k.Sequencer.Forget(q)
		}
		return nil
	})
}

// finishDeletes ends what a broker that died had begun.
func (a *Admin) finishDeletes(ctx context.Context) error {
	var begun []kernel.ValueKey
	gone := map[string]bool{}
	a.k.Values.OfKind(valueDelete, func(k kernel.ValueKey, _ []byte) bool {
		begun = append(begun, k)
		if topic := k.Group[len(deleteMark):]; a.k.Topics.Named(topic) == nil {
			gone[topic] = true
		}
		return true
	})
	if len(begun) == 0 || a.k.Writable() != nil {
		return nil
	}
	err := a.drop(ctx, func(topic string) bool { return gone[topic] })
	for _, k := range begun {
		if err == nil {
			err = a.k.Values.PutValue(ctx, k, nil)
		}
	}
	if err != nil {
		a.k.Log.Warn("the messages of deleted topics are still there; the next start tries again", "topics", len(gone), "error", err)
	}
	return nil
}

// cleanUnused serves CLEAN_UNUSED_TOPIC (316): queues of topics that do not exist are
// forgotten.
func (a *Admin) cleanUnused(r *kernel.Request) {
	err := a.k.Writable()
	if err == nil {
		ctx, cancel := a.k.Waiting()
		defer cancel()
		err = a.drop(ctx, func(topic string) bool { return !message.IsSystem(topic) && a.k.Topics.Named(topic) == nil })
	}
	if err != nil {
		r.Fail(err)
		return
	}
	r.OK()
}
