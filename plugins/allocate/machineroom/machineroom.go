// Package machineroom is the allocator MACHINE_ROOM of RocketMQ's Java client
// (AllocateMessageQueueByMachineRoom): only queues of brokers whose names are
// ROOM@NAME, with a room of the configuration, are shared; the others get no
// owner. It is for consumers of which each set reads its own room. To prefer the
// near queues without leaving out others, take zone.
package machineroom

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/core/plugin"
)

// Name is the name under which configuration selects the plugin.
const Name = "machineroom"

// Config is the plugin's configuration.
type Config struct {
	// Rooms are the rooms whose queues are shared (consumeridcs). Empty: all
	// brokers whose name has a room.
	Rooms []string `json:"rooms"`
}

// NewDefaultConfig returns the defaults.
func NewDefaultConfig() Config { return Config{Rooms: []string{}} }

// Validate implements plugin.Validator.
func (c Config) Validate() error {
	var errs []error
	for i, room := range c.Rooms {
		if room == "" || strings.Contains(room, "@") {
			errs = append(errs, fmt.Errorf("rooms[%d]: %q must be the part of a broker's name before its @", i, room))
		}
	}
	return errors.Join(errs...)
}

// NewFactory returns the plugin's factory.
func NewFactory() allocate.Factory {
	return allocate.NewFactory(Name, func(Config) plugin.Description { return plugin.Description{Version: "1.0.0"} }, NewDefaultConfig, New)
}

// New makes the allocator.
func New(_ context.Context, _ allocate.Params, c Config) (*Allocator, error) {
	return &Allocator{c}, nil
}

// Allocator implements [allocate.Allocator].
type Allocator struct{ cfg Config }

// Allocate gives member i consecutive queues, the same number to each, and what
// is left over one by one from the first member on.
func (m *Allocator) Allocate(_ context.Context, r *allocate.Request) (allocate.Assignment, error) {
	if err := r.Check(); err != nil {
		return allocate.Assignment{}, err
	}
	a := allocate.Assignment{Owner: make([]int, len(r.Queues)), Why: make([]string, len(r.Queues))}
	var in []int
	for i, q := range r.Queues {
		room, ok := roomOf(q.Broker)
		switch {
		case !ok:
			a.Owner[i], a.Why[i] = -1, "the broker's name is not ROOM@NAME"
		case len(m.cfg.Rooms) > 0 && !slices.Contains(m.cfg.Rooms, room):
			a.Owner[i], a.Why[i] = -1, "room "+room+" is not among "+strings.Join(m.cfg.Rooms, ", ")
		default:
			a.Why[i] = "room " + room
			in = append(in, i)
		}
	}
	each := len(in) / len(r.Members)
	for k, q := range in {
		if k < each*len(r.Members) {
			a.Owner[q] = k / each
		} else {
			a.Owner[q] = k - each*len(r.Members)
		}
	}
	return a, nil
}

// roomOf is the room of a broker's name, split at its @s as Java splits: empty
// parts at the end do not count, and there must be two.
func roomOf(broker string) (room string, ok bool) {
	parts := strings.Split(strings.TrimRight(broker, "@"), "@")
	return parts[0], len(parts) == 2
}
