package command

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
)

// QueueTimeSpan is how far a group is in one queue, in ms since epoch.
type QueueTimeSpan struct {
	ConsumeTimeStamp int64        `json:"consumeTimeStamp"` // of the last message consumed
	DelayTime        int64        `json:"delayTime"`        // ms since the first message not consumed came, 0: none
	MaxTimeStamp     int64        `json:"maxTimeStamp"`
	MessageQueue     MessageQueue `json:"messageQueue"`
	MinTimeStamp     int64        `json:"minTimeStamp"`
}

// ConsumeTimeSpans answers QUERY_CONSUME_TIME_SPAN (303).
type ConsumeTimeSpans struct {
	Spans []QueueTimeSpan `json:"consumeTimeSpanSet"`
}

// MarshalJSON writes [] for no queues.
func (c ConsumeTimeSpans) MarshalJSON() ([]byte, error) {
	type plain ConsumeTimeSpans
	c.Spans = list(c.Spans)
	return EncodeBody(plain(c))
}

// CorrectionOffsets answers QUERY_CORRECTION_OFFSET (308): by queue id.
type CorrectionOffsets struct {
	Offsets map[int32]int64 `json:"correctionOffsets"`
}

// MarshalJSON writes an empty table as {}.
func (c CorrectionOffsets) MarshalJSON() ([]byte, error) {
	type plain CorrectionOffsets
	if c.Offsets == nil {
		c.Offsets = map[int32]int64{}
	}
	return EncodeBody(plain(c))
}

// ConsumerSubscription answers QUERY_SUBSCRIPTION_BY_CONSUMER (345).
type ConsumerSubscription struct {
	Group            string            `json:"group"`
	SubscriptionData *SubscriptionData `json:"subscriptionData,omitempty"` // missing: it does not subscribe
	Topic            string            `json:"topic"`
}

// ProducerInfo is one producer; the time in ms since epoch.
type ProducerInfo struct {
	ClientID            string `json:"clientId"`
	Language            string `json:"language"` // a LanguageCode name
	LastUpdateTimestamp int64  `json:"lastUpdateTimestamp"`
	RemoteIP            string `json:"remoteIP"` // /ip:port, as Java prints an address
	Version             int32  `json:"version"`
}

// ProducerTable answers GET_ALL_PRODUCER_INFO (328): by group.
type ProducerTable struct {
	Data map[string][]ProducerInfo `json:"data"`
}

// MarshalJSON writes an empty table as {}.
func (p ProducerTable) MarshalJSON() ([]byte, error) {
	type plain ProducerTable
	if p.Data == nil {
		p.Data = map[string][]ProducerInfo{}
	}
	return EncodeBody(plain(p))
}

// Double is a float as Java prints a double: 1.0, not 1.
type Double float64

// MarshalJSON writes the number.
func (f Double) MarshalJSON() ([]byte, error) { return f.Append(nil), nil }

// Append appends the number.
func (f Double) Append(dst []byte) []byte {
	n := len(dst)
	dst = strconv.AppendFloat(dst, float64(f), 'f', -1, 64)
	if !slices.Contains(dst[n:], '.') {
		dst = append(dst, '.', '0')
	}
	return dst
}

// StatsSnapshot is what was counted in a span of time.
type StatsSnapshot struct {
	Avgpt Double `json:"avgpt"` // of a call
	Sum   int64  `json:"sum"`
	Tps   Double `json:"tps"` // a second
}

// BrokerStatsData answers VIEW_BROKER_STATS_DATA (315).
type BrokerStatsData struct {
	StatsDay    StatsSnapshot `json:"statsDay"`
	StatsHour   StatsSnapshot `json:"statsHour"`
	StatsMinute StatsSnapshot `json:"statsMinute"`
}

// GroupConsumeStats are the stats of a group, one element a topic.
type GroupConsumeStats struct {
	Group string
	Stats []ConsumeStats
}

// ConsumeStatsList answers GET_BROKER_CONSUME_STATS (317). Write it with AppendJSON.
type ConsumeStatsList struct {
	BrokerAddr        string
	Groups            []GroupConsumeStats
	TotalDiff         int64
	TotalInflightDiff int64
}

// AppendJSON appends upstream's text, which has objects as keys.
func (c *ConsumeStatsList) AppendJSON(dst []byte) []byte {
	dst = AppendJSONString(append(dst, `{"brokerAddr":`...), c.BrokerAddr)
	dst = append(dst, `,"consumeStatsList":[`...)
	for i := range c.Groups {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(AppendJSONString(append(dst, '{'), c.Groups[i].Group), ':', '[')
		for j := range c.Groups[i].Stats {
			if j > 0 {
				dst = append(dst, ',')
			}
			dst = c.Groups[i].Stats[j].AppendJSON(dst)
		}
		dst = append(dst, ']', '}')
	}
	dst = appendInt(append(dst, `],"totalDiff":`...), c.TotalDiff)
	dst = appendInt(append(dst, `,"totalInflightDiff":`...), c.TotalInflightDiff)
	return append(dst, '}')
}

