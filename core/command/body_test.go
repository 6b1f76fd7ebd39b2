package command

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLenientJSON(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"strict":            {`{"a":[1,-2.5e3,true,false,null,"x\u0001\n"],"b":{}}`, `{"a":[1,-2.5e3,true,false,null,"x\u0001\n"],"b":{}}`},
		"scalar":            {` 12 `, `12`},
		"integer keys":      {`{0:"a",-1:"b",12:{3:4}}`, `{"0":"a","-1":"b","12":{"3":4}}`},
		"identifier keys":   {`{table:{key_1:1,$x:2}}`, `{"table":{"key_1":1,"$x":2}}`},
		"single quotes":     {`{'a':'it\'s "q"'}`, `{"a":"it's \"q\""}`},
		"trailing commas":   {`{"a":[1,2,],"b":3,}`, `{"a":[1,2],"b":3}`},
		"white space":       {"{ 0 : [ 1 , 2 ] ,\n 'b' : 2 }", `{"0":[1,2],"b":2}`},
		"control character": {"\"a\x01\tb\"", `"a\u0001\u0009b"`},
		"other escapes":     {`"\x41\v\0\7\'"`, `"\u0041\u000B\u0000\u0007'"`},
		"object keys":       {`{"t":{{"brokerName":"b","queueId":0,"topic":"T"}:5,{'q':1}:{"x":1}}}`, `{"t":{"{\"brokerName\":\"b\",\"queueId\":0,\"topic\":\"T\"}":5,"{\"q\":1}":{"x":1}}}`},
		"integer in a key":  {`{{1:2}:3}`, `{"{\"1\":2}":3}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := LenientJSON([]byte(c.in))
			require.NoError(t, err)
			require.Equal(t, c.want, string(got))
			require.True(t, json.Valid(got))
		})
	}
	for name, in := range map[string]string{
		"nothing": ``, "open": `{`, "comma": `{,}`, "two commas": `[1,,2]`, "no colon": `{"a" 1}`, "no value": `{"a":}`, "garbage": `{}x`, "open text": `"a`,
		"bad escape": `"\q"`, "bad hex": `"\u12g4"`, "half": `"\`, "word": `nul`, "mismatch": `[1}`, "object key in object key": `{{{"a":1}:2}:3}`,
		"array key": `{[1]:2}`, "deep": strings.Repeat("[", 1<<20), "deep keys": strings.Repeat("{", 1<<20), "number": `01`,
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			_, err := LenientJSON([]byte(in))
			require.ErrorIs(t, err, ErrBody)
		})
	}
}

// The recorded bodies decode, and what is written from them means the same.
func TestRecordedBodies(t *testing.T) {
	type kind struct {
		make func() any
		side string
	}
	kinds := map[int32][]kind{
		ReqGetRouteInfoByTopic:              {{func() any { return &TopicRouteData{} }, "response"}},
		ReqGetBrokerClusterInfo:             {{func() any { return &ClusterInfo{} }, "response"}},
		ReqRegisterBroker:                   {{func() any { return &RegisterBrokerBody{} }, "request"}, {func() any { return &KVTable{} }, "response"}},
		ReqGetAllTopicConfig:                {{func() any { return &TopicConfigSerializeWrapper{} }, "response"}},
		ReqGetAllConsumerOffset:             {{func() any { return &ConsumerOffsetSerializeWrapper{} }, "response"}},
		ReqGetAllSubscriptionGroupConfig:    {{func() any { return &SubscriptionGroupWrapper{} }, "response"}},
		ReqUpdateAndCreateSubscriptionGroup: {{func() any { return &SubscriptionGroupConfig{} }, "request"}},
		ReqHeartBeat:                        {{func() any { return &HeartbeatData{} }, "request"}},
		ReqLockBatchMQ:                      {{func() any { return &LockBatchBody{} }, "request"}, {func() any { return &LockBatchResponse{} }, "response"}},
		ReqUnlockBatchMQ:                    {{func() any { return &LockBatchBody{} }, "request"}},
		ReqGetConsumerListByGroup:           {{func() any { return &ConsumerList{} }, "response"}},
		ReqCheckClientConfig:                {{func() any { return &CheckClientConfigBody{} }, "request"}},
		ReqGetConsumeStats:                  {{func() any { return &ConsumeStats{} }, "response"}},
		ReqGetTopicStatsInfo:                {{func() any { return &TopicStatsTable{} }, "response"}},
		ReqInvokeBrokerToResetOffset:        {{func() any { return &ResetOffsetBody{} }, "response"}},
		ReqGetConsumerConnectionList:        {{func() any { return &ConsumerConnection{} }, "response"}},
		ReqGetProducerConnectionList:        {{func() any { return &ProducerConnection{} }, "response"}},
		ReqGetAllTopicListFromNameserver:    {{func() any { return &TopicList{} }, "response"}},
		ReqQueryTopicConsumeByWho:           {{func() any { return &GroupList{} }, "response"}},
		ReqGetBrokerRuntimeInfo:             {{func() any { return &KVTable{} }, "response"}},
		ReqGetTopicConfig:                   {{func() any { return &TopicConfig{} }, "response"}},
		ReqQueryAssignment:                  {{func() any { return &QueryAssignmentBody{} }, "request"}, {func() any { return &QueryAssignmentResponse{} }, "response"}},
		ReqSetMessageRequestMode:            {{func() any { return &SetMessageRequestModeBody{} }, "request"}},
		ReqGetAllMessageRequestMode:         {{func() any { return &MessageRequestModes{} }, "response"}},
		ReqViewBrokerStatsData:              {{func() any { return &BrokerStatsData{} }, "response"}},
		ReqQueryConsumeQueue:                {{func() any { return &ConsumeQueueUnits{} }, "response"}},
	}
	seen := map[int32]int{}
	for _, e := range exchanges(t) {
		for _, k := range kinds[e.Request.Code] {
			r := &e.Request
			if k.side == "response" {
				if r = e.Response; r == nil || r.Code != RespSuccess {
					continue
				}
			}
			f := r.frame(t)
			if !r.whole() || len(f.Body) == 0 {
				continue
			}
			v := k.make()
			require.NoError(t, DecodeBody(f.Body, v), RequestName(e.Request.Code))
			again := encodeBody(t, v)
			strictIn, err := LenientJSON(f.Body)
			require.NoError(t, err)
			strictOut, err := LenientJSON(again)
			require.NoError(t, err)
			subset(t, RequestName(e.Request.Code), tree(t, strictIn), tree(t, strictOut))
			fresh := k.make()
			require.NoError(t, DecodeBody(again, fresh))
			require.Equal(t, string(again), string(encodeBody(t, fresh)))
			seen[e.Request.Code]++
		}
	}
	for code := range kinds {
		require.NotZero(t, seen[code], RequestName(code))
	}
}

func encodeBody(t *testing.T, v any) []byte {
	t.Helper()
	if a, ok := v.(interface{ AppendJSON([]byte) []byte }); ok {
		return a.AppendJSON(nil)
	}
	b, err := EncodeBody(v)
	require.NoError(t, err)
	return b
}

func tree(t *testing.T, b []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	require.NoError(t, d.Decode(&v), string(b))
	return v
}

// dropped are keys of recorded bodies that nobody reads.
var dropped = map[string]bool{"groupTopicMap": true, "groupForbidden": true}

// subset checks that out says all that in says. Go clients quote numbers.
func subset(t *testing.T, path string, in, out any) {
	t.Helper()
	switch x := in.(type) {
	case map[string]any:
		y, ok := out.(map[string]any)
		require.True(t, ok, path)
		for k, v := range x {
			if dropped[k] || v == nil {
				continue
			}
			w, ok := y[k]
			if !ok && isEmpty(v) {
				continue
			}
			require.True(t, ok, "%s/%s is lost", path, k)
			subset(t, path+"/"+k, v, w)
		}
	case []any:
		y, ok := out.([]any)
		require.True(t, ok, path)
		require.Len(t, y, len(x), path)
		for i := range x {
			subset(t, path+"[]", x[i], y[i])
		}
	case string:
		if n, ok := out.(json.Number); ok {
			require.Equal(t, x, n.String(), path)
			return
		}
		require.Equal(t, x, out, path)
	case json.Number:
		a, err := x.Float64()
		require.NoError(t, err)
		b, err := out.(json.Number).Float64()
		require.NoError(t, err)
		require.Equal(t, a, b, path)
	default:
		require.Equal(t, in, out, path)
	}
}

func isEmpty(v any) bool {
	switch x := v.(type) {
	case map[string]any:
		return len(x) == 0
	case []any:
		return len(x) == 0
	}
	return false
}

func TestRouteText(t *testing.T) {
	r := TopicRouteData{
		BrokerDatas: []BrokerData{
			{BrokerAddrs: BrokerAddrs{10: "10.0.0.3:10911", 0: "10.0.0.1:10911", 2: "[fd00::1]:10911"}, BrokerName: "broker-a", Cluster: "DefaultCluster"},
			{BrokerName: "broker-b", Cluster: `C"x`, ZoneName: "z", EnableActingMaster: true},
		},
		QueueDatas:        []QueueData{{BrokerName: "broker-a", Perm: 6, ReadQueueNums: 4, WriteQueueNums: 5, TopicSysFlag: 1}},
		FilterServerTable: map[string][]string{"b:1": {"x", "y"}, "a:1": {}},
		OrderTopicConf:    "broker-a:4",
	}
	want := `{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911","2":"[fd00::1]:10911","10":"10.0.0.3:10911"},"brokerName":"broker-a","cluster":"DefaultCluster","enableActingMaster":false},` +
		`{"brokerAddrs":{},"brokerName":"broker-b","cluster":"C\"x","enableActingMaster":true,"zoneName":"z"}],` +
		`"filterServerTable":{"a:1":[],"b:1":["x","y"]},"orderTopicConf":"broker-a:4",` +
		`"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":1,"writeQueueNums":5}]}`
	require.Equal(t, want, string(r.AppendJSON(nil)))
	b, err := EncodeBody(r)
	require.NoError(t, err)
	require.Equal(t, want, string(b))
	require.Equal(t, `{"brokerDatas":[],"filterServerTable":{},"queueDatas":[]}`, string(new(TopicRouteData).AppendJSON(nil)))

	var got TopicRouteData
	require.NoError(t, DecodeBody([]byte(`{"brokerDatas":[{"brokerAddrs":{0:"a:1",1:"b:1"},"brokerName":"b"}],"queueDatas":null}`), &got))
	require.Equal(t, BrokerAddrs{0: "a:1", 1: "b:1"}, got.BrokerDatas[0].BrokerAddrs)
}

