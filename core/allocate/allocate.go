package allocate

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/hardpointmq/hardpoint/core/plugin"
)

// Contract is the name and major version of this contract.
const Contract = "allocate/1"

// ErrRequest marks a request that cannot be allocated: no members, a member
// twice, an Owned index outside of Queues. Test with errors.Is.
var ErrRequest = errors.New("invalid allocation request")

// Queue is a message queue of the topic to be shared.
type Queue struct {
	Topic, Broker string
	ID            int32
	// Zone is where its broker is; empty when unknown.
	Zone string
}

// Member is a consumer of the group.
type Member struct {
	ClientID, Zone string
	// Weight is relative; 0 counts as 1.
	Weight uint32
	// Owned are indexes into Queues: what the member has now.
	Owned []int
}

// Request is one generation of a group. Queues are sorted by topic, broker
// name, id; members by client id as bytes: official clients sort so, and an
// assignment must not depend on who asks.
type Request struct {
	Group      string
	Generation uint64
	Queues     []Queue
	Members    []Member

	_ struct{}
}

// Assignment is the answer.
type Assignment struct {
	// Owner[i] is the index in Members of the owner of Queues[i], -1 for none.
	Owner []int
	// Why, when not empty, says for each queue in a few words why; for people.
	Why []string
}

// Allocator is the allocation contract. Allocate neither keeps nor changes the
// request. It is safe for concurrent use. ErrRequest for a bad request.
//
// One that holds something, such as the process that it runs in, is an io.Closer,
// too: the host calls [Close] when it needs the allocator no more.
type Allocator interface {
	Allocate(ctx context.Context, r *Request) (Assignment, error)
}

// Close closes an allocator that is an io.Closer; of others it does nothing.
// Calls under way end first, later ones fail.
func Close(a Allocator) error {
	if c, ok := a.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// Replaceable is implemented by allocators whose program can be replaced while
// they are used: those in a process of their own. Safe for concurrent use.
type Replaceable interface {
	// Version is that of the description of the program that answers now.
	Version() string
}

// Version is the version of the plugin behind a, which may have changed since a
// was built; "" when it cannot change.
func Version(a Allocator) string {
	if r, ok := a.(Replaceable); ok {
		return r.Version()
	}
	return ""
}

// Check returns an error matching ErrRequest when r is unusable; allocators call
// it first.
func (r *Request) Check() error {
	if len(r.Members) == 0 {
		return fmt.Errorf("%w: group %q has no members", ErrRequest, r.Group)
	}
	seen := make(map[string]struct{}, len(r.Members))
	for _, m := range r.Members {
		if _, dup := seen[m.ClientID]; dup {
			return fmt.Errorf("%w: client id %q is twice in group %q; give each consumer an instance name of its own", ErrRequest, m.ClientID, r.Group)
		}
		seen[m.ClientID] = struct{}{}
		for _, q := range m.Owned {
			if q < 0 || q >= len(r.Queues) {
				return fmt.Errorf("%w: member %q owns queue %d of %d", ErrRequest, m.ClientID, q, len(r.Queues))
			}
		}
	}
	return nil
}

// Check returns an error when a is no answer to r: an owner for each queue, a
// member or -1, and a reason for each queue or none at all. Whoever takes an
// assignment from an allocator of others calls it.
func (a *Assignment) Check(r *Request) error {
	if len(a.Owner) != len(r.Queues) {
		return fmt.Errorf("the assignment of group %q has %d owners for %d queues", r.Group, len(a.Owner), len(r.Queues))
	}
	for i, o := range a.Owner {
		if o < -1 || o >= len(r.Members) {
			q := r.Queues[i]
			return fmt.Errorf("the assignment of group %q gives queue %d (%s, %s, %d) to member %d of %d", r.Group, i, q.Topic, q.Broker, q.ID, o, len(r.Members))
		}
	}
	if len(a.Why) != 0 && len(a.Why) != len(r.Queues) {
		return fmt.Errorf("the assignment of group %q has %d reasons for %d queues", r.Group, len(a.Why), len(r.Queues))
	}
	return nil
}

// Params is what the host passes to an allocator.
type Params struct {
	plugin.Settings

	_ struct{}
}

// Factory makes allocators.
type Factory = plugin.Factory[Params, Allocator]

// NewFactory declares an allocator plugin.
func NewFactory[C any, A Allocator](
	name string,
	describe func(C) plugin.Description,
	newDefault func() C,
	newAllocator func(ctx context.Context, p Params, cfg C) (A, error),
) Factory {
	return plugin.NewFactory(name, Contract, describe, newDefault, newAllocator, func(a A) Allocator { return a })
}

// NewFunc declares an allocator that is one pure function without
// configuration: the shortest way to a custom allocator.
func NewFunc(name, version string, f func(ctx context.Context, r *Request) (Assignment, error)) Factory {
	return NewFactory(name,
		func(struct{}) plugin.Description { return plugin.Description{Version: version} },
		func() struct{} { return struct{}{} },
		func(context.Context, Params, struct{}) (Func, error) { return f, nil })
}

// Func is a function as an Allocator.
type Func func(ctx context.Context, r *Request) (Assignment, error)

// Allocate implements [Allocator].
func (f Func) Allocate(ctx context.Context, r *Request) (Assignment, error) { return f(ctx, r) }
