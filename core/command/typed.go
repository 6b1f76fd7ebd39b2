package command

// Typed headers: each has a Decode that takes its fields from a decoded Header
// and an Append that writes them. []byte fields alias the Header's frame or
// scratch (see Header); string fields are copies. A required field that is
// missing, and a number that is none, give a *FieldError. Fields no analysed
// client or broker needs (ns, nsd, oway, lo) are left out.

const missing = "required and missing"

// reader takes fields one by one and keeps the first error.
type reader struct {
	h   *Header
	err error
}

func (r *reader) fail(key string, value []byte, why string) {
	if r.err == nil {
		r.err = &FieldError{Code: r.h.Code, Field: key, Value: clip(value), Reason: why}
	}
}

// opt is the text of an optional field, nil if missing.
func (r *reader) opt(key string) []byte {
	v, _ := r.h.Ext(key)
	return v
}

func (r *reader) need(key string) []byte {
	v, ok := r.h.Ext(key)
	if !ok {
		r.fail(key, nil, missing)
	}
	return v
}

func (r *reader) optString(key string) string  { return string(r.opt(key)) }
func (r *reader) needString(key string) string { return string(r.need(key)) }

func (r *reader) number(key string, bits int, required bool, def int64) int64 {
	v, ok := r.h.Ext(key)
	if !ok {
		if required {
			r.fail(key, nil, missing)
		}
		return def
	}
	n, why := parseInt(v, bits)
	if why != "" {
		r.fail(key, v, why)
	}
	return n
}

func (r *reader) int32(key string) int32 { return int32(r.number(key, 32, true, 0)) }
func (r *reader) int64(key string) int64 { return r.number(key, 64, true, 0) }
func (r *reader) optInt32(key string, def int32) int32 {
	return int32(r.number(key, 32, false, int64(def)))
}
func (r *reader) optInt64(key string, def int64) int64 { return r.number(key, 64, false, def) }

// bool is def if the field is missing.
func (r *reader) bool(key string, def bool) bool {
	v, ok := r.h.ExtBool(key)
	return v || !ok && def
}

// optBytes writes a field unless it is empty.
func (w *Writer) optBytes(key string, v []byte) {
	if len(v) > 0 {
		w.ExtBytes(key, v)
	}
}

func (w *Writer) optString(key, v string) { w.optBytes(key, stringBytes(v)) }

// SendRequest is the header of every send: SEND_MESSAGE (10) and
// SEND_REPLY_MESSAGE (324) with its long names, SEND_MESSAGE_V2 (310),
// SEND_BATCH_MESSAGE (320) and SEND_REPLY_MESSAGE_V2 (325) with one-letter
// names. The code of the Header, or of Begin, decides.
type SendRequest struct {
	ProducerGroup         []byte
	Topic                 []byte
	DefaultTopic          []byte // template topic for auto-creation, normally TBW102
	Properties            []byte // property string; nil if none
	BrokerName            []byte // optional
	BornTimestamp         int64  // ms since epoch
	DefaultTopicQueueNums int32
	QueueID               int32 // negative: the broker chooses
	SysFlag               int32
	Flag                  int32 // user flag
	ReconsumeTimes        int32 // 0 if missing
	MaxReconsumeTimes     int32 // -1: not given
	UnitMode              bool
	Batch                 bool // the body is a batch; the upstream broker looks here, not at the code
}

// sendNames are the long names of the fields a…n.
var sendNames = [...]string{
	"producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp",
	"flag", "properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes", "batch", "bname",
}

const sendRequired = 8 // a…h

func sendLongNames(code int32) bool { return code == ReqSendMessage || code == ReqSendReplyMessage }

// sendFields are the values of a send in the order of sendNames, and the first of
// them that is no number.
type sendFields struct {
	h   *Header
	v   [len(sendNames)]span
	bad int
	why string
}

func (f *sendFields) text(i int) []byte { return f.h.text(f.v[i]) }

