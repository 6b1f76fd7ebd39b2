package enginetest_test

import (
	"bufio"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/message"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorded is a request of an official client and what a broker 5.3.3 of
// Apache's answered.
type recorded struct {
	Label    string `json:"label"`
	Request  string `json:"request"`
	Response *struct {
		Code   int32             `json:"code"`
		Ext    map[string]string `json:"ext"`
		Remark string            `json:"remark"`
		Body   bool              `json:"body"`
		JSON   string            `json:"json"`
	} `json:"response"`
}

func load(t testing.TB) []recorded {
	t.Helper()
	f, err := os.Open("testdata/recorded.jsonl.gz")
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	var out []recorded
	s := bufio.NewScanner(z)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var r recorded
		require.NoError(t, json.Unmarshal(s.Bytes(), &r))
		out = append(out, r)
	}
	require.NoError(t, s.Err())
	return out
}

// Fields that the recorded broker sent and this one leaves out, with the reason.
var leftOut = map[string]string{
	"groupSysFlag":  "0 unless a group has one; clients take 0 when it is missing",
	"offsetDelta":   "0 but for logical queues",
	"groupTopicMap": "5.3's own index of the table beside it; slaves build it themselves",
	"recallHandle":  "only of delayed messages that can be recalled",
}

// Codes that differ from the recorded ones, with the reason: the requests are the
// first few of each kind, so what came between them is missing here.
type codes struct{ request, answered, recorded int32 }

const (
	noHeartbeat = "the heartbeat of that consumer was not recorded"
	shortLog    = "the recorded queue was longer"
	noSQL       = "filtering by SQL is not supported yet"
)

var otherCode = map[codes]string{
	{command.ReqPullMessage, command.RespSubscriptionNotExist, command.RespSuccess}:              noHeartbeat,
	{command.ReqPullMessage, command.RespSubscriptionNotExist, command.RespPullNotFound}:         noHeartbeat,
	{command.ReqPullMessage, command.RespSubscriptionNotExist, command.RespPullRetryImmediately}: noHeartbeat,
	{command.ReqPullMessage, command.RespSubscriptionNotExist, command.RespFilterDataNotExist}:   noSQL,
	{command.ReqPullMessage, command.RespSubscriptionNotLatest, command.RespSuccess}:             noHeartbeat,
	{command.ReqGetConsumerListByGroup, command.RespSystemError, command.RespSuccess}:            noHeartbeat,
	{command.ReqPullMessage, command.RespPullOffsetMoved, command.RespSuccess}:                   shortLog,
	{command.ReqLitePullMessage, command.RespPullOffsetMoved, command.RespPullNotFound}:          shortLog,
	{command.ReqQueryConsumerOffset, command.RespSuccess, command.RespQueryNotFound}:             "an empty queue is answered 0 here, so that what arrives before the group looks again is not skipped",
	{command.ReqConsumerSendMsgBack, command.RespSubscriptionGroupNotExist, command.RespSuccess}: "the group was made by POP",
	{command.ReqCheckClientConfig, command.RespSystemError, command.RespSuccess}:                 noSQL,
	{command.ReqCheckClientConfig, command.RespSystemError, command.RespSubscriptionParseFailed}: noSQL,
}

