// Package sticky is an allocator of Hardpoint: members keep their queues. A join
// or a leave moves as few queues as an even sharing allows, and shares differ by
// one queue at most. Queues without an owner are dealt out one by one, so that a
// member's queues spread over brokers.
//
// Each move makes a consumer read messages again that its predecessor had taken
// and not yet committed; averagely moves nearly all queues when one member of many
// joins, sticky only those that the new member needs.
package sticky

import (
	"context"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/core/allocate/allocatekit"
)

// Name is the name under which configuration selects the plugin.
const Name = "sticky"

// NewFactory returns the plugin's factory.
func NewFactory() allocate.Factory { return allocate.NewFunc(Name, "1.0.0", Allocate) }

// Allocate keeps what it can. Weights and zones do not count.
func Allocate(_ context.Context, r *allocate.Request) (allocate.Assignment, error) {
	if err := r.Check(); err != nil {
		return allocate.Assignment{}, err
	}
	a := allocate.Assignment{Owner: make([]int, len(r.Queues)), Why: make([]string, len(r.Queues))}
	queues, members := make([]int, len(r.Queues)), make([]int, len(r.Members))
	for i := range queues {
		queues[i] = i
	}
	for i := range members {
		members[i] = i
	}
	allocatekit.Share(r, queues, members, false, &a)
	return a, nil
}