func TestEmptyBodiesHaveNoNulls(t *testing.T) {
	for _, v := range []any{
		ClusterInfo{}, TopicList{}, GroupList{}, KVTable{}, RegisterBrokerBody{}, TopicConfig{}, HeartbeatData{}, SubscriptionData{}, LockBatchResponse{},
		ConsumerList{}, SubscriptionGroupWrapper{}, ConsumerOffsetSerializeWrapper{}, ConsumerConnection{}, ProducerConnection{}, BrokerMemberGroup{}, SubscriptionGroupConfig{}, MessageRequestModes{}, QueryAssignmentResponse{},
	} {
		b, err := EncodeBody(v)
		require.NoError(t, err)
		require.NotContains(t, string(b), "null", "%T", v)
	}
	require.Equal(t, `{"consumeTps":0.0,"offsetTable":{}}`, string(new(ConsumeStats).AppendJSON(nil)))
	b, err := EncodeBody(CheckClientConfigBody{SubscriptionData: SubscriptionData{SubString: "a > 3 && b < 4"}})
	require.NoError(t, err)
	require.Contains(t, string(b), "a > 3 && b < 4")
}

func TestAppendIntKeyMap(t *testing.T) {
	got := AppendIntKeyMap(nil, map[int32]int64{10: 1, 2: 1 << 60, -1: 0}, appendInt)
	require.Equal(t, `{-1:0,2:1152921504606846976,10:1}`, string(got))
	strict, err := LenientJSON(got)
	require.NoError(t, err)
	var back map[int32]int64
	require.NoError(t, json.Unmarshal(strict, &back))
	require.Equal(t, map[int32]int64{10: 1, 2: 1 << 60, -1: 0}, back)
}

