package command

// ConsumeType is how a consumer takes its messages.
type ConsumeType string

// The consume types, in the order of RocketMQ's enum.
const (
	ConsumeActively  ConsumeType = "CONSUME_ACTIVELY"  // pull
	ConsumePassively ConsumeType = "CONSUME_PASSIVELY" // push
	ConsumePop       ConsumeType = "CONSUME_POP"
)

// UnmarshalJSON reads a name in any case or an ordinal; unknown becomes "".
func (t *ConsumeType) UnmarshalJSON(b []byte) error {
	*t = ConsumeType(enum(b, []string{string(ConsumeActively), string(ConsumePassively), string(ConsumePop)}))
	return nil
}

// MessageModel is how a group shares its messages.
type MessageModel string

// The message models. Note that the ordinals of RocketMQ's enum start with
// BROADCASTING.
const (
	Broadcasting MessageModel = "BROADCASTING"
	Clustering   MessageModel = "CLUSTERING"
)

// UnmarshalJSON reads a name in any case or an ordinal; unknown becomes "".
func (m *MessageModel) UnmarshalJSON(b []byte) error {
	*m = MessageModel(enum(b, []string{string(Broadcasting), string(Clustering)}))
	return nil
}

// ConsumeFromWhere is where a new group starts.
type ConsumeFromWhere string

// The starting points in use.
const (
	ConsumeFromLastOffset  ConsumeFromWhere = "CONSUME_FROM_LAST_OFFSET"
	ConsumeFromFirstOffset ConsumeFromWhere = "CONSUME_FROM_FIRST_OFFSET"
	ConsumeFromTimestamp   ConsumeFromWhere = "CONSUME_FROM_TIMESTAMP"
)

// UnmarshalJSON reads a name in any case or an ordinal; unknown becomes "".
func (f *ConsumeFromWhere) UnmarshalJSON(b []byte) error {
	*f = ConsumeFromWhere(enum(b, []string{
		string(ConsumeFromLastOffset), "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
		"CONSUME_FROM_MIN_OFFSET", "CONSUME_FROM_MAX_OFFSET", string(ConsumeFromFirstOffset), string(ConsumeFromTimestamp),
	}))
	return nil
}

// SubscriptionData is one topic a group wants, and which of its messages.
type SubscriptionData struct {
	ClassFilterMode bool     `json:"classFilterMode"`
	CodeSet         []Int    `json:"codeSet"`        // Java hash codes of TagsSet
	ExpressionType  string   `json:"expressionType"` // TAG (also if empty) or SQL92
	SubString       string   `json:"subString"`
	SubVersion      Int      `json:"subVersion"` // Java: ms, Go: ns since epoch
	TagsSet         []string `json:"tagsSet"`
	Topic           string   `json:"topic"`
}

// MarshalJSON writes [] for empty sets.
func (s SubscriptionData) MarshalJSON() ([]byte, error) {
	type plain SubscriptionData
	s.CodeSet, s.TagsSet = list(s.CodeSet), list(s.TagsSet)
	return EncodeBody(plain(s))
}

// ConsumerData is a group within a heartbeat.
type ConsumerData struct {
	ConsumeFromWhere    ConsumeFromWhere   `json:"consumeFromWhere"`
	ConsumeType         ConsumeType        `json:"consumeType"`
	GroupName           string             `json:"groupName"`
	MessageModel        MessageModel       `json:"messageModel"`
	SubscriptionDataSet []SubscriptionData `json:"subscriptionDataSet"`
	UnitMode            bool               `json:"unitMode"`
}

// ProducerData is a producer group within a heartbeat.
type ProducerData struct {
	GroupName string `json:"groupName"`
}

// HeartbeatData is the body of HEART_BEAT (34).
type HeartbeatData struct {
	ClientID             string         `json:"clientID"`
	ConsumerDataSet      []ConsumerData `json:"consumerDataSet"`
	HeartbeatFingerprint Int            `json:"heartbeatFingerprint"` // 0: heartbeat V1
	ProducerDataSet      []ProducerData `json:"producerDataSet"`
	WithoutSub           bool           `json:"withoutSub"` // subscriptions are unchanged and not included
}

// MarshalJSON writes [] for empty sets.
func (d HeartbeatData) MarshalJSON() ([]byte, error) {
	type plain HeartbeatData
	d.ConsumerDataSet, d.ProducerDataSet = list(d.ConsumerDataSet), list(d.ProducerDataSet)
	return EncodeBody(plain(d))
}

// CheckClientConfigBody is the body of CHECK_CLIENT_CONFIG (46).
type CheckClientConfigBody struct {
	ClientID         string           `json:"clientId"`
	Group            string           `json:"group"`
	Namespace        string           `json:"namespace,omitempty"`
	SubscriptionData SubscriptionData `json:"subscriptionData"`
}

// LockBatchBody is the body of LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42).
type LockBatchBody struct {
	ClientID       string         `json:"clientId"`
	ConsumerGroup  string         `json:"consumerGroup"`
	MQSet          []MessageQueue `json:"mqSet"`
	OnlyThisBroker bool           `json:"onlyThisBroker"`
}

// LockBatchResponse answers LOCK_BATCH_MQ with the queues the client holds.
type LockBatchResponse struct {
	LockOKMQSet []MessageQueue `json:"lockOKMQSet"`
}

// MarshalJSON writes [] for no queues.
func (r LockBatchResponse) MarshalJSON() ([]byte, error) {
	type plain LockBatchResponse
	r.LockOKMQSet = list(r.LockOKMQSet)
	return EncodeBody(plain(r))
}

// ConsumerList answers GET_CONSUMER_LIST_BY_GROUP (38).
type ConsumerList struct {
	ConsumerIDs []string `json:"consumerIdList"`
}

// MarshalJSON writes [] for no members.
func (c ConsumerList) MarshalJSON() ([]byte, error) {
	type plain ConsumerList
	c.ConsumerIDs = list(c.ConsumerIDs)
	return EncodeBody(plain(c))
}
