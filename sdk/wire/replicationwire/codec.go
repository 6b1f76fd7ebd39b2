package replicationwire

import (
	"fmt"
	"math"
	"time"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
)

// Kinds of frames; the package comment lists their bodies.
const (
	// To the plugin.
	kindStart data.Kind = iota + 1
	kindShutdown
	kindBarrier
	kindMembers
	kindAppend
	kindForget
	kindLogDone
	kindRoleDone
	// In both directions: of the call with the same id.
	kindCancel
	// To the host.
	kindDone
	kindOpened
	kindAssigned
	kindUndone
	kindMoved
	kindFreed
	kindStore
	kindWhole
	kindPublish
	kindTruncate
	kindReset
	kindOutcome
	kindRole
	kindOver
	kindStatus
	kindGone
	kindReopened
	// To the plugin.
	kindState

	kindLast = kindState
)

// roles are those of the two connections: turn and store.
const roles = "TS"

func putRole(b []byte, r *replication.Role) []byte {
	b = append(b, byte(r.Kind))
	b = data.PutUint(b, r.Term)
	b = data.PutString(b, r.Leader)
	b = data.PutBool(b, r.Foreign)
	return data.PutString(b, r.ReadOnly)
}

func readRole(d *data.Decoder) (r replication.Role) {
	k := d.Uint()
	if k > uint64(replication.RoleLearner) {
		d.Fault = true
	}
	r.Kind = replication.RoleKind(k)
	r.Term = d.Uint()
	r.Leader = string(d.Bytes())
	r.Foreign = d.Uint() != 0
	r.ReadOnly = string(d.Bytes())
	return r
}

func putStatus(b []byte, s *replication.Status) []byte {
	b = putRole(b, &s.Role)
	b = data.PutUint(b, uint64(len(s.Replicas)))
	for i := range s.Replicas {
		r := &s.Replicas[i]
		b = data.PutString(b, r.ID)
		b = data.PutInt(b, r.Acked)
		b = data.PutInt(b, r.Durable)
		at := int64(0)
		if !r.LastContact.IsZero() {
			at = r.LastContact.UnixNano()
		}
		b = data.PutInt(b, at)
		b = data.PutBool(b, r.InSync)
		b = data.PutString(b, r.Why)
	}
	return b
}

func readStatus(body []byte) (s replication.Status, err error) {
	d := data.Decoder{B: body}
	s.Role = readRole(&d)
	for range d.Count(6) {
		r := replication.Replica{ID: string(d.Bytes())}
		r.Acked, r.Durable = message.Position(d.Int()), message.Position(d.Int())
		if at := d.Int(); at != 0 {
			r.LastContact = time.Unix(0, at)
		}
		r.InSync = d.Uint() != 0
		r.Why = string(d.Bytes())
		s.Replicas = append(s.Replicas, r)
	}
	return s, d.Done("a status")
}

// putNexts carries the next offsets of queues.
func putNexts(b []byte, ends []storage.OffsetAnswer) []byte {
	b = data.PutUint(b, uint64(len(ends)))
	for i := range ends {
		b = data.PutString(b, ends[i].Queue.Topic)
		b = data.PutInt(b, ends[i].Queue.ID)
		b = data.PutInt(b, ends[i].Max)
	}
	return b
}

func readNexts(d *data.Decoder) (ends []storage.OffsetAnswer) {
	topic := ""
	for range d.Count(3) {
		if s := d.Bytes(); string(s) != topic {
			topic = string(s)
		}
		ends = append(ends, storage.OffsetAnswer{Queue: message.Queue{Topic: topic, ID: d.Int32()}, Known: true, Max: d.Int()})
	}
	return ends
}

// opened is what a Sequencer was opened with.
type opened struct {
	term          uint64
	segment       int64
	tail          message.Position
	lastStoreTime int64
	ends          []storage.OffsetAnswer
}

func putOpened(b []byte, o *opened) []byte {
	b = data.PutUint(b, o.term)
	b = data.PutInt(b, o.segment)
	b = data.PutInt(b, o.tail)
	b = data.PutInt(b, o.lastStoreTime)
	return putNexts(b, o.ends)
}

func readOpened(body []byte) (o opened, err error) {
	d := data.Decoder{B: body}
	o.term = d.Uint()
	o.segment, o.tail, o.lastStoreTime = d.Int(), message.Position(d.Int()), d.Int()
	o.ends = readNexts(&d)
	return o, d.Done("the beginning of an office")
}

// assigned is where a Pending was placed.
type assigned struct {
	lead    int
	last    int64
	at, end message.Position
}

