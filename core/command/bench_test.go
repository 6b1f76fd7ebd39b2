package command

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// sendV2 is a request as Java 5.x sends it (recorded).
const sendV2 = `{"code":310,"extFields":{"a":"rec_producer","b":"rec_5_5_0","c":"TBW102","d":"4","e":"0","f":"0","g":"1795977101481","h":"0",` +
	`"i":"KEYS\u0001key0\u0002UNIQ_KEY\u0001FD000000000000000000000000000002470A30946E09942BD8A90000\u0002WAIT\u0001true\u0002TAGS\u0001TagA\u0002",` +
	`"j":"0","k":"false","m":"false","n":"broker-a"},"flag":0,"language":"JAVA","opaque":5,"serializeTypeCurrentRPC":"JSON","version":513}`

func sendFrame(typ HeaderType) Frame {
	f := Frame{Type: JSON, Header: []byte(sendV2)}
	if typ == RocketMQ {
		var h Header
		if err := h.Decode(&f); err != nil {
			panic(err)
		}
		f = Frame{Type: RocketMQ, Header: encodeAgain(&h, RocketMQ, 0)[8:]}
	}
	return f
}

func sendResponse() SendResponse {
	return SendResponse{
		MsgID: []byte("7F00000100009BE70000000000051112"), TransactionID: []byte("FD000000000000000000000000000002470A30946E09942BD8A90000"),
		Region: []byte(DefaultRegion), QueueID: 3, QueueOffset: 1234567, TraceOn: true,
	}
}

func TestHotPathsDoNotAllocate(t *testing.T) {
	for _, typ := range []HeaderType{JSON, RocketMQ} {
		t.Run(typ.String(), func(t *testing.T) {
			f, resp := sendFrame(typ), sendResponse()
			var h Header
			var req SendRequest
			buf := make([]byte, 0, 4096)
			require.Zero(t, testing.AllocsPerRun(100, func() {
				if h.Decode(&f) != nil || req.Decode(&h) != nil || len(req.Topic) != 9 {
					panic("decode")
				}
			}))
			require.Zero(t, testing.AllocsPerRun(100, func() {
				w := Begin(buf[:0], typ, RespSuccess, 7, FlagResponse)
				resp.Append(&w)
				w.End(0)
			}))
			require.Zero(t, testing.AllocsPerRun(100, func() {
				w := Begin(buf[:0], typ, ReqSendMessageV2, 7, 0)
				req.Append(&w)
				w.End(0)
			}))
			require.Zero(t, testing.AllocsPerRun(100, func() { AppendResponse(buf[:0], typ, RespSystemBusy, 1, "busy", 0) }))

			pull := PullRequest{ConsumerGroup: []byte("g"), Topic: []byte("t"), Subscription: []byte("*")}
			w := Begin(nil, typ, ReqPullMessage, 1, 0)
			pull.Append(&w)
			pf := Frame{Type: typ, Header: w.End(0)[8:]}
			require.Zero(t, testing.AllocsPerRun(100, func() {
				if h.Decode(&pf) != nil || pull.Decode(&h) != nil {
					panic("decode")
				}
			}))
		})
	}
	wire := frameOf(JSON, sendV2, "hello")
	frames := make([]Frame, 0, 4)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if _, _, _, err := Split(wire, frames, Limits{}); err != nil {
			panic(err)
		}
	}))
}

func BenchmarkDecodeSend(b *testing.B) {
	for _, typ := range []HeaderType{JSON, RocketMQ} {
		b.Run(typ.String(), func(b *testing.B) {
			f := sendFrame(typ)
			var h Header
			var req SendRequest
			b.ReportAllocs()
			for b.Loop() {
				if err := h.Decode(&f); err != nil {
					b.Fatal(err)
				}
				if err := req.Decode(&h); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDecodeHeader(b *testing.B) {
	for _, typ := range []HeaderType{JSON, RocketMQ} {
		b.Run(typ.String(), func(b *testing.B) {
			f := sendFrame(typ)
			var h Header
			b.ReportAllocs()
			for b.Loop() {
				if err := h.Decode(&f); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAppendSendResponse(b *testing.B) {
	for _, typ := range []HeaderType{JSON, RocketMQ} {
		b.Run(typ.String(), func(b *testing.B) {
			r := sendResponse()
			buf := make([]byte, 0, 4096)
			b.ReportAllocs()
			for b.Loop() {
				w := Begin(buf[:0], typ, RespSuccess, 7, FlagResponse)
				r.Append(&w)
				w.End(0)
			}
		})
	}
}

func BenchmarkAppendSendRequest(b *testing.B) {
	f := sendFrame(JSON)
	var h Header
	var req SendRequest
	if h.Decode(&f) != nil || req.Decode(&h) != nil {
		b.Fatal("decode")
	}
	buf := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		w := Begin(buf[:0], JSON, ReqSendMessageV2, 7, 0)
		req.Append(&w)
		w.End(5)
	}
}

func BenchmarkSplit(b *testing.B) {
	for _, n := range []int{1, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var buf []byte
			for range n {
				buf = append(buf, frameOf(JSON, sendV2, "hello")...)
			}
			frames := make([]Frame, 0, n)
			b.ReportAllocs()
			for b.Loop() {
				if _, _, _, err := Split(buf, frames, Limits{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
