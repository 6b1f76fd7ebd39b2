package broker

import (
	"context"
	"strconv"

	"github.com/hardpointmq/hardpoint/core/allocate"
)

// VersionEnv makes the test's program the process of an allocator of a version.
const VersionEnv = "HARDPOINT_TEST_ALLOCATOR"

// Turning is an allocator whose assignment tells its version, a number.
func Turning(version string) allocate.Factory {
	return allocate.NewFunc("turning", version, func(_ context.Context, r *allocate.Request) (allocate.Assignment, error) {
		if err := r.Check(); err != nil {
			return allocate.Assignment{}, err
		}
		n, err := strconv.Atoi(version)
		a := allocate.Assignment{Owner: make([]int, len(r.Queues))}
		for i := range a.Owner {
			a.Owner[i] = (i + n) % len(r.Members)
		}
		return a, err
	})
}
