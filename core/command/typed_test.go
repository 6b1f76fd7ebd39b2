package command

import (
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fill gives every field of a typed header a value of its own.
func fill(v reflect.Value, n *int) {
	for i := range v.NumField() {
		f := v.Field(i)
		*n++
		switch f.Kind() {
		case reflect.Struct:
			fill(f, n)
		case reflect.Slice:
			f.SetBytes([]byte("text\x01" + strconv.Itoa(*n)))
		case reflect.String:
			f.SetString("text\x01" + strconv.Itoa(*n))
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Int32, reflect.Int64:
			f.SetInt(int64(*n) + 1<<20)
		}
	}
}

func TestTypedHeadersRoundTrip(t *testing.T) {
	run := func(t *testing.T, code, flag int32, make func() typedHeader) {
		for _, typ := range []HeaderType{JSON, RocketMQ} {
			v, n := make(), 0
			fill(reflect.ValueOf(v).Elem(), &n)
			switch x := v.(type) {
			case *PushReplyRequest: // these two do not travel in it
				x.Batch, x.MaxReconsumeTimes = false, -1
			case *QueueRequest:
				x.Uncommitted = code == ReqGetMaxOffset
			case *AckRequest:
				if code == ReqAckMessage {
					x.InvisibleTime = 0
				}
			case *KVConfigRequest:
				if code == ReqGetKVConfig {
					x.Value = ""
				}
			}
			w := Begin(nil, typ, code, 1, flag)
			v.Append(&w)
			frames, _, _, err := Split(w.End(0), nil, Limits{})
			require.NoError(t, err)
			var h Header
			require.NoError(t, h.Decode(&frames[0]))
			got := make()
			require.NoError(t, got.Decode(&h))
			require.Equal(t, v, got)
		}
	}
	for code, make := range typedRequests {
		t.Run(RequestName(code), func(t *testing.T) { run(t, code, 0, make) })
	}
	for code, make := range typedResponses {
		t.Run(RequestName(code)+" response", func(t *testing.T) { run(t, RespSuccess, FlagResponse, make) })
	}
}

// Every field that Append always writes is either optional or named by the error.
func TestTypedHeadersNameWhatIsMissing(t *testing.T) {
	for code, make := range typedRequests {
		t.Run(RequestName(code), func(t *testing.T) {
			v, n := make(), 0
			fill(reflect.ValueOf(v).Elem(), &n)
			w := Begin(nil, JSON, code, 1, 0)
			v.Append(&w)
			all := extOf(decodeJSON(t, string(w.End(0)[8:])))
			required := 0
			for skip := range all {
				w := Begin(nil, JSON, code, 1, 0)
				for k, x := range all {
					if k != skip {
						w.Ext(k, x)
					}
				}
				err := make().Decode(decodeJSON(t, string(w.End(0)[8:])))
				if err == nil {
					continue
				}
				required++
				var fe *FieldError
				require.ErrorAs(t, err, &fe)
				require.Equal(t, FieldError{Code: code, Field: skip, Reason: missing}, *fe)
			}
			if _, free := v.(*TablePageRequest); !free { // of which nothing is required
				require.NotZero(t, required)
			}
		})
	}
}

func TestTypedHeadersRefuseBadNumbers(t *testing.T) {
	h := decodeJSON(t, `{"code":310,"extFields":{"a":"g","b":"t","c":"c","d":"4","e":"4294967296","f":"0","g":"1","h":"0"}}`)
	var fe *FieldError
	require.ErrorAs(t, new(SendRequest).Decode(h), &fe)
	require.Equal(t, FieldError{Code: 310, Field: "e", Value: "4294967296", Reason: tooBig32}, *fe)
	require.Contains(t, fe.Error(), `"e" = "4294967296" of code 310: does not fit 32 bits`)

	h = decodeJSON(t, `{"code":15,"extFields":{"consumerGroup":"g","topic":"t","queueId":"`+strings.Repeat("9x", 100)+`","commitOffset":"1"}}`)
	require.ErrorAs(t, new(UpdateConsumerOffsetRequest).Decode(h), &fe)
	require.Less(t, len(fe.Error()), 200)
}

func TestSendRequestLongNames(t *testing.T) {
	h := decodeJSON(t, `{"code":10,"extFields":{"producerGroup":"g","topic":"t","defaultTopic":"TBW102","defaultTopicQueueNums":"4","queueId":"-1","sysFlag":"0",
		"bornTimestamp":"1700000000000","flag":"3","properties":"a\u0001b\u0002","batch":"True","a":"not this","topicX":"nor this"}}`)
	var r SendRequest
	require.NoError(t, r.Decode(h))
	require.Equal(t, SendRequest{
		ProducerGroup: []byte("g"), Topic: []byte("t"), DefaultTopic: []byte("TBW102"), DefaultTopicQueueNums: 4, QueueID: -1,
		BornTimestamp: 1700000000000, Flag: 3, Properties: []byte("a\x01b\x02"), Batch: true, MaxReconsumeTimes: -1,
	}, r)
}

func TestSendResponseAlwaysTellsRegionAndTrace(t *testing.T) {
	w := Begin(nil, JSON, RespSystemError, 1, FlagResponse)
	new(SendResponse).Append(&w)
	h := decodeJSON(t, string(w.End(0)[8:]))
	require.Equal(t, map[string]string{"MSG_REGION": "DefaultRegion", "TRACE_ON": "false"}, extOf(h))
	var r SendResponse
	require.NoError(t, r.Decode(h))
	require.False(t, r.TraceOn)
	require.ErrorContains(t, r.Decode(decodeJSON(t, `{"extFields":{"msgId":"x"}}`)), `"queueId"`)
}

func TestSearchOffsetBoundary(t *testing.T) {
	for in, upper := range map[string]bool{"UPPER": true, "upper": true, "LOWER": false, "other": false} {
		var r SearchOffsetRequest
		require.NoError(t, r.Decode(decodeJSON(t, `{"code":29,"extFields":{"topic":"t","queueId":"0","timestamp":"1","boundaryType":"`+in+`"}}`)))
		require.Equal(t, upper, r.Upper, in)
	}
}

func TestReceiptHandle(t *testing.T) {
	r := ReceiptHandle{CKOffset: 100, PopTime: 1700000000000, InvisibleTime: 60000, ReviveQID: 3, RetryFlag: '0', BrokerName: "broker-a", QueueID: 2, Offset: 101}
	require.Equal(t, "100 1700000000000 60000 3 0 broker-a 2 101", string(r.Append(nil)))
	got, err := ParseReceiptHandle([]byte("100 1700000000000 60000 3 0 broker-a 2 101"))
	require.NoError(t, err)
	require.Equal(t, r, got)
	for _, bad := range []string{"", "1 2 3", "a 1 1 1 0 b 1 1", "1 1 1 1 00 b 1 1", "1 1 1 1 3 b 1 1", "1 1 1 1 0 b 1 1 1", "1 1 1 1 0 b 99999999999 1", "1 1 1 1 0  1 1"} {
		_, err := ParseReceiptHandle([]byte(bad))
		require.ErrorIs(t, err, ErrBody, bad)
	}
}
