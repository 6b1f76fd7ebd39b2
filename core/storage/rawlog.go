package storage

import (
	"context"

	"github.com/hardpointmq/hardpoint/core/message"
)

// RawLog is the facet of stores whose log can be followed, published late and
// cut: what replication needs. Who may call what beside whom is in the package
// comment. Errors of all, beside those named: ErrNotRunning, ctx's; of those that
// change something ErrFailed and ErrFull.
type RawLog interface {
	// ReadLog fills c.Frags with log bytes from a position on, at most max
	// bytes, at least one when from < tail. Any position in [first, tail) is
	// legal, also inside a record. Blanks are synthesised: the bytes are those
	// that the reference format has on disk, zeros behind a blank's head. Bytes
	// above published are copies. c.Next is the position behind the bytes.
	// ErrGap when from is outside [first, tail]; nothing when from == tail.
	ReadLog(ctx context.Context, from message.Position, max int, c *Chunk) error

	// Publish makes everything below upTo visible; upTo is the end of a batch.
	// It is monotone: lower positions change nothing. Events.Published has
	// returned when Publish returns. The mark survives process death. After
	// power loss it may be an older one, so that Sync need not flush it beside
	// the log: who publishes does so again. ErrGap when upTo is above the tail.
	Publish(ctx context.Context, upTo message.Position) error

	// Truncate cuts the log at a record edge: everything from at on is gone,
	// durably, and no byte of it can be taken for a record later. Below the
	// published mark it undoes indexes and raises Events.Truncated. It waits
	// for leases, bounded by ctx. ErrGap when at is outside [first, tail] or no
	// record edge.
	Truncate(ctx context.Context, at message.Position) error

	// Reset makes the log empty, beginning at first, a segment edge; ends give
	// for each queue the next offset (Unit.Offset). Durable. When something was
	// published before it raises Events.Truncated with the lower one of the old
	// and the new first position: everything derived is void. ErrGap when first
	// is no edge.
	Reset(ctx context.Context, first message.Position, ends []message.Unit) error
}

// Segment describes one segment of the log.
type Segment struct {
	// At is the segment's edge.
	At message.Position
	// Bytes is what it takes on disk.
	Bytes int64
	// FirstStoreTime and LastStoreTime are in ms; 0 when it has no record.
	FirstStoreTime, LastStoreTime int64
	// Leases counts chunks that hold it.
	Leases int32
}

// Retention is the facet of stores that can drop what is old. The engine owns
// the policy. Without it the engine keeps a floor per queue. Errors of all:
// ErrNotRunning, ctx's; of Expire and Drop also ErrFailed and ErrFull, of Expire
// ErrGap for what is no edge or above published.
type Retention interface {
	// Segments lists the segments in log order.
	Segments(ctx context.Context) ([]Segment, error)
	// Expire drops whole segments below first, a segment edge ≤ published. The
	// ends of queues survive: Min moves, Max stays. It waits for leases,
	// bounded by ctx. Raises Events.Expired.
	Expire(ctx context.Context, first message.Position) error
	// Drop forgets queues and their ends; their records stay in the log until
	// they expire. A queue written again begins at 0.
	Drop(ctx context.Context, q []message.Queue) error
}
