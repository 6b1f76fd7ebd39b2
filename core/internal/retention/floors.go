package retention

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagemw"
)

// floored is a store without the facet. What lies below the floor of a queue is
// there and cannot be read by queue.
type floored struct {
	storagemw.Base
	caps   storage.Capabilities
	floors atomic.Pointer[map[message.Queue]int64] // not changed; nil: there are none
}

func (s *floored) Capabilities() storage.Capabilities { return s.caps }

func (s *floored) floor(q message.Queue) int64 {
	if m := s.floors.Load(); m != nil {
		return (*m)[q]
	}
	return 0
}

func (s *floored) Read(ctx context.Context, r storage.ReadRequest, c *storage.Chunk) error {
	floor := s.floor(r.Queue)
	below := r.Offset < floor
	if below {
		r.Offset = floor // for the ends; nothing of it is shown
	}
	if err := s.Store.Read(ctx, r, c); err != nil || floor == 0 {
		return err
	}
	c.Min = max(c.Min, floor)
	if below {
		high := c.Max
		c.Reset()
		c.Status, c.Next, c.Min, c.Max = storage.OffsetTooSmall, floor, floor, high
	}
	return nil
}

func (s *floored) Offsets(ctx context.Context, q []storage.OffsetQuery, a *storage.OffsetAnswers) error {
	if err := s.Store.Offsets(ctx, q, a); err != nil {
		return err
	}
	m := s.floors.Load()
	if m == nil {
		return nil
	}
	for i := range a.Answers {
		x := &a.Answers[i]
		x.Min = max(x.Min, (*m)[x.Queue])
		x.Offset = max(x.Offset, x.Min)
	}
	return nil
}

const (
	// valueFloor is the kind of values that hold the floors of a topic's queues.
	valueFloor = "retention-floor"
	// floorMark and the topic's name are the group of such a value, which no group
	// has: what has a topic goes with it, and floors outlive theirs. (Older logs have
	// floors with a topic.)
	floorMark = "topic/"
)

// kept reads the floors that the catalog has.
func (r *Retention) kept() map[message.Queue]int64 {
	all := map[message.Queue]int64{}
	r.k.Values.OfKind(valueFloor, func(k kernel.ValueKey, v []byte) bool {
		topic := k.Topic
		if topic == "" {
			topic = strings.TrimPrefix(k.Group, floorMark)
		}
		for len(v) > 0 {
			id, n := binary.Varint(v)
			floor, m := binary.Varint(v[max(n, 0):])
			if n <= 0 || m <= 0 {
				break // of a newer version, or damaged: the next one replaces it
			}
			q := message.Queue{Topic: topic, ID: int32(id)}
			all[q] = max(all[q], floor)
			v = v[n+m:]
		}
		return true
	})
	return all
}

// bury is kernel.Kernel.Bury: the floor of each queue of some topics is at its end.
func (r *Retention) bury(ctx context.Context, of func(topic string) bool) error {
	ends := map[message.Queue]int64{}
	if err := r.k.Journal.Alone(ctx, func(context.Context) error {
		r.k.Sequencer.Ends(func(q message.Queue, next int64) bool {
			if next > 0 && of(q.Topic) {
				ends[q] = next
			}
			return true
		})
		return nil
	}); err != nil {
		return err
	}
	r.raising.Lock()
	defer r.raising.Unlock()
	floors, moved := r.kept(), map[string]bool{}
	for q, end := range ends {
		if end > floors[q] {
			floors[q] = end
			moved[q.Topic] = true
		}
	}
	return r.remember(ctx, floors, moved)
}

// remember writes the floors of the topics that moved into the log, then they count.
// The caller holds raising.
func (r *Retention) remember(ctx context.Context, floors map[message.Queue]int64, moved map[string]bool) error {
	defer func() { r.floored.floors.Store(&floors) }()
	values := make(map[string][]byte, len(moved))
	for q, floor := range floors { // once: there may be very many queues, and all may have moved
		if moved[q.Topic] {
			values[q.Topic] = binary.AppendVarint(binary.AppendVarint(values[q.Topic], int64(q.ID)), floor)
		}
	}
	for _, topic := range slices.Sorted(maps.Keys(moved)) {
		if err := r.k.Values.PutValue(ctx, kernel.ValueKey{Kind: valueFloor, Group: floorMark + topic}, values[topic]); err != nil {
			floors = r.kept() // what is not in the log does not count
			return fmt.Errorf("remembering the floors of topic %s: %w", topic, err)
		}
	}
	return nil
}

// raise moves the floors to what is old enough, if it is time for that and this node
// leads; others take over what the catalog says.
func (r *Retention) raise(ctx context.Context, all bool) error {
	r.raising.Lock()
	defer r.raising.Unlock()
	floors, moved := r.kept(), map[string]bool{}
	err := r.older(ctx, all, floors, moved)
	return errors.Join(err, r.remember(ctx, floors, moved))
}

// older moves floors to what is old enough.
func (r *Retention) older(ctx context.Context, all bool, floors map[message.Queue]int64, moved map[string]bool) error {
	rules, now := &r.k.Config().RetentionRules, r.k.Clock.Now()
	if role := r.k.Role(); role.Kind != replication.RoleLeader || role.ReadOnly != "" || !all && !rules.Hours.Has(now.Local().Hour()) {
		return nil
	}
	var ends storage.OffsetAnswers
	if err := r.floored.Store.Offsets(ctx, nil, &ends); err != nil {
		return fmt.Errorf("reading the ends of the queues: %w", err)
	}
	var ask []storage.OffsetQuery
	for i := range ends.Answers {
		if q := ends.Answers[i].Queue; !message.IsInternal(q.Topic) {
			ask = append(ask, storage.OffsetQuery{Queue: q, Kind: storage.FirstAt, Time: now.Add(-rules.Reserved).UnixMilli() + 1})
		}
	}
	if len(ask) == 0 { // no query asks for all
		return nil
	}
	var got storage.OffsetAnswers
	if err := r.floored.Store.Offsets(ctx, ask, &got); err != nil {
		return fmt.Errorf("looking for what is old: %w", err)
	}
	for i := range got.Answers {
		if x := &got.Answers[i]; x.Known && x.Offset > max(floors[x.Queue], x.Min) {
			floors[x.Queue] = x.Offset
			moved[x.Queue.Topic] = true
		}
	}
	return nil
}
