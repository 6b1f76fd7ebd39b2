package e2e

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/test/harness"
)

// queue is one of a topic, as JSON names it.
type queue struct {
	BrokerName string `json:"brokerName"`
	QueueID    int32  `json:"queueId"`
	Topic      string `json:"topic"`
}

// twin makes of an empty broker one with what Apache's had when mqadmin was recorded, as
// far as the answers tell it.
type twin struct {
	t        *testing.T
	c        *harness.Conn
	topics   command.TopicConfigSerializeWrapper
	groups   command.SubscriptionGroupWrapper
	ends     map[queue]int64
	messages map[queue]map[int64]harness.Send // those of which more is known than that they were there
	progress map[string]map[queue]int64       // by group
	pulled   map[string]map[queue]int64
	counted  [][2]string // topics of which groups got messages
}

func newTwin(t *testing.T, c *harness.Conn) *twin {
	return &twin{
		t: t, c: c, ends: map[queue]int64{}, messages: map[queue]map[int64]harness.Send{},
		progress: map[string]map[queue]int64{}, pulled: map[string]map[queue]int64{},
	}
}

var (
	ofQueue = regexp.MustCompile(`^(?:/consumeStatsList/\d+/([^/]+)/\d+)?/offsetTable/({.*})/(maxOffset|brokerOffset|consumerOffset|pullOffset)$`)
	ofCQ    = regexp.MustCompile(`^/queueData/(\d+)/tagsCode$`)
)

// learn takes what an exchange tells.
func (w *twin) learn(e *exchange) {
	if e.By != "client" {
		return
	}
	asked, _ := frame(w.t, e.Request.Frame)
	h, body := frame(w.t, e.Response.Frame)
	ext := func(h *command.Header, k string) string { v, _ := h.Ext(k); return string(v) }
	number := func(s string) int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		require.NoError(w.t, err)
		return n
	}
	switch e.Request.Code {
	case command.ReqGetAllTopicConfig:
		require.NoError(w.t, command.DecodeBody(body, &w.topics))
	case command.ReqGetAllSubscriptionGroupConfig:
		require.NoError(w.t, command.DecodeBody(body, &w.groups))
	case command.ReqGetMaxOffset:
		w.end(queue{"broker-a", int32(number(ext(asked, "queueId"))), ext(asked, "topic")}, number(ext(h, "offset")))
	case command.ReqViewBrokerStatsData:
		topic, group, ok := strings.Cut(ext(asked, "statsKey"), "@")
		if ok && h.Code == command.RespSuccess {
			w.counted = append(w.counted, [2]string{topic, group})
		}
	case command.ReqPullMessage, command.ReqQueryMessage:
		for len(body) > 0 {
			var v message.View
			require.NoError(w.t, message.Parse(body, &v))
			q := queue{"broker-a", v.QueueID, string(v.Topic)}
			var props []string
			for _, p := range strings.SplitAfter(string(v.Properties), "\x02") {
				name, _, _ := strings.Cut(p, "\x01")
				// The broker's own, and what a delay leaves, which is not served yet.
				if !slices.Contains([]string{"MSG_REGION", "TRACE_ON", "CLUSTER", "DELAY"}, name) {
					props = append(props, p)
				}
			}
			w.message(q, v.QueueOffset, harness.Send{Topic: q.Topic, Queue: q.QueueID, Props: strings.Join(props, ""), Body: slices.Clone(v.Body)})
			body = body[v.Size:]
		}
	case command.ReqGetTopicStatsInfo, command.ReqGetConsumeStats, command.ReqGetBrokerConsumeStats, command.ReqQueryConsumeQueue:
		tags := map[string]string{}
		for _, tag := range []string{"TagA", "TagB", "Aa", ""} {
			tags[strconv.FormatInt(message.TagsCode([]byte(tag)), 10)] = tag
		}
		for path, v := range values(w.t, e.Request.Code, h, body) {
			if m := ofCQ.FindStringSubmatch(path); m != nil {
				q := queue{"broker-a", int32(number(ext(asked, "queueId"))), ext(asked, "topic")}
				w.message(q, number(m[1]), harness.Send{Topic: q.Topic, Queue: q.QueueID, Props: "TAGS\x01" + tags[v] + "\x02", Body: []byte("x")})
			}
			m := ofQueue.FindStringSubmatch(path)
			if m == nil {
				continue
			}
			var q queue
			require.NoError(w.t, json.Unmarshal([]byte(m[2]), &q))
			group := m[1]
			if group == "" {
				group = ext(asked, "consumerGroup")
			}
			switch m[3] {
			case "maxOffset", "brokerOffset":
				w.end(q, number(v))
			case "consumerOffset":
				put(w.progress, group, q, number(v))
			case "pullOffset":
				put(w.pulled, group, q, number(v))
			}
		}
	}
}

