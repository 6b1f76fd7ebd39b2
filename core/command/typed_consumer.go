package command

// PullRequest is PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361).
type PullRequest struct {
	ConsumerGroup        []byte
	Topic                []byte
	Subscription         []byte // expression, valid with PullSubscription
	ExpressionType       []byte // TAG (also if empty) or SQL92
	BrokerName           []byte // optional
	QueueOffset          int64  // next offset to read
	CommitOffset         int64  // valid with PullCommitOffset
	SuspendTimeoutMillis int64  // how long the broker may hold the request
	SubVersion           int64
	QueueID              int32
	MaxMsgNums           int32
	MaxMsgBytes          int32 // upper bound of the bodies' bytes, 0: not given
	SysFlag              int32 // Pull… bits
}

// Bits of PullRequest.SysFlag (RocketMQ's PullSysFlag).
const (
	PullCommitOffset int32 = 0x1  // CommitOffset is to be stored
	PullSuspend      int32 = 0x2  // long polling is allowed
	PullSubscription int32 = 0x4  // Subscription is in the header
	PullClassFilter  int32 = 0x8  // class filter mode
	PullLite         int32 = 0x10 // lite pull
)

// Decode takes the fields.
func (r *PullRequest) Decode(h *Header) error {
	d := reader{h: h}
	*r = PullRequest{
		ConsumerGroup: d.need("consumerGroup"), Topic: d.need("topic"), QueueID: d.int32("queueId"),
		QueueOffset: d.int64("queueOffset"), MaxMsgNums: d.int32("maxMsgNums"), SysFlag: d.int32("sysFlag"),
		CommitOffset: d.int64("commitOffset"), SuspendTimeoutMillis: d.int64("suspendTimeoutMillis"),
		Subscription: d.opt("subscription"), SubVersion: d.int64("subVersion"), ExpressionType: d.opt("expressionType"),
		MaxMsgBytes: d.optInt32("maxMsgBytes", 0), BrokerName: d.opt("bname"),
	}
	return d.err
}

// Append writes the fields.
func (r *PullRequest) Append(w *Writer) {
	w.ExtBytes("consumerGroup", r.ConsumerGroup)
	w.ExtBytes("topic", r.Topic)
	w.ExtInt("queueId", int64(r.QueueID))
	w.ExtInt("queueOffset", r.QueueOffset)
	w.ExtInt("maxMsgNums", int64(r.MaxMsgNums))
	w.ExtInt("sysFlag", int64(r.SysFlag))
	w.ExtInt("commitOffset", r.CommitOffset)
	w.ExtInt("suspendTimeoutMillis", r.SuspendTimeoutMillis)
	w.optBytes("subscription", r.Subscription)
	w.ExtInt("subVersion", r.SubVersion)
	w.optBytes("expressionType", r.ExpressionType)
	if r.MaxMsgBytes > 0 {
		w.ExtInt("maxMsgBytes", int64(r.MaxMsgBytes))
	}
	w.optBytes("bname", r.BrokerName)
}

// PullResponse is the header of the answers 0, 19, 20 and 21 to a pull. Clients
// fail without the four offsets.
type PullResponse struct {
	SuggestWhichBrokerID int64
	NextBeginOffset      int64
	MinOffset            int64
	MaxOffset            int64
	TopicSysFlag         int32
	GroupSysFlag         int32
	ForbiddenType        int32 // 0: not forbidden
}

// Decode takes the fields.
func (r *PullResponse) Decode(h *Header) error {
	d := reader{h: h}
	*r = PullResponse{
		SuggestWhichBrokerID: d.int64("suggestWhichBrokerId"), NextBeginOffset: d.int64("nextBeginOffset"),
		MinOffset: d.int64("minOffset"), MaxOffset: d.int64("maxOffset"),
		TopicSysFlag: d.optInt32("topicSysFlag", 0), GroupSysFlag: d.optInt32("groupSysFlag", 0),
		ForbiddenType: d.optInt32("forbiddenType", 0),
	}
	return d.err
}

// Append writes the fields.
func (r *PullResponse) Append(w *Writer) {
	w.ExtInt("suggestWhichBrokerId", r.SuggestWhichBrokerID)
	w.ExtInt("nextBeginOffset", r.NextBeginOffset)
	w.ExtInt("minOffset", r.MinOffset)
	w.ExtInt("maxOffset", r.MaxOffset)
	w.ExtInt("topicSysFlag", int64(r.TopicSysFlag))
	w.ExtInt("groupSysFlag", int64(r.GroupSysFlag))
	if r.ForbiddenType != 0 {
		w.ExtInt("forbiddenType", int64(r.ForbiddenType))
	}
}

