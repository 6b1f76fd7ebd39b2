package storagewire

import (
	"fmt"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
	"github.com/hardpointmq/hardpoint/sdk/wire/pluginpb"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire/storagepb"
)

// The stream Data says what the frames of the data sockets say, for plugins that
// have none. Both halves keep to the frames: at the host's end a translator stands
// between the store's two connections and the stream ([hostStream]), at the
// plugin's one between the stream and those of the instance ([pluginStream]). So
// order, events, cancellation and marks are those of the sockets, and the decoders
// of the frames check what came.

// streamSlack is what a message may take beside the records of a frame.
const streamSlack = 64 << 20

// maxStream bounds a message of the stream in bytes.
const maxStream = data.MaxFrame + streamSlack

// asked is a call under way, as its answer has to be read.
type asked struct {
	kind    data.Kind
	topic   string                // of Read
	queries []storage.OffsetQuery // of Offsets
}

// onLog tells whether calls of a kind change the log.
func onLog(k data.Kind) bool { return k <= kindDrop }

func toUnits(units []message.Unit) []*storagepb.Unit {
	all, queues := make([]storagepb.Unit, len(units)), make([]storagepb.Queue, len(units))
	out := make([]*storagepb.Unit, len(units))
	for i := range units {
		u, q, x := &units[i], &queues[i], &all[i]
		q.Topic, q.Id = u.Queue.Topic, u.Queue.ID
		x.Queue, x.At, x.Size, x.Offset = q, int64(u.At), u.Size, u.Offset
		x.TagsCode, x.StoreTime = u.TagsCode, u.StoreTime
		out[i] = x
	}
	return out
}

func fromUnits(units []*storagepb.Unit) []message.Unit {
	out := make([]message.Unit, 0, len(units))
	for _, u := range units {
		out = append(out, message.Unit{
			Queue: fromQueue(u.GetQueue()), At: message.Position(u.GetAt()), Size: u.GetSize(), Offset: u.GetOffset(),
			TagsCode: u.GetTagsCode(), StoreTime: u.GetStoreTime(),
		})
	}
	return out
}

func toQueue(q message.Queue) *storagepb.Queue { return &storagepb.Queue{Topic: q.Topic, Id: q.ID} }

func fromQueue(q *storagepb.Queue) message.Queue {
	return message.Queue{Topic: q.GetTopic(), ID: q.GetId()}
}

func toLimit(l storage.Limit) *storagepb.Limit {
	return &storagepb.Limit{Count: l.Count, Bytes: l.Bytes}
}

func fromLimit(l *storagepb.Limit) storage.Limit {
	return storage.Limit{Count: l.GetCount(), Bytes: l.GetBytes()}
}

func toAppend(b *storage.Batch) *storagepb.Append {
	out := &storagepb.Append{
		Term: b.Term, At: int64(b.At), Records: b.Buf, Units: toUnits(b.Units),
		Keys: make([]*storagepb.Key, len(b.Keys)), Groups: make([]*storagepb.Group, len(b.Groups)),
	}
	// One piece of memory for all of a kind: there are thousands of them.
	keys, groups := make([]storagepb.Key, len(b.Keys)), make([]storagepb.Group, len(b.Groups))
	for i := range b.Keys {
		k, x := &b.Keys[i], &keys[i]
		x.Hash, x.At, x.StoreTime = k.Hash, int64(k.At), k.StoreTime
		out.Keys[i] = x
	}
	for i := range b.Groups {
		g, x := &b.Groups[i], &groups[i]
		x.Bytes, x.Units, x.Keys, x.NoWait, x.Edge = g.Len, g.Units, g.Keys, g.NoWait, g.Edge
		out.Groups[i] = x
	}
	return out
}

func fromAppend(a *storagepb.Append) storage.Batch {
	b := storage.Batch{Term: a.GetTerm(), At: message.Position(a.GetAt()), Buf: a.GetRecords(), Units: fromUnits(a.GetUnits())}
	for _, k := range a.GetKeys() {
		b.Keys = append(b.Keys, message.Key{Hash: k.GetHash(), At: message.Position(k.GetAt()), StoreTime: k.GetStoreTime()})
	}
	for _, g := range a.GetGroups() {
		b.Groups = append(b.Groups, storage.Group{Len: g.GetBytes(), Units: g.GetUnits(), Keys: g.GetKeys(), NoWait: g.GetNoWait(), Edge: g.GetEdge()})
	}
	return b
}

