package command

// GroupRequest carries a consumer group as "group": GET_SUBSCRIPTIONGROUP_CONFIG
// (352) and QUERY_TOPICS_BY_CONSUMER (343).
type GroupRequest struct{ Group string }

// Decode takes the field.
func (r *GroupRequest) Decode(h *Header) error {
	d := reader{h: h}
	r.Group = d.needString("group")
	return d.err
}

// Append writes the field.
func (r *GroupRequest) Append(w *Writer) { w.Ext("group", r.Group) }

// GroupTopicRequest carries a consumer group and a topic: QUERY_CONSUME_TIME_SPAN
// (303), QUERY_SUBSCRIPTION_BY_CONSUMER (345).
type GroupTopicRequest struct{ Group, Topic string }

// Decode takes the fields.
func (r *GroupTopicRequest) Decode(h *Header) error {
	d := reader{h: h}
	*r = GroupTopicRequest{d.needString("group"), d.needString("topic")}
	return d.err
}

// Append writes the fields.
func (r *GroupTopicRequest) Append(w *Writer) {
	w.Ext("group", r.Group)
	w.Ext("topic", r.Topic)
}

// GroupForbiddenRequest is UPDATE_AND_GET_GROUP_FORBIDDEN (353).
type GroupForbiddenRequest struct {
	Group, Topic string
	// Update: Readable is to be set; otherwise it is only asked for.
	Update, Readable bool
}

// Decode takes the fields.
func (r *GroupForbiddenRequest) Decode(h *Header) error {
	d := reader{h: h}
	*r = GroupForbiddenRequest{Group: d.needString("group"), Topic: d.needString("topic"), Readable: d.bool("readable", true)}
	_, r.Update = h.Ext("readable")
	return d.err
}

// Append writes the fields.
func (r *GroupForbiddenRequest) Append(w *Writer) {
	w.Ext("group", r.Group)
	w.Ext("topic", r.Topic)
	if r.Update {
		w.ExtBool("readable", r.Readable)
	}
}

// DeleteGroupRequest is DELETE_SUBSCRIPTIONGROUP (207).
type DeleteGroupRequest struct {
	GroupName   string
	CleanOffset bool // progress goes, too
}

// Decode takes the fields.
func (r *DeleteGroupRequest) Decode(h *Header) error {
	d := reader{h: h}
	*r = DeleteGroupRequest{d.needString("groupName"), d.bool("cleanOffset", false)}
	return d.err
}

// Append writes the fields.
func (r *DeleteGroupRequest) Append(w *Writer) {
	w.Ext("groupName", r.GroupName)
	w.ExtBool("cleanOffset", r.CleanOffset)
}

// ConsumeStatsRequest is GET_CONSUME_STATS (208).
type ConsumeStatsRequest struct {
	ConsumerGroup string
	Topic         string // optional: only this one
	TopicList     string // optional: only these, separated by ;
}

// Decode takes the fields.
func (r *ConsumeStatsRequest) Decode(h *Header) error {
	d := reader{h: h}
	*r = ConsumeStatsRequest{d.needString("consumerGroup"), d.optString("topic"), d.optString("topicList")}
	return d.err
}

// Append writes the fields.
func (r *ConsumeStatsRequest) Append(w *Writer) {
	w.Ext("consumerGroup", r.ConsumerGroup)
	w.optString("topic", r.Topic)
	w.optString("topicList", r.TopicList)
}

// CorrectionOffsetRequest is QUERY_CORRECTION_OFFSET (308).
type CorrectionOffsetRequest struct {
	FilterGroups string // optional: groups that do not count, separated by commas
	CompareGroup string
	Topic        string
}

// Decode takes the fields.
func (r *CorrectionOffsetRequest) Decode(h *Header) error {
	d := reader{h: h}
	*r = CorrectionOffsetRequest{d.optString("filterGroups"), d.needString("compareGroup"), d.needString("topic")}
	return d.err
}

// Append writes the fields.
func (r *CorrectionOffsetRequest) Append(w *Writer) {
	w.optString("filterGroups", r.FilterGroups)
	w.Ext("compareGroup", r.CompareGroup)
	w.Ext("topic", r.Topic)
}