// QueryConsumerOffsetRequest is QUERY_CONSUMER_OFFSET (14), answered with an
// OffsetResponse.
type QueryConsumerOffsetRequest struct {
	ConsumerGroup     []byte
	Topic             []byte
	QueueID           int32
	SetZeroIfNotFound bool // true unless given: a queue that starts at 0 has offset 0
}

// Decode takes the fields.
func (r *QueryConsumerOffsetRequest) Decode(h *Header) error {
	d := reader{h: h}
	*r = QueryConsumerOffsetRequest{d.need("consumerGroup"), d.need("topic"), d.int32("queueId"), d.bool("setZeroIfNotFound", true)}
	return d.err
}

// Append writes the fields.
func (r *QueryConsumerOffsetRequest) Append(w *Writer) {
	w.ExtBytes("consumerGroup", r.ConsumerGroup)
	w.ExtBytes("topic", r.Topic)
	w.ExtInt("queueId", int64(r.QueueID))
	if !r.SetZeroIfNotFound {
		w.ExtBool("setZeroIfNotFound", false)
	}
}

// OffsetResponse answers QUERY_CONSUMER_OFFSET (14), SEARCH_OFFSET_BY_TIMESTAMP
// (29), GET_MAX_OFFSET (30) and GET_MIN_OFFSET (31).
type OffsetResponse struct{ Offset int64 }

// Decode takes the field.
func (r *OffsetResponse) Decode(h *Header) error {
	d := reader{h: h}
	r.Offset = d.int64("offset")
	return d.err
}

// Append writes the field.
func (r *OffsetResponse) Append(w *Writer) { w.ExtInt("offset", r.Offset) }

// UpdateConsumerOffsetRequest is UPDATE_CONSUMER_OFFSET (15).
type UpdateConsumerOffsetRequest struct {
	ConsumerGroup []byte
	Topic         []byte
	CommitOffset  int64
	QueueID       int32
}

// Decode takes the fields.
func (r *UpdateConsumerOffsetRequest) Decode(h *Header) error {
	d := reader{h: h}
	*r = UpdateConsumerOffsetRequest{d.need("consumerGroup"), d.need("topic"), d.int64("commitOffset"), d.int32("queueId")}
	return d.err
}

// Append writes the fields.
func (r *UpdateConsumerOffsetRequest) Append(w *Writer) {
	w.ExtBytes("consumerGroup", r.ConsumerGroup)
	w.ExtBytes("topic", r.Topic)
	w.ExtInt("queueId", int64(r.QueueID))
	w.ExtInt("commitOffset", r.CommitOffset)
}

// SearchOffsetRequest is SEARCH_OFFSET_BY_TIMESTAMP (29), answered with an
// OffsetResponse.
type SearchOffsetRequest struct {
	Topic     []byte
	Timestamp int64 // ms since epoch
	QueueID   int32
	Upper     bool // boundaryType UPPER; anything else is LOWER
}

// Decode takes the fields.
func (r *SearchOffsetRequest) Decode(h *Header) error {
	d := reader{h: h}
	*r = SearchOffsetRequest{d.need("topic"), d.int64("timestamp"), d.int32("queueId"), equalFold(d.opt("boundaryType"), "UPPER")}
	return d.err
}

// equalFold compares b with an ASCII word in upper case.
func equalFold(b []byte, upper string) bool {
	if len(b) != len(upper) {
		return false
	}
	for i, c := range b {
		if c >= 'a' && c <= 'z' {
			c -= 'a' - 'A'
		}
		if c != upper[i] {
			return false
		}
	}
	return true
}

// Append writes the fields.
func (r *SearchOffsetRequest) Append(w *Writer) {
	w.ExtBytes("topic", r.Topic)
	w.ExtInt("queueId", int64(r.QueueID))
	w.ExtInt("timestamp", r.Timestamp)
	if r.Upper {
		w.Ext("boundaryType", "UPPER")
	}
}

// QueueRequest is GET_MAX_OFFSET (30) and GET_MIN_OFFSET (31), answered with an
// OffsetResponse, and GET_EARLIEST_MSG_STORETIME (32), answered with a
// TimestampResponse.
type QueueRequest struct {
	Topic       []byte
	QueueID     int32
	Uncommitted bool // of 30 only: what is stored but not yet readable counts (committed=false)
}

// Decode takes the fields.
func (r *QueueRequest) Decode(h *Header) error {
	d := reader{h: h}
	*r = QueueRequest{d.need("topic"), d.int32("queueId"), !d.bool("committed", true)}
	return d.err
}

// Append writes the fields.
func (r *QueueRequest) Append(w *Writer) {
	w.ExtBytes("topic", r.Topic)
	w.ExtInt("queueId", int64(r.QueueID))
	if w.code == ReqGetMaxOffset && r.Uncommitted {
		w.ExtBool("committed", false)
	}
}