func put(m map[string]map[queue]int64, group string, q queue, n int64) {
	if m[group] == nil {
		m[group] = map[queue]int64{}
	}
	m[group][q] = max(m[group][q], n)
}

func (w *twin) end(q queue, n int64) { w.ends[q] = max(w.ends[q], n) }

// message notes one; of two notes of the same the one with more properties is kept.
func (w *twin) message(q queue, offset int64, m harness.Send) {
	if w.messages[q] == nil {
		w.messages[q] = map[int64]harness.Send{}
	}
	if len(m.Props) > len(w.messages[q][offset].Props) {
		w.messages[q][offset] = m
	}
}

// made tells topics and groups that somebody made, before mqadmin was recorded: neither
// the broker itself, nor mqadmin.
func made(name string) bool {
	name = strings.TrimPrefix(name, "%RETRY%")
	return strings.HasPrefix(name, "golden_") || strings.HasPrefix(name, "rec_") || strings.HasPrefix(name, "probe_")
}

func (w *twin) make() {
	w.t.Helper()
	for name, x := range w.topics.TopicConfigTable {
		if !made(name) {
			continue
		}
		h := command.CreateTopicRequest{
			Topic: name, DefaultTopic: "TBW102", TopicFilterType: x.TopicFilterType, TopicSysFlag: x.TopicSysFlag, Order: x.Order,
			ReadQueueNums: x.ReadQueueNums, WriteQueueNums: x.WriteQueueNums, Perm: x.Perm,
		}
		a, err := w.c.Call(command.ReqUpdateAndCreateTopic, h.Append, nil)
		require.NoError(w.t, err)
		require.NoError(w.t, a.Err(), name)
	}
	for name, x := range w.groups.SubscriptionGroupTable {
		if !made(name) {
			continue
		}
		body, err := json.Marshal(x)
		require.NoError(w.t, err)
		a, err := w.c.Call(command.ReqUpdateAndCreateSubscriptionGroup, nil, body)
		require.NoError(w.t, err)
		require.NoError(w.t, a.Err(), name)
	}
	for q, end := range w.ends {
		if !made(q.Topic) {
			continue
		}
		for offset := range end {
			m, ok := w.messages[q][offset]
			if !ok {
				m = harness.Send{Topic: q.Topic, Queue: q.QueueID, Body: []byte("x")}
			}
			r, err := w.c.Send(&m)
			require.NoError(w.t, err, "%v", q)
			require.Equal(w.t, offset, r.QueueOffset, "%v", q)
		}
	}
	for group, queues := range w.pulled {
		for q, n := range queues {
			if n == 0 {
				continue
			}
			_, r, err := w.c.Pull(harness.Pull{Topic: q.Topic, Queue: q.QueueID, Group: group, Offset: n - 1, Max: 1}, func(*message.View) error { return nil })
			require.NoError(w.t, err, "%s of %v", group, q)
			require.Equal(w.t, n, r.NextBeginOffset, "%s of %v", group, q)
		}
	}
	for _, x := range w.counted {
		for q, n := range w.ends {
			if q.Topic == x[0] && n > 0 {
				_, _, err := w.c.Pull(harness.Pull{Topic: x[0], Queue: q.QueueID, Group: x[1]}, func(*message.View) error { return nil })
				require.NoError(w.t, err, "%s of %v", x[1], q)
			}
		}
	}
	for group, queues := range w.progress {
		for q, n := range queues {
			if made(group) {
				w.commit(group, q, n)
			}
		}
	}
}

func (w *twin) commit(group string, q queue, n int64) {
	w.t.Helper()
	h := command.UpdateConsumerOffsetRequest{ConsumerGroup: []byte(group), Topic: []byte(q.Topic), QueueID: q.QueueID, CommitOffset: n}
	a, err := w.c.Call(command.ReqUpdateConsumerOffset, h.Append, nil)
	require.NoError(w.t, err)
	require.NoError(w.t, a.Err(), "%s of %v", group, q)
}

// after does what the recording has not, since it keeps three or four of each kind.
func (w *twin) after(code int32) {
	if code == command.ReqUpdateAndCreateSubscriptionGroup {
		// Cloned from golden_group.
		w.commit("adm_group", queue{"broker-a", 2, "golden_plain"}, 117)
		w.commit("adm_group", queue{"broker-a", 0, "%RETRY%golden_group"}, 4)
	}
}