func TestHeartbeatDifferences(t *testing.T) {
	var d HeartbeatData
	require.NoError(t, DecodeBody([]byte(`{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":1,"messageModel":"clustering","consumeFromWhere":4,
		"subscriptionDataSet":[{"topic":"T","subString":"a||b","codeSet":["97",98,"-5"],"subVersion":"1795977084961050834"}]},
		{"groupName":"h","consumeType":"CONSUME_LATER","messageModel":0,"consumeFromWhere":99}],"heartbeatFingerprint":"7","new":{"x":1},}`), &d))
	g := d.ConsumerDataSet[0]
	require.Equal(t, ConsumePassively, g.ConsumeType)
	require.Equal(t, Clustering, g.MessageModel)
	require.Equal(t, ConsumeFromFirstOffset, g.ConsumeFromWhere)
	require.Equal(t, []Int{97, 98, -5}, g.SubscriptionDataSet[0].CodeSet)
	require.Equal(t, Int(1795977084961050834), g.SubscriptionDataSet[0].SubVersion)
	require.Equal(t, Int(7), d.HeartbeatFingerprint)
	require.Equal(t, Broadcasting, d.ConsumerDataSet[1].MessageModel)
	require.Empty(t, d.ConsumerDataSet[1].ConsumeType)
	require.Empty(t, d.ConsumerDataSet[1].ConsumeFromWhere)
	require.Nil(t, d.ProducerDataSet)
	require.ErrorIs(t, DecodeBody([]byte(`{"consumerDataSet":[{"subscriptionDataSet":[{"codeSet":["x"]}]}]}`), &d), ErrBody)
	require.ErrorIs(t, DecodeBody([]byte(`{"clientID":`), &d), ErrBody)
}

