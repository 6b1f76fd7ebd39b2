package send

import (
	"errors"

	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/combine"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
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
		n := 0
		for i := from; i < to; i++ {
			n += int(b.Groups[i].Units)
			if t := &b.Tickets[i]; t.Flags&flagOneway == 0 {
				scratch = st.appendAnswer(scratch, b, i, t, code)
			}
		}
		st.s.sent.Add(uint64(n))
	}
	if len(scratch) > 0 {
		// A peer that is gone or too slow loses its answer; the message stays.
		_ = st.c.Peer.Send(command.Frame{Raw: scratch})
	}
	return scratch
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
func (st *connState) refuse(t *combine.Ticket, err error) {
	if t.Flags&flagOneway != 0 {
		return
	}
	_ = st.c.Peer.Send(command.Frame{Raw: st.appendError(nil, t, kernel.CodeOf(err), err.Error())})
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
