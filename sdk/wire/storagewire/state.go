package storagewire

import (
	"fmt"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire/storagepb"
)

// marks is the part of a State that changes with every write; it stands in every
// answer to a write and in every event, so that the host's State costs no call.
type marks struct {
	version                         uint64
	first, published, durable, tail message.Position
	lastStoreTime                   int64
	damaged                         int
}

func marksOf(version uint64, st *storage.State) marks {
	return marks{version, st.First, st.Published, st.Durable, st.Tail, st.LastStoreTime, len(st.Damaged)}
}

func putMarks(b []byte, m *marks) []byte {
	b = data.PutUint(b, m.version)
	b = data.PutInt(b, m.first)
	b = data.PutInt(b, m.published)
	b = data.PutInt(b, m.durable)
	b = data.PutInt(b, m.tail)
	b = data.PutInt(b, m.lastStoreTime)
	return data.PutUint(b, uint64(m.damaged))
}

func readMarks(d *data.Decoder) (m marks) {
	m.version = d.Uint()
	m.first, m.published = message.Position(d.Int()), message.Position(d.Int())
	m.durable, m.tail = message.Position(d.Int()), message.Position(d.Int())
	m.lastStoreTime = d.Int()
	m.damaged = int(d.Uint() & (1<<31 - 1))
	return m
}

// outcome answers a write and Sync. own, when not 0, is the number of an event:
// everything below upTo was published, and all of it since the last time came
// through this connection, so that the host has the units.
type outcome struct {
	marks marks
	own   uint64
	upTo  message.Position
	err   error
}

func putOutcome(b []byte, o *outcome) []byte {
	b = putMarks(b, &o.marks)
	b = data.PutUint(b, o.own)
	return data.PutFailure(data.PutInt(b, o.upTo), o.err)
}

func readOutcome(body []byte) (o outcome, err error) {
	d := data.Decoder{B: body}
	o.marks = readMarks(&d)
	o.own = d.Uint()
	o.upTo = message.Position(d.Int())
	if o.err, err = data.ReadFailure(d.B); err != nil {
		return o, err
	}
	d.B = nil
	return o, d.Done("an outcome")
}

// eventKind is one of storage.Events.
type eventKind uint8

const (
	eventPublished eventKind = iota + 1
	eventTruncated
	eventExpired
	eventFailed
)

// event is one that is sent as a frame of its own; the frame's id is its number.
type event struct {
	marks marks
	kind  eventKind
	at    message.Position
	units []message.Unit
	err   error
}

func putEvent(b []byte, e *event) []byte {
	b = putMarks(b, &e.marks)
	b = append(b, byte(e.kind))
	b = data.PutInt(b, e.at)
	return data.PutFailure(data.PutUnits(b, "", e.units), e.err)
}

func readEvent(body []byte) (e event, err error) {
	d := data.Decoder{B: body}
	e.marks = readMarks(&d)
	k := d.Uint()
	e.at = message.Position(d.Int())
	e.units = data.ReadUnits(&d, "", nil)
	if e.err, err = data.ReadFailure(d.B); err != nil {
		return e, err
	}
	d.B = nil
	if err := d.Done("an event"); err != nil {
		return e, err
	}
	if e.kind = eventKind(k); k < uint64(eventPublished) || k > uint64(eventFailed) || (e.kind == eventFailed) != (e.err != nil) {
		return e, fmt.Errorf("%w: event %d", data.ErrFrame, k)
	}
	return e, nil
}

func toState(version uint64, st *storage.State) *storagepb.LogState {
	out := &storagepb.LogState{
		Version: version, LogId: st.LogID, Segment: st.Segment,
		First: int64(st.First), Published: int64(st.Published), Durable: int64(st.Durable), Tail: int64(st.Tail),
		LastStoreTime: st.LastStoreTime,
	}
	for i := range st.Damaged {
		d := &st.Damaged[i]
		out.Damaged = append(out.Damaged, &storagepb.Damage{From: int64(d.From), To: int64(d.To), File: d.File, Reason: d.Reason})
	}
	return out
}

func fromState(s *storagepb.LogState) storage.State {
	st := storage.State{
		LogID: s.GetLogId(), Segment: s.GetSegment(),
		First: message.Position(s.GetFirst()), Published: message.Position(s.GetPublished()),
		Durable: message.Position(s.GetDurable()), Tail: message.Position(s.GetTail()),
		LastStoreTime: s.GetLastStoreTime(),
	}
	for _, d := range s.GetDamaged() {
		st.Damaged = append(st.Damaged, storage.Damage{
			From: message.Position(d.GetFrom()), To: message.Position(d.GetTo()), File: d.GetFile(), Reason: d.GetReason(),
		})
	}
	return st
}
