package catalog

import (
	"context"
	"sync"

	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagemw"
)

// endTable is the next offsets of queues as the newest image has them. Records that
// took later ones are in the log, from which a store knows them.
type endTable struct {
	mu sync.Mutex
	m  map[string]map[int32]int64 // topic, queue; the inner maps are not changed
	// told: what the table was read from has such entries.
	told bool
}

func (t *endTable) put(topic string, n map[int32]int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.told = true
	if topic == "" {
		return
	}
	if t.m == nil {
		t.m = map[string]map[int32]int64{}
	}
	t.m[topic] = n
}

// set takes m over as the whole table.
func (t *endTable) set(m map[string]map[int32]int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.m = m
}

func (t *endTable) removeTopic(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.m, name)
}

// dump writes the table. An entry without a topic, which says nothing, comes first: a
// snapshot that has none of these entries is of a version that kept no ends in it.
func (t *endTable) dump(w *writer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w.numbers(entryEnds, []string{""}, nil)
	for topic, n := range t.m {
		w.numbers(entryEnds, []string{topic}, n)
	}
}

// raise makes ends of all queues, as a store has them, no less than the table says
// and returns which queues it raised. There tells which topics count.
func (t *endTable) raise(a *storage.OffsetAnswers, there func(topic string) bool) []message.Queue {
	t.mu.Lock()
	defer t.mu.Unlock()
	var raised []message.Queue
	left := 0 // which the store has not
	for topic, n := range t.m {
		if there(topic) {
			left += len(n)
		}
	}
	for i := range a.Answers {
		x := &a.Answers[i]
		next, ok := t.m[x.Queue.Topic][x.Queue.ID]
		if !ok || !there(x.Queue.Topic) {
			continue
		}
		if left--; next <= x.Max {
			continue
		}
		if x.Min == x.Max {
			x.Min = next
		}
		x.Known, x.Max = true, next
		raised = append(raised, x.Queue)
	}
	if left == 0 {
		return raised
	}
	has := make(map[message.Queue]bool, len(a.Answers))
	for i := range a.Answers {
		has[a.Answers[i].Queue] = true
	}
	for topic, n := range t.m {
		for id, next := range n {
			q := message.Queue{Topic: topic, ID: id}
			if next > 0 && there(topic) && !has[q] {
				a.Answers = append(a.Answers, storage.OffsetAnswer{Queue: q, Known: true, Min: next, Max: next})
				raised = append(raised, q)
			}
		}
	}
	return raised
}

// numbered is the store that a replicator gets.
type numbered struct {
	storagemw.Base
	k *kernel.Kernel
}

// Numbered is the kernel's store, which it must have, as a replicator is to see it:
// asked for the ends of all queues, by which an office gives numbers, it does not go
// below what the catalog remembers. A store loses the end of a queue whose records
// have all expired with the files of that queue, and never had it where it follows
// and began with a later segment.
func Numbered(k *kernel.Kernel) storage.Store { return &numbered{storagemw.Base{Store: k.Store}, k} }

// Capabilities implements storage.Store.
func (s *numbered) Capabilities() storage.Capabilities { return s.Store.Capabilities() }

// Offsets implements storage.Store. For all queues it reads what it has yet to read
// of the catalog in the log, which an office does at its beginning anyhow.
func (s *numbered) Offsets(ctx context.Context, q []storage.OffsetQuery, a *storage.OffsetAnswers) error {
	if err := s.Store.Offsets(ctx, q, a); err != nil || len(q) > 0 || s.k.Ends == nil {
		return err
	}
	return s.k.Ends(ctx, a)
}

// raise is kernel.Kernel.Ends. Topics that are not there do not count: one that will
// be made begins at 0.
func (c *Catalog) raise(ctx context.Context, a *storage.OffsetAnswers) error {
	c.office.Lock()
	defer c.office.Unlock()
	switch {
	case c.leading: // the tables are ahead of the log
	case c.built != notBuilt:
		if err := c.follow(ctx); err != nil {
			return err
		}
	default:
		if err := c.load(ctx); err != nil {
			return err
		}
		c.built = builtEarly
	}
	raised := c.s.ends.raise(a, func(topic string) bool { return c.s.topic(topic) != nil })
	if len(raised) > 0 {
		c.k.Log.Info("the store does not know any more where some queues end; they go on at the numbers that the catalog remembers",
			"queues", len(raised), "topic", raised[0].Topic, "queue", raised[0].ID)
	}
	return nil
}
