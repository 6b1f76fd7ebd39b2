package adminclient

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/message"
)

// Message is a stored message. Times are ms since epoch.
type Message struct {
	Broker     string            `json:"broker"` // name, or address when no name is known
	Topic      string            `json:"topic"`
	Queue      int32             `json:"queue"`
	Offset     int64             `json:"offset"`
	Position   int64             `json:"position"` // in the log
	ID         string            `json:"id"`       // of the record: its store host and position
	UniqueKey  string            `json:"uniqueKey,omitempty"`
	Keys       string            `json:"keys,omitempty"` // separated by blanks
	Tags       string            `json:"tags,omitempty"`
	StoreTime  int64             `json:"storeTime"`
	StoreHost  string            `json:"storeHost"`
	BornTime   int64             `json:"bornTime"`
	BornHost   string            `json:"bornHost"`
	Size       int32             `json:"size"` // of the record, bytes
	SysFlag    int32             `json:"sysFlag"`
	Reconsumed int32             `json:"reconsumeTimes"`
	Properties map[string]string `json:"properties"`
	// Body is as it is stored; see PlainBody.
	Body []byte `json:"-"`
}

// messages takes an answer's records apart.
func messages(broker string, body []byte) ([]Message, error) {
	var out []Message
	for len(body) > 0 {
		var v message.View
		if err := message.Parse(body, &v); err != nil {
			return out, fmt.Errorf("broker %s sent a message that cannot be read: %w", broker, err)
		}
		if err := v.CheckBody(); err != nil {
			return out, fmt.Errorf("broker %s, %s/%d at offset %d: %w", broker, v.Topic, v.QueueID, v.QueueOffset, err)
		}
		m := Message{
			Broker: broker, Topic: string(v.Topic), Queue: v.QueueID, Offset: v.QueueOffset, Position: int64(v.Position),
			ID: string(message.AppendOffsetID(nil, v.StoreHost, v.Position)), StoreTime: v.StoreTime, StoreHost: message.HostAddr(v.StoreHost).String(),
			BornTime: v.BornTime, BornHost: message.HostAddr(v.BornHost).String(), Size: v.Size, SysFlag: v.SysFlag, Reconsumed: v.ReconsumeTimes,
			Properties: map[string]string{}, Body: v.Body,
		}
		for p := message.NewProperties(v.Properties); p.Next(); {
			m.Properties[string(p.Name)] = string(p.Value)
		}
		m.UniqueKey, m.Keys, m.Tags = m.Properties[message.PropUniqueKey], m.Properties[message.PropKeys], m.Properties[message.PropTags]
		out = append(out, m)
		body = body[v.Size:]
	}
	return out, nil
}

// nameOr is how a broker is called in messages.
func nameOr(b Broker) string {
	if b.Name == "" {
		return b.Address
	}
	return b.Name
}

// MessageAt asks for the record at a position of a broker's log.
func (c *Client) MessageAt(ctx context.Context, b Broker, at message.Position) (*Message, error) {
	r, err := c.Ask(ctx, b.Address, command.ReqViewMessageByID, &command.ViewMessageRequest{Offset: int64(at)}, nil)
	if err != nil {
		return nil, err
	}
	ms, err := messages(nameOr(b), r.Body)
	if err == nil && len(ms) != 1 {
		err = fmt.Errorf("broker %s gave %d messages for a position", b, len(ms))
	}
	if err != nil {
		return nil, err
	}
	return &ms[0], nil
}

// MessageByID asks the broker that an id names, which is the address and the position of
// a record. Errors match [message.ErrID] when it is not such an id.
func (c *Client) MessageByID(ctx context.Context, id string) (*Message, error) {
	addr, at, err := message.ParseOffsetID(id)
	if err != nil {
		return nil, err
	}
	if why := unusable(addr); why != "" {
		return nil, fmt.Errorf("id %s names the broker at %s, %s: the broker that stored it advertised that (brokerIP1); ask by topic and unique key, or by queue and offset", id, addr, why)
	}
	return c.MessageAt(ctx, Broker{Address: addr.String()}, at)
}

