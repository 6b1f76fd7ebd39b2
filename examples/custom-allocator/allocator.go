// Command custom-allocator shows an allocator in ten lines: of each consumer
// group one member works and the others stand by.
package main

import (
	"context"

	"github.com/hardpointmq/hardpoint/core/allocate"
)

// NewFactory declares the plugin; list it beside the default ones.
func NewFactory() allocate.Factory {
	return allocate.NewFunc("hotstandby", "1.0", func(_ context.Context, r *allocate.Request) (allocate.Assignment, error) {
		return allocate.Assignment{Owner: make([]int, len(r.Queues))}, r.Check() // member 0 owns every queue
	})
}
