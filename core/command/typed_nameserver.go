package command

// ZoneName is the field in which clients, with every request, and brokers, when
// they register, say in which zone they are.
const ZoneName = "__ZONE_NAME"

// RouteRequest is GET_ROUTEINFO_BY_TOPIC (105), answered with TopicRouteData.
type RouteRequest struct {
	Topic                  string
	ZoneName               string // __ZONE_NAME, optional
	ZoneMode               bool   // __ZONE_MODE: only brokers of ZoneName are wanted
	AcceptStandardJSONOnly bool
}

// Decode takes the fields.
func (r *RouteRequest) Decode(h *Header) error {
	d := reader{h: h}
	*r = RouteRequest{d.needString("topic"), d.optString(ZoneName), d.bool("__ZONE_MODE", false), d.bool("acceptStandardJsonOnly", false)}
	return d.err
}

// Append writes the fields.
func (r *RouteRequest) Append(w *Writer) {
	w.Ext("topic", r.Topic)
	w.optString(ZoneName, r.ZoneName)
	if r.ZoneMode {
		w.ExtBool("__ZONE_MODE", true)
	}
	if r.AcceptStandardJSONOnly {
		w.ExtBool("acceptStandardJsonOnly", true)
	}
}

// BrokerID names a broker in the requests of section B: UNREGISTER_BROKER (104)
// as it is, and within others.
type BrokerID struct {
	BrokerName  string
	BrokerAddr  string // ip:port
	ClusterName string
	BrokerID    int64 // 0 is the master
}

func (r *BrokerID) decode(d *reader) {
	*r = BrokerID{d.needString("brokerName"), d.needString("brokerAddr"), d.needString("clusterName"), d.int64("brokerId")}
}

// Append writes the fields.
func (r *BrokerID) Append(w *Writer) {
	w.Ext("brokerName", r.BrokerName)
	w.Ext("brokerAddr", r.BrokerAddr)
	w.Ext("clusterName", r.ClusterName)
	w.ExtInt("brokerId", r.BrokerID)
}

// UnregisterBrokerRequest is UNREGISTER_BROKER (104).
type UnregisterBrokerRequest struct{ BrokerID }

// Decode takes the fields.
func (r *UnregisterBrokerRequest) Decode(h *Header) error {
	d := reader{h: h}
	r.decode(&d)
	return d.err
}

// QueryDataVersionRequest is QUERY_DATA_VERSION (322); the body is a DataVersion.
type QueryDataVersionRequest struct{ BrokerID }

// Decode takes the fields.
func (r *QueryDataVersionRequest) Decode(h *Header) error {
	d := reader{h: h}
	r.decode(&d)
	return d.err
}

// QueryDataVersionResponse answers QUERY_DATA_VERSION (322); the body is the
// DataVersion the name server knows.
type QueryDataVersionResponse struct{ Changed bool }

// Decode takes the field; missing is changed, so that the broker registers.
func (r *QueryDataVersionResponse) Decode(h *Header) error {
	d := reader{h: h}
	r.Changed = d.bool("changed", true)
	return d.err
}

// Append writes the field.
func (r *QueryDataVersionResponse) Append(w *Writer) { w.ExtBool("changed", r.Changed) }

// RegisterBrokerRequest is REGISTER_BROKER (103); its body see RegisterBrokerBody.
type RegisterBrokerRequest struct {
	BrokerID
	HAServerAddr           string // ip:port of the HA listener
	ZoneName               string // __ZONE_NAME, optional
	HeartbeatTimeoutMillis int64  // 0: not given
	EnableActingMaster     bool
	Compressed             bool  // form of the body
	BodyCRC32              int32 // of the body, 0: unchecked
}

// Decode takes the fields.
func (r *RegisterBrokerRequest) Decode(h *Header) error {
	d := reader{h: h}
	r.decode(&d)
	r.HAServerAddr = d.optString("haServerAddr")
	r.ZoneName = d.optString(ZoneName)
	r.HeartbeatTimeoutMillis = d.optInt64("heartbeatTimeoutMillis", 0)
	r.EnableActingMaster = d.bool("enableActingMaster", false)
	r.Compressed = d.bool("compressed", false)
	r.BodyCRC32 = d.optInt32("bodyCrc32", 0)
	return d.err
}

// Append writes the fields.
func (r *RegisterBrokerRequest) Append(w *Writer) {
	r.BrokerID.Append(w)
	w.Ext("haServerAddr", r.HAServerAddr)
	w.optString(ZoneName, r.ZoneName)
	if r.HeartbeatTimeoutMillis > 0 {
		w.ExtInt("heartbeatTimeoutMillis", r.HeartbeatTimeoutMillis)
	}
	w.ExtBool("enableActingMaster", r.EnableActingMaster)
	w.ExtBool("compressed", r.Compressed)
	w.ExtInt("bodyCrc32", int64(r.BodyCRC32))
}

// RegisterBrokerResponse answers REGISTER_BROKER (103). For a slave the
// addresses are the master's, when one is known.
type RegisterBrokerResponse struct {
	HAServerAddr string
	MasterAddr   string
}

// Decode takes the fields.
func (r *RegisterBrokerResponse) Decode(h *Header) error {
	d := reader{h: h}
	*r = RegisterBrokerResponse{d.optString("haServerAddr"), d.optString("masterAddr")}
	return d.err
}

// Append writes the fields.
func (r *RegisterBrokerResponse) Append(w *Writer) {
	w.optString("haServerAddr", r.HAServerAddr)
	w.optString("masterAddr", r.MasterAddr)
}

