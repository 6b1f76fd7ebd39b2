package admin

import (
	"fmt"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/filter"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// broker registers what is about the broker as a whole.
func (a *Admin) broker() {
	k := a.k
	k.Handle(command.ReqUpdateBrokerConfig, a.updateConfig)
	k.Handle(command.ReqGetBrokerConfig, a.config)
	k.Handle(command.ReqGetBrokerRuntimeInfo, a.runtime)
	k.Handle(command.ReqViewBrokerStatsData, a.statsData)
	k.Handle(command.ReqQueryConsumeQueue, a.consumeQueue)
	k.Handle(command.ReqGetBrokerHAStatus, a.replicas)
}

// updateConfig changes reloadable keys, all or none. The change lasts until the
// broker stops: the file is the operator's.
func (a *Admin) updateConfig(r *kernel.Request) {
	if a.k.Update == nil {
		r.Error(command.RespRequestCodeNotSupported, fixed)
		return
	}
	changed, err := a.k.Update(r.Frame.Body)
	if err != nil {
		r.Error(command.RespSystemError, err.Error())
		return
	}
	w := r.Begin(command.RespSuccess)
	w.Remark(changed)
	r.Reply(w)
}

const fixed = "the configuration of this broker is fixed by the program that embeds it"

// config serves GET_BROKER_CONFIG (26).
func (a *Admin) config(r *kernel.Request) {
	if a.k.Properties == nil {
		r.Error(command.RespRequestCodeNotSupported, fixed)
		return
	}
	text, version := a.k.Properties()
	v, err := command.EncodeBody(version)
	if err != nil {
		r.Fail(err)
		return
	}
	w := r.Begin(command.RespSuccess)
	(&command.BrokerConfigResponse{Version: string(v)}).Append(&w)
	r.Reply(w, text)
}

// statsData serves VIEW_BROKER_STATS_DATA (315).
func (a *Admin) statsData(r *kernel.Request) {
	var h command.StatsDataRequest
	if err := h.Decode(r.Header); err != nil {
		r.Fail(err)
		return
	}
	d, ok := a.stats.Data(h.StatsName, h.StatsKey)
	if !ok {
		r.Error(command.RespSystemError, fmt.Sprintf("The stats <%s> <%s> not exist", h.StatsName, h.StatsKey))
		return
	}
	answer(r, d, nil)
}

// replicas serves GET_BROKER_HA_STATUS (907).
func (a *Admin) replicas(r *kernel.Request) {
	st := a.k.Replicator.Status()
	end := int64(a.k.Store.State().Tail)
	out := command.HAStatus{Master: st.Role.Kind == replication.RoleLeader}
	if !out.Master {
		out.Client.MasterAddr, out.Client.MaxOffset = st.Role.Leader, end
		answer(r, out, nil)
		return
	}
	out.MasterCommitLogMaxOffset = end
	for _, s := range st.Replicas {
		if s.InSync {
			out.InSyncSlaveNums++
		}
		out.Connections = append(out.Connections, command.HAConnection{Addr: s.ID, InSync: s.InSync, SlaveAckOffset: int64(s.Acked), Diff: end - int64(s.Acked)})
	}
	answer(r, out, nil)
}

// maxUnits bounds the units of a queue that one request gets.
const maxUnits = 4096

// consumeQueue serves QUERY_CONSUME_QUEUE (321): the index of a queue from an offset
// on.
func (a *Admin) consumeQueue(r *kernel.Request) {
	var h command.QueryConsumeQueueRequest
	err := h.Decode(r.Header)
	if err == nil {
		_, err = a.topicNamed(h.Topic)
	}
	q := message.Queue{Topic: h.Topic, ID: h.QueueID}
	var ends storage.OffsetAnswer
	if err == nil {
		ends, err = a.q.Offset(a.reading(), storage.OffsetQuery{Queue: q})
	}
	if err != nil {
		r.Fail(err)
		return
	}
	if !ends.Known {
		r.Error(command.RespSystemError, fmt.Sprintf("%d@%s is not exist!", h.QueueID, h.Topic))
		return
	}
	out := command.ConsumeQueueUnits{MinQueueIndex: ends.Min, MaxQueueIndex: ends.Max}
	var tags *filter.Tags
	if h.ConsumerGroup != "" {
		if sub, _, _ := a.clients.Subscribed(h.ConsumerGroup, h.Topic); sub != nil {
			out.SubscriptionData, tags = &sub.Data, sub.Tags
		} else {
			out.FilterData = fmt.Sprintf("%s@%s is not online!", h.ConsumerGroup, h.Topic)
		}
	}
	var c storage.Chunk
	defer c.Reset()
	count := min(h.Count, maxUnits)
	for at := max(h.Index, ends.Min); int32(len(out.QueueData)) < count; at = c.Next {
		limit := storage.Limit{Count: count - int32(len(out.QueueData)), Bytes: 1 << 20}
		c.Reset()
		if err := a.k.Store.Read(a.reading(), storage.ReadRequest{Queue: q, Offset: at, Hot: limit, Cold: limit}, &c); err != nil {
			r.Fail(err)
			return
		}
		if len(c.Units) == 0 || c.Next <= at {
			break
		}
		for _, u := range c.Units {
			out.QueueData = append(out.QueueData, command.ConsumeQueueData{
				PhysicOffset: int64(u.At), PhysicSize: u.Size, TagsCode: u.TagsCode, Eval: tags != nil && tags.MatchCode(u.TagsCode),
			})
		}
	}
	answer(r, out, nil)
}