// CloneGroupOffsetRequest is CLONE_GROUP_OFFSET (314).
type CloneGroupOffsetRequest struct {
	SrcGroup, DestGroup string
	Topic               string // optional: only this one
	Offline             bool   // take also what the group does not subscribe now
}

// Decode takes the fields.
func (r *CloneGroupOffsetRequest) Decode(h *Header) error {
	d := reader{h: h}
	*r = CloneGroupOffsetRequest{d.needString("srcGroup"), d.needString("destGroup"), d.optString("topic"), d.bool("offline", false)}
	return d.err
}

// Append writes the fields.
func (r *CloneGroupOffsetRequest) Append(w *Writer) {
	w.Ext("srcGroup", r.SrcGroup)
	w.Ext("destGroup", r.DestGroup)
	w.optString("topic", r.Topic)
	w.ExtBool("offline", r.Offline)
}

// ProducerGroupRequest is GET_PRODUCER_CONNECTION_LIST (204).
type ProducerGroupRequest struct{ ProducerGroup string }

// Decode takes the field.
func (r *ProducerGroupRequest) Decode(h *Header) error {
	d := reader{h: h}
	r.ProducerGroup = d.needString("producerGroup")
	return d.err
}

// Append writes the field.
func (r *ProducerGroupRequest) Append(w *Writer) { w.Ext("producerGroup", r.ProducerGroup) }

// ConsumerRunningInfoRequest is GET_CONSUMER_RUNNING_INFO (307), from a tool to the
// broker and from there to the client.
type ConsumerRunningInfoRequest struct {
	ConsumerGroup, ClientID string
	JstackEnable            bool // with the stacks of the client's threads
}

// Decode takes the fields.
func (r *ConsumerRunningInfoRequest) Decode(h *Header) error {
	d := reader{h: h}
	*r = ConsumerRunningInfoRequest{d.needString("consumerGroup"), d.needString("clientId"), d.bool("jstackEnable", false)}
	return d.err
}

// Append writes the fields.
func (r *ConsumerRunningInfoRequest) Append(w *Writer) {
	w.Ext("consumerGroup", r.ConsumerGroup)
	w.Ext("clientId", r.ClientID)
	w.ExtBool("jstackEnable", r.JstackEnable)
}

// ConsumeDirectlyRequest is CONSUME_MESSAGE_DIRECTLY (309), from a tool to the broker
// and from there to the client, then with the message as the body.
type ConsumeDirectlyRequest struct {
	ConsumerGroup, ClientID string
	MsgID                   string // offset message id
	BrokerName              string
	Topic                   string // optional
	TopicSysFlag            int32
	GroupSysFlag            int32
}

// Decode takes the fields.
func (r *ConsumeDirectlyRequest) Decode(h *Header) error {
	d := reader{h: h}
	*r = ConsumeDirectlyRequest{
		ConsumerGroup: d.needString("consumerGroup"), ClientID: d.optString("clientId"), MsgID: d.optString("msgId"),
		BrokerName: d.optString("brokerName"), Topic: d.optString("topic"),
		TopicSysFlag: d.optInt32("topicSysFlag", 0), GroupSysFlag: d.optInt32("groupSysFlag", 0),
	}
	return d.err
}

// Append writes the fields.
func (r *ConsumeDirectlyRequest) Append(w *Writer) {
	w.Ext("consumerGroup", r.ConsumerGroup)
	w.optString("clientId", r.ClientID)
	w.optString("msgId", r.MsgID)
	w.optString("brokerName", r.BrokerName)
	w.optString("topic", r.Topic)
	w.ExtInt("topicSysFlag", int64(r.TopicSysFlag))
	w.ExtInt("groupSysFlag", int64(r.GroupSysFlag))
}

// ResetOffsetRequest is INVOKE_BROKER_TO_RESET_OFFSET (222).
type ResetOffsetRequest struct {
	Group, Topic string
	Timestamp    int64 // ms since epoch; -1: behind the newest message
	Offset       int64 // with QueueID: this one; -1: by Timestamp
	QueueID      int32 // -1: all queues
	Force        bool  // also forward, past messages that the group has not seen
	// DryRun is ours: tell, and change nothing. Apache's brokers do not know it.
	DryRun bool
}

