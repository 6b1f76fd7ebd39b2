package command

import (
	"slices"
	"strconv"
)

func appendInt(dst []byte, n int64) []byte { return strconv.AppendInt(dst, n, 10) }

// BrokerAddrs maps broker ids to addresses (ip:port); id 0 is the master. It is
// written with quoted keys, ascending, without white space, and never as null:
// the Go client cuts this text apart by hand.
type BrokerAddrs map[int64]string

// MarshalJSON writes the map.
func (a BrokerAddrs) MarshalJSON() ([]byte, error) { return a.appendJSON(nil), nil }

func (a BrokerAddrs) appendJSON(dst []byte) []byte {
	return appendIntMap(dst, a, true, AppendJSONString)
}

// BrokerData is a broker group: one master and its slaves.
type BrokerData struct {
	BrokerAddrs        BrokerAddrs `json:"brokerAddrs"`
	BrokerName         string      `json:"brokerName"`
	Cluster            string      `json:"cluster"`
	EnableActingMaster bool        `json:"enableActingMaster"`
	ZoneName           string      `json:"zoneName,omitempty"`
}

func (d *BrokerData) appendJSON(dst []byte) []byte {
	dst = d.BrokerAddrs.appendJSON(append(dst, `{"brokerAddrs":`...))
	dst = AppendJSONString(append(dst, `,"brokerName":`...), d.BrokerName)
	dst = AppendJSONString(append(dst, `,"cluster":`...), d.Cluster)
	dst = strconv.AppendBool(append(dst, `,"enableActingMaster":`...), d.EnableActingMaster)
	if d.ZoneName != "" {
		dst = AppendJSONString(append(dst, `,"zoneName":`...), d.ZoneName)
	}
	return append(dst, '}')
}

// QueueData is what one broker group has of a topic.
type QueueData struct {
	BrokerName     string `json:"brokerName"`
	Perm           int32  `json:"perm"`
	ReadQueueNums  int32  `json:"readQueueNums"`
	TopicSysFlag   int32  `json:"topicSysFlag"`
	WriteQueueNums int32  `json:"writeQueueNums"`
}

func (d *QueueData) appendJSON(dst []byte) []byte {
	dst = AppendJSONString(append(dst, `{"brokerName":`...), d.BrokerName)
	dst = appendInt(append(dst, `,"perm":`...), int64(d.Perm))
	dst = appendInt(append(dst, `,"readQueueNums":`...), int64(d.ReadQueueNums))
	dst = appendInt(append(dst, `,"topicSysFlag":`...), int64(d.TopicSysFlag))
	dst = appendInt(append(dst, `,"writeQueueNums":`...), int64(d.WriteQueueNums))
	return append(dst, '}')
}

// TopicRouteData answers GET_ROUTEINFO_BY_TOPIC.
type TopicRouteData struct {
	BrokerDatas []BrokerData `json:"brokerDatas"`
	// FilterServerTable is a relic; by broker address.
	FilterServerTable map[string][]string `json:"filterServerTable"`
	OrderTopicConf    string              `json:"orderTopicConf,omitempty"` // broker-a:4;broker-b:4
	QueueDatas        []QueueData         `json:"queueDatas"`
}

// AppendJSON appends the route in the one form every client reads: strict JSON
// without white space, brokerAddrs in every broker, no nulls.
func (t *TopicRouteData) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"brokerDatas":[`...)
	for i := range t.BrokerDatas {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = t.BrokerDatas[i].appendJSON(dst)
	}
	dst = append(dst, `],"filterServerTable":{`...)
	addrs := make([]string, 0, len(t.FilterServerTable))
	for a := range t.FilterServerTable {
		addrs = append(addrs, a)
	}
	slices.Sort(addrs)
	for i, a := range addrs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(AppendJSONString(dst, a), ":["...)
		for j, s := range t.FilterServerTable[a] {
			if j > 0 {
				dst = append(dst, ',')
			}
			dst = AppendJSONString(dst, s)
		}
		dst = append(dst, ']')
	}
	dst = append(dst, '}')
	if t.OrderTopicConf != "" {
		dst = AppendJSONString(append(dst, `,"orderTopicConf":`...), t.OrderTopicConf)
	}
	dst = append(dst, `,"queueDatas":[`...)
	for i := range t.QueueDatas {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = t.QueueDatas[i].appendJSON(dst)
	}
	return append(dst, "]}"...)
}

// MarshalJSON is AppendJSON.
func (t TopicRouteData) MarshalJSON() ([]byte, error) { return t.AppendJSON(nil), nil }

// ClusterInfo answers GET_BROKER_CLUSTER_INFO.
type ClusterInfo struct {
	BrokerAddrTable  map[string]BrokerData `json:"brokerAddrTable"`  // by broker name
	ClusterAddrTable map[string][]string   `json:"clusterAddrTable"` // broker names by cluster
}

// MarshalJSON writes empty tables as {}.
func (c ClusterInfo) MarshalJSON() ([]byte, error) {
	type plain ClusterInfo
	if c.BrokerAddrTable == nil {
		c.BrokerAddrTable = map[string]BrokerData{}
	}
	if c.ClusterAddrTable == nil {
		c.ClusterAddrTable = map[string][]string{}
	}
	return EncodeBody(plain(c))
}

// BrokerMemberGroup is what GET_BROKER_MEMBER_GROUP answers within
// MemberGroupResponse.
type BrokerMemberGroup struct {
	BrokerAddrs BrokerAddrs `json:"brokerAddrs"`
	BrokerName  string      `json:"brokerName"`
	Cluster     string      `json:"cluster"`
}

// MemberGroupResponse answers GET_BROKER_MEMBER_GROUP.
type MemberGroupResponse struct {
	Group *BrokerMemberGroup `json:"brokerMemberGroup,omitempty"`
}