// toRequest makes a message of a frame of the host; a is how its answer is read.
// What it returns aliases body.
func toRequest(h *data.Head, body []byte, topics *data.TopicReader) (r *storagepb.DataRequest, a asked, err error) {
	r = &storagepb.DataRequest{Id: h.ID, Timeout: h.Timeout}
	a.kind = h.Kind
	d := data.Decoder{B: body}
	switch h.Kind {
	case kindAppend:
		var b storage.Batch
		if err := data.ReadBatch(body, topics, &b); err != nil {
			return nil, a, err
		}
		r.Call = &storagepb.DataRequest_Append{Append: toAppend(&b)}
		return r, a, nil
	case kindPublish:
		r.Call = &storagepb.DataRequest_Publish{Publish: &storagepb.Publish{UpTo: d.Int()}}
	case kindTruncate:
		r.Call = &storagepb.DataRequest_Truncate{Truncate: &storagepb.Truncate{At: d.Int()}}
	case kindExpire:
		r.Call = &storagepb.DataRequest_Expire{Expire: &storagepb.Expire{First: d.Int()}}
	case kindSync:
		r.Call = &storagepb.DataRequest_Sync{Sync: &storagepb.Sync{End: d.Int()}}
	case kindReset:
		x := &storagepb.Reset{First: d.Int()}
		for _, u := range data.ReadEnds(&d) {
			x.Ends = append(x.Ends, &storagepb.QueueEnd{Queue: toQueue(u.Queue), Offset: u.Offset})
		}
		r.Call = &storagepb.DataRequest_Reset_{Reset_: x}
	case kindDrop:
		x := &storagepb.Drop{}
		for _, u := range data.ReadEnds(&d) {
			x.Queues = append(x.Queues, toQueue(u.Queue))
		}
		r.Call = &storagepb.DataRequest_Drop{Drop: x}
	case kindReadLog:
		r.Call = &storagepb.DataRequest_ReadLog{ReadLog: &storagepb.ReadLog{From: d.Int(), Most: min(d.Int(), data.MaxFrame/2)}}
	case kindCancel:
		// Its head has no deadline, but says which connection the call is on.
		r.Call = &storagepb.DataRequest_Cancel{Cancel: &storagepb.Cancel{ChangesLog: h.Timeout > 0}}
		r.Timeout = 0
	default:
		return toReadRequest(h, body, r)
	}
	return r, a, d.Done("a call")
}

// toReadRequest is toRequest for the calls with decoders of their own.
func toReadRequest(h *data.Head, body []byte, r *storagepb.DataRequest) (_ *storagepb.DataRequest, a asked, err error) {
	a.kind = h.Kind
	switch h.Kind {
	case kindRead:
		var q storage.ReadRequest
		err = readReadRequest(body, &q)
		a.topic = q.Queue.Topic
		r.Call = &storagepb.DataRequest_Read{Read: &storagepb.Read{
			Queue: toQueue(q.Queue), Offset: q.Offset, Hot: toLimit(q.Hot), Cold: toLimit(q.Cold), Scan: q.Scan, Tags: q.Tags,
		}}
	case kindGet:
		var at []message.Position
		at, err = readPositions(body, nil)
		x := &storagepb.Get{}
		for _, p := range at {
			x.At = append(x.At, int64(p))
		}
		r.Call = &storagepb.DataRequest_Get{Get: x}
	case kindOffsets:
		a.queries, err = readQueries(body, nil)
		x := &storagepb.Offsets{}
		for i := range a.queries {
			q := &a.queries[i]
			x.Queries = append(x.Queries, &storagepb.OffsetQuery{Queue: toQueue(q.Queue), Kind: storagepb.OffsetKind(q.Kind), Time: q.Time})
		}
		r.Call = &storagepb.DataRequest_Offsets{Offsets: x}
	default:
		err = fmt.Errorf("%w: kind %d is no request", data.ErrFrame, h.Kind)
	}
	return r, a, err
}

