package storage

import (
	"context"
	"errors"
	"fmt"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
)

// Contract is the name and major version of this contract.
const Contract = "storage/1"

// Sentinels of the contract; test with errors.Is.
var (
	// ErrFull: there is no space. Nothing of the batch was kept.
	ErrFull = errors.New("storage is full")
	// ErrFenced: the batch is of an office that is over.
	ErrFenced = errors.New("storage is fenced by a newer term")
	// ErrReadOnly: the store takes no writes now; its text says why.
	ErrReadOnly = errors.New("storage is read-only")
	// ErrTooLarge: a record does not fit into a segment.
	ErrTooLarge = errors.New("record is too large for the log's segments")
	// ErrGap: At is neither the tail nor the next segment edge, or a position
	// is not in the log.
	ErrGap = errors.New("position does not continue the log")
	// ErrFailed: the store failed earlier and takes no writes until it is
	// opened again.
	ErrFailed = errors.New("storage has failed")
	// ErrIdentity: the directory holds another log, or one with another
	// segment size.
	ErrIdentity = errors.New("storage holds another log")
	// ErrNotRunning: the store is not started, or shut down.
	ErrNotRunning = errors.New("storage is not running")
	// ErrUnsupported: an argument that this store does not support.
	ErrUnsupported = errors.New("not supported by this storage")
)

// CorruptError says where bytes are damaged. Test with errors.As.
type CorruptError struct {
	// File is the file's path, or the name of the backend's part.
	File string
	// Offset is the byte in File at which the damage begins.
	Offset int64
	// Reason says what is wrong.
	Reason string
	Err    error
}

