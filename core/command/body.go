package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Int is an integer that Go clients write in quotes where Java does not (codeSet
// of a heartbeat): both are read, numbers are written.
type Int int64

// UnmarshalJSON reads a number, a number in quotes, or null (0).
func (n *Int) UnmarshalJSON(b []byte) error {
	t := bytes.Trim(b, `"`)
	if len(t) == 0 || string(t) == "null" {
		*n = 0
		return nil
	}
	v, why := parseInt(t, 64)
	if why != "" {
		return fmt.Errorf("%q: %s", clip(t), why)
	}
	*n = Int(v)
	return nil
}

// enum reads a Java enum as fastjson does: a name in any case, an ordinal, and
// "" for what is unknown.
func enum(b []byte, names []string) string {
	t := string(bytes.Trim(b, `"`))
	if n, why := parseInt([]byte(t), 32); why == "" {
		if n >= 0 && n < int64(len(names)) {
			return names[n]
		}
		return ""
	}
	if i := slices.IndexFunc(names, func(s string) bool { return strings.EqualFold(s, t) }); i >= 0 {
		return names[i]
	}
	return ""
}

// StringMap is a map that is written as {} when nil: admin tools dereference it.
type StringMap map[string]string

// MarshalJSON writes the map with sorted keys.
func (m StringMap) MarshalJSON() ([]byte, error) {
	if m == nil {
		return []byte("{}"), nil
	}
	return EncodeBody(map[string]string(m))
}

// list keeps a nil slice from being written as null.
func list[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// DataVersion tells versions of a table apart. Two are the same when all
// three numbers are.
type DataVersion struct {
	Counter      int64 `json:"counter"`
	StateVersion int64 `json:"stateVersion"` // 0 in 4.x
	Timestamp    int64 `json:"timestamp"`    // ms since epoch
}

// KVTable is the answer to GET_KVLIST_BY_NAMESPACE, GET_BROKER_RUNTIME_INFO and
// REGISTER_BROKER.
type KVTable struct {
	Table StringMap `json:"table"`
}

// TopicList answers the topic list requests.
type TopicList struct {
	BrokerAddr string   `json:"brokerAddr,omitempty"`
	Topics     []string `json:"topicList"`
}

// MarshalJSON writes [] for no topics.
func (t TopicList) MarshalJSON() ([]byte, error) {
	type plain TopicList
	t.Topics = list(t.Topics)
	return EncodeBody(plain(t))
}

// GroupList answers QUERY_TOPIC_CONSUME_BY_WHO.
type GroupList struct {
	Groups []string `json:"groupList"`
}

// MarshalJSON writes [] for no groups.
func (g GroupList) MarshalJSON() ([]byte, error) {
	type plain GroupList
	g.Groups = list(g.Groups)
	return EncodeBody(plain(g))
}

// MessageQueue names one queue. As a map key it is written as a string that holds
// its JSON text, which fastjson reads for an object key; LenientJSON makes the
// same of fastjson's own form.
type MessageQueue struct {
	BrokerName string `json:"brokerName"`
	QueueID    int32  `json:"queueId"`
	Topic      string `json:"topic"`
}

type plainQueue MessageQueue

// AppendJSON appends the queue as a JSON object.
func (q MessageQueue) AppendJSON(dst []byte) []byte {
	dst = AppendJSONString(append(dst, `{"brokerName":`...), q.BrokerName)
	dst = appendInt(append(dst, `,"queueId":`...), int64(q.QueueID))
	dst = AppendJSONString(append(dst, `,"topic":`...), q.Topic)
	return append(dst, '}')
}

// MarshalJSON writes the queue as a value: an object.
func (q MessageQueue) MarshalJSON() ([]byte, error) { return q.AppendJSON(nil), nil }

// UnmarshalJSON reads an object, or a string that holds one: encoding/json hands
// map keys in here, too.
func (q *MessageQueue) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		var s string
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
		b = []byte(s)
	}
	return json.Unmarshal(b, (*plainQueue)(q))
}

// MarshalText writes the queue as a map key.
func (q MessageQueue) MarshalText() ([]byte, error) { return q.AppendJSON(nil), nil }

// UnmarshalText reads a map key.
func (q *MessageQueue) UnmarshalText(b []byte) error { return json.Unmarshal(b, (*plainQueue)(q)) }

func compareQueues(a, b MessageQueue) int {
	if c := strings.Compare(a.Topic, b.Topic); c != 0 {
		return c
	}
	if c := strings.Compare(a.BrokerName, b.BrokerName); c != 0 {
		return c
	}
	return int(a.QueueID) - int(b.QueueID)
}

// AppendQueueMap appends m with objects as keys, as fastjson writes it: no JSON,
// but the only form the offset reset of Go clients reads. Keys are sorted.
func AppendQueueMap[V any](dst []byte, m map[MessageQueue]V, value func(dst []byte, v V) []byte) []byte {
	keys := make([]MessageQueue, 0, len(m))
	for q := range m {
		keys = append(keys, q)
	}
	slices.SortFunc(keys, compareQueues)
	dst = append(dst, '{')
	for i, q := range keys {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = value(append(q.AppendJSON(dst), ':'), m[q])
	}
	return append(dst, '}')
}