// TimestampResponse answers GET_EARLIEST_MSG_STORETIME (32).
type TimestampResponse struct{ Timestamp int64 } // ms since epoch

// Decode takes the field.
func (r *TimestampResponse) Decode(h *Header) error {
	d := reader{h: h}
	r.Timestamp = d.int64("timestamp")
	return d.err
}

// Append writes the field.
func (r *TimestampResponse) Append(w *Writer) { w.ExtInt("timestamp", r.Timestamp) }

// ViewMessageRequest is VIEW_MESSAGE_BY_ID (33).
type ViewMessageRequest struct {
	Topic  []byte // optional, the upstream broker ignores it
	Offset int64  // physical offset
}

// Decode takes the fields.
func (r *ViewMessageRequest) Decode(h *Header) error {
	d := reader{h: h}
	*r = ViewMessageRequest{d.opt("topic"), d.int64("offset")}
	return d.err
}

// Append writes the fields.
func (r *ViewMessageRequest) Append(w *Writer) {
	w.optBytes("topic", r.Topic)
	w.ExtInt("offset", r.Offset)
}

// QueryMessageRequest is QUERY_MESSAGE (12).
type QueryMessageRequest struct {
	Topic          []byte
	Key            []byte
	BeginTimestamp int64 // ms since epoch
	EndTimestamp   int64 // ms since epoch
	MaxNum         int32
	UniqueKey      bool // Key is a unique message id
}

// Decode takes the fields.
func (r *QueryMessageRequest) Decode(h *Header) error {
	d := reader{h: h}
	*r = QueryMessageRequest{d.need("topic"), d.need("key"), d.int64("beginTimestamp"), d.int64("endTimestamp"), d.int32("maxNum"), d.bool("_UNIQUE_KEY_QUERY", false)}
	return d.err
}

// Append writes the fields.
func (r *QueryMessageRequest) Append(w *Writer) {
	w.ExtBytes("topic", r.Topic)
	w.ExtBytes("key", r.Key)
	w.ExtInt("maxNum", int64(r.MaxNum))
	w.ExtInt("beginTimestamp", r.BeginTimestamp)
	w.ExtInt("endTimestamp", r.EndTimestamp)
	w.ExtBool("_UNIQUE_KEY_QUERY", r.UniqueKey)
}

// QueryMessageResponse answers QUERY_MESSAGE (12); the body holds the messages.
type QueryMessageResponse struct {
	IndexLastUpdateTimestamp int64 // ms since epoch
	IndexLastUpdatePhyOffset int64
}

// Decode takes the fields.
func (r *QueryMessageResponse) Decode(h *Header) error {
	d := reader{h: h}
	*r = QueryMessageResponse{d.int64("indexLastUpdateTimestamp"), d.int64("indexLastUpdatePhyoffset")}
	return d.err
}

// Append writes the fields.
func (r *QueryMessageResponse) Append(w *Writer) {
	w.ExtInt("indexLastUpdateTimestamp", r.IndexLastUpdateTimestamp)
	w.ExtInt("indexLastUpdatePhyoffset", r.IndexLastUpdatePhyOffset)
}

// UnregisterClientRequest is UNREGISTER_CLIENT (35).
type UnregisterClientRequest struct {
	ClientID      []byte
	ProducerGroup []byte // optional
	ConsumerGroup []byte // optional
}

// Decode takes the fields.
func (r *UnregisterClientRequest) Decode(h *Header) error {
	d := reader{h: h}
	*r = UnregisterClientRequest{d.need("clientID"), d.opt("producerGroup"), d.opt("consumerGroup")}
	return d.err
}

// Append writes the fields.
func (r *UnregisterClientRequest) Append(w *Writer) {
	w.ExtBytes("clientID", r.ClientID)
	w.optBytes("producerGroup", r.ProducerGroup)
	w.optBytes("consumerGroup", r.ConsumerGroup)
}

// SendBackRequest is CONSUMER_SEND_MSG_BACK (36).
type SendBackRequest struct {
	Group             []byte
	OriginMsgID       []byte // optional
	OriginTopic       []byte // optional
	Offset            int64  // physical offset of the message
	DelayLevel        int32  // < 0 dead letter, 0 by reconsumeTimes, > 0 this level
	MaxReconsumeTimes int32  // -1: not given
	UnitMode          bool
}

// Decode takes the fields.
func (r *SendBackRequest) Decode(h *Header) error {
	d := reader{h: h}
	*r = SendBackRequest{
		Group: d.need("group"), Offset: d.int64("offset"), DelayLevel: d.int32("delayLevel"),
		OriginMsgID: d.opt("originMsgId"), OriginTopic: d.opt("originTopic"),
		UnitMode: d.bool("unitMode", false), MaxReconsumeTimes: d.optInt32("maxReconsumeTimes", -1),
	}
	return d.err
}

