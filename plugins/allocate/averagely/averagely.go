// Package averagely is the allocator AVG, the default of RocketMQ's clients:
// each member gets consecutive queues, and those first in order get one more
// when it does not come out even (AllocateMessageQueueAveragely).
//
// It is what the official clients compute themselves, so members that allocate
// for themselves and members that ask the broker agree.
package averagely

import (
	"context"

	"github.com/hardpointmq/hardpoint/core/allocate"
)

// Name is the name under which configuration selects the plugin.
const Name = "averagely"

// NewFactory returns the plugin's factory.
func NewFactory() allocate.Factory { return allocate.NewFunc(Name, "1.0.0", Allocate) }

// Allocate gives member i the queues from i·n/m on, by RocketMQ's rule.
func Allocate(_ context.Context, r *allocate.Request) (allocate.Assignment, error) {
	if err := r.Check(); err != nil {
		return allocate.Assignment{}, err
	}
	n, m := len(r.Queues), len(r.Members)
	a := allocate.Assignment{Owner: make([]int, n)}
	q := 0
	for i := range m {
		size := n / m
		if i < n%m {
			size++
		}
		for range size {
			a.Owner[q] = i
			q++
		}
	}
	return a, nil
}
