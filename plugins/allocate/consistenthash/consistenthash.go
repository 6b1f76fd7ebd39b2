// Package consistenthash is the allocator CONSISTENT_HASH of RocketMQ's Java
// client (AllocateMessageQueueConsistentHash): members stand on a ring, each at
// several places, and a queue belongs to the member that comes next. A join or a
// leave moves few queues, but shares are uneven; sticky moves fewer and is even.
//
// The official Go client places members by another hash: in a group of Java and Go
// members that allocate for themselves, both claim some queues and none others.
package consistenthash

import (
	"cmp"
	"context"
	"crypto/md5" //nolint:gosec // the hash of the official clients, not for security
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/core/plugin"
)

// Name is the name under which configuration selects the plugin.
const Name = "consistenthash"

// maxNodes bounds what one allocation costs.
const maxNodes = 1000

// Config is the plugin's configuration.
type Config struct {
	// VirtualNodes is how many places each member has on the ring, 1 to 1000
	// [10, as in the Java client]. More places make shares more even.
	VirtualNodes int `json:"virtualNodes"`
}

// NewDefaultConfig returns the defaults.
func NewDefaultConfig() Config { return Config{VirtualNodes: 10} }

// Validate implements plugin.Validator.
func (c Config) Validate() error {
	if c.VirtualNodes < 1 || c.VirtualNodes > maxNodes {
		return fmt.Errorf("virtualNodes: %d must be from 1 to %d", c.VirtualNodes, maxNodes)
	}
	return nil
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

// node is one place of a member on the ring.
type node struct {
	at     uint32
	member int
}

// Allocate gives each queue to the first place at or after its hash.
func (h *Allocator) Allocate(_ context.Context, r *allocate.Request) (allocate.Assignment, error) {
	if err := r.Check(); err != nil {
		return allocate.Assignment{}, err
	}
	ring := make([]node, 0, len(r.Members)*h.cfg.VirtualNodes)
	var key []byte
	for i, m := range r.Members {
		for n := range h.cfg.VirtualNodes {
			key = append(append(key[:0], m.ClientID...), '-')
			key = strconv.AppendInt(key, int64(n), 10)
			ring = append(ring, node{hash(key), i})
		}
	}
	// Of two at one place the one that came last counts, as in the Java client.
	slices.Reverse(ring)
	slices.SortStableFunc(ring, func(a, b node) int { return cmp.Compare(a.at, b.at) })
	a := allocate.Assignment{Owner: make([]int, len(r.Queues))}
	for i, q := range r.Queues {
		key = fmt.Appendf(key[:0], "MessageQueue [topic=%s, brokerName=%s, queueId=%d]", q.Topic, q.Broker, q.ID)
		n, _ := slices.BinarySearchFunc(ring, hash(key), func(n node, at uint32) int { return cmp.Compare(n.at, at) })
		a.Owner[i] = ring[n%len(ring)].member
	}
	return a, nil
}

// hash is the first four bytes of the MD5 sum.
func hash(key []byte) uint32 {
	sum := md5.Sum(key)
	return binary.BigEndian.Uint32(sum[:])
}