// putRequest appends the frame of a message of the host.
func putRequest(b []byte, r *storagepb.DataRequest, topics *data.TopicWriter) (_ []byte, a asked, err error) {
	start, tail, timeout := len(b), []byte(nil), r.GetTimeout()
	b = data.Begin(b)
	switch c := r.GetCall().(type) {
	case *storagepb.DataRequest_Append:
		x := fromAppend(c.Append)
		a.kind, tail = kindAppend, x.Buf
		b = data.PutBatch(b, topics, &x)
	case *storagepb.DataRequest_Publish:
		a.kind, b = kindPublish, data.PutInt(b, c.Publish.GetUpTo())
	case *storagepb.DataRequest_Truncate:
		a.kind, b = kindTruncate, data.PutInt(b, c.Truncate.GetAt())
	case *storagepb.DataRequest_Expire:
		a.kind, b = kindExpire, data.PutInt(b, c.Expire.GetFirst())
	case *storagepb.DataRequest_Sync:
		a.kind, b = kindSync, data.PutInt(b, c.Sync.GetEnd())
	case *storagepb.DataRequest_Reset_:
		ends := make([]message.Unit, 0, len(c.Reset_.GetEnds()))
		for _, e := range c.Reset_.GetEnds() {
			ends = append(ends, message.Unit{Queue: fromQueue(e.GetQueue()), Offset: e.GetOffset()})
		}
		a.kind, b = kindReset, data.PutEnds(data.PutInt(b, c.Reset_.GetFirst()), ends)
	case *storagepb.DataRequest_Drop:
		ends := make([]message.Unit, 0, len(c.Drop.GetQueues()))
		for _, q := range c.Drop.GetQueues() {
			ends = append(ends, message.Unit{Queue: fromQueue(q)})
		}
		a.kind, b = kindDrop, data.PutEnds(b, ends)
	case *storagepb.DataRequest_ReadLog:
		a.kind, b = kindReadLog, data.PutInt(data.PutInt(b, c.ReadLog.GetFrom()), c.ReadLog.GetMost())
	case *storagepb.DataRequest_Read:
		q := storage.ReadRequest{
			Queue: fromQueue(c.Read.GetQueue()), Offset: c.Read.GetOffset(), Hot: fromLimit(c.Read.GetHot()), Cold: fromLimit(c.Read.GetCold()),
			Scan: c.Read.GetScan(), Tags: c.Read.GetTags(),
		}
		a.kind, a.topic, b = kindRead, q.Queue.Topic, putReadRequest(b, &q)
	case *storagepb.DataRequest_Get:
		at := make([]message.Position, 0, len(c.Get.GetAt()))
		for _, p := range c.Get.GetAt() {
			at = append(at, message.Position(p))
		}
		a.kind, b = kindGet, putPositions(b, at)
	case *storagepb.DataRequest_Offsets:
		for _, q := range c.Offsets.GetQueries() {
			a.queries = append(a.queries, storage.OffsetQuery{Queue: fromQueue(q.GetQueue()), Kind: storage.OffsetKind(q.GetKind()), Time: q.GetTime()})
		}
		a.kind, b = kindOffsets, putQueries(b, a.queries)
	case *storagepb.DataRequest_Cancel:
		if a.kind = kindCancel; c.Cancel.GetChangesLog() {
			timeout = 1
		}
	default:
		return nil, a, fmt.Errorf("%w: a request of the type %T", data.ErrFrame, c)
	}
	data.Finish(b, start, a.kind, r.GetId(), timeout, len(tail))
	return append(b, tail...), a, nil
}

func toMarks(m *marks) *storagepb.Marks {
	return &storagepb.Marks{
		Version: m.version, First: int64(m.first), Published: int64(m.published), Durable: int64(m.durable), Tail: int64(m.tail),
		LastStoreTime: m.lastStoreTime, Damaged: int32(m.damaged),
	}
}

func fromMarks(m *storagepb.Marks) marks {
	return marks{
		version: m.GetVersion(), first: message.Position(m.GetFirst()), published: message.Position(m.GetPublished()),
		durable: message.Position(m.GetDurable()), tail: message.Position(m.GetTail()),
		lastStoreTime: m.GetLastStoreTime(), damaged: int(max(m.GetDamaged(), 0)),
	}
}

// toAnswer makes a message of a frame of the plugin that answers a. What it
// returns aliases body.
func toAnswer(h *data.Head, body []byte, a *asked) (*storagepb.DataResponse, error) {
	r := &storagepb.DataResponse{Id: h.ID}
	switch {
	case h.Kind == kindFailed:
		err, bad := data.ReadFailure(body)
		r.Failure = wire.ToFailure(err)
		return r, bad
	case h.Kind != kindDone:
		return nil, fmt.Errorf("%w: kind %d is no answer", data.ErrFrame, h.Kind)
	case a.kind <= kindSync:
		o, err := readOutcome(body)
		r.Failure = wire.ToFailure(o.err)
		r.Answer = &storagepb.DataResponse_Done{Done: &storagepb.Done{Marks: toMarks(&o.marks), Event: o.own, Published: int64(o.upTo)}}
		return r, err
	case a.kind == kindOffsets:
		var x storage.OffsetAnswers
		err := readAnswers(body, a.queries, &x)
		out := &storagepb.Ends{Published: int64(x.Published)}
		for i := range x.Answers {
			e := &x.Answers[i]
			out.Answers = append(out.Answers, &storagepb.QueueEnds{Queue: toQueue(e.Queue), Known: e.Known, Min: e.Min, Max: e.Max, Offset: e.Offset})
		}
		r.Answer = &storagepb.DataResponse_Ends{Ends: out}
		return r, err
	}
	var c storage.Chunk
	err := readChunk(body, a.topic, &c)
	out := &storagepb.Chunk{
		Status: storagepb.ReadStatus(c.Status), Next: c.Next, Min: c.Min, Max: c.Max, Cold: c.Cold, Skipped: c.Skipped, Units: toUnits(c.Units),
	}
	if len(c.Frags) > 0 {
		out.Records = c.Frags[0]
	}
	r.Answer = &storagepb.DataResponse_Chunk{Chunk: out}
	return r, err
}

