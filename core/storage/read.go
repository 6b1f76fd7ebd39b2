package storage

import (
	"context"

	"github.com/hardpointmq/hardpoint/core/message"
)

// Limit bounds what one Read gathers. Zero: no bound.
type Limit struct {
	Count int32
	Bytes int32
}

// ReadRequest asks for records of a queue.
type ReadRequest struct {
	Queue message.Queue
	// Offset is the first queue offset wanted.
	Offset int64
	// Hot bounds the answer while the records are in memory, Cold once one is
	// not. The count is checked before a record is added, the bytes with it;
	// the first record is always returned, whatever its size.
	Hot, Cold Limit
	// Scan bounds the units looked at when Tags filter; 0: no bound.
	Scan int32
	// Tags, when not empty, lets only units through whose TagsCode is among
	// them, sorted ascending. Hashes collide: the caller checks the text.
	Tags []int64

	_ struct{}
}

// ReadStatus is the outcome of a Read: RocketMQ's GetMessageStatus.
type ReadStatus uint8

const (
	// Found: there are records.
	Found ReadStatus = iota
	// NoMatchedMessage: units were looked at, none matched; go on at Next.
	NoMatchedMessage
	// MessageWasRemoving: the record is gone while its unit is still there.
	MessageWasRemoving
	// OffsetFoundNull: a gap in the index; go on at Next.
	OffsetFoundNull
	// OffsetOverflowBadly: Offset > Max.
	OffsetOverflowBadly
	// OffsetOverflowOne: Offset == Max, nothing new yet.
	OffsetOverflowOne
	// OffsetTooSmall: Offset < Min.
	OffsetTooSmall
	// NoMatchedLogicQueue: the queue was never written.
	NoMatchedLogicQueue
	// NoMessageInQueue: the queue exists and is empty from its beginning.
	NoMessageInQueue
	// OffsetReset is the engine's: a reset of the group's offset is pending.
	OffsetReset
)

var readStatusNames = [...]string{
	"FOUND", "NO_MATCHED_MESSAGE", "MESSAGE_WAS_REMOVING", "OFFSET_FOUND_NULL",
	"OFFSET_OVERFLOW_BADLY", "OFFSET_OVERFLOW_ONE", "OFFSET_TOO_SMALL",
	"NO_MATCHED_LOGIC_QUEUE", "NO_MESSAGE_IN_QUEUE", "OFFSET_RESET",
}

// String gives RocketMQ's name; clients show it.
func (s ReadStatus) String() string {
	if int(s) < len(readStatusNames) {
		return readStatusNames[s]
	}
	return "UNKNOWN"
}

// Chunk is an answer with records. It is the caller's and reused: a store
// truncates Frags and Units and appends to them, so that a steady reader
// allocates nothing.
type Chunk struct {
	// Frags hold the records; their concatenation is the records of Units in
	// order, and no record is split. Lent until Release.
	Frags [][]byte
	// Units are those of the records.
	Units  []message.Unit
	Status ReadStatus
	// Next is the queue offset to go on with; for ReadLog the position.
	Next int64
	// Min and Max are the ends of the queue, in one view with the records.
	Min, Max int64
	// Cold: something was not resident in memory.
	Cold bool
	// Skipped counts units passed over because their records are damaged.
	Skipped int32

	// Lease is the store's, for Release; callers leave it alone.
	Lease Lease
}

// Lease is how a store takes back what it lent. Returning an interface to a
// pooled value keeps Release free of allocations.
type Lease interface{ Release() }

// Release gives back what the store lent; legal twice and on a zero Chunk.
func (c *Chunk) Release() {
	l := c.Lease
	c.Lease = nil
	if l != nil {
		l.Release()
	}
}

// Records calls yield with the bytes of each record and the index of its unit, in
// order, until it returns false; units without bytes (Get) are passed over. It
// ends early when Frags hold fewer bytes than the units say, which no store that
// passes the suite does. It is made for range.
func (c *Chunk) Records(yield func(i int, rec []byte) bool) {
	frag, rest := 0, []byte(nil)
	for i := range c.Units {
		n := int(c.Units[i].Size)
		if n == 0 {
			continue
		}
		for len(rest) == 0 && frag < len(c.Frags) {
			rest = c.Frags[frag]
			frag++
		}
		if n < 0 || n > len(rest) {
			return
		}
		if !yield(i, rest[:n:n]) {
			return
		}
		rest = rest[n:]
	}
}

// Reset releases c and empties it for the next call, keeping its capacity.
func (c *Chunk) Reset() {
	c.Release()
	*c = Chunk{Frags: c.Frags[:0], Units: c.Units[:0]}
}

// OffsetKind is what an OffsetQuery asks for.
type OffsetKind uint8

const (
	// Ends asks for the first and the next offset of the queue.
	Ends OffsetKind = iota
	// FirstAt asks for the first offset whose store time is ≥ Time, Max when
	// there is none (boundary LOWER).
	FirstAt
	// LastAt asks for the last offset whose store time is ≤ Time, Min when
	// there is none (boundary UPPER).
	LastAt
)

// OffsetQuery asks about one queue.
type OffsetQuery struct {
	Queue message.Queue
	Kind  OffsetKind
	// Time is in ms.
	Time int64
}

// OffsetAnswer is about one queue.
type OffsetAnswer struct {
	Queue message.Queue
	// Known: the queue was written once.
	Known bool
	// Min is the first offset still there, Max the next one to be given;
	// Min ≤ Max. Both survive the expiry of all of the queue's records.
	Min, Max int64
	// Offset answers FirstAt and LastAt, within [Min, Max].
	Offset int64
}

// OffsetAnswers is the caller's and reused. Answers are in the order of the
// queries; for no query, all queues in any order.
type OffsetAnswers struct {
	Answers []OffsetAnswer
	// Published is the position up to which the answers are true.
	Published message.Position
}

// KeyQuery asks the key index. From and To are store times in ms, inclusive.
type KeyQuery struct {
	Topic, Key string
	From, To   int64
	// Max bounds the answer.
	Max int32

	_ struct{}
}

// KeyIndex finds records by key. Candidates come newest first; hashes collide,
// so the caller reads the records and checks. Nothing above published is shown.
type KeyIndex interface {
	// Find appends to at[:0] and returns it; at is the caller's. It may read from
	// the disk. Errors: ErrNotRunning, ctx's, *CorruptError, I/O errors.
	Find(ctx context.Context, q KeyQuery, at []message.Position) ([]message.Position, error)
}
