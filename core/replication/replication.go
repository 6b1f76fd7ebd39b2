package replication

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// Contract is the name and major version of this contract.
const Contract = "replication/1"

// Sentinels of the contract; test with errors.Is. With any of them returned by
// Append nothing was ordered.
var (
	// ErrNotLeader: another node leads; Role tells which.
	ErrNotLeader = errors.New("this node does not lead")
	// ErrFenced: the office ended while the call was under way.
	ErrFenced = errors.New("the office of this node is over")
	// ErrBusy: the replicator cannot take more now; try again.
	ErrBusy = errors.New("replication is busy")
	// ErrReadOnly: writes are refused until an operator or a replica helps; the
	// text says why.
	ErrReadOnly = errors.New("this node is read-only")
	// ErrNotRunning: not started, or shut down.
	ErrNotRunning = errors.New("replication is not running")
)

// Pending is what the engine hands over: see storage.Pending.
type Pending = storage.Pending

// Outcome is what became of a group.
type Outcome uint8

const (
	// Stored: the promise is met and the group is published.
	Stored Outcome = iota
	// FlushDiskTimeout: written, not flushed in time; it will be published.
	FlushDiskTimeout
	// FlushReplicaTimeout: written here, no replica confirmed in time.
	FlushReplicaTimeout
	// NoReplica: written here, there is no replica to confirm it.
	NoReplica
	// NotStored: it is not in the log and never will be.
	NotStored
	// Unknown: it may or may not be in the log.
	Unknown
)

var outcomeNames = [...]string{"Stored", "FlushDiskTimeout", "FlushReplicaTimeout", "NoReplica", "NotStored", "Unknown"}

// String gives the constant's name.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return "invalid outcome"
}

// Sink receives outcomes.
type Sink interface {
	// Done tells the outcome of p.Groups[from:to]. Every group of a Pending
	// whose Append returned nil gets exactly one, in log order, never two
	// calls at once, no lock held, possibly inside Append. Stored, and outcomes
	// that say the group stays in the log, are never told before Publish, but
	// for the timeouts, which say that it is not safe yet. Done hands over and
	// returns: it must not block. err explains an outcome that is not Stored.
	Done(p *Pending, from, to int, o Outcome, err error)
}

// Replicator is the replication contract. All methods are safe for concurrent
// use but Append, whose caller holds the turn: one call at a time.
type Replicator interface {
	plugin.Component

	// Append orders p's groups, which are not yet placed. A nil return means
	// that they are ordered and Sink.Done follows for each; p belongs to the
	// replicator until then and until all of p.Batches are freed. With an
	// error nothing was ordered, p is the caller's again, unplaced, and Done
	// is not called. It blocks as long as the store's Append does, and not for
	// flushes or replicas.
	Append(ctx context.Context, p *Pending, s Sink) error

	// Barrier returns nil when everything that was acknowledged anywhere
	// before the call is published here and this node leads.
	Barrier(ctx context.Context) error

	// Role is cheap and never blocks.
	Role() Role

	// Status is for people and metrics; cheap, never blocks.
	Status() Status

	// Capabilities tells the facets; constant from Build to Shutdown.
	Capabilities() Capabilities
}

// RoleKind is what a node is in its group.
type RoleKind uint8

const (
	// RoleNone: not decided yet.
	RoleNone RoleKind = iota
	RoleLeader
	RoleFollower
	RoleLearner
)

// String gives "none", "leader", "follower" or "learner".
func (k RoleKind) String() string {
	return [...]string{"none", "leader", "follower", "learner"}[min(k, RoleLearner)]
}

// Role is a node's office.
type Role struct {
	Kind RoleKind
	Term uint64
	// Leader is the leader's client address, empty when unknown or oneself.
	Leader string
	// Foreign: the leader is no Hardpoint node and keeps no catalog records;
	// the engine fetches metadata by RocketMQ's requests.
	Foreign bool
	// ReadOnly, when not empty, says why this leader takes no writes.
	ReadOnly string
}

// Replica is how far one replica is.
type Replica struct {
	ID string
	// Acked and Durable are log positions.
	Acked, Durable message.Position
	LastContact    time.Time
	InSync         bool
	// Why says what keeps it from being in sync.
	Why string
}

// Status is a snapshot of the group as this node sees it.
type Status struct {
	Role     Role
	Replicas []Replica
}

// Capabilities are the optional abilities. A nil field: not offered.
type Capabilities struct {
	Members Members
}

// FacetMembers names the Members facet in a plugin.Description.
const FacetMembers = "Members"

// Facets names the facets offered, sorted.
func (c Capabilities) Facets() []string {
	if c.Members != nil {
		return []string{FacetMembers}
	}
	return nil
}

// Members is the facet of replicators whose group can change. Safe for concurrent
// use; changes are made one after the other. Each call blocks until its change is
// in force or ctx ends, which does not undo what was begun. Errors of all: for a
// node that does not lead ErrNotLeader, when the office ends meanwhile ErrFenced,
// while another change is under way ErrBusy, ErrNotRunning.
type Members interface {
	// AddLearner adds a replica that gets the log and has no vote; id is that of its
	// data directory, addr where it listens (host:port).
	AddLearner(ctx context.Context, id, addr string) error
	// Promote makes a learner a member; its log must be complete.
	Promote(ctx context.Context, id string) error
	// Remove takes a member or learner out of the group.
	Remove(ctx context.Context, id string) error
	// Transfer gives the office to another member.
	Transfer(ctx context.Context, id string) error
	// Resign ends this node's office.
	Resign(ctx context.Context) error
}

// Network gives connections with the host's TLS, limits and metrics. Safe for
// concurrent use; what it gives is the caller's to close.
type Network interface {
	// Listen listens on addr (host:port, port 0: any); ctx bounds the call only.
	Listen(ctx context.Context, addr string) (net.Listener, error)
	// Dial connects to addr; ctx bounds connecting only.
	Dial(ctx context.Context, addr string) (net.Conn, error)
}

// Params is what the host passes to a replicator.
type Params struct {
	plugin.Settings
	// Store is started before the replicator and stopped after it.
	Store storage.Store
	// Sequencer is made for this replicator; it opens it for each office.
	Sequencer *storage.Sequencer
	// Network is nil where the host has none to give, and refuses in a process of the
	// plugin's own: then listen and dial with package net. The conformance suite
	// gives none.
	Network Network
	// OnRole is called for each change of office; see the package comment. Nil:
	// not called. Its error means that the office cannot be taken: the
	// replicator resigns, or fails to start when it has nobody to resign to.
	OnRole func(ctx context.Context, r Role) error

	_ struct{}
}

// Factory makes replicators.
type Factory = plugin.Factory[Params, Replicator]

// NewFactory declares a replication plugin; describe fills Version, Publish,
// Needs and Facets.
func NewFactory[C any, R Replicator](
	name string,
	describe func(C) plugin.Description,
	newDefault func() C,
	newReplicator func(ctx context.Context, p Params, cfg C) (R, error),
) Factory {
	return plugin.NewFactory(name, Contract, describe, newDefault, newReplicator, func(r R) Replicator { return r })
}
