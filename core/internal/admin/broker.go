package admin

import (
	"fmt"

	"github.com/hardpointmq/hardpoint/core/api"
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
	a.units.Most = mostUnits
	k.Handle(command.ReqQueryConsumeQueue, a.consumeQueue)
	k.Hooks.OnStop(a.units.Stop)
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

const (
	// maxUnits bounds the units of a queue that one request gets, and maxUnitBytes the
	// records that are read for them, which the store gives only together; what is
	// missing the tool asks for next.
	maxUnits     = 4096
	maxUnitBytes = 64 << 20
	// mostUnits is how many such requests are served at a time: they may read much that
	// is in nobody's memory.
	mostUnits = 4
)

// consumeQueue serves QUERY_CONSUME_QUEUE (321): the index of a queue from an offset
// on. It reads beside the session.
func (a *Admin) consumeQueue(r *kernel.Request) {
	var h command.QueryConsumeQueueRequest
	if err := h.Decode(r.Header); err != nil {
		r.Fail(err)
		return
	}
	if !a.units.Begin() {
		r.Fail(&api.Error{ID: api.SystemBusy, Text: fmt.Sprintf("%d requests that read the index of a queue are being served, or the broker stops; try again", mostUnits)})
		return
	}
	t := r.Ticket()
	go func() {
		defer a.units.End()
		defer func() {
			if p := recover(); p != nil {
				t.Panicked(p)
			}
		}()
		out, err := a.queueUnits(&h)
		var body []byte
		if err == nil {
			body, err = command.EncodeBody(out)
		}
		if err != nil {
			t.Fail(err)
			return
		}
		t.Reply(command.RespSuccess, nil, body)
	}()
}

func (a *Admin) queueUnits(h *command.QueryConsumeQueueRequest) (*command.ConsumeQueueUnits, error) {
	if _, err := a.topicNamed(h.Topic); err != nil {
		return nil, err
	}
	q := message.Queue{Topic: h.Topic, ID: h.QueueID}
	ends, err := a.q.Offset(a.reading(), storage.OffsetQuery{Queue: q})
	if err != nil {
		return nil, err
	}
	if !ends.Known {
		return nil, &api.Error{ID: api.SystemError, Text: fmt.Sprintf("%d@%s is not exist!", h.QueueID, h.Topic)}
	}
	out := &command.ConsumeQueueUnits{MinQueueIndex: ends.Min, MaxQueueIndex: ends.Max}
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
	count, bytes := min(h.Count, maxUnits), 0
	for at := max(h.Index, ends.Min); int32(len(out.QueueData)) < count && bytes < maxUnitBytes; at = c.Next {
		limit := storage.Limit{Count: count - int32(len(out.QueueData)), Bytes: 1 << 20}
		c.Reset()
		if err := a.k.Store.Read(a.reading(), storage.ReadRequest{Queue: q, Offset: at, Hot: limit, Cold: limit}, &c); err != nil {
			return nil, err
		}
		if len(c.Units) == 0 || c.Next <= at {
			break
		}
		for _, u := range c.Units {
			out.QueueData = append(out.QueueData, command.ConsumeQueueData{
				PhysicOffset: int64(u.At), PhysicSize: u.Size, TagsCode: u.TagsCode, Eval: tags != nil && tags.MatchCode(u.TagsCode),
			})
			bytes += int(u.Size)
		}
	}
	return out, nil
}