func (f *sendFields) number(i, bits int) int64 {
	n, why := parseInt(f.text(i), bits)
	if why != "" && f.why == "" {
		f.bad, f.why = i, why
	}
	return n
}

func (f *sendFields) int32(i int) int32 {
	if v := f.v[i]; v.from > 0 && v.to == v.from+1 { // most of them
		if c := f.h.raw[v.from] - '0'; c <= 9 {
			return int32(c)
		}
	}
	return int32(f.number(i, 32))
}

// Decode takes the fields.
func (r *SendRequest) Decode(h *Header) error {
	f := sendFields{h: h}
	long := sendLongNames(h.Code)
	if long {
		for i, name := range sendNames {
			f.v[i] = h.find(name)
		}
	} else {
		for i := range f.v {
			f.v[i] = h.letter('a' + byte(i))
		}
	}
	for i := range sendRequired {
		if f.v[i].null() {
			return &FieldError{Code: h.Code, Field: sendKey(long, i), Reason: missing}
		}
	}
	r.ProducerGroup, r.Topic, r.DefaultTopic = f.text(0), f.text(1), f.text(2)
	r.Properties, r.BrokerName = f.text(8), f.text(13)
	r.DefaultTopicQueueNums, r.QueueID, r.SysFlag, r.Flag = f.int32(3), f.int32(4), f.int32(5), f.int32(7)
	r.BornTimestamp = f.number(6, 64)
	r.ReconsumeTimes, r.MaxReconsumeTimes = 0, -1
	if !f.v[9].null() {
		r.ReconsumeTimes = f.int32(9)
	}
	if !f.v[11].null() {
		r.MaxReconsumeTimes = f.int32(11)
	}
	r.UnitMode, r.Batch = isTrue(f.text(10)), isTrue(f.text(12))
	if f.why != "" {
		return &FieldError{Code: h.Code, Field: sendKey(long, f.bad), Value: clip(f.text(f.bad)), Reason: f.why}
	}
	return nil
}

func parseInt32(b []byte) (int32, string) {
	n, why := parseInt(b, 32)
	return int32(n), why
}

func sendKey(long bool, n int) string {
	if long {
		return sendNames[n]
	}
	return "abcdefghijklmn"[n : n+1]
}

// Append writes the fields with the names that belong to the Writer's code.
func (r *SendRequest) Append(w *Writer) {
	l := sendLongNames(w.code)
	w.ExtBytes(sendKey(l, 0), r.ProducerGroup)
	w.ExtBytes(sendKey(l, 1), r.Topic)
	w.ExtBytes(sendKey(l, 2), r.DefaultTopic)
	w.ExtInt(sendKey(l, 3), int64(r.DefaultTopicQueueNums))
	w.ExtInt(sendKey(l, 4), int64(r.QueueID))
	w.ExtInt(sendKey(l, 5), int64(r.SysFlag))
	w.ExtInt(sendKey(l, 6), r.BornTimestamp)
	w.ExtInt(sendKey(l, 7), int64(r.Flag))
	w.optBytes(sendKey(l, 8), r.Properties)
	w.ExtInt(sendKey(l, 9), int64(r.ReconsumeTimes))
	w.ExtBool(sendKey(l, 10), r.UnitMode)
	if r.MaxReconsumeTimes >= 0 {
		w.ExtInt(sendKey(l, 11), int64(r.MaxReconsumeTimes))
	}
	w.ExtBool(sendKey(l, 12), r.Batch)
	w.optBytes(sendKey(l, 13), r.BrokerName)
}

// SendResponse is the header of the answer to a send. Java clients fail on an
// answer without ext fields and Go clients take a missing TRACE_ON for off, so
// Region and TraceOn are written always, the others only with a MsgID: leave it
// empty in error answers.
type SendResponse struct {
	MsgID         []byte // offset message id; of a batch several, joined by ','
	TransactionID []byte // unique id of the message, if known
	BatchUniqID   []byte
	RecallHandle  []byte
	Region        []byte // DefaultRegion if empty
	QueueOffset   int64
	QueueID       int32
	TraceOn       bool
}

