package send

import (
	"errors"

	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/combine"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/internal/stats"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/replication"
)

// codeOf maps outcomes that keep the message to their response codes.
func codeOf(o replication.Outcome) (code int32, stored bool) {
	switch o {
	case replication.Stored:
		return command.RespSuccess, true
	case replication.FlushDiskTimeout:
		return command.RespFlushDiskTimeout, true
	case replication.FlushReplicaTimeout:
		return command.RespFlushSlaveTimeout, true
	case replication.NoReplica:
		return command.RespSlaveNotAvailable, true
	default:
		return command.RespServiceNotAvailable, false
	}
}

// Answer implements combine.Receiver: the answers of one run in one write.
func (st *connState) Answer(b *combine.Batch, from, to int, o replication.Outcome, err error, scratch []byte) []byte {
	code, stored := codeOf(o)
	if !stored {
		text := whyNot(o, err)
		for i := from; i < to; i++ {
			if t := &b.Tickets[i]; t.Flags&flagOneway == 0 {
				scratch = st.appendError(scratch, t, code, text)
			}
		}
		st.s.refused.Add(uint64(to - from))
	} else {
		for i := from; i < to; i++ {
			if t := &b.Tickets[i]; t.Flags&flagOneway == 0 {
				scratch = st.appendAnswer(scratch, b, i, t, code)
			}
		}
		st.count(b, from, to)
		if st.s.k.Spans != nil {
			st.placed(b, from, to)
		}
	}
	err = nil
	if len(scratch) > 0 {
		// A peer that is gone or too slow loses its answer; the message stays.
		err = st.c.Peer.Send(command.Frame{Raw: scratch})
	}
	st.took(b.Tickets[from:to], code, err)
	return scratch
}

// count counts stored groups, those of one topic and kind in a row together.
func (st *connState) count(b *combine.Batch, from, to int) {
	var in stats.In
	sent := int64(0)
	for i := from; i < to; i++ {
		g, kind := &b.Groups[i], kindOf(b.Tickets[i].Flags)
		topic := b.Units[g.Unit].Queue.Topic
		in.Add(int64(g.Units), int64(g.Len))
		sent += int64(g.Units)
		if i+1 < to && b.Units[b.Groups[i+1].Unit].Queue.Topic == topic && kindOf(b.Tickets[i+1].Flags) == kind {
			continue
		}
		st.s.stats.Took(topic, kind, &in)
		in = stats.In{}
	}
	st.s.sent.Add(uint64(sent))
}

// placed tells the spans where their messages are.
func (st *connState) placed(b *combine.Batch, from, to int) {
	for i := from; i < to; i++ {
		if x := b.Tickets[i].Span; x != nil {
			u := &b.Units[b.Groups[i].Unit]
			x.Stored(string(message.AppendOffsetID(nil, st.s.k.StoreHost.Bytes(), u.At)), u.Offset)
		}
	}
}

func kindOf(flags uint16) stats.Kind {
	if flags&flagFIFO != 0 {
		return stats.FIFO
	}
	return stats.Normal
}

// took counts how long requests took that are answered alike.
func (st *connState) took(all []combine.Ticket, code int32, err error) {
	const alike = flagOneway | flagV1 | flagBatchCode
	now := st.s.k.Uptime()
	var took kernel.Latencies
	for i := range all {
		t := &all[i]
		took.Add(now - t.Began)
		if t.Span != nil {
			t.Span.End(command.ResponseName(code), code != command.RespSuccess)
			t.Span = nil
		}
		if i+1 < len(all) && all[i+1].Flags&alike == t.Flags&alike {
			continue
		}
		o := kernel.Outcome{Request: requestOf(t.Flags), Response: code}
		switch {
		case t.Flags&flagOneway != 0:
			o.Result = kernel.ResultOneway
		case err != nil:
			o.Result = kernel.ResultWriteFailed
		}
		st.s.k.Took(o, &took)
		took = kernel.Latencies{}
	}
}

// appendAnswer appends the whole frame that answers group i.
func (st *connState) appendAnswer(dst []byte, b *combine.Batch, i int, t *combine.Ticket, code int32) []byte {
	k := st.s.k
	g := &b.Groups[i]
	units := b.Units[g.Unit : g.Unit+g.Units]
	var idBuf [56]byte
	id := idBuf[:0]
	if t.Flags&flagBatch != 0 {
		id = make([]byte, 0, len(units)*57)
	}
	for j := range units {
		if j > 0 {
			id = append(id, ',')
		}
		id = message.AppendOffsetID(id, k.StoreHost.Bytes(), units[j].At)
	}
	r := command.SendResponse{MsgID: id, QueueID: units[0].Queue.ID, QueueOffset: units[0].Offset}
	if t.Text != "" {
		r.TransactionID = []byte(t.Text)
	} else if t.TextLen > 0 && t.Flags&flagBatch == 0 {
		r.TransactionID = b.Buf[t.TextAt : t.TextAt+t.TextLen]
	}
	if code == command.RespSuccess {
		return k.Config().SendForm.Append(dst, command.HeaderType(t.Kind), t.Opaque, &r)
	}
	r.Region, r.TraceOn = []byte(k.Config().Region), k.Config().TraceOn
	return appendFrame(dst, t, code, "", &r)
}

// appendError appends the whole frame of a refusal; Java and Go clients need
// the region and the trace switch on errors, too.
func (st *connState) appendError(dst []byte, t *combine.Ticket, code int32, text string) []byte {
	c := st.s.k.Config()
	return appendFrame(dst, t, code, text, &command.SendResponse{Region: []byte(c.Region), TraceOn: c.TraceOn})
}

func appendFrame(dst []byte, t *combine.Ticket, code int32, remark string, r *command.SendResponse) []byte {
	w := command.Begin(dst, command.HeaderType(t.Kind), code, t.Opaque, command.FlagResponse)
	w.Remark(remark)
	r.Append(&w)
	return w.End(0)
}

// refuse answers a request that is not ordered.
func (st *connState) refuse(t *combine.Ticket, why error) {
	var err error
	code := kernel.CodeOf(why)
	if t.Flags&flagOneway == 0 {
		err = st.c.Peer.Send(command.Frame{Raw: st.appendError(nil, t, code, why.Error())})
	}
	one := [1]combine.Ticket{*t}
	st.took(one[:], code, err)
}

// whyNot is the remark for a group that is not, or perhaps not, in the log.
func whyNot(o replication.Outcome, err error) string {
	text := "the message was not stored"
	if o == replication.Unknown {
		text = "it is unknown whether the message was stored"
	}
	if e := (*api.Error)(nil); errors.As(err, &e) {
		return text + ": " + e.Text
	}
	if err != nil {
		return text + ": " + err.Error()
	}
	return text
}
