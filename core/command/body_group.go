package command

import "encoding/json"

// GroupRetryPolicy is how long a group waits between redeliveries. The two
// policies are kept as they came.
type GroupRetryPolicy struct {
	Type                   string          `json:"type"` // CUSTOMIZED or EXPONENTIAL
	CustomizedRetryPolicy  json.RawMessage `json:"customizedRetryPolicy,omitempty"`
	ExponentialRetryPolicy json.RawMessage `json:"exponentialRetryPolicy,omitempty"`
}

// SubscriptionGroupConfig is a consumer group as a broker knows it.
type SubscriptionGroupConfig struct {
	Attributes                     StringMap        `json:"attributes"`
	BrokerID                       int64            `json:"brokerId"`
	ConsumeBroadcastEnable         bool             `json:"consumeBroadcastEnable"`
	ConsumeEnable                  bool             `json:"consumeEnable"`
	ConsumeFromMinEnable           bool             `json:"consumeFromMinEnable"`
	ConsumeMessageOrderly          bool             `json:"consumeMessageOrderly"`
	ConsumeTimeoutMinute           int32            `json:"consumeTimeoutMinute"`
	GroupName                      string           `json:"groupName"`
	GroupRetryPolicy               GroupRetryPolicy `json:"groupRetryPolicy"`
	GroupSysFlag                   int32            `json:"groupSysFlag"`
	NotifyConsumerIDsChangedEnable bool             `json:"notifyConsumerIdsChangedEnable"`
	RetryMaxTimes                  int32            `json:"retryMaxTimes"`
	RetryQueueNums                 int32            `json:"retryQueueNums"`
	SubscriptionDataSet            json.RawMessage  `json:"subscriptionDataSet,omitempty"` // static subscription, kept as it came
	WhichBrokerWhenConsumeSlowly   int64            `json:"whichBrokerWhenConsumeSlowly"`
}

// DefaultSubscriptionGroup has the values of a group that is created on first use.
func DefaultSubscriptionGroup(name string) SubscriptionGroupConfig {
	return SubscriptionGroupConfig{
		Attributes: StringMap{}, ConsumeBroadcastEnable: true, ConsumeEnable: true, ConsumeFromMinEnable: true,
		ConsumeTimeoutMinute: 15, GroupName: name, GroupRetryPolicy: GroupRetryPolicy{Type: "CUSTOMIZED"},
		NotifyConsumerIDsChangedEnable: true, RetryMaxTimes: 16, RetryQueueNums: 1, WhichBrokerWhenConsumeSlowly: 1,
	}
}

// UnmarshalJSON starts from the defaults, as Java's constructor does, for 4.x
// sends a part of the keys only.
func (c *SubscriptionGroupConfig) UnmarshalJSON(b []byte) error {
	type plain SubscriptionGroupConfig
	p := plain(DefaultSubscriptionGroup(""))
	if err := json.Unmarshal(b, &p); err != nil {
		return err
	}
	*c = SubscriptionGroupConfig(p)
	return nil
}

// SubscriptionGroupWrapper answers GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201).
type SubscriptionGroupWrapper struct {
	DataVersion            DataVersion                        `json:"dataVersion"`
	ForbiddenTable         map[string]map[string]int32        `json:"forbiddenTable"` // group, topic
	SubscriptionGroupTable map[string]SubscriptionGroupConfig `json:"subscriptionGroupTable"`
}

// MarshalJSON writes empty tables as {}.
func (s SubscriptionGroupWrapper) MarshalJSON() ([]byte, error) {
	type plain SubscriptionGroupWrapper
	if s.ForbiddenTable == nil {
		s.ForbiddenTable = map[string]map[string]int32{}
	}
	if s.SubscriptionGroupTable == nil {
		s.SubscriptionGroupTable = map[string]SubscriptionGroupConfig{}
	}
	return EncodeBody(plain(s))
}

// GroupForbidden answers UPDATE_AND_GET_GROUP_FORBIDDEN (353): whether a group may
// read a topic.
type GroupForbidden struct {
	Group    string `json:"group"`
	Readable bool   `json:"readable"`
	Topic    string `json:"topic"`
}

// SubscriptionGroupList is the body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (225).
type SubscriptionGroupList struct {
	Groups []SubscriptionGroupConfig `json:"groupConfigList"`
}

// ConsumerOffsetSerializeWrapper answers GET_ALL_CONSUMER_OFFSET (43).
type ConsumerOffsetSerializeWrapper struct {
	DataVersion DataVersion                `json:"dataVersion"`
	OffsetTable map[string]map[int32]int64 `json:"offsetTable"` // topic@group, queue id
}

// MarshalJSON writes an empty table as {}.
func (c ConsumerOffsetSerializeWrapper) MarshalJSON() ([]byte, error) {
	type plain ConsumerOffsetSerializeWrapper
	if c.OffsetTable == nil {
		c.OffsetTable = map[string]map[int32]int64{}
	}
	return EncodeBody(plain(c))
}

// OffsetWrapper is the progress of a group in one queue; times in ms since epoch.
type OffsetWrapper struct {
	BrokerOffset   int64 `json:"brokerOffset"`
	ConsumerOffset int64 `json:"consumerOffset"`
	LastTimestamp  int64 `json:"lastTimestamp"`
	PullOffset     int64 `json:"pullOffset"`
}