// Decode takes the fields.
func (r *ResetOffsetRequest) Decode(h *Header) error {
	d := reader{h: h}
	*r = ResetOffsetRequest{
		Group: d.needString("group"), Topic: d.needString("topic"), Timestamp: d.int64("timestamp"),
		Force: d.bool("isForce", false), QueueID: d.optInt32("queueId", -1), Offset: d.optInt64("offset", -1), DryRun: d.bool("dryRun", false),
	}
	return d.err
}

// Append writes the fields.
func (r *ResetOffsetRequest) Append(w *Writer) {
	w.Ext("group", r.Group)
	w.Ext("topic", r.Topic)
	w.ExtInt("timestamp", r.Timestamp)
	w.ExtBool("isForce", r.Force)
	w.ExtInt("queueId", int64(r.QueueID))
	w.ExtInt("offset", r.Offset)
	if r.DryRun {
		w.ExtBool("dryRun", true)
	}
}

// ConsumerStatusRequest is INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223) and what the
// broker asks the clients then, GET_CONSUMER_STATUS_FROM_CLIENT (221).
type ConsumerStatusRequest struct {
	Topic, Group string
	ClientAddr   string // optional: the id of one client
}

// Decode takes the fields.
func (r *ConsumerStatusRequest) Decode(h *Header) error {
	d := reader{h: h}
	*r = ConsumerStatusRequest{d.needString("topic"), d.needString("group"), d.optString("clientAddr")}
	return d.err
}

// Append writes the fields.
func (r *ConsumerStatusRequest) Append(w *Writer) {
	w.Ext("topic", r.Topic)
	w.Ext("group", r.Group)
	w.optString("clientAddr", r.ClientAddr)
}

// StatsDataRequest is VIEW_BROKER_STATS_DATA (315).
type StatsDataRequest struct{ StatsName, StatsKey string }

// Decode takes the fields.
func (r *StatsDataRequest) Decode(h *Header) error {
	d := reader{h: h}
	*r = StatsDataRequest{d.needString("statsName"), d.needString("statsKey")}
	return d.err
}

// Append writes the fields.
func (r *StatsDataRequest) Append(w *Writer) {
	w.Ext("statsName", r.StatsName)
	w.Ext("statsKey", r.StatsKey)
}

// BrokerConsumeStatsRequest is GET_BROKER_CONSUME_STATS (317).
type BrokerConsumeStatsRequest struct {
	Order bool // only order topics
}

// Decode takes the field.
func (r *BrokerConsumeStatsRequest) Decode(h *Header) error {
	d := reader{h: h}
	d.need("isOrder")
	r.Order = d.bool("isOrder", false)
	return d.err
}

// Append writes the field.
func (r *BrokerConsumeStatsRequest) Append(w *Writer) { w.ExtBool("isOrder", r.Order) }

// QueryConsumeQueueRequest is QUERY_CONSUME_QUEUE (321).
type QueryConsumeQueueRequest struct {
	Topic         string
	ConsumerGroup string // optional: its subscription is told and applied
	Index         int64  // the first queue offset wanted
	QueueID       int32
	Count         int32
}

// Decode takes the fields.
func (r *QueryConsumeQueueRequest) Decode(h *Header) error {
	d := reader{h: h}
	*r = QueryConsumeQueueRequest{
		Topic: d.needString("topic"), ConsumerGroup: d.optString("consumerGroup"),
		Index: d.int64("index"), QueueID: d.int32("queueId"), Count: d.int32("count"),
	}
	return d.err
}

// Append writes the fields.
func (r *QueryConsumeQueueRequest) Append(w *Writer) {
	w.Ext("topic", r.Topic)
	w.optString("consumerGroup", r.ConsumerGroup)
	w.ExtInt("index", r.Index)
	w.ExtInt("queueId", int64(r.QueueID))
	w.ExtInt("count", int64(r.Count))
}

