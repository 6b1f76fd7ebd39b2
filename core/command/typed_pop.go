package command

import (
	"bytes"
	"fmt"
	"strconv"
)

// ReceiptHandle is the place of one popped message: what POP, ACK and
// CHANGE_MESSAGE_INVISIBLETIME exchange as one blank-separated text.
type ReceiptHandle struct {
	CKOffset      int64 // offset where the check point starts
	PopTime       int64 // ms since epoch
	InvisibleTime int64 // ms
	ReviveQID     int32
	RetryFlag     byte // '0' normal topic, '1' retry topic v1, '2' v2
	BrokerName    string
	QueueID       int32
	Offset        int64
}

// Append appends the text form.
func (r *ReceiptHandle) Append(dst []byte) []byte {
	for _, n := range [...]int64{r.CKOffset, r.PopTime, r.InvisibleTime, int64(r.ReviveQID)} {
		dst = append(strconv.AppendInt(dst, n, 10), ' ')
	}
	dst = append(append(append(dst, r.RetryFlag, ' '), r.BrokerName...), ' ')
	dst = append(strconv.AppendInt(dst, int64(r.QueueID), 10), ' ')
	return strconv.AppendInt(dst, r.Offset, 10)
}

// ParseReceiptHandle reads the text form. Errors wrap ErrBody.
func ParseReceiptHandle(b []byte) (ReceiptHandle, error) {
	var r ReceiptHandle
	bad := func(why string) (ReceiptHandle, error) {
		return ReceiptHandle{}, fmt.Errorf("%w: receipt handle %q: %s", ErrBody, clip(b), why)
	}
	var reviveQID, queueID int64
	to := [...]*int64{&r.CKOffset, &r.PopTime, &r.InvisibleTime, &reviveQID, nil, nil, &queueID, &r.Offset}
	rest, more := b, true
	for i, n := range to {
		if !more {
			return bad("fewer than eight parts")
		}
		var part []byte
		part, rest, more = bytes.Cut(rest, []byte{' '})
		switch {
		case i == 4:
			if len(part) != 1 || part[0] < '0' || part[0] > '2' {
				return bad("retry flag is none of 0, 1, 2")
			}
			r.RetryFlag = part[0]
		case i == 5:
			if len(part) == 0 {
				return bad("no broker name")
			}
			r.BrokerName = string(part)
		default:
			size := 64
			if i == 3 || i == 6 {
				size = 32
			}
			v, why := parseInt(part, size)
			if why != "" {
				return bad(why)
			}
			*n = v
		}
	}
	if more {
		return bad("more than eight parts")
	}
	r.ReviveQID, r.QueueID = int32(reviveQID), int32(queueID)
	return r, nil
}

// PopRequest is POP_MESSAGE (200050).
type PopRequest struct {
	ConsumerGroup []byte
	Topic         []byte
	Exp           []byte // filter expression
	ExpType       []byte // TAG or SQL92
	AttemptID     []byte
	InvisibleTime int64 // ms
	PollTime      int64 // ms the broker may hold the request
	BornTime      int64 // ms since epoch
	QueueID       int32 // -1: any
	MaxMsgNums    int32 // at most 32
	InitMode      int32 // where a new group starts: 0 min, 1 max
	Order         bool
}

// Decode takes the fields.
func (r *PopRequest) Decode(h *Header) error {
	d := reader{h: h}
	*r = PopRequest{
		ConsumerGroup: d.need("consumerGroup"), Topic: d.need("topic"), QueueID: d.int32("queueId"), MaxMsgNums: d.int32("maxMsgNums"),
		InvisibleTime: d.int64("invisibleTime"), PollTime: d.int64("pollTime"), BornTime: d.int64("bornTime"), InitMode: d.int32("initMode"),
		ExpType: d.opt("expType"), Exp: d.opt("exp"), Order: d.bool("order", false), AttemptID: d.opt("attemptId"),
	}
	return d.err
}

