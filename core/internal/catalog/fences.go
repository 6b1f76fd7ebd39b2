package catalog

import (
	"context"
	"encoding/binary"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
)

// valueFence is the kind of values that hold the resets which a group has not taken
// yet: n, n × (queue id, offset).
const valueFence = "reset-offset"

// patience is how often a consumer is told of a reset before its own offset counts
// again: there are consumers that ask for an offset of their own whatever they are
// told, and they would get nothing for ever.
const patience = 8

// fences are resets of progress that the consumers have not obeyed yet. Until then
// what they report is of the time before, and does not count.
type fences struct {
	n  atomic.Int64 // of queues; 0: the common case, looked at without the lock
	mu sync.RWMutex
	m  map[progress]map[int32]*fence
	// gone are groups and topics of which a queue is fenced no more, for the next
	// record.
	gone map[progress]struct{}
}

type fence struct {
	offset int64
	told   int // how often
}

// get is the offset to which a queue was reset.
func (f *fences) get(group string, q message.Queue) (int64, bool) {
	if f.n.Load() == 0 {
		return 0, false
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	if x := f.m[progress{group, q.Topic}][q.ID]; x != nil {
		return x.offset, true
	}
	return 0, false
}

// fenced is get without the offset: those whom no reset concerns do not wait for each
// other.
func (f *fences) fenced(group string, q message.Queue) bool {
	_, ok := f.get(group, q)
	return ok
}

// meets tells the offset at which a consumer that asks for at has to go on, if it is
// another one.
func (f *fences) meets(group string, q message.Queue, at int64) (int64, bool) {
	if !f.fenced(group, q) {
		return 0, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	x := f.m[progress{group, q.Topic}][q.ID]
	if x == nil {
		return 0, false
	}
	if x.offset == at || x.told >= patience {
		f.drop(progress{group, q.Topic}, q.ID)
		return 0, false
	}
	x.told++
	return x.offset, true
}

// keeps reports whether progress that a consumer reports does not count. A consumer
// that was told and reports just that has obeyed.
func (f *fences) keeps(group string, q message.Queue, offset int64) bool {
	if !f.fenced(group, q) {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	x := f.m[progress{group, q.Topic}][q.ID]
	if x == nil {
		return false
	}
	if x.told > 0 && x.offset == offset {
		f.drop(progress{group, q.Topic}, q.ID)
		return false
	}
	return true
}

// drop ends a fence; the caller holds mu.
func (f *fences) drop(p progress, id int32) {
	delete(f.m[p], id)
	if len(f.m[p]) == 0 {
		delete(f.m, p)
	}
	f.n.Add(-1)
	if f.gone == nil {
		f.gone = map[progress]struct{}{}
	}
	f.gone[p] = struct{}{}
}

// value is what is stored of a group in a topic with these fences besides.
func (f *fences) value(p progress, more map[int32]int64) []byte {
	f.mu.RLock()
	defer f.mu.RUnlock()
	all := maps.Clone(more)
	for id, x := range f.m[p] {
		if _, ok := more[id]; !ok {
			if all == nil {
				all = map[int32]int64{}
			}
			all[id] = x.offset
		}
	}
	if len(all) == 0 {
		return nil
	}
	b := binary.AppendUvarint(nil, uint64(len(all)))
	for _, id := range slices.Sorted(maps.Keys(all)) {
		b = binary.AppendVarint(binary.AppendVarint(b, int64(id)), all[id])
	}
	return b
}

// set fences queues.
func (f *fences) set(p progress, at map[int32]int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.m == nil {
		f.m = map[progress]map[int32]*fence{}
	}
	if f.m[p] == nil {
		f.m[p] = map[int32]*fence{}
	}
	for id, offset := range at {
		if f.m[p][id] == nil {
			f.n.Add(1)
		}
		f.m[p][id] = &fence{offset: offset}
	}
}

// takeDirty writes what is fenced no more into the next record, and into values. What
// a reset is under way for waits for a later one: else that record could come behind
// the one of the reset, of which it knows nothing. placed is to be called when the
// order is settled, again when the record is not in the log.
func (f *fences) takeDirty(w *writer, leaves func(progress) bool, values *valueTable, try func(key string) (unlock func(), ok bool)) (n int, placed, again func()) {
	f.mu.Lock()
	taken := f.gone
	f.gone = nil
	f.mu.Unlock()
	later := map[progress]struct{}{}
	var locks []func()
	for p := range taken {
		if leaves(p) {
			later[p] = struct{}{}
			continue
		}
		unlock, ok := try(resetKey(p))
		if !ok {
			later[p] = struct{}{}
			continue
		}
		locks = append(locks, unlock)
		v, k := f.value(p, nil), kernel.ValueKey{Kind: valueFence, Group: p.group, Topic: p.topic}
		w.value(k, v)
		values.put(k, v)
	}
	back := func(of map[progress]struct{}) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.gone == nil {
			f.gone = map[progress]struct{}{}
		}
		maps.Copy(f.gone, of)
	}
	if len(later) > 0 {
		back(later)
	}
	placed = func() {
		for _, unlock := range locks {
			unlock()
		}
	}
	return len(locks), placed, func() { back(taken) }
}

// resetKey is the key that is locked while the fences of a group in a topic are
// written.
func resetKey(p progress) string { return "v/" + valueFence + "/" + p.group + "/" + p.topic }

// remove forgets what is gone with a topic or a group.
func (f *fences) remove(gone func(p progress) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for p, ids := range f.m {
		if gone(p) {
			f.n.Add(-int64(len(ids)))
			delete(f.m, p)
		}
	}
	maps.DeleteFunc(f.gone, func(p progress, _ struct{}) bool { return gone(p) })
}

// load builds the fences anew of what is stored; one that cannot be read is none.
// What ended here and is not stored yet has ended all the same.
func (f *fences) load(c *Catalog) {
	f.mu.RLock()
	newer := maps.Clone(f.gone)
	f.mu.RUnlock()
	f.remove(func(p progress) bool { _, ok := newer[p]; return !ok })
	c.OfKind(valueFence, func(k kernel.ValueKey, v []byte) bool {
		p, r := progress{k.Group, k.Topic}, reader{b: v}
		if _, ok := newer[p]; ok {
			return true
		}
		if n := r.numbers(); r.err == nil {
			f.set(p, n)
		}
		return true
	})
}

// Reset implements kernel.Offsets.
func (o offsets) Reset(ctx context.Context, group, topic string, at map[int32]int64) error {
	c, p := o.c, progress{group, topic}
	defer c.lockKey(topicKey(topic))()
	defer c.lockKey(resetKey(p))()
	if c.s.topic(topic) == nil {
		return notFound("topic", topic)
	}
	w := &writer{}
	w.value(kernel.ValueKey{Kind: valueFence, Group: group, Topic: topic}, c.s.fences.value(p, at))
	w.numbers(entryOffsets, []string{group, topic}, at)
	if err := c.change(ctx, w, false, false); err != nil {
		return err
	}
	c.s.fences.set(p, at)
	for id, offset := range at { // what was reported meanwhile
		o.c.s.offsets.set(group, message.Queue{Topic: topic, ID: id}, offset, true)
	}
	for id := range at {
		c.k.Hooks.OffsetReset(group, message.Queue{Topic: topic, ID: id})
	}
	return nil
}

// Meets implements kernel.Offsets.
func (o offsets) Meets(group string, q message.Queue, at int64) (int64, bool) {
	return o.c.s.fences.meets(group, q, at)
}