// ConsumeStats answers GET_CONSUME_STATS (208). Write it with AppendJSON.
type ConsumeStats struct {
	ConsumeTps  float64                        `json:"consumeTps"`
	OffsetTable map[MessageQueue]OffsetWrapper `json:"offsetTable"`
}

// AppendJSON appends upstream's text, which has objects as keys.
func (s *ConsumeStats) AppendJSON(dst []byte) []byte {
	dst = Double(s.ConsumeTps).Append(append(dst, `{"consumeTps":`...))
	dst = AppendQueueMap(append(dst, `,"offsetTable":`...), s.OffsetTable, func(dst []byte, o OffsetWrapper) []byte {
		dst = appendInt(append(dst, `{"brokerOffset":`...), o.BrokerOffset)
		dst = appendInt(append(dst, `,"consumerOffset":`...), o.ConsumerOffset)
		dst = appendInt(append(dst, `,"lastTimestamp":`...), o.LastTimestamp)
		dst = appendInt(append(dst, `,"pullOffset":`...), o.PullOffset)
		return append(dst, '}')
	})
	return append(dst, '}')
}

// TopicOffset is the extent of one queue; the time in ms since epoch.
type TopicOffset struct {
	LastUpdateTimestamp int64 `json:"lastUpdateTimestamp"`
	MaxOffset           int64 `json:"maxOffset"`
	MinOffset           int64 `json:"minOffset"`
}

// TopicStatsTable answers GET_TOPIC_STATS_INFO (202): every queue of the
// topic must be in it. Write it with AppendJSON.
type TopicStatsTable struct {
	OffsetTable map[MessageQueue]TopicOffset `json:"offsetTable"`
	TopicPutTps float64                      `json:"topicPutTps"`
}

// AppendJSON appends upstream's text, which has objects as keys.
func (s *TopicStatsTable) AppendJSON(dst []byte) []byte {
	dst = AppendQueueMap(append(dst, `{"offsetTable":`...), s.OffsetTable, func(dst []byte, o TopicOffset) []byte {
		dst = appendInt(append(dst, `{"lastUpdateTimestamp":`...), o.LastUpdateTimestamp)
		dst = appendInt(append(dst, `,"maxOffset":`...), o.MaxOffset)
		dst = appendInt(append(dst, `,"minOffset":`...), o.MinOffset)
		return append(dst, '}')
	})
	dst = Double(s.TopicPutTps).Append(append(dst, `,"topicPutTps":`...))
	return append(dst, '}')
}

// ResetOffsetBody is the body of RESET_CONSUMER_CLIENT_OFFSET (220) and the
// answer to INVOKE_BROKER_TO_RESET_OFFSET (222). Write it with AppendJSON.
type ResetOffsetBody struct {
	OffsetTable map[MessageQueue]int64 `json:"offsetTable"`
	// PreviousTable is ours: what the group had before. Other readers pass it over.
	PreviousTable map[MessageQueue]int64 `json:"previousTable,omitempty"`
}

// AppendJSON appends the object-key form, the only one Java and Go clients both read.
func (r *ResetOffsetBody) AppendJSON(dst []byte) []byte {
	dst = AppendQueueMap(append(dst, `{"offsetTable":`...), r.OffsetTable, appendInt)
	if len(r.PreviousTable) > 0 {
		dst = AppendQueueMap(append(dst, `,"previousTable":`...), r.PreviousTable, appendInt)
	}
	return append(dst, '}')
}

// Connection is one client of a group.
type Connection struct {
	ClientAddr string `json:"clientAddr"` // ip:port
	ClientID   string `json:"clientId"`
	Language   string `json:"language"` // a LanguageCode name
	Version    int32  `json:"version"`  // a real MQVersion ordinal: tools print its name
}

// ConsumerConnection answers GET_CONSUMER_CONNECTION_LIST (203).
type ConsumerConnection struct {
	ConnectionSet     []Connection                `json:"connectionSet"`
	ConsumeFromWhere  ConsumeFromWhere            `json:"consumeFromWhere,omitempty"`
	ConsumeType       ConsumeType                 `json:"consumeType,omitempty"`
	MessageModel      MessageModel                `json:"messageModel,omitempty"`
	SubscriptionTable map[string]SubscriptionData `json:"subscriptionTable"` // by topic
}

// MarshalJSON writes empty sets as [] and {}.
func (c ConsumerConnection) MarshalJSON() ([]byte, error) {
	type plain ConsumerConnection
	c.ConnectionSet = list(c.ConnectionSet)
	if c.SubscriptionTable == nil {
		c.SubscriptionTable = map[string]SubscriptionData{}
	}
	return EncodeBody(plain(c))
}

// ProducerConnection answers GET_PRODUCER_CONNECTION_LIST (204).
type ProducerConnection struct {
	ConnectionSet []Connection `json:"connectionSet"`
}

// MarshalJSON writes [] for no connections.
func (c ProducerConnection) MarshalJSON() ([]byte, error) {
	type plain ProducerConnection
	c.ConnectionSet = list(c.ConnectionSet)
	return EncodeBody(plain(c))
}
