package kernel

import (
	"context"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// Holder is a behaviour that may still need what retention is about to drop: a
// message that is due later, an open transaction, what a replica is behind. It
// rolls forward what it needs (writes it anew, at the end of the log), or it holds
// back: it says from where on it needs the log.
type Holder struct {
	// Name is for people: the log and the metrics name who holds back.
	Name string
	// Always: it is never passed over. That is for what a log cannot be without.
	// Others are passed over after expiryHoldMost, and when the disk is so full that
	// segments are deleted before their time.
	Always bool
	// Ask is called before segments are dropped, by one goroutine at a time, again
	// and again while it holds back. It may write to the journal, and block until ctx
	// ends, which is after 5 s; what takes longer is done in steps, one a call. With
	// an error, or while it has not returned, everything is held back.
	Ask func(ctx context.Context, e Expiry) (Hold, error)
}

// Expiry is what is about to go.
type Expiry struct {
	// First: everything below goes; an edge of a segment.
	First message.Position
	// Segments are those of the log, in order; not to be changed.
	Segments []storage.Segment
	// Leading: this node leads and takes writes, so that records can be rolled
	// forward.
	Leading bool

	_ struct{}
}

// Hold is the answer of a Holder.
type Hold struct {
	// Back: something of what is about to go is needed; else the rest means nothing.
	Back bool
	// From is the first position that is needed.
	From message.Position
	// Why says for what, for people.
	Why string
}