func putAssigned(b []byte, a *assigned) []byte {
	b = data.PutInt(b, int64(a.lead))
	b = data.PutInt(b, a.last)
	b = data.PutInt(b, a.at)
	return data.PutInt(b, a.end)
}

func readAssigned(body []byte) (a assigned, err error) {
	d := data.Decoder{B: body}
	a.lead, a.last = int(d.Int32()), d.Int()
	a.at, a.end = message.Position(d.Int()), message.Position(d.Int())
	if a.lead < 0 {
		d.Fault = true
	}
	return a, d.Done("a placement")
}

// moved is what a Sequencer became by a Pending that is not the host's.
type moved struct {
	tail message.Position
	last int64
	ends []storage.OffsetAnswer
}

func putMoved(b []byte, m *moved) []byte {
	return putNexts(data.PutInt(data.PutInt(b, m.tail), m.last), m.ends)
}

func readMoved(body []byte) (m moved, err error) {
	d := data.Decoder{B: body}
	m.tail, m.last = message.Position(d.Int()), d.Int()
	m.ends = readNexts(&d)
	if m.tail < 0 {
		d.Fault = true
	}
	return m, d.Done("a placement")
}

// batchRef names a batch that the host has.
type batchRef struct {
	pending uint64
	n       int
	term    uint64
	at      message.Position
}

func putBatchRef(b []byte, r *batchRef) []byte {
	b = data.PutUint(b, r.pending)
	b = data.PutInt(b, int64(r.n))
	b = data.PutUint(b, r.term)
	return data.PutInt(b, r.at)
}

func readBatchRef(body []byte) (r batchRef, err error) {
	d := data.Decoder{B: body}
	r.pending, r.n, r.term, r.at = d.Uint(), int(d.Int32()), d.Uint(), message.Position(d.Int())
	return r, d.Done("the number of a batch")
}

// outcome is what became of some groups.
type outcome struct {
	from, to int
	o        replication.Outcome
	err      error
}

func putOutcome(b []byte, o *outcome) []byte {
	b = data.PutInt(b, int64(o.from))
	b = data.PutInt(b, int64(o.to))
	b = append(b, byte(o.o))
	return data.PutFailure(b, o.err)
}

func readOutcome(body []byte) (o outcome, err error) {
	d := data.Decoder{B: body}
	o.from, o.to = int(d.Int32()), int(d.Int32())
	k := d.Uint()
	if d.Fault || o.from < 0 || o.to <= o.from || k > uint64(replication.Unknown) {
		return o, fmt.Errorf("%w: outcome %d of the groups from %d to %d", data.ErrFrame, k, o.from, o.to)
	}
	o.o = replication.Outcome(k)
	o.err, err = data.ReadFailure(d.B)
	return o, err
}

// change is a call of the facet Members.
type change struct {
	op       uint64
	id, addr string
}

const (
	addLearner uint64 = iota
	promote
	remove
	transfer
	resign
)

func putChange(b []byte, c *change) []byte {
	return data.PutString(data.PutString(data.PutUint(b, c.op), c.id), c.addr)
}

func readChange(body []byte) (c change, err error) {
	d := data.Decoder{B: body}
	c.op, c.id, c.addr = d.Uint(), string(d.Bytes()), string(d.Bytes())
	if c.op > resign {
		d.Fault = true
	}
	return c, d.Done("a change of members")
}

func putQueue(b []byte, q message.Queue) []byte { return data.PutInt(data.PutString(b, q.Topic), q.ID) }

func readQueue(body []byte) (q message.Queue, err error) {
	d := data.Decoder{B: body}
	q.Topic, q.ID = string(d.Bytes()), d.Int32()
	return q, d.Done("a queue")
}

func readPosition(body []byte) (message.Position, error) {
	d := data.Decoder{B: body}
	at := message.Position(d.Int())
	return at, d.Done("a position")
}

func putUndone(b []byte, from int, rewind bool) []byte {
	return data.PutBool(data.PutInt(b, int64(from)), rewind)
}

func readUndone(body []byte) (from int, rewind bool, err error) {
	d := data.Decoder{B: body}
	from, rewind = int(d.Int32()), d.Uint() != 0
	if from < 0 {
		d.Fault = true
	}
	return from, rewind, d.Done("an undoing")
}

func readNumber(body []byte) (int, error) {
	d := data.Decoder{B: body}
	n := d.Uint()
	if n > math.MaxInt32 {
		d.Fault = true
	}
	return int(n), d.Done("a number")
}

// frame appends a whole frame.
func frame(b []byte, k data.Kind, id uint64, left int64, fill func([]byte) []byte) []byte {
	start := len(b)
	b = data.Begin(b)
	if fill != nil {
		b = fill(b)
	}
	data.Finish(b, start, k, id, left, 0)
	return b
}