// Append writes the fields.
func (r *PopRequest) Append(w *Writer) {
	w.ExtBytes("consumerGroup", r.ConsumerGroup)
	w.ExtBytes("topic", r.Topic)
	w.ExtInt("queueId", int64(r.QueueID))
	w.ExtInt("maxMsgNums", int64(r.MaxMsgNums))
	w.ExtInt("invisibleTime", r.InvisibleTime)
	w.ExtInt("pollTime", r.PollTime)
	w.ExtInt("bornTime", r.BornTime)
	w.ExtInt("initMode", int64(r.InitMode))
	w.optBytes("expType", r.ExpType)
	w.optBytes("exp", r.Exp)
	w.ExtBool("order", r.Order)
	w.optBytes("attemptId", r.AttemptID)
}

// PopResponse answers POP_MESSAGE; the body holds the messages. The info strings
// have entries "flag queueId …" separated by ';'.
type PopResponse struct {
	StartOffsetInfo []byte
	MsgOffsetInfo   []byte
	OrderCountInfo  []byte
	PopTime         int64 // ms since epoch
	InvisibleTime   int64 // ms
	RestNum         int64
	ReviveQID       int32
}

// Decode takes the fields; missing numbers read as 0.
func (r *PopResponse) Decode(h *Header) error {
	d := reader{h: h}
	*r = PopResponse{
		StartOffsetInfo: d.opt("startOffsetInfo"), MsgOffsetInfo: d.opt("msgOffsetInfo"), OrderCountInfo: d.opt("orderCountInfo"),
		PopTime: d.optInt64("popTime", 0), InvisibleTime: d.optInt64("invisibleTime", 0), RestNum: d.optInt64("restNum", 0),
		ReviveQID: d.optInt32("reviveQid", 0),
	}
	return d.err
}

// Append writes the fields.
func (r *PopResponse) Append(w *Writer) {
	w.ExtInt("popTime", r.PopTime)
	w.ExtInt("invisibleTime", r.InvisibleTime)
	w.ExtInt("reviveQid", int64(r.ReviveQID))
	w.ExtInt("restNum", r.RestNum)
	w.optBytes("startOffsetInfo", r.StartOffsetInfo)
	w.optBytes("msgOffsetInfo", r.MsgOffsetInfo)
	w.optBytes("orderCountInfo", r.OrderCountInfo)
}

// AckRequest is ACK_MESSAGE (200051) and, with InvisibleTime,
// CHANGE_MESSAGE_INVISIBLETIME (200053).
type AckRequest struct {
	ConsumerGroup []byte
	Topic         []byte // the real topic: the retry topic when the handle's flag is not 0
	ExtraInfo     []byte // receipt handle
	Offset        int64
	InvisibleTime int64 // ms, of 200053 only
	QueueID       int32
}

// Decode takes the fields.
func (r *AckRequest) Decode(h *Header) error {
	d := reader{h: h}
	*r = AckRequest{
		ConsumerGroup: d.need("consumerGroup"), Topic: d.need("topic"), QueueID: d.int32("queueId"),
		ExtraInfo: d.need("extraInfo"), Offset: d.int64("offset"),
	}
	if h.Code == ReqChangeMessageInvisibleTime {
		r.InvisibleTime = d.int64("invisibleTime")
	}
	return d.err
}

// Append writes the fields.
func (r *AckRequest) Append(w *Writer) {
	w.ExtBytes("consumerGroup", r.ConsumerGroup)
	w.ExtBytes("topic", r.Topic)
	w.ExtInt("queueId", int64(r.QueueID))
	w.ExtBytes("extraInfo", r.ExtraInfo)
	w.ExtInt("offset", r.Offset)
	if w.code == ReqChangeMessageInvisibleTime {
		w.ExtInt("invisibleTime", r.InvisibleTime)
	}
}

// ChangeInvisibleResponse answers CHANGE_MESSAGE_INVISIBLETIME (200053): the
// client makes a new handle of it.
type ChangeInvisibleResponse struct {
	PopTime       int64 // ms since epoch
	InvisibleTime int64 // ms
	ReviveQID     int32
}

// Decode takes the fields.
func (r *ChangeInvisibleResponse) Decode(h *Header) error {
	d := reader{h: h}
	*r = ChangeInvisibleResponse{d.int64("popTime"), d.int64("invisibleTime"), d.int32("reviveQid")}
	return d.err
}

// Append writes the fields.
func (r *ChangeInvisibleResponse) Append(w *Writer) {
	w.ExtInt("popTime", r.PopTime)
	w.ExtInt("invisibleTime", r.InvisibleTime)
	w.ExtInt("reviveQid", int64(r.ReviveQID))
}
