// Package zone is an allocator of Hardpoint: queues go to members in the zone of
// their broker, and there by weight, so that messages do not cross zones, which
// costs money and time. Members keep their queues as far as their share allows.
//
// Queues whose zone is unknown, or has no member, are shared among all members by
// weight. A member without a zone gets of those only. Nothing evens out between
// zones: a zone with few members and many queues has busy members.
//
// A member's zone is the __ZONE_NAME that its client sends, a broker's the one
// that it registers; a member's weight comes from the group's attribute
// allocator.weights.
package zone

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/core/allocate/allocatekit"
)

// Name is the name under which configuration selects the plugin.
const Name = "zone"

// NewFactory returns the plugin's factory.
func NewFactory() allocate.Factory { return allocate.NewFunc(Name, "1.0.0", Allocate) }

// Allocate shares each zone's queues among its members, then the rest among all.
// Within each of these, every member is less than one queue away from its exact
// share by weight.
func Allocate(_ context.Context, r *allocate.Request) (allocate.Assignment, error) {
	if err := r.Check(); err != nil {
		return allocate.Assignment{}, err
	}
	a := allocate.Assignment{Owner: make([]int, len(r.Queues)), Why: make([]string, len(r.Queues))}
	members, all := map[string][]int{}, make([]int, len(r.Members))
	for i, m := range r.Members {
		all[i] = i
		if m.Zone != "" {
			members[m.Zone] = append(members[m.Zone], i)
		}
	}
	queues, rest := map[string][]int{}, []int(nil)
	for i, q := range r.Queues {
		if len(members[q.Zone]) > 0 {
			queues[q.Zone] = append(queues[q.Zone], i)
		} else {
			rest = append(rest, i)
		}
	}
	for _, z := range slices.Sorted(maps.Keys(queues)) {
		allocatekit.Share(r, queues[z], members[z], true, &a)
		for _, q := range queues[z] {
			a.Why[q] = fmt.Sprintf("zone %s: %s", z, a.Why[q])
		}
	}
	allocatekit.Share(r, rest, all, true, &a)
	for _, q := range rest {
		where := "zone unknown"
		if z := r.Queues[q].Zone; z != "" {
			where = "no member in zone " + z
		}
		a.Why[q] = where + ": " + a.Why[q]
	}
	return a, nil
}