// BrokerHeartbeatRequest is BROKER_HEARTBEAT (904). Absent numbers are -1.
type BrokerHeartbeatRequest struct {
	BrokerID                     // BrokerID.BrokerID -1 if absent
	HeartbeatTimeoutMillis int64 // heartbeatTimeoutMills on the wire
	MaxOffset              int64
	ConfirmOffset          int64
	Epoch                  int32
	ElectionPriority       int32
}

// Decode takes the fields.
func (r *BrokerHeartbeatRequest) Decode(h *Header) error {
	d := reader{h: h}
	*r = BrokerHeartbeatRequest{
		BrokerID:               BrokerID{d.needString("brokerName"), d.needString("brokerAddr"), d.needString("clusterName"), d.optInt64("brokerId", -1)},
		HeartbeatTimeoutMillis: d.optInt64("heartbeatTimeoutMills", -1), MaxOffset: d.optInt64("maxOffset", -1),
		ConfirmOffset: d.optInt64("confirmOffset", -1), Epoch: d.optInt32("epoch", -1), ElectionPriority: d.optInt32("electionPriority", -1),
	}
	return d.err
}

// Append writes the fields, leaving out negative ones.
func (r *BrokerHeartbeatRequest) Append(w *Writer) {
	w.Ext("clusterName", r.ClusterName)
	w.Ext("brokerAddr", r.BrokerAddr)
	w.Ext("brokerName", r.BrokerName)
	w.optInt("brokerId", r.BrokerID.BrokerID)
	w.optInt("epoch", int64(r.Epoch))
	w.optInt("maxOffset", r.MaxOffset)
	w.optInt("confirmOffset", r.ConfirmOffset)
	w.optInt("heartbeatTimeoutMills", r.HeartbeatTimeoutMillis)
	w.optInt("electionPriority", int64(r.ElectionPriority))
}

// optInt writes a number unless it is negative.
func (w *Writer) optInt(key string, v int64) {
	if v >= 0 {
		w.ExtInt(key, v)
	}
}

// MemberGroupRequest is GET_BROKER_MEMBER_GROUP (901).
type MemberGroupRequest struct{ ClusterName, BrokerName string }

// Decode takes the fields.
func (r *MemberGroupRequest) Decode(h *Header) error {
	d := reader{h: h}
	*r = MemberGroupRequest{d.needString("clusterName"), d.needString("brokerName")}
	return d.err
}

// Append writes the fields.
func (r *MemberGroupRequest) Append(w *Writer) {
	w.Ext("clusterName", r.ClusterName)
	w.Ext("brokerName", r.BrokerName)
}

// CreateTopicRequest is UPDATE_AND_CREATE_TOPIC (17).
type CreateTopicRequest struct {
	Topic           string
	DefaultTopic    string
	TopicFilterType string // SINGLE_TAG or MULTI_TAG
	Attributes      string // +k=v,-k
	ReadQueueNums   int32
	WriteQueueNums  int32
	Perm            int32 // bits 4 read, 2 write, 1 inherit
	TopicSysFlag    int32
	Order           bool
	Force           bool
}

// Decode takes the fields. What upstream marks as required but does not use
// (defaultTopic, topicFilterType, order) may be missing.
func (r *CreateTopicRequest) Decode(h *Header) error {
	d := reader{h: h}
	*r = CreateTopicRequest{
		Topic: d.needString("topic"), DefaultTopic: d.optString("defaultTopic"), TopicFilterType: d.optString("topicFilterType"),
		Attributes: d.optString("attributes"), ReadQueueNums: d.int32("readQueueNums"), WriteQueueNums: d.int32("writeQueueNums"),
		Perm: d.int32("perm"), TopicSysFlag: d.optInt32("topicSysFlag", 0), Order: d.bool("order", false), Force: d.bool("force", false),
	}
	return d.err
}

// Append writes the fields.
func (r *CreateTopicRequest) Append(w *Writer) {
	w.Ext("topic", r.Topic)
	w.Ext("defaultTopic", r.DefaultTopic)
	w.ExtInt("readQueueNums", int64(r.ReadQueueNums))
	w.ExtInt("writeQueueNums", int64(r.WriteQueueNums))
	w.ExtInt("perm", int64(r.Perm))
	w.Ext("topicFilterType", r.TopicFilterType)
	w.ExtInt("topicSysFlag", int64(r.TopicSysFlag))
	w.ExtBool("order", r.Order)
	w.optString("attributes", r.Attributes)
	if r.Force {
		w.ExtBool("force", true)
	}
}

// TopicRequest carries a topic only: DELETE_TOPIC_IN_BROKER (215), …_IN_NAMESRV
// (216), GET_TOPIC_STATS_INFO (202), QUERY_TOPIC_CONSUME_BY_WHO (300),
// GET_TOPIC_CONFIG (351) and others.
type TopicRequest struct{ Topic string }

// Decode takes the field.
func (r *TopicRequest) Decode(h *Header) error {
	d := reader{h: h}
	r.Topic = d.needString("topic")
	return d.err
}

// Append writes the field.
func (r *TopicRequest) Append(w *Writer) { w.Ext("topic", r.Topic) }

// KVConfigRequest is PUT_KV_CONFIG (100), GET_KV_CONFIG (101) and
// DELETE_KV_CONFIG (102); Value belongs to 100.
type KVConfigRequest struct{ Namespace, Key, Value string }

// Decode takes the fields.
func (r *KVConfigRequest) Decode(h *Header) error {
	d := reader{h: h}
	*r = KVConfigRequest{Namespace: d.needString("namespace"), Key: d.needString("key")}
	if h.Code == ReqPutKVConfig {
		r.Value = d.needString("value")
	}
	return d.err
}

// Append writes the fields.
func (r *KVConfigRequest) Append(w *Writer) {
	w.Ext("namespace", r.Namespace)
	w.Ext("key", r.Key)
	if w.code == ReqPutKVConfig {
		w.Ext("value", r.Value)
	}
}