// TablePageRequest asks for a part of a table: GET_ALL_TOPIC_CONFIG (21), and with
// other names of the fields GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201). All is optional.
type TablePageRequest struct {
	DataVersion string // of the table that the parts before came from, in JSON
	Seq         int32  // of the first entry wanted
	Max         int32  // 0: all
}

func pageNames(code int32) (seq, most, total string) {
	if code == ReqGetAllSubscriptionGroupConfig {
		return "groupSeq", "maxGroupNum", "totalGroupNum"
	}
	return "topicSeq", "maxTopicNum", "totalTopicNum"
}

// Decode takes the fields.
func (r *TablePageRequest) Decode(h *Header) error {
	d := reader{h: h}
	seq, most, _ := pageNames(h.Code)
	*r = TablePageRequest{d.optString("dataVersion"), d.optInt32(seq, 0), d.optInt32(most, 0)}
	return d.err
}

// Append writes the fields.
func (r *TablePageRequest) Append(w *Writer) {
	seq, most, _ := pageNames(w.code)
	w.optString("dataVersion", r.DataVersion)
	w.ExtInt(seq, int64(r.Seq))
	w.ExtInt(most, int64(r.Max))
}

// AppendTotal writes, into the answer to a request with this code, how many entries
// the table has: who asks goes on until it has them.
func (w *Writer) AppendTotal(code int32, n int) {
	_, _, total := pageNames(code)
	w.ExtInt(total, int64(n))
}

// BrokerConfigResponse answers GET_BROKER_CONFIG (26); the body is properties text.
type BrokerConfigResponse struct {
	Version string // a DataVersion in JSON
}

// Decode takes the field.
func (r *BrokerConfigResponse) Decode(h *Header) error {
	d := reader{h: h}
	r.Version = d.needString("version")
	return d.err
}

// Append writes the field.
func (r *BrokerConfigResponse) Append(w *Writer) { w.Ext("version", r.Version) }

// RuntimeInfoRequest is GET_BROKER_RUNTIME_INFO (28). Its field is ours.
type RuntimeInfoRequest struct {
	// Limits: the answer is to have the limits of the process, which takes longer.
	Limits bool
}

// Decode takes the field.
func (r *RuntimeInfoRequest) Decode(h *Header) error {
	d := reader{h: h}
	r.Limits = d.bool("limits", false)
	return d.err
}

// Append writes the field.
func (r *RuntimeInfoRequest) Append(w *Writer) {
	if r.Limits {
		w.ExtBool("limits", true)
	}
}

// RuntimeInfoResponse answers GET_BROKER_RUNTIME_INFO (28); the body is a KVTable.
type RuntimeInfoResponse struct {
	// Software is what the broker is, SoftwareHardpoint for ours. Others do not say.
	Software string
	// FullInHours is when the disk is full, at the rate of the last hour; -1: it does not
	// fill, or that is not known.
	FullInHours int64
	// What the process has and may have at most; -1: not known, or not asked for.
	OpenFiles, OpenFilesMax, MemoryMaps, MemoryMapsMax int64
}

// SoftwareHardpoint is how Hardpoint's brokers name themselves.
const SoftwareHardpoint = "hardpoint"

// Decode takes the field.
func (r *RuntimeInfoResponse) Decode(h *Header) error {
	d := reader{h: h}
	*r = RuntimeInfoResponse{
		Software: d.optString("software"), FullInHours: d.optInt64("fullInHours", -1),
		OpenFiles: d.optInt64("openFiles", -1), OpenFilesMax: d.optInt64("openFilesMax", -1),
		MemoryMaps: d.optInt64("memoryMaps", -1), MemoryMapsMax: d.optInt64("memoryMapsMax", -1),
	}
	return d.err
}

// Append writes the field.
func (r *RuntimeInfoResponse) Append(w *Writer) {
	w.optString("software", r.Software)
	w.optInt("fullInHours", r.FullInHours)
	w.optInt("openFiles", r.OpenFiles)
	w.optInt("openFilesMax", r.OpenFilesMax)
	w.optInt("memoryMaps", r.MemoryMaps)
	w.optInt("memoryMapsMax", r.MemoryMapsMax)
}
