// Package circle is the allocator AVG_BY_CIRCLE: queues are dealt out like
// cards, the first to the first member, the second to the second
// (AllocateMessageQueueAveragelyByCircle). With queues sorted by broker it
// spreads a member over brokers.
package circle

import (
	"context"

	"github.com/hardpointmq/hardpoint/core/allocate"
)

// Name is the name under which configuration selects the plugin.
const Name = "circle"

// NewFactory returns the plugin's factory.
func NewFactory() allocate.Factory { return allocate.NewFunc(Name, "1.0.0", Allocate) }

// Allocate gives queue i to member i mod m.
func Allocate(_ context.Context, r *allocate.Request) (allocate.Assignment, error) {
	if err := r.Check(); err != nil {
		return allocate.Assignment{}, err
	}
	a := allocate.Assignment{Owner: make([]int, len(r.Queues))}
	for i := range a.Owner {
		a.Owner[i] = i % len(r.Members)
	}
	return a, nil
}