func TestSubscriptionGroupDefaults(t *testing.T) {
	var w SubscriptionGroupWrapper
	require.NoError(t, DecodeBody([]byte(`{"subscriptionGroupTable":{"g":{"groupName":"g","retryMaxTimes":3}}}`), &w))
	want := DefaultSubscriptionGroup("g")
	want.RetryMaxTimes = 3
	require.Equal(t, want, w.SubscriptionGroupTable["g"])
}

func piece(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
}

func compressed(t testing.TB, plain []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zlib.NewWriter(&b)
	_, err := z.Write(plain)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return b.Bytes()
}

func compressedRegistration(mappings bool) []byte {
	b := piece(nil, `{"counter":3,"stateVersion":1,"timestamp":1700000000000}`)
	b = binary.BigEndian.AppendUint32(b, 2)
	b = piece(b, `T1 4 8 6 SINGLE_TAG {"message.type":"FIFO"}`)
	b = piece(b, `T2 1 1 2 MULTI_TAG`)
	b = piece(b, `["f:1"]`)
	if mappings {
		b = binary.BigEndian.AppendUint32(b, 1)
		b = piece(b, `{"topic":"T9","bname":"b"}`)
	}
	return b
}

func TestDecodeRegisterBody(t *testing.T) {
	for _, version := range []int32{Version494, Version} {
		body := compressed(t, compressedRegistration(version >= Version500))
		req := RegisterBrokerRequest{Compressed: true, BodyCRC32: BodyCRC32(body)}
		b, err := DecodeRegisterBody(&req, version, body)
		require.NoError(t, err)
		require.Equal(t, DataVersion{3, 1, 1700000000000}, b.Topics.DataVersion)
		require.Equal(t, map[string]TopicConfig{
			"T1": {TopicName: "T1", ReadQueueNums: 4, WriteQueueNums: 8, Perm: 6, TopicFilterType: "SINGLE_TAG", Attributes: StringMap{"message.type": "FIFO"}},
			"T2": {TopicName: "T2", ReadQueueNums: 1, WriteQueueNums: 1, Perm: 2, TopicFilterType: "MULTI_TAG"},
		}, b.Topics.TopicConfigTable)
		require.Equal(t, []string{"f:1"}, b.FilterServerList)
		require.Equal(t, version >= Version500, len(b.Topics.TopicQueueMappingInfoMap) == 1)
		req.BodyCRC32++
		_, err = DecodeRegisterBody(&req, version, body)
		require.ErrorIs(t, err, ErrBodyCRC)

		// Written plain, it reads the same.
		plain, crc, err := b.Encode()
		require.NoError(t, err)
		again, err := DecodeRegisterBody(&RegisterBrokerRequest{BodyCRC32: crc}, version, plain)
		require.NoError(t, err)
		require.Equal(t, b.Topics.DataVersion, again.Topics.DataVersion)
		require.Equal(t, b.Topics.TopicConfigTable["T1"], again.Topics.TopicConfigTable["T1"])
	}
	b, err := DecodeRegisterBody(&RegisterBrokerRequest{}, 36, []byte(`{"topicConfigTable":{"T":{"topicName":"T"}}}`))
	require.NoError(t, err)
	require.Contains(t, b.Topics.TopicConfigTable, "T")
	b, err = DecodeRegisterBody(&RegisterBrokerRequest{}, Version, nil)
	require.NoError(t, err)
	require.Empty(t, b.Topics.TopicConfigTable)
}