// putAnswer appends the frame of a message of the plugin that answers a.
func putAnswer(b []byte, r *storagepb.DataResponse, a *asked) ([]byte, error) {
	start, k, tail := len(b), kindDone, []byte(nil)
	b = data.Begin(b)
	chunk, ends := r.GetChunk(), r.GetEnds()
	switch {
	case a.kind <= kindSync && (r.GetDone() != nil || r.GetFailure() != nil):
		d := r.GetDone()
		b = putOutcome(b, &outcome{marks: fromMarks(d.GetMarks()), own: d.GetEvent(), upTo: message.Position(d.GetPublished())})
		if f := r.GetFailure(); f != nil {
			b = putFailure(b, f)
		}
	case r.GetFailure() != nil:
		k, b = kindFailed, putFailure(b, r.GetFailure())
	case a.kind == kindOffsets && ends != nil:
		x := storage.OffsetAnswers{Published: message.Position(ends.GetPublished())}
		for _, e := range ends.GetAnswers() {
			x.Answers = append(x.Answers, storage.OffsetAnswer{Queue: fromQueue(e.GetQueue()), Known: e.GetKnown(), Min: e.GetMin(), Max: e.GetMax(), Offset: e.GetOffset()})
		}
		b = putAnswers(b, len(a.queries) == 0, &x)
	case a.kind > kindSync && a.kind < kindOffsets && chunk != nil:
		c := storage.Chunk{
			Status: storage.ReadStatus(chunk.GetStatus()), Next: chunk.GetNext(), Min: chunk.GetMin(), Max: chunk.GetMax(),
			Cold: chunk.GetCold(), Skipped: chunk.GetSkipped(), Units: fromUnits(chunk.GetUnits()),
		}
		b, tail = putChunk(b, a.topic, &c), chunk.GetRecords()
	default:
		return nil, fmt.Errorf("%w: the answer %T to call %d, which is of kind %d", data.ErrFrame, r.GetAnswer(), r.GetId(), a.kind)
	}
	if len(b)-start-data.HeadSize+len(tail) > data.MaxFrame {
		return nil, fmt.Errorf("%w: an answer of %d bytes, at most %d are allowed", data.ErrFrame, len(tail), data.MaxFrame)
	}
	data.Finish(b, start, k, r.GetId(), 0, len(tail))
	return append(b, tail...), nil
}

// putFailure appends a Failure that is one for the reader of the frame, too: it
// has a text.
func putFailure(b []byte, f *pluginpb.Failure) []byte {
	return data.PutFailure(b, wire.FromFailure(f))
}

// toEvent makes a message of a frame; call is the one that it belongs to, or 0.
func toEvent(h *data.Head, body []byte, call uint64) (*storagepb.DataResponse, error) {
	e, err := readEvent(body)
	if err != nil {
		return nil, err
	}
	x := &storagepb.Event{Marks: toMarks(&e.marks), Number: h.ID}
	switch e.kind {
	case eventPublished:
		x.What = &storagepb.Event_Published{Published: &storagepb.Published{UpTo: int64(e.at), Units: toUnits(e.units)}}
	case eventTruncated:
		x.What = &storagepb.Event_Truncated{Truncated: int64(e.at)}
	case eventExpired:
		x.What = &storagepb.Event_Expired{Expired: int64(e.at)}
	case eventFailed:
		x.What = &storagepb.Event_Failed{Failed: wire.ToFailure(e.err)}
	}
	return &storagepb.DataResponse{Id: call, Answer: &storagepb.DataResponse_Event{Event: x}}, nil
}

// putEventOf appends the frame of an event.
func putEventOf(b []byte, x *storagepb.Event) ([]byte, error) {
	e := event{marks: fromMarks(x.GetMarks())}
	switch w := x.GetWhat().(type) {
	case *storagepb.Event_Published:
		e.kind, e.at, e.units = eventPublished, message.Position(w.Published.GetUpTo()), fromUnits(w.Published.GetUnits())
	case *storagepb.Event_Truncated:
		e.kind, e.at = eventTruncated, message.Position(w.Truncated)
	case *storagepb.Event_Expired:
		e.kind, e.at = eventExpired, message.Position(w.Expired)
	case *storagepb.Event_Failed:
		if e.kind, e.err = eventFailed, wire.FromFailure(w.Failed); e.err == nil {
			return nil, fmt.Errorf("%w: a failure that is none", data.ErrFrame)
		}
	default:
		return nil, fmt.Errorf("%w: an event of the type %T", data.ErrFrame, w)
	}
	start := len(b)
	b = putEvent(data.Begin(b), &e)
	data.Finish(b, start, kindEvent, x.GetNumber(), 0, 0)
	return b, nil
}