// TestRecorded replays the requests and compares the answers: the same code
// where the same state can be made, and then the same fields.
func TestRecorded(t *testing.T) {
	requests := load(t)
	require.Greater(t, len(requests), 100)
	synctest.Test(t, func(t *testing.T) {
		e := enginetest.Start(t, enginetest.Options{Segment: 8 << 20})
		helper := e.Connect(t)
		// What the recorded broker had: topics with messages, groups.
		frame := func(r *recorded) (f command.Frame, h *command.Header) {
			raw, err := base64.StdEncoding.DecodeString(r.Request)
			require.NoError(t, err)
			frames, _, _, err := command.Split(raw, nil, command.DefaultLimits())
			require.NoError(t, err)
			h = &command.Header{}
			require.NoError(t, h.Decode(&frames[0]))
			return frames[0], h
		}
		for i := range requests {
			_, h := frame(&requests[i])
			topic := h.ExtString("topic")
			if h.Code == command.ReqPullMessage || h.Code == command.ReqLitePullMessage || h.Code == command.ReqUpdateConsumerOffset {
				group := h.ExtString("consumerGroup")
				_, err := e.K.Groups.Ensure(t.Context(), group)
				require.NoError(t, err)
			}
			if topic == "" || message.CheckTopic(topic) != nil || e.K.Topics.Named(topic) != nil {
				continue
			}
			if group, ok := strings.CutPrefix(topic, message.RetryPrefix); ok {
				_, err := e.K.Groups.Ensure(t.Context(), group)
				require.NoError(t, err)
			}
			require.NoError(t, e.K.Topics.Put(t.Context(), command.TopicConfig{TopicName: topic, ReadQueueNums: 8, WriteQueueNums: 8, Perm: 6}))
			for q := range int32(8) {
				for range 3 {
					r := helper.Send(enginetest.Message{Topic: topic, Queue: q, Body: "x", Properties: enginetest.Props("KEYS", "key0", "TAGS", "TagA")})
					require.Zero(t, r.Code, r.Remark)
				}
			}
		}
		// Positions, keys and times of the recorded log mean nothing in this one.
		_, stored, err := message.ParseOffsetID(helper.Send(enginetest.Message{Topic: "BenchmarkTest", Body: "x"}).Ext["msgId"])
		require.NoError(t, err)
		fitted := map[int32]map[string]string{
			command.ReqConsumerSendMsgBack: {"offset": fmt.Sprint(stored)},
			command.ReqQueryMessage:        {"key": "key0", "beginTimestamp": "0", "endTimestamp": "9000000000000", "_UNIQUE_KEY_QUERY": "false"},
		}
		clients := map[string]*enginetest.Client{}
		same, all := map[int32]int{}, map[int32]int{}
		var differ []string
		for i := range requests {
			want := requests[i].Response
			f, h := frame(&requests[i])
			code := h.Code
			c := clients[requests[i].Label]
			if c == nil {
				c = e.Connect(t)
				clients[requests[i].Label] = c
			}
			opaque := h.Opaque
			c.Forget(opaque)
			wire := slices.Clone(f.Raw)
			if fit := fitted[code]; fit != nil {
				wire = rewrite(h, f.Body, fit)
			}
			require.NoError(t, c.Feed(wire))
			if want == nil {
				continue // one-way
			}
			all[code]++
			r := c.Wait(opaque)
			if r.Code != want.Code {
				require.NotEmpty(t, otherCode[codes{code, r.Code, want.Code}], "request %d of %s is answered %d %q, recorded is %d %q", code, requests[i].Label, r.Code, r.Remark, want.Code, want.Remark)
				differ = append(differ, fmt.Sprintf("%s %d: %d %q, recorded %d %q", requests[i].Label, code, r.Code, r.Remark, want.Code, want.Remark))
				continue
			}
			same[code]++
			for _, k := range slices.Sorted(maps.Keys(want.Ext)) {
				_, ok := r.Ext[k]
				require.True(t, ok || leftOut[k] != "", "request %d of %s, answered %d: the field %s is missing in %v", code, requests[i].Label, r.Code, k, r.Ext)
			}
			require.Equal(t, want.Body, len(r.Body) > 0, "request %d of %s: body %q", code, requests[i].Label, r.Body)
			if want.JSON != "" {
				wanted := slices.DeleteFunc(keys(t, []byte(want.JSON)), func(k string) bool { return leftOut[k] != "" })
				require.Equal(t, wanted, keys(t, r.Body), "request %d of %s", code, requests[i].Label)
			}
		}
		t.Log(strings.Join(differ, "\n"))
		for _, code := range []int32{10, 11, 12, 14, 17, 29, 30, 31, 34, 35, 36, 38, 41, 42, 43, 310, 320} {
			require.Positive(t, same[code], "no recorded request %d is answered as recorded", code)
		}
		for code, n := range all {
			if code == command.ReqCheckClientConfig {
				continue // recorded with SQL expressions only, which are refused here
			}
			require.Positive(t, same[code], "of %d requests %d none is answered with the recorded code", n, code)
		}
	})
}

// rewrite encodes a request again with other values of some fields.
func rewrite(h *command.Header, body []byte, other map[string]string) []byte {
	w := command.Begin(nil, h.Type, h.Code, h.Opaque, h.Flag)
	w.Language, w.Version = h.Language, h.Version
	h.Fields(func(k, v []byte) bool {
		if x, ok := other[string(k)]; ok {
			v = []byte(x)
		}
		w.ExtBytes(string(k), v)
		return true
	})
	f := command.Frame{Header: w.End(len(body)), Body: body}
	return f.Append(nil)
}

// keys are the top-level names of a JSON object, lenient as RocketMQ writes it.
func keys(t *testing.T, b []byte) []string {
	t.Helper()
	var m map[string]any
	require.NoError(t, command.DecodeBody(b, &m), "%s", b)
	return slices.Sorted(maps.Keys(m))
}
