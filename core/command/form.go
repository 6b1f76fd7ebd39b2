package command

import (
	"encoding/binary"
	"strconv"
)

// SendForm writes the answers to sends that went well: what is the same in all of
// them is encoded once. It is immutable and safe for concurrent use.
type SendForm struct {
	json, binary string // a frame up to what differs
}

// NewSendForm makes a form with Region and TraceOn of r.
func NewSendForm(r *SendResponse) *SendForm {
	fixed := SendResponse{Region: r.Region, TraceOn: r.TraceOn}
	w := Begin(nil, JSON, RespSuccess, 0, FlagResponse)
	fixed.Append(&w)
	b := Begin(nil, RocketMQ, RespSuccess, 0, FlagResponse)
	fixed.Append(&b)
	return &SendForm{json: string(append(w.buf, jsonMsgID...)), binary: string(append(b.End(0), binMsgID...))}
}

// What stands before the values of an answer.
const (
	jsonMsgID   = `,"msgId":"`
	jsonQueue   = `","queueId":"`
	jsonOffset  = `","queueOffset":"`
	jsonTx      = `","transactionId":"`
	jsonOpaque  = `"},"flag":1,"language":"GO","opaque":`
	jsonVersion = `,"serializeTypeCurrentRPC":"JSON","version":479}`

	binMsgID  = "\x00\x05msgId"
	binQueue  = "\x00\x07queueId"
	binOffset = "\x00\x0bqueueOffset"
	binTx     = "\x00\x0dtransactionId"
)

// Append appends the whole frame of an answer with code 0 and without a body:
// MsgID, QueueID, QueueOffset and TransactionID are those of r, Region and TraceOn
// those of the form. MsgID is there and consists of letters, digits and commas;
// TransactionID, which may be empty, is any text. It is what a [Writer] makes of
// the same fields, in another order.
func (f *SendForm) Append(dst []byte, t HeaderType, opaque int32, r *SendResponse) []byte {
	start := len(dst)
	if t == RocketMQ {
		b := append(dst, f.binary...)
		b = appendBinText(b, r.MsgID)
		b = appendBinInt(append(b, binQueue...), int64(r.QueueID))
		b = appendBinInt(append(b, binOffset...), r.QueueOffset)
		if len(r.TransactionID) > 0 {
			b = appendBinText(append(b, binTx...), r.TransactionID)
		}
		p := b[start:]
		binary.BigEndian.PutUint32(p[prefixLen+5:], uint32(opaque))
		binary.BigEndian.PutUint32(p[prefixLen+binFixed:], uint32(len(p)-prefixLen-binFixed-4))
		return endForm(b, start, RocketMQ, opaque)
	}
	b := append(dst, f.json...)
	b = append(b, r.MsgID...)
	b = appendDecimal(append(b, jsonQueue...), int64(r.QueueID))
	b = appendDecimal(append(b, jsonOffset...), r.QueueOffset)
	if len(r.TransactionID) > 0 {
		b = appendEscaped(append(b, jsonTx...), r.TransactionID)
	}
	b = appendDecimal(append(b, jsonOpaque...), int64(opaque))
	b = append(b, jsonVersion...)
	return endForm(b, start, JSON, opaque)
}

// endForm patches the lengths of the frame at start.
func endForm(b []byte, start int, t HeaderType, opaque int32) []byte {
	n := len(b) - start - prefixLen
	if n > MaxHeader { // the ids of a very large batch
		w := Begin(b[:start], t, RespSuccess, opaque, FlagResponse)
		w.err = errHeaderTooLarge(n)
		return w.End(0)
	}
	p := b[start : start+prefixLen]
	binary.BigEndian.PutUint32(p, uint32(4+n))
	binary.BigEndian.PutUint32(p[4:], uint32(t)<<24|uint32(n))
	return b
}

func appendBinText(b, v []byte) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
}

func appendBinInt(b []byte, v int64) []byte {
	at := len(b)
	b = appendDecimal(append(b, 0, 0, 0, 0), v)
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	return b
}

// appendDecimal is strconv.AppendInt, with a short way for one digit.
func appendDecimal(b []byte, v int64) []byte {
	if uint64(v) < 10 {
		return append(b, '0'+byte(v))
	}
	return strconv.AppendInt(b, v, 10)
}
