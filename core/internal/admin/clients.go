package admin

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/client"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// How long a client may take to answer, as the reference waits.
const (
	relayLimit  = 10 * time.Second // 307 and 309
	statusLimit = 5 * time.Second  // 221
)

// version318 is the first version of clients that answers 307 and 309
// (V3_1_8_SNAPSHOT).
const version318 = 62

// connections registers what is about the clients that are connected.
func (a *Admin) connections() {
	k := a.k
	k.Handle(command.ReqGetConsumerConnectionList, a.consumerConnections)
	k.Handle(command.ReqGetProducerConnectionList, a.producerConnections)
	k.Handle(command.ReqGetAllProducerInfo, a.allProducers)
	k.Handle(command.ReqGetConsumerRunningInfo, a.runningInfo)
	k.Handle(command.ReqConsumeMessageDirectly, a.consumeDirectly)
	k.Handle(command.ReqInvokeBrokerToGetConsumerStatus, a.consumerStatus)
}

func connectionsOf(members []client.Member) []command.Connection {
	out := make([]command.Connection, len(members))
	for i, m := range members {
		out[i] = command.Connection{ClientAddr: m.Conn.Peer.Remote().String(), ClientID: m.ClientID, Language: m.Language.String(), Version: m.Version}
	}
	return out
}

// consumerConnections serves GET_CONSUMER_CONNECTION_LIST (203).
func (a *Admin) consumerConnections(r *kernel.Request) {
	var h command.ConsumerGroupRequest
	if err := h.Decode(r.Header); err != nil {
		r.Fail(err)
		return
	}
	g, live := a.clients.Group(string(h.ConsumerGroup))
	if !live {
		r.Error(command.RespConsumerNotOnline, fmt.Sprintf("the consumer group[%s] not online", h.ConsumerGroup))
		return
	}
	answer(r, command.ConsumerConnection{
		ConnectionSet: connectionsOf(g.Members), ConsumeFromWhere: g.From, ConsumeType: g.Kind, MessageModel: g.Model, SubscriptionTable: g.Subscriptions,
	}, nil)
}

// producerConnections serves GET_PRODUCER_CONNECTION_LIST (204).
func (a *Admin) producerConnections(r *kernel.Request) {
	var h command.ProducerGroupRequest
	err := h.Decode(r.Header)
	members := a.clients.Producers(h.ProducerGroup)
	if err == nil && len(members) == 0 {
		err = &api.Error{ID: api.SystemError, Text: fmt.Sprintf("the producer group[%s] not exist", h.ProducerGroup)}
	}
	answer(r, command.ProducerConnection{ConnectionSet: connectionsOf(members)}, err)
}

// allProducers serves GET_ALL_PRODUCER_INFO (328).
func (a *Admin) allProducers(r *kernel.Request) {
	out := command.ProducerTable{Data: map[string][]command.ProducerInfo{}}
	for name, members := range a.clients.ProducerGroups() {
		for _, m := range members {
			out.Data[name] = append(out.Data[name], command.ProducerInfo{
				ClientID: m.ClientID, Language: m.Language.String(), LastUpdateTimestamp: m.LastSeen.UnixMilli(),
				RemoteIP: "/" + m.Conn.Peer.Remote().String(), Version: m.Version,
			})
		}
	}
	answer(r, out, nil)
}

// runningInfo serves GET_CONSUMER_RUNNING_INFO (307): the client tells.
func (a *Admin) runningInfo(r *kernel.Request) {
	var h command.ConsumerRunningInfoRequest
	if err := h.Decode(r.Header); err != nil {
		r.Fail(err)
		return
	}
	a.relay(r, h.ConsumerGroup, h.ClientID, h.Append, nil)
}

// consumeDirectly serves CONSUME_MESSAGE_DIRECTLY (309): one member of a group gets a
// message, at once and besides all others, and tells what came of it.
func (a *Admin) consumeDirectly(r *kernel.Request) {
	var h command.ConsumeDirectlyRequest
	err := h.Decode(r.Header)
	var c storage.Chunk
	defer c.Reset()
	var v message.View
	if err == nil {
		err = a.message(h.MsgID, &c, &v)
	}
	if err != nil {
		r.Fail(err)
		return
	}
	h.BrokerName = a.k.Config().BrokerName
	if t := a.k.Topics.Lookup(v.Topic); t != nil {
		h.TopicSysFlag = t.Config.TopicSysFlag
	}
	if g := a.k.Groups.Named(h.ConsumerGroup); g != nil {
		h.GroupSysFlag = g.GroupSysFlag
	}
	a.relay(r, h.ConsumerGroup, h.ClientID, h.Append, c.Frags[0])
}