// UnmarshalJSON reads what AppendJSON writes, after LenientJSON.
func (c *ConsumeStatsList) UnmarshalJSON(b []byte) error {
	var p struct {
		BrokerAddr        string                      `json:"brokerAddr"`
		Groups            []map[string][]ConsumeStats `json:"consumeStatsList"`
		TotalDiff         int64                       `json:"totalDiff"`
		TotalInflightDiff int64                       `json:"totalInflightDiff"`
	}
	if err := json.Unmarshal(b, &p); err != nil {
		return err
	}
	*c = ConsumeStatsList{BrokerAddr: p.BrokerAddr, TotalDiff: p.TotalDiff, TotalInflightDiff: p.TotalInflightDiff}
	for _, m := range p.Groups {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			c.Groups = append(c.Groups, GroupConsumeStats{Group: name, Stats: m[name]})
		}
	}
	return nil
}

// ProcessQueueInfo is how a client stands in one queue that it holds; times in ms since
// epoch, 0: never.
type ProcessQueueInfo struct {
	CachedMsgCount       int64 `json:"cachedMsgCount"`
	CachedMsgMinOffset   int64 `json:"cachedMsgMinOffset"`
	CachedMsgMaxOffset   int64 `json:"cachedMsgMaxOffset"`
	CommitOffset         int64 `json:"commitOffset"`
	Dropped              bool  `json:"droped"` // it gives the queue up
	Locked               bool  `json:"locked"` // of consumers in order
	LastConsumeTimestamp int64 `json:"lastConsumeTimestamp"`
	LastLockTimestamp    int64 `json:"lastLockTimestamp"`
	LastPullTimestamp    int64 `json:"lastPullTimestamp"`
}

// ConsumerRunningInfo answers GET_CONSUMER_RUNNING_INFO (307); clients write it.
type ConsumerRunningInfo struct {
	MQTable         map[MessageQueue]ProcessQueueInfo `json:"mqTable"` // the queues that the client holds
	Properties      StringMap                         `json:"properties"`
	SubscriptionSet []SubscriptionData                `json:"subscriptionSet"`
}

// ConsumeQueueData is one unit of a queue.
type ConsumeQueueData struct {
	Eval         bool   `json:"eval"` // the subscription asked about lets it through
	Msg          string `json:"msg,omitempty"`
	PhysicOffset int64  `json:"physicOffset"`
	PhysicSize   int32  `json:"physicSize"`
	TagsCode     int64  `json:"tagsCode"`
}

// ConsumeQueueUnits answers QUERY_CONSUME_QUEUE (321).
type ConsumeQueueUnits struct {
	FilterData       string             `json:"filterData,omitempty"`
	MaxQueueIndex    int64              `json:"maxQueueIndex"`
	MinQueueIndex    int64              `json:"minQueueIndex"`
	QueueData        []ConsumeQueueData `json:"queueData"`
	SubscriptionData *SubscriptionData  `json:"subscriptionData,omitempty"`
}

// MarshalJSON writes [] for no units.
func (q ConsumeQueueUnits) MarshalJSON() ([]byte, error) {
	type plain ConsumeQueueUnits
	q.QueueData = list(q.QueueData)
	return EncodeBody(plain(q))
}

// ConsumerStatus answers INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223), by client id, and,
// with MessageQueueTable only, GET_CONSUMER_STATUS_FROM_CLIENT (221). Write it with
// AppendJSON.
type ConsumerStatus struct {
	ConsumerTable     map[string]map[MessageQueue]int64 `json:"consumerTable"`
	MessageQueueTable map[MessageQueue]int64            `json:"messageQueueTable"`
}

// AppendJSON appends upstream's text, which has objects as keys.
func (c *ConsumerStatus) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"consumerTable":{`...)
	for i, id := range slices.Sorted(maps.Keys(c.ConsumerTable)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendQueueMap(append(AppendJSONString(dst, id), ':'), c.ConsumerTable[id], appendInt)
	}
	return append(AppendQueueMap(append(dst, `},"messageQueueTable":`...), c.MessageQueueTable, appendInt), '}')
}

// HAStatus answers GET_BROKER_HA_STATUS (907): of a master its replicas, of a
// replica how far it is. Offsets are positions in the log.
type HAStatus struct {
	Client                   HAClient       `json:"haClientRuntimeInfo"`
	Connections              []HAConnection `json:"haConnectionInfo"`
	InSyncSlaveNums          int32          `json:"inSyncSlaveNums"`
	Master                   bool           `json:"master"`
	MasterCommitLogMaxOffset int64          `json:"masterCommitLogMaxOffset"`
}

// MarshalJSON writes [] for no connections.
func (s HAStatus) MarshalJSON() ([]byte, error) {
	type plain HAStatus
	s.Connections = list(s.Connections)
	return EncodeBody(plain(s))
}

// HAClient is a replica's link to its master; times in ms since epoch.
type HAClient struct {
	LastReadTimestamp       int64  `json:"lastReadTimestamp"`
	LastWriteTimestamp      int64  `json:"lastWriteTimestamp"`
	MasterAddr              string `json:"masterAddr,omitempty"`
	MasterFlushOffset       int64  `json:"masterFlushOffset"`
	MaxOffset               int64  `json:"maxOffset"`
	TransferredByteInSecond int64  `json:"transferredByteInSecond"`
}

// HAConnection is a master's link to a replica.
type HAConnection struct {
	Addr                    string `json:"addr"`
	Diff                    int64  `json:"diff"` // bytes that it lacks
	InSync                  bool   `json:"inSync"`
	SlaveAckOffset          int64  `json:"slaveAckOffset"`
	TransferFromWhere       int64  `json:"transferFromWhere"`
	TransferredByteInSecond int64  `json:"transferredByteInSecond"`
}
