package combine

import (
	"sync/atomic"
	"time"

	"github.com/hardpointmq/hardpoint/core/internal/spans"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// MaxRecords is the most records that one reservation may hold in a batch that
// is shared; more go into a batch of their own.
const MaxRecords = batchRecords

const (
	batchBytes   = 1 << 20
	batchRecords = 8192
	batchRuns    = 2048
	maxBatches   = 16
	largeBytes   = 64 << 20
)

// Ticket is what the answer of one group needs; the receiver decides what its
// fields mean.
type Ticket struct {
	Opaque int32
	Flags  uint16
	Kind   uint8
	// Began is when the request arrived.
	Began time.Duration
	// Span is that of the request; nil: it has none.
	Span *spans.Span
	// TextAt and TextLen point at bytes in the batch's Buf.
	TextAt, TextLen int32
	// Text is what is not in Buf.
	Text string
}

// Receiver answers the groups of one reservation.
type Receiver interface {
	// Answer is told the outcome of the groups [from, to) of b, all of one
	// reservation. scratch is for building the answer; the (grown) scratch is
	// returned. It may be called by any goroutine, for different groups at the
	// same time, and must not block.
	Answer(b *Batch, from, to int, o replication.Outcome, err error, scratch []byte) []byte
}

type run struct {
	to       Receiver
	first, n int32
}

// Batch is a Pending with what its answers need.
type Batch struct {
	storage.Pending
	Tickets []Ticket
	runs    []run
	writers atomic.Int32
	// told counts groups whose outcome the replicator told.
	told atomic.Int32
	// refs counts unanswered groups and batches that the store has not freed.
	refs  atomic.Int32
	large bool
	// counted is its part of large.bytes; images have none.
	counted int
}

// held is added to refs while the number of store batches is not settled.
const held = 1 << 30

func newBatch(q *Queue, bytes, records int, large bool) *Batch {
	b := &Batch{large: large}
	b.Buf = make([]byte, 0, bytes)
	b.Units = make([]message.Unit, 0, records)
	b.Keys = make([]message.Key, 0, 2*records)
	b.Groups = make([]storage.Group, 0, records)
	b.Batches = make([]storage.Batch, 0, 2)
	b.Tickets = make([]Ticket, 0, records)
	if large {
		b.runs = make([]run, 0, 1)
	} else {
		b.runs = make([]run, 0, batchRuns)
	}
	b.Owner = b
	b.Free = q.free
	return b
}

// Need is the exact size of what a reservation will hold.
type Need struct {
	Bytes, Units, Keys, Groups int
	// Epoch is [Queue.Epoch] from before the topics of the records were looked up; 0:
	// they have none that can be deleted.
	Epoch uint64
}

// fits reports whether b has room for n.
func (b *Batch) fits(n Need) bool {
	return len(b.Buf)+n.Bytes <= cap(b.Buf) && len(b.Units)+n.Units <= cap(b.Units) &&
		len(b.Keys)+n.Keys <= cap(b.Keys) && len(b.Groups)+n.Groups <= cap(b.Groups) &&
		len(b.runs) < cap(b.runs)
}

// Slot is a reservation: the caller appends exactly what it asked for, then
// calls Commit. It aliases the batch and is not shared.
type Slot struct {
	b *Batch
	// buf is the reserved room; off is where it begins in the batch's Buf.
	buf       []byte
	off, used int32
	units     []message.Unit
	unit0     int32
	keys      []message.Key
	key0      int32
	groups    []storage.Group
	tickets   []Ticket
}

func (b *Batch) reserve(n Need, to Receiver) Slot {
	off, u, k, g := len(b.Buf), len(b.Units), len(b.Keys), len(b.Groups)
	b.Buf = b.Buf[:off+n.Bytes]
	b.Units = b.Units[:u+n.Units]
	b.Keys = b.Keys[:k+n.Keys]
	b.Groups = b.Groups[:g+n.Groups]
	b.Tickets = b.Tickets[:g+n.Groups]
	b.runs = append(b.runs, run{to, int32(g), int32(n.Groups)})
	b.writers.Add(1)
	return Slot{
		b: b, buf: b.Buf[off : off+n.Bytes], off: int32(off),
		units: b.Units[u : u : u+n.Units], unit0: int32(u),
		keys: b.Keys[k : k : k+n.Keys], key0: int32(k),
		groups: b.Groups[g : g : g+n.Groups], tickets: b.Tickets[g : g : g+n.Groups],
	}
}

// Begin starts a group; Record adds to it, End closes it.
func (s *Slot) Begin() {
	s.groups = append(s.groups, storage.Group{
		Off: s.off + s.used, Unit: s.unit0 + int32(len(s.units)), Key: s.key0 + int32(len(s.keys)),
	})
}

// Record encodes a record into the open group and derives its units and keys.
// f holds the facts of r.Properties when they are known. It returns where in
// the batch's Buf the record begins, and its view, valid until the next call.
func (s *Slot) Record(r *message.Record, size int, d *message.Deriver, f *message.Facts, v *message.View) int32 {
	at := s.off + s.used
	r.Encode(s.buf[s.used:s.used+int32(size)], v)
	v.Position = message.Position(at)
	s.units, s.keys = d.Derive(v, f, s.units, s.keys)
	s.used += int32(size)
	g := &s.groups[len(s.groups)-1]
	g.Len += int32(size)
	return at
}

// End closes the open group with its ticket.
func (s *Slot) End(t Ticket, noWait, edge bool) {
	g := &s.groups[len(s.groups)-1]
	g.Units = s.unit0 + int32(len(s.units)) - g.Unit
	g.Keys = s.key0 + int32(len(s.keys)) - g.Key
	g.NoWait, g.Edge = noWait, edge
	s.tickets = append(s.tickets, t)
}

// Commit says that everything reserved is filled.
func (s *Slot) Commit() {
	if int(s.used) != len(s.buf) || len(s.units) != cap(s.units) || len(s.keys) != cap(s.keys) || len(s.groups) != cap(s.groups) {
		panic("combine: a reservation was not filled exactly")
	}
	s.b.writers.Add(-1)
}