// message reads the message with an offset message id.
func (a *Admin) message(id string, c *storage.Chunk, v *message.View) error {
	_, at, err := message.ParseOffsetID(id)
	if err != nil {
		return &api.Error{ID: api.InvalidParameter, Text: fmt.Sprintf("msgId %.80q is no offset message id: %v", id, err), Err: err}
	}
	err = a.k.Store.Get(a.reading(), []message.Position{at}, c)
	if err != nil || len(c.Units) == 0 || c.Units[0].Size == 0 || message.Parse(c.Frags[0], v) != nil || message.IsInternal(string(v.Topic)) {
		return &api.Error{ID: api.SystemError, Text: fmt.Sprintf("can not find message by the offset, %d", at), Err: err}
	}
	return nil
}

// relay passes a request on to a member of a group and its answer back, unread.
func (a *Admin) relay(r *kernel.Request, group, id string, fill func(*command.Writer), body []byte) {
	m, ok := a.clients.Member(group, id)
	if !ok {
		r.Error(command.RespSystemError, fmt.Sprintf("The Consumer <%s> <%s> not online", group, id))
		return
	}
	if m.Version < version318 {
		r.Error(command.RespSystemError, fmt.Sprintf("The Consumer <%s> Version <%d> too low to finish, please upgrade it to V3_1_8_SNAPSHOT", id, m.Version))
		return
	}
	t := r.Ticket()
	m.Conn.Ask(r.Header.Code, fill, body, relayLimit, func(got kernel.Answer, err error) {
		if err != nil {
			code := command.RespSystemError
			if errors.Is(err, kernel.ErrNoAnswer) {
				code = command.RespConsumeMsgTimeout
			}
			t.Reply(code, func(w *command.Writer) { w.Remark(fmt.Sprintf("consumer <%s> <%s> Timeout: %v", group, id, err)) })
			return
		}
		t.Reply(got.Header.Code, func(w *command.Writer) { w.Remark(string(got.Header.Remark())) }, got.Body)
	})
}

// consumerStatus serves INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223): the offsets that the
// members of a group have in their memory.
func (a *Admin) consumerStatus(r *kernel.Request) {
	var h command.ConsumerStatusRequest
	if err := h.Decode(r.Header); err != nil {
		r.Fail(err)
		return
	}
	members := a.clients.Members(h.Group)
	if h.ClientAddr != "" {
		m, ok := a.clients.Member(h.Group, h.ClientAddr)
		if members = nil; ok {
			members = append(members, m)
		}
	}
	if len(members) == 0 {
		r.Error(command.RespSystemError, fmt.Sprintf("No Any Consumer online in the consumer group: [%s]", h.Group))
		return
	}
	s := &statuses{ticket: r.Ticket(), left: len(members), table: map[string]map[command.MessageQueue]int64{}}
	ask := command.ConsumerStatusRequest{Topic: h.Topic, Group: h.Group}
	for _, m := range members {
		m.Conn.Ask(command.ReqGetConsumerStatusFromClient, ask.Append, nil, statusLimit, func(got kernel.Answer, err error) { s.take(m.ClientID, got, err) })
	}
}

// statuses gathers what clients answer.
type statuses struct {
	ticket kernel.Ticket

	mu    sync.Mutex
	left  int
	table map[string]map[command.MessageQueue]int64
	bad   error // the last one that did not answer
}

func (s *statuses) take(id string, got kernel.Answer, err error) {
	var body command.ConsumerStatus
	switch {
	case err != nil:
	case got.Header.Code != command.RespSuccess:
		err = errors.New(string(got.Header.Remark()))
	default:
		err = command.DecodeBody(got.Body, &body)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.bad = fmt.Errorf("consumer <%s>: %w", id, err)
	} else {
		s.table[id] = body.MessageQueueTable
	}
	if s.left--; s.left > 0 {
		return
	}
	if len(s.table) == 0 {
		s.ticket.Reply(command.RespSystemError, func(w *command.Writer) { w.Remark(s.bad.Error()) })
		return
	}
	s.ticket.Reply(command.RespSuccess, nil, (&command.ConsumerStatus{ConsumerTable: s.table}).AppendJSON(nil))
}