func TestDecodeRegisterBodyRefuses(t *testing.T) {
	whole := compressedRegistration(true)
	cases := map[string][]byte{
		"no zlib":   []byte("hello"),
		"cut zlib":  compressed(t, whole)[:30],
		"bomb":      compressed(t, make([]byte, maxInflated+1)),
		"count":     compressed(t, append(piece(nil, `{}`), 0x7f, 0xff, 0xff, 0xff)),
		"negative":  compressed(t, []byte{0xff, 0xff, 0xff, 0xff}),
		"bad topic": compressed(t, piece(append(piece(nil, `{}`), 0, 0, 0, 1), `T1 4 x 6 SINGLE_TAG`)),
		"few parts": compressed(t, piece(append(piece(nil, `{}`), 0, 0, 0, 1), `T1 4`)),
		"bad attr":  compressed(t, piece(append(piece(nil, `{}`), 0, 0, 0, 1), `T1 4 4 6 SINGLE_TAG {`)),
		"bad json":  compressed(t, piece(nil, `{`)),
	}
	for name, body := range cases {
		_, err := DecodeRegisterBody(&RegisterBrokerRequest{Compressed: true}, Version, body)
		require.ErrorIs(t, err, ErrBody, name)
	}
	short := len(compressedRegistration(false))
	for n := 0; n < len(whole); n += 3 {
		_, err := DecodeRegisterBody(&RegisterBrokerRequest{Compressed: true}, Version, compressed(t, whole[:n]))
		if n != short { // the mapping section may be missing
			require.ErrorIs(t, err, ErrBody, "cut to %d", n)
		}
	}
}

// The CRC in recorded registrations is that of their body.
func TestRecordedRegistrationCRC(t *testing.T) {
	checked := 0
	for _, e := range exchanges(t) {
		if e.Request.Code != ReqRegisterBroker || !e.Request.whole() {
			continue
		}
		f := e.Request.frame(t)
		var h Header
		require.NoError(t, h.Decode(&f))
		var req RegisterBrokerRequest
		require.NoError(t, req.Decode(&h))
		b, err := DecodeRegisterBody(&req, h.Version, f.Body)
		require.NoError(t, err)
		require.NotEmpty(t, b.Topics.TopicConfigTable)
		if req.BodyCRC32 != 0 {
			checked++
		}
	}
	require.NotZero(t, checked)
}

func TestMessageQueueAsKeyAndValue(t *testing.T) {
	q := MessageQueue{BrokerName: "b", QueueID: 3, Topic: `T"1`}
	b, err := EncodeBody(map[MessageQueue]MessageQueue{q: q})
	require.NoError(t, err)
	var m map[MessageQueue]MessageQueue
	require.NoError(t, DecodeBody(b, &m))
	require.Equal(t, map[MessageQueue]MessageQueue{q: q}, m)
	text, err := q.MarshalText()
	require.NoError(t, err)
	var back MessageQueue
	require.NoError(t, back.UnmarshalText(text))
	require.Equal(t, q, back)
	require.ErrorIs(t, DecodeBody([]byte(`{"x":{}}`), &m), ErrBody)

	r := ResetOffsetBody{OffsetTable: map[MessageQueue]int64{{"b", 1, "T"}: 7, {"b", 0, "T"}: 5, {"a", 2, "T"}: 6, {"z", 0, "S"}: 1}}
	require.Equal(t, `{"offsetTable":{{"brokerName":"z","queueId":0,"topic":"S"}:1,{"brokerName":"a","queueId":2,"topic":"T"}:6,`+
		`{"brokerName":"b","queueId":0,"topic":"T"}:5,{"brokerName":"b","queueId":1,"topic":"T"}:7}}`, string(r.AppendJSON(nil)))
}