// Error implements error.
func (e *CorruptError) Error() string {
	s := fmt.Sprintf("corrupt data in %s at byte %d: %s", e.File, e.Offset, e.Reason)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap gives the cause.
func (e *CorruptError) Unwrap() error { return e.Err }

// Group is what is stored whole or not at all: a message, a client batch, a
// message with its progress record. It lies in one segment.
type Group struct {
	// Off and Len are the group's bytes in Buf; Buf holds the groups' records
	// back to back, in order.
	Off, Len int32
	// Unit and Units are its part of Units; Key and Keys of Keys.
	Unit, Units int32
	Key, Keys   int32
	// NoWait: the client does not wait for a flush or for replicas
	// (WAIT=false). It is answered after Publish all the same.
	NoWait bool
	// Edge: the group goes to the start of a segment; what remains of the
	// segment under way becomes a blank. Catalog images are placed so.
	Edge bool
}

// Batch is a run of placed and stamped records, groups of many connections, all
// in one segment.
type Batch struct {
	// Term is the office in which the caller acts. A store remembers the
	// highest term since Start and refuses lower ones with ErrFenced.
	Term uint64
	// At is the position of the first record: the tail, or the next segment
	// edge; then the store writes the blank that is implied.
	At message.Position
	// Buf holds the encoded records back to back; position, queue offset and
	// store time are filled in. Lent until Append returns.
	Buf []byte
	// Units has one element per record and queue it belongs to, in log order.
	// Lent, with Keys, until Free.
	Units []message.Unit
	// Keys are for the KeyIndex, in log order.
	Keys []message.Key
	// Groups tell the atomic parts, in order and without gaps; their indexes
	// are those of the Pending the batch was cut from, so subtract the first
	// group's to index Buf, Units and Keys ([Batch.GroupBytes]). Lent until
	// Append returns.
	Groups []Group
	// Free is called by the store exactly once when it needs Units and Keys no
	// more: after a failed Append, after publishing, after Truncate, in
	// Shutdown. It may be called inside Append. It must not block. Nil: no call.
	Free func(*Batch)

	// Owner is the caller's, not to be touched by stores.
	Owner any
}

// End is the position behind the batch's last byte.
func (b *Batch) End() message.Position { return b.At + message.Position(len(b.Buf)) }

// GroupBytes returns the bytes of group i.
func (b *Batch) GroupBytes(i int) []byte {
	off := b.Groups[i].Off - b.Groups[0].Off
	return b.Buf[off : off+b.Groups[i].Len]
}

// Done calls Free if there is one. Stores call it in place of Free.
func (b *Batch) Done() {
	if b.Free != nil {
		b.Free(b)
	}
}

// Damage is a range of the log that cannot be read: its bytes stay, reads skip
// them.
type Damage struct {
	// From and To bound the range.
	From, To message.Position
	File     string
	Reason   string
}

// State is what the log looks like at one moment.
type State struct {
	// LogID identifies the log; made when the log is, kept for ever.
	LogID string
	// Segment is the segment size in bytes.
	Segment int64
	// First is the first position still there, a segment edge.
	First message.Position
	// Published ≤ Tail: everything below Published is readable.
	Published message.Position
	// Durable ≤ Tail: everything below survives power loss.
	Durable message.Position
	// Tail is where the next record goes.
	Tail message.Position
	// LastStoreTime is the store time of the last record, ms; 0 for none.
	LastStoreTime int64
	// Damaged lists damage found at Start or since, in log order.
	Damaged []Damage
}

// Store is the storage contract; see the package comment for the order of
// calls, failure and concurrency.
type Store interface {
	plugin.Component

	// State is cheap and never blocks on I/O.
	State() State

	// Append writes b at b.At and returns when the bytes survive what
	// Capabilities().Survives says. With Publish == Immediate the batch is
	// published, and Events.Published has returned, when Append returns. A store does not look into the records,
	// but may rely on their layout when it rebuilds indexes.
	//
	// Errors: ErrFenced, ErrGap, ErrTooLarge, ErrReadOnly, ErrFull, ErrFailed,
	// ErrNotRunning; plugin.ErrUnavailable of a store that is a [Reopener]. With
	// any of them nothing of b is in the log; after ErrFailed and
	// ErrUnavailable that is unknown until the store is opened again.
	// Cancelling ctx does not undo what was begun.
	Append(ctx context.Context, b *Batch) error

	// Sync returns when everything below end survives power loss; it may make
	// more durable. After the first failure it is ErrFailed for ever, and
	// Events.Failed was called. ErrGap when end is above the tail.
	Sync(ctx context.Context, end message.Position) error

	// Read fills c with published records of a queue from an offset on. A
	// situation without records is a Status, not an error. Errors: ErrNotRunning,
	// *CorruptError only when nothing at all can be read, I/O errors.
	Read(ctx context.Context, r ReadRequest, c *Chunk) error

	// Get fills c with the published records at the given positions:
	// c.Units[i] is of at[i], with Size 0 (and no bytes in Frags) where no
	// published record begins. Queue and Offset may be left empty.
	Get(ctx context.Context, at []message.Position, c *Chunk) error

	// Offsets answers queries about the published ends of queues. No query at
	// all asks for the ends of all queues.
	Offsets(ctx context.Context, q []OffsetQuery, a *OffsetAnswers) error

	// Capabilities tells the facets; constant from Build to Shutdown.
	Capabilities() Capabilities
}

// PublishMode says when appended records become visible.
type PublishMode uint8

const (
	// Immediate: Append publishes.
	Immediate PublishMode = iota
	// Explicit: only RawLog.Publish does; needs the RawLog facet.
	Explicit
)

// String gives "immediate" or "explicit".
func (m PublishMode) String() string {
	if m == Explicit {
		return "explicit"
	}
	return "immediate"
}

// Params is what the host passes to a store.
type Params struct {
	plugin.Settings

	// Segment is the segment size in bytes; part of the log's identity.
	Segment int64
	// Publish says when records become visible.
	Publish PublishMode
	// Index is for stores that rebuild indexes from the log.
	Index message.IndexRules
	// Events is told what happened; any field may be nil.
	Events Events
	// LogID, when not empty, is the id that a new log gets, and that an
	// existing one must have. Empty: a new log gets a random one.
	LogID string

	_ struct{}
}

// Events is told what happened to the log, in log order, never two at once,
// with no lock of the store held. Arguments are lent for the call. Receivers
// must not block. Events of the time before Start returned are not delivered.
type Events struct {
	// Published: everything below upTo is indexed and readable; units are
	// those that became so since the last call.
	Published func(upTo message.Position, units []message.Unit)
	// Truncated: forget everything derived from above to.
	Truncated func(to message.Position)
	// Expired: first is the first position still there.
	Expired func(first message.Position)
	// Failed is called once, with the cause.
	Failed func(err error)
}

// Survival says what a returned Append survives without Sync.
type Survival uint8

const (
	// SurvivesNothing: a crash of the process may lose it.
	SurvivesNothing Survival = iota
	// SurvivesProcessDeath: kill -9 loses nothing, power loss may.
	SurvivesProcessDeath
)

// String gives "nothing" or "process death".
func (s Survival) String() string {
	if s == SurvivesProcessDeath {
		return "process death"
	}
	return "nothing"
}

// Capabilities are the optional abilities of a store. A nil field: not offered;
// never a typed nil.
type Capabilities struct {
	RawLog    RawLog
	Retention Retention
	KeyIndex  KeyIndex
	// Reopener is offered by what hosts a store, whatever the store is: no
	// plugin describes it, and Facets does not name it.
	Reopener Reopener
	// Survives is what a returned Append survives without Sync.
	Survives Survival
	// ExpiresBeside: Retention.Expire may be called while Append, Publish and the other
	// calls that change the log are: for stores in which it takes long. The store
	// orders them itself.
	ExpiresBeside bool
}

// Reopener is the facet of stores that can go away and are opened again by their
// host, as those in a process of their own are. Package comment, "Going away".
// Safe for concurrent use.
type Reopener interface {
	// Gone waits until the store has gone away and says why, as an error that
	// matches plugin.ErrUnavailable. It returns at once while Reopened is still
	// to be called for the last time that it went. Errors beside it:
	// ErrNotRunning after Shutdown, ctx's.
	Gone(ctx context.Context) error
	// Reopened waits until the store is back, and from its return on the store
	// takes writes again: the caller goes on from State and Offsets, and not from
	// what it knew. At once nil when the store has not gone.
	//
	// plugin.ErrUnavailable: it was tried in vain, the text says why; it is
	// tried again, and so may the caller. ErrFailed: the log that came back is
	// another or a shorter one, or the store had failed before; it stays so.
	// Others: ErrNotRunning after Shutdown, ctx's.
	Reopened(ctx context.Context) error
}

// Names of the facets in a plugin.Description.
const (
	FacetRawLog    = "RawLog"
	FacetRetention = "Retention"
	FacetKeyIndex  = "KeyIndex"
)

// Facets names the facets offered, sorted.
func (c Capabilities) Facets() []string {
	var out []string
	if c.KeyIndex != nil {
		out = append(out, FacetKeyIndex)
	}
	if c.RawLog != nil {
		out = append(out, FacetRawLog)
	}
	if c.Retention != nil {
		out = append(out, FacetRetention)
	}
	return out
}

// Factory makes stores.
type Factory = plugin.Factory[Params, Store]

// NewFactory declares a store plugin; describe fills Version, Facets and
// LargestRecord for a configuration.
func NewFactory[C any, S Store](
	name string,
	describe func(C) plugin.Description,
	newDefault func() C,
	newStore func(ctx context.Context, p Params, cfg C) (S, error),
) Factory {
	return plugin.NewFactory(name, Contract, describe, newDefault, newStore, func(s S) Store { return s })
}
