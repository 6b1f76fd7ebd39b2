package bench

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/hardpointmq/hardpoint/core/command"
)

// Opaques have ten digits, so that they can be patched in place.
const opaqueBase = 1_000_000_000

// The numbers that a template is encoded with, to find their places.
const (
	markOpaque = opaqueBase
	markBorn   = 1_234_567_890_123
	markKey    = "0123456789ABCDEF0123456789ABCDEF"
	keyPatched = 12 // of its last digits
)

// template is an encoded send request in which the changing fields are patched.
type template struct {
	frame  []byte
	binary bool // opaque is a word rather than digits
	opaque int
	born   int
	key    int // of the patched digits
	body   int
	nonce  uint64 // before the time stamp of a body
}

// newTemplate encodes a send to one queue. The same seed gives the same body.
func newTemplate(o *Options, queueID int32, seed uint64) (*template, error) {
	props := "UNIQ_KEY\x01" + markKey + "\x02WAIT\x01true\x02"
	req := command.SendRequest{
		ProducerGroup: []byte(o.Group), Topic: []byte(o.Topic), DefaultTopic: []byte(autoCreate), DefaultTopicQueueNums: int32(o.Queues),
		QueueID: queueID, BornTimestamp: markBorn, Properties: []byte(props), MaxReconsumeTimes: -1,
	}
	w := command.Begin(nil, o.Header, command.ReqSendMessageV2, markOpaque, 0)
	req.Append(&w)
	frame := w.End(o.Size)
	if err := w.Err(); err != nil {
		return nil, err
	}
	t := &template{body: len(frame), binary: o.Header == command.RocketMQ}
	find := func(mark string) int {
		if bytes.Count(frame, []byte(mark)) != 1 {
			return -1
		}
		return bytes.Index(frame, []byte(mark))
	}
	if t.binary {
		var word [4]byte
		binary.BigEndian.PutUint32(word[:], markOpaque)
		t.opaque = find(string(word[:]))
	} else {
		t.opaque = find(fmt.Sprintf(`"opaque":%d`, markOpaque)) + len(`"opaque":`)
	}
	t.born = find(fmt.Sprint(markBorn))
	t.key = find(markKey) + len(markKey) - keyPatched
	if t.opaque < len(`"opaque":`) || t.born < 0 || t.key < len(markKey)-keyPatched {
		return nil, fmt.Errorf("topic %q and group %q contain what the load generator patches; choose others", o.Topic, o.Group)
	}
	body := make([]byte, o.Size)
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range body {
		body[i] = 'a' + byte(r.IntN(26))
	}
	t.frame = append(frame, body...)
	return t, nil
}

// append appends a request. bornMillis is since 1970; stamp goes to the start of
// the body when it is not negative.
func (t *template) append(buf []byte, opaque int32, bornMillis int64, key uint64, stamp int64) []byte {
	at := len(buf)
	buf = append(buf, t.frame...)
	f := buf[at:]
	if t.binary {
		binary.BigEndian.PutUint32(f[t.opaque:], uint32(opaque))
	} else {
		putDigits(f[t.opaque:t.opaque+10], uint64(opaque))
	}
	putDigits(f[t.born:t.born+13], uint64(bornMillis))
	const hexDigits = "0123456789ABCDEF"
	for i := t.key + keyPatched - 1; i >= t.key; i-- {
		f[i] = hexDigits[key&15]
		key >>= 4
	}
	if stamp >= 0 {
		binary.BigEndian.PutUint64(f[t.body:], t.nonce)
		binary.BigEndian.PutUint64(f[t.body+8:], uint64(stamp))
	}
	return buf
}

func putDigits(b []byte, v uint64) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = byte('0' + v%10)
		v /= 10
	}
}

var (
	textCode   = []byte(`{"code":`)
	textOpaque = []byte(`"opaque":`)
)

// glance reads code and opaque of an answer without decoding the rest.
func glance(f *command.Frame, h *command.Header) (code, opaque int32, err error) {
	b := f.Header
	if f.Type == command.RocketMQ && len(b) >= 13 {
		return int32(int16(binary.BigEndian.Uint16(b))), int32(binary.BigEndian.Uint32(b[5:])), nil
	}
	// Members are sorted, so that a successful answer begins with its code.
	if bytes.HasPrefix(b, textCode) && len(b) > len(textCode)+1 && b[len(textCode)] == '0' && b[len(textCode)+1] == ',' {
		if i := bytes.LastIndex(b, textOpaque); i >= 0 {
			v := int64(0)
			j := i + len(textOpaque)
			for ; j < len(b) && b[j] >= '0' && b[j] <= '9' && v < 1<<31; j++ {
				v = v*10 + int64(b[j]-'0')
			}
			if v < 1<<31 && j > i+len(textOpaque) {
				return 0, int32(v), nil
			}
		}
	}
	if err := h.Decode(f); err != nil {
		return 0, 0, err
	}
	return h.Code, h.Opaque, nil
}
