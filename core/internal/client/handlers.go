package client

import (
	"context"
	"fmt"

	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/filter"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
)

// heartbeat serves HEART_BEAT (34).
func (m *Manager) heartbeat(r *kernel.Request) {
	var hb command.HeartbeatData
	if err := command.DecodeBody(r.Frame.Body, &hb); err != nil {
		r.Error(command.RespInvalidParameter, "the body of the heartbeat cannot be read: "+err.Error())
		return
	}
	if hb.ClientID == "" {
		r.Error(command.RespInvalidParameter, "the heartbeat has no clientID")
		return
	}
	if !m.room(r.Conn, &hb) {
		r.Error(command.RespInvalidParameter, fmt.Sprintf("the heartbeat of %.120q names too many groups: a connection may be in %d", hb.ClientID, maxMemberships))
		return
	}
	who := Member{ClientID: hb.ClientID, Conn: r.Conn, Language: r.Header.Language, Version: r.Header.Version, LastSeen: m.k.Clock.Now(), Zone: r.Header.ExtString(command.ZoneName)}
	ctx, cancel := m.k.Waiting()
	defer cancel()
	var changed []string
	for i := range hb.ConsumerDataSet {
		c := &hb.ConsumerDataSet[i]
		if message.CheckGroup(c.GroupName) != nil {
			continue // unknown groups are skipped in silence, as the reference does
		}
		if err := m.ensure(ctx, c); err != nil {
			if n := m.failed.Due(m.k.Clock.Now()); n > 0 {
				m.k.Log.Warn("a heartbeat names a group that cannot be created", "group", c.GroupName, "client", hb.ClientID, "error", err, "such_since_last_said", n)
			}
			continue
		}
		if m.register(c, who, hb.WithoutSub) {
			changed = append(changed, c.GroupName)
		}
	}
	for _, p := range hb.ProducerDataSet {
		if message.CheckGroup(p.GroupName) == nil {
			m.registerProducer(p.GroupName, who)
		}
	}
	w := r.Begin(command.RespSuccess)
	w.ExtBool("IS_SUPPORT_HEART_BEAT_V2", true)
	w.ExtBool("IS_SUB_CHANGE", true) // a client that leaves its subscriptions out sends them again
	r.Reply(w)
	m.Notify(changed...)
}

// ensure sees to it that a group and its retry topic are there. Once ctx is over
// it creates nothing more: what was asked for in time is in the log or on its
// way, and the client's next heartbeat asks for the rest.
func (m *Manager) ensure(ctx context.Context, c *command.ConsumerData) error {
	cfg := m.k.Groups.Named(c.GroupName)
	if cfg == nil {
		if err := ctx.Err(); err != nil {
			return err
		}
		var err error
		if cfg, err = m.k.Groups.Ensure(ctx, c.GroupName); err != nil {
			return err
		}
	}
	if c.MessageModel == command.Broadcasting || cfg.RetryQueueNums <= 0 {
		return nil
	}
	topic := message.RetryPrefix + c.GroupName
	if ctx.Err() != nil || m.k.Topics.Named(topic) != nil {
		return nil
	}
	if _, err := m.k.Topics.Ensure(ctx, kernel.DerivedTopic(topic, cfg.RetryQueueNums)); err != nil {
		if n := m.failed.Due(m.k.Clock.Now()); n > 0 {
			m.k.Log.Warn("the retry topic of a group cannot be created", "group", c.GroupName, "error", err, "such_since_last_said", n)
		}
	}
	return nil
}

// unregister serves UNREGISTER_CLIENT (35).
func (m *Manager) unregister(r *kernel.Request) {
	var q command.UnregisterClientRequest
	if err := q.Decode(r.Header); err != nil {
		r.Fail(err)
		return
	}
	id, consumer, producer := string(q.ClientID), string(q.ConsumerGroup), string(q.ProducerGroup)
	m.mu.Lock()
	changed := m.drop(membership{false, consumer, id}, r.Conn)
	m.drop(membership{true, producer, id}, r.Conn)
	m.mu.Unlock()
	r.OK()
	if changed {
		m.Notify(consumer)
	}
}

// list serves GET_CONSUMER_LIST_BY_GROUP (38).
func (m *Manager) list(r *kernel.Request) {
	var q command.ConsumerGroupRequest
	if err := q.Decode(r.Header); err != nil {
		r.Fail(err)
		return
	}
	var out command.ConsumerList
	for _, x := range m.Members(string(q.ConsumerGroup)) {
		out.ConsumerIDs = append(out.ConsumerIDs, x.ClientID)
	}
	if len(out.ConsumerIDs) == 0 {
		r.Error(command.RespSystemError, fmt.Sprintf("no consumer for this group, %s", q.ConsumerGroup))
		return
	}
	body, err := command.EncodeBody(out)
	if err != nil {
		r.Fail(err)
		return
	}
	r.JSON(body)
}

// checkConfig serves CHECK_CLIENT_CONFIG (46).
func (m *Manager) checkConfig(r *kernel.Request) {
	var q command.CheckClientConfigBody
	if err := command.DecodeBody(r.Frame.Body, &q); err != nil {
		r.Error(command.RespInvalidParameter, "the body of the request cannot be read: "+err.Error())
		return
	}
	if err := filter.CheckType(q.SubscriptionData.ExpressionType); err != nil {
		r.Fail(err)
		return
	}
	if _, err := filter.Parse(q.SubscriptionData.SubString); err != nil {
		r.Fail(&api.Error{ID: api.SubscriptionParseFailed, Text: err.Error()})
		return
	}
	r.OK()
}