// unusable says why nobody can connect to an address.
func unusable(a netip.AddrPort) string {
	switch {
	case a.Addr().IsUnspecified():
		return "which is no address of anything"
	case a.Port() == 0:
		return "which has no port"
	}
	return ""
}

// MessagesByKey asks a broker for the messages of a topic with a key, or with a unique
// key, stored from and to included. There may be none.
func (c *Client) MessagesByKey(ctx context.Context, b Broker, q command.QueryMessageRequest) ([]Message, error) {
	r, err := c.Ask(ctx, b.Address, command.ReqQueryMessage, &q, nil)
	if code, ok := CodeOf(err); ok && code == command.RespQueryNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	ms, err := messages(nameOr(b), r.Body)
	// Apache's brokers compare hashes, 4.9 not even the topic.
	return slices.DeleteFunc(ms, func(m Message) bool { return m.Topic != string(q.Topic) || !hasKey(&m, string(q.Key), q.UniqueKey) }), err
}

func hasKey(m *Message, key string, unique bool) bool {
	if m.UniqueKey == key {
		return true
	}
	return !unique && slices.Contains(strings.Split(m.Keys, " "), key)
}

// OffsetAt is the offset of the first message of a queue stored at a time or later.
func (c *Client) OffsetAt(ctx context.Context, b Broker, q message.Queue, ms int64) (int64, error) {
	return c.offset(ctx, b, command.ReqSearchOffsetByTimestamp, &command.SearchOffsetRequest{Topic: []byte(q.Topic), QueueID: q.ID, Timestamp: ms})
}

func (c *Client) offset(ctx context.Context, b Broker, code int32, f Fields) (int64, error) {
	r, err := c.Ask(ctx, b.Address, code, f, nil)
	if err != nil {
		return 0, err
	}
	var o command.OffsetResponse
	if err := o.Decode(&r.Header); err != nil {
		return 0, &Error{b.Address, code, err}
	}
	return o.Offset, nil
}

// toolsGroup is the group that every broker has for tools, so that reading makes none.
const toolsGroup = "TOOLS_CONSUMER"

// Read reads at most n messages of a queue from an offset on, and says where the next
// one is. There may be none; an offset that is no longer there is moved.
func (c *Client) Read(ctx context.Context, b Broker, q message.Queue, from int64, n int32) (ms []Message, next int64, err error) {
	h := command.PullRequest{
		ConsumerGroup: []byte(toolsGroup), Topic: []byte(q.Topic), QueueID: q.ID, QueueOffset: from, MaxMsgNums: n,
		SysFlag: command.PullSubscription, Subscription: []byte("*"), ExpressionType: []byte("TAG"),
	}
	r, err := c.Call(ctx, b.Address, command.ReqPullMessage, &h, nil)
	if err != nil {
		return nil, from, err
	}
	switch r.Header.Code {
	case command.RespSuccess, command.RespPullNotFound, command.RespPullOffsetMoved, command.RespPullRetryImmediately:
	default:
		return nil, from, &Error{b.Address, command.ReqPullMessage, r.Err()}
	}
	var p command.PullResponse
	if err := p.Decode(&r.Header); err != nil {
		return nil, from, &Error{b.Address, command.ReqPullMessage, err}
	}
	if r.Header.Code == command.RespSuccess {
		ms, err = messages(nameOr(b), r.Body)
	}
	return ms, p.NextBeginOffset, err
}

// Send sends a message to a queue of a broker. The answer may say that it is stored
// and not all that was promised came true: then code is not RespSuccess.
func (c *Client) Send(ctx context.Context, b Broker, h *command.SendRequest, body []byte) (code int32, s command.SendResponse, err error) {
	r, err := c.Call(ctx, b.Address, command.ReqSendMessageV2, h, body)
	if err != nil {
		return 0, s, err
	}
	switch r.Header.Code {
	case command.RespSuccess, command.RespFlushDiskTimeout, command.RespFlushSlaveTimeout, command.RespSlaveNotAvailable:
		err = s.Decode(&r.Header)
	default:
		err = &Error{b.Address, command.ReqSendMessageV2, r.Err()}
	}
	return r.Header.Code, s, err
}