// Append writes the fields.
func (r *SendBackRequest) Append(w *Writer) {
	w.ExtInt("offset", r.Offset)
	w.ExtBytes("group", r.Group)
	w.ExtInt("delayLevel", int64(r.DelayLevel))
	w.optBytes("originMsgId", r.OriginMsgID)
	w.optBytes("originTopic", r.OriginTopic)
	w.ExtBool("unitMode", r.UnitMode)
	if r.MaxReconsumeTimes >= 0 {
		w.ExtInt("maxReconsumeTimes", int64(r.MaxReconsumeTimes))
	}
}

// ConsumerGroupRequest is GET_CONSUMER_LIST_BY_GROUP (38),
// NOTIFY_CONSUMER_IDS_CHANGED (40) and GET_CONSUMER_CONNECTION_LIST (203).
type ConsumerGroupRequest struct{ ConsumerGroup []byte }

// Decode takes the field.
func (r *ConsumerGroupRequest) Decode(h *Header) error {
	d := reader{h: h}
	r.ConsumerGroup = d.need("consumerGroup")
	return d.err
}

// Append writes the field.
func (r *ConsumerGroupRequest) Append(w *Writer) { w.ExtBytes("consumerGroup", r.ConsumerGroup) }

// EndTransactionRequest is END_TRANSACTION (37).
type EndTransactionRequest struct {
	Topic                []byte // optional, 5.x
	ProducerGroup        []byte
	MsgID                []byte // unique id
	TransactionID        []byte // optional
	TranStateTableOffset int64  // queue offset of the half message
	CommitLogOffset      int64  // physical offset of the half message
	CommitOrRollback     int32  // Transaction… values
	FromTransactionCheck bool
}

// Values of EndTransactionRequest.CommitOrRollback.
const (
	TransactionUnknown  int32 = 0
	TransactionCommit   int32 = 8
	TransactionRollback int32 = 12
)

// Decode takes the fields.
func (r *EndTransactionRequest) Decode(h *Header) error {
	d := reader{h: h}
	*r = EndTransactionRequest{
		Topic: d.opt("topic"), ProducerGroup: d.need("producerGroup"), MsgID: d.opt("msgId"), TransactionID: d.opt("transactionId"),
		TranStateTableOffset: d.int64("tranStateTableOffset"), CommitLogOffset: d.int64("commitLogOffset"),
		CommitOrRollback: d.int32("commitOrRollback"), FromTransactionCheck: d.bool("fromTransactionCheck", false),
	}
	return d.err
}

// Append writes the fields.
func (r *EndTransactionRequest) Append(w *Writer) {
	w.optBytes("topic", r.Topic)
	w.ExtBytes("producerGroup", r.ProducerGroup)
	w.ExtInt("tranStateTableOffset", r.TranStateTableOffset)
	w.ExtInt("commitLogOffset", r.CommitLogOffset)
	w.ExtInt("commitOrRollback", int64(r.CommitOrRollback))
	w.ExtBool("fromTransactionCheck", r.FromTransactionCheck)
	w.ExtBytes("msgId", r.MsgID)
	w.optBytes("transactionId", r.TransactionID)
}

// CheckTransactionStateRequest is CHECK_TRANSACTION_STATE (39), broker to
// producer; the body is the half message.
type CheckTransactionStateRequest struct {
	Topic                []byte // optional
	MsgID                []byte // unique id
	TransactionID        []byte
	OffsetMsgID          []byte
	BrokerName           []byte
	TranStateTableOffset int64
	CommitLogOffset      int64
}

// Decode takes the fields.
func (r *CheckTransactionStateRequest) Decode(h *Header) error {
	d := reader{h: h}
	*r = CheckTransactionStateRequest{
		Topic: d.opt("topic"), MsgID: d.opt("msgId"), TransactionID: d.opt("transactionId"), OffsetMsgID: d.opt("offsetMsgId"),
		BrokerName: d.opt("bname"), TranStateTableOffset: d.int64("tranStateTableOffset"), CommitLogOffset: d.int64("commitLogOffset"),
	}
	return d.err
}

// Append writes the fields.
func (r *CheckTransactionStateRequest) Append(w *Writer) {
	w.optBytes("topic", r.Topic)
	w.ExtInt("tranStateTableOffset", r.TranStateTableOffset)
	w.ExtInt("commitLogOffset", r.CommitLogOffset)
	w.optBytes("msgId", r.MsgID)
	w.optBytes("transactionId", r.TransactionID)
	w.optBytes("offsetMsgId", r.OffsetMsgID)
	w.optBytes("bname", r.BrokerName)
}
