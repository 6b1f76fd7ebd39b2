package command

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// recordedSends are the sends of single messages that official clients were
// recorded with, by client and header type.
func recordedSends(tb testing.TB) map[string][]Frame {
	all := map[string][]Frame{}
	for _, e := range exchanges(tb) {
		r := &e.Request
		if r.Code != ReqSendMessage && r.Code != ReqSendMessageV2 {
			continue
		}
		f := r.frame(tb)
		name := fmt.Sprintf("%s %d", r.Header.Language, r.Header.Version)
		all[name] = append(all[name], f)
		var h Header
		require.NoError(tb, h.Decode(&f))
		all[name+" binary"] = append(all[name+" binary"], Frame{Type: RocketMQ, Header: encodeAgain(&h, RocketMQ, 0)[prefixLen:]})
	}
	require.Len(tb, all, 8, "Java 4.9.8, 5.3.3 (mqadmin), 5.5.0 and Go 2.1")
	return all
}

// benchAnswer forms the answer to a send.
func benchAnswer(buf []byte, typ HeaderType, r *SendRequest, opaque int32, form *SendForm, id []byte, offset int64) []byte {
	return form.Append(buf, typ, opaque, &SendResponse{MsgID: id, QueueID: r.QueueID, QueueOffset: offset, TransactionID: id})
}

// BenchmarkSendHeader is what a send costs in this package: the header of a
// recorded request is decoded, typed, and answered; all sends of a client in turn.
// "reference" is a reader and writer that trusts the text and knows nothing but
// this request: about what the machine can do.
func BenchmarkSendHeader(b *testing.B) {
	form := NewSendForm(&SendResponse{TraceOn: true})
	id := []byte("7F00000100009BE70000000000051112")
	all := recordedSends(b)
	for _, name := range []string{"JAVA 513", "JAVA 409", "GO 317", "JAVA 513 binary", "GO 317 binary"} {
		frames := all[name]
		b.Run(name, func(b *testing.B) {
			var h Header
			var req SendRequest
			buf := make([]byte, 0, 4096)
			decode := func(f *Frame) {
				if err := h.Decode(f); err != nil {
					b.Fatal(err)
				}
				if err := req.Decode(&h); err != nil {
					b.Fatal(err)
				}
			}
			b.Run("decode", func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					decode(&frames[i%len(frames)])
				}
			})
			b.Run("answer", func(b *testing.B) {
				decode(&frames[0])
				b.ReportAllocs()
				for i := int32(0); b.Loop(); i++ {
					benchAnswer(buf, frames[0].Type, &req, 1e9+i, form, id, int64(i))
				}
			})
			b.Run("both", func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					decode(&frames[i%len(frames)])
					benchAnswer(buf, h.Type, &req, h.Opaque, form, id, int64(i))
				}
			})
			if frames[0].Type != JSON {
				return
			}
			r := reference{scratch: make([]byte, 0, 4096)}
			b.Run("reference-decode", func(b *testing.B) {
				for i := 0; b.Loop(); i++ {
					r.decode(frames[i%len(frames)].Header)
				}
			})
			b.Run("reference-both", func(b *testing.B) {
				for i := 0; b.Loop(); i++ {
					r.decode(frames[i%len(frames)].Header)
					r.answer(buf, id, int64(i))
				}
			})
		})
	}
}

// TestReferenceReadsTheSame: what the benchmark compares with does the work.
func TestReferenceReadsTheSame(t *testing.T) {
	form := NewSendForm(&SendResponse{TraceOn: true})
	var r reference
	for name, frames := range recordedSends(t) {
		for i := range frames {
			if frames[i].Type != JSON {
				continue
			}
			var h Header
			var req SendRequest
			require.NoError(t, h.Decode(&frames[i]))
			require.NoError(t, req.Decode(&h))
			r.decode(frames[i].Header)
			require.Equal(t, string(req.Topic), string(r.topic), name)
			require.Equal(t, string(req.Properties), string(r.properties), name)
			require.Equal(t, []int64{int64(h.Opaque), int64(req.QueueID), req.BornTimestamp}, []int64{r.opaque, r.queue, r.born}, name)
			id := []byte("7F00000100009BE70000000000051112")
			require.Equal(t, string(benchAnswer(nil, JSON, &req, h.Opaque, form, id, 7)), string(r.answer(nil, id, 7)))
		}
	}
}

// reference reads a send without checking anything.
type reference struct {
	scratch, topic, properties []byte
	opaque, queue, born        int64
	sysFlag, flag, reconsume   int64
}

func (r *reference) decode(b []byte) {
	r.scratch = r.scratch[:0]
	var at [128]int32
	n := 0
	for i := 0; i < len(b); {
		if i+8 <= len(b) {
			x := binary.LittleEndian.Uint64(b[i:])
			q := x ^ (lowBits * '"')
			m := (q - lowBits) &^ q & highBits
			if m == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(m) >> 3
		}
		if b[i] == '"' {
			at[n&127] = int32(i)
			n++
		}
		i++
	}
	for k := 0; k+1 < n; {
		key := b[at[k]+1 : at[k+1]]
		if k+3 < n && at[k+2] == at[k+1]+2 {
			r.field(key, b[at[k+2]+1:at[k+3]])
			k += 4
			continue
		}
		if string(key) == "opaque" {
			v := b[at[k+1]+2:]
			for r.opaque = 0; v[0] >= '0' && v[0] <= '9'; v = v[1:] {
				r.opaque = r.opaque*10 + int64(v[0]-'0')
			}
		}
		k += 2
	}
}

func (r *reference) field(key, v []byte) {
	switch string(key) {
	case "b", "topic":
		r.topic = v
	case "e", "queueId":
		r.queue = decimal(v)
	case "f", "sysFlag":
		r.sysFlag = decimal(v)
	case "g", "bornTimestamp":
		r.born = decimal(v)
	case "h", "flag":
		r.flag = decimal(v)
	case "j", "reconsumeTimes":
		r.reconsume = decimal(v)
	case "i", "properties":
		for i := 0; i < len(v); i++ {
			if v[i] == '\\' {
				r.scratch = append(r.scratch, v[i+5]-'0')
				i += 5
				continue
			}
			r.scratch = append(r.scratch, v[i])
		}
		r.properties = r.scratch
	}
}

func decimal(v []byte) (n int64) {
	for _, c := range v {
		n = n*10 + int64(c-'0')
	}
	return n
}

func (r *reference) answer(out, id []byte, offset int64) []byte {
	s := len(out)
	out = append(out, "\x00\x00\x00\x00\x00\x00\x00\x00"+`{"code":0,"extFields":{"TRACE_ON":"true","MSG_REGION":"DefaultRegion","msgId":"`...)
	out = append(out, id...)
	out = append(out, `","queueId":"`...)
	out = strconv.AppendInt(out, r.queue, 10)
	out = append(out, `","queueOffset":"`...)
	out = strconv.AppendInt(out, offset, 10)
	out = append(out, `","transactionId":"`...)
	out = append(out, id...)
	out = append(out, `"},"flag":1,"language":"GO","opaque":`...)
	out = strconv.AppendInt(out, r.opaque, 10)
	out = append(out, `,"serializeTypeCurrentRPC":"JSON","version":479}`...)
	binary.BigEndian.PutUint32(out[s:], uint32(len(out)-s-4))
	binary.BigEndian.PutUint32(out[s+4:], uint32(len(out)-s-8))
	return out
}
