package catalog

import (
	"context"
	"fmt"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// load builds the tables anew: snapshot, then what the log has behind it. The
// caller holds office, and sets built. Readers see the old tables until
// the new ones are whole.
func (c *Catalog) load(ctx context.Context) error {
	c.built = notBuilt
	cut := c.cut.Swap(false)
	if cut {
		// A snapshot may hold what was cut off, and the log may have grown past
		// its offset since: only the log is sure.
		if err := c.dropSnapshots(); err != nil {
			c.cut.Store(true)
			return err
		}
	}
	var a storage.OffsetAnswers
	if err := c.k.Store.Offsets(ctx, []storage.OffsetQuery{{Queue: queue}}, &a); err != nil {
		return fmt.Errorf("catalog: %w", err)
	}
	lo, hi := int64(0), int64(0)
	if len(a.Answers) == 1 && a.Answers[0].Known {
		lo, hi = a.Answers[0].Min, a.Answers[0].Max
	}
	fresh, next := c.readSnapshot(lo, hi)
	if next > lo && !fresh.ends.told {
		// The snapshot is of a version that kept no ends in it: once, all of the log
		// is asked for them.
		old := newPrivate()
		c.next, c.img = lo, assembly{}
		if err := c.catchUp(ctx, old); err != nil {
			return err
		}
		fresh.ends.set(old.ends.m)
	}
	c.next, c.img = next, assembly{}
	if err := c.catchUp(ctx, fresh); err != nil {
		return err
	}
	c.images.forget()
	c.apply.Lock()
	c.s.replace(fresh, c.keep)
	c.epoch++
	c.readTo = c.next
	c.apply.Unlock()
	c.keep = false
	return nil
}

// catchUp applies everything published to a state. The caller holds office.
func (c *Catalog) catchUp(ctx context.Context, to *state) error {
	var chunk storage.Chunk
	defer chunk.Reset()
	limit := storage.Limit{Count: 1024, Bytes: 1 << 20}
	for {
		chunk.Reset()
		err := c.k.Store.Read(ctx, storage.ReadRequest{Queue: queue, Offset: c.next, Hot: limit, Cold: limit}, &chunk)
		if err != nil {
			return fmt.Errorf("reading the catalog at %d: %w", c.next, err)
		}
		switch chunk.Status {
		case storage.Found:
			c.applyChunk(&chunk, to)
			c.next = chunk.Next
		case storage.OffsetTooSmall:
			c.next = chunk.Min
		case storage.NoMatchedMessage, storage.OffsetFoundNull, storage.MessageWasRemoving:
			if chunk.Next <= c.next {
				return nil
			}
			c.next = chunk.Next
		default:
			return nil
		}
	}
}

func (c *Catalog) applyChunk(chunk *storage.Chunk, to *state) {
	var v message.View
	for i, rec := range chunk.Records {
		err := message.Parse(rec, &v)
		if err == nil {
			err = v.CheckBody()
		}
		if err == nil {
			err = c.applyBody(v.Body, v.StoreTime, to)
		}
		if err != nil {
			// One record that cannot be read must not hide all others; values are
			// absolute, so the next one of the same name or the next image repairs.
			c.k.Log.Error("a catalog record is passed over", "offset", chunk.Units[i].Offset, "position", chunk.Units[i].At, "error", err)
		}
	}
}

// assembly is an image under way: its parts count only when all are there, in
// order. Deltas between the parts cannot occur: an image is one group.
type assembly struct {
	id    uint64
	next  uint64
	parts [][]byte
}

// applyBody applies one record's body, of the given store time in ms.
func (c *Catalog) applyBody(body []byte, ms int64, to *state) error {
	h, rest, err := readHeader(body)
	if err != nil {
		return err
	}
	if h.kind == kindDelta {
		topics, groups := false, false
		err := entries(rest, func(kind byte, p []byte) error {
			topics = topics || kind == entryTopic || kind == entryTopicRemoved
			groups = groups || kind == entryGroup || kind == entryGroupRemoved
			return to.applyEntry(kind, p)
		})
		to.bump(topics, groups, ms)
		c.files.mark(topics, groups)
		return err
	}
	img := &c.img
	if h.part == 0 {
		*img = assembly{id: h.id}
	}
	if h.id != img.id || h.part != img.next {
		*img = assembly{}
		return nil // the beginning of this image has expired
	}
	img.parts = append(img.parts, append([]byte(nil), rest...))
	img.next++
	if img.next < h.parts {
		return nil
	}
	parts := img.parts
	*img = assembly{}
	whole := newPrivate()
	for _, p := range parts {
		if err := entries(p, whole.applyEntry); err != nil {
			return err // the tables so far are better than half an image
		}
	}
	to.replace(whole, false)
	return nil
}

// published is the hook: a follower applies, by its own goroutine.
func (c *Catalog) published(_ message.Position, units []message.Unit) {
	size := int64(0)
	for i := range units {
		if len(units[i].Queue.Topic) == len(queue.Topic) && units[i].Queue == queue {
			size += int64(units[i].Size)
		}
	}
	if size == 0 {
		return
	}
	if c.unsaved.Add(size) >= snapshotBytes {
		c.unsaved.Store(0)
		c.files.snapshotDue()
		c.files.wake()
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// truncated is the hook: what was derived from above the cut is void.
func (c *Catalog) truncated(to message.Position) {
	c.images.truncated(to)
	c.cut.Store(true)
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *Catalog) applyLoop() {
	defer c.wg.Done()
	for {
		select {
		case <-c.wake:
		case <-c.quit:
			return
		}
		c.office.Lock()
		if !c.leading && c.built == builtFully {
			if err := c.follow(context.Background()); err != nil {
				c.k.Log.Error("the catalog cannot follow the log", "error", err)
			}
		}
		c.office.Unlock()
	}
}

// follow applies what is new, or builds anew when the log was cut.
func (c *Catalog) follow(ctx context.Context) error {
	if !c.cut.Load() {
		return c.catchUp(ctx, c.s)
	}
	built := c.built
	if err := c.load(ctx); err != nil {
		return err
	}
	c.built = built
	return nil
}