// DefaultRegion is the region id of brokers that have none configured.
const DefaultRegion = "DefaultRegion"

// Decode takes the fields; of an error answer only Region and TraceOn are there.
func (r *SendResponse) Decode(h *Header) error {
	d := reader{h: h}
	*r = SendResponse{
		MsgID: d.opt("msgId"), TransactionID: d.opt("transactionId"), BatchUniqID: d.opt("batchUniqId"),
		RecallHandle: d.opt("recallHandle"), Region: d.opt("MSG_REGION"), TraceOn: d.bool("TRACE_ON", true),
	}
	if len(r.MsgID) > 0 {
		r.QueueID, r.QueueOffset = d.int32("queueId"), d.int64("queueOffset")
	}
	return d.err
}

// Append writes the fields.
func (r *SendResponse) Append(w *Writer) {
	if len(r.MsgID) > 0 {
		w.ExtInt("queueId", int64(r.QueueID))
		w.optBytes("transactionId", r.TransactionID)
		w.ExtBytes("msgId", r.MsgID)
		w.ExtInt("queueOffset", r.QueueOffset)
		w.optBytes("batchUniqId", r.BatchUniqID)
		w.optBytes("recallHandle", r.RecallHandle)
	}
	w.ExtBool("TRACE_ON", r.TraceOn)
	if len(r.Region) == 0 {
		w.Ext("MSG_REGION", DefaultRegion)
		return
	}
	w.ExtBytes("MSG_REGION", r.Region)
}

// PushReplyRequest is PUSH_REPLY_MESSAGE_TO_CLIENT (326), broker to requester.
type PushReplyRequest struct {
	SendRequest
	BornHost       []byte // ip:port
	StoreHost      []byte // ip:port
	StoreTimestamp int64  // ms since epoch
}

// Decode takes the fields.
func (r *PushReplyRequest) Decode(h *Header) error {
	d := reader{h: h}
	*r = PushReplyRequest{
		SendRequest: SendRequest{
			ProducerGroup: d.need("producerGroup"), Topic: d.need("topic"), DefaultTopic: d.need("defaultTopic"),
			DefaultTopicQueueNums: d.int32("defaultTopicQueueNums"), QueueID: d.int32("queueId"),
			SysFlag: d.int32("sysFlag"), BornTimestamp: d.int64("bornTimestamp"), Flag: d.int32("flag"),
			Properties: d.opt("properties"), ReconsumeTimes: d.optInt32("reconsumeTimes", 0),
			UnitMode: d.bool("unitMode", false), MaxReconsumeTimes: -1, BrokerName: d.opt("bname"),
		},
		BornHost: d.need("bornHost"), StoreHost: d.need("storeHost"), StoreTimestamp: d.int64("storeTimestamp"),
	}
	return d.err
}

// Append writes the fields.
func (r *PushReplyRequest) Append(w *Writer) {
	w.ExtBytes("producerGroup", r.ProducerGroup)
	w.ExtBytes("topic", r.Topic)
	w.ExtBytes("defaultTopic", r.DefaultTopic)
	w.ExtInt("defaultTopicQueueNums", int64(r.DefaultTopicQueueNums))
	w.ExtInt("queueId", int64(r.QueueID))
	w.ExtInt("sysFlag", int64(r.SysFlag))
	w.ExtInt("bornTimestamp", r.BornTimestamp)
	w.ExtInt("flag", int64(r.Flag))
	w.optBytes("properties", r.Properties)
	w.ExtInt("reconsumeTimes", int64(r.ReconsumeTimes))
	w.ExtBool("unitMode", r.UnitMode)
	w.optBytes("bname", r.BrokerName)
	w.ExtBytes("bornHost", r.BornHost)
	w.ExtBytes("storeHost", r.StoreHost)
	w.ExtInt("storeTimestamp", r.StoreTimestamp)
}
