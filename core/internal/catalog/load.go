package catalog

import (
	"context"
	"fmt"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// load builds the tables: snapshot, then what the log has behind it. The caller
// holds office.
func (c *Catalog) load(ctx context.Context) error {
	c.s.reset()
	c.loaded = false
	var a storage.OffsetAnswers
	if err := c.k.Store.Offsets(ctx, []storage.OffsetQuery{{Queue: queue}}, &a); err != nil {
		return fmt.Errorf("catalog: %w", err)
	}
	lo, hi := int64(0), int64(0)
	if len(a.Answers) == 1 && a.Answers[0].Known {
		lo, hi = a.Answers[0].Min, a.Answers[0].Max
	}
	c.next = lo
	at, ok := c.readSnapshot(lo, hi)
	if ok {
		c.next = at
	}
	if err := c.catchUp(ctx); err != nil {
		return err
	}
	c.loaded = true
	return nil
}

// catchUp applies everything published. The caller holds office.
func (c *Catalog) catchUp(ctx context.Context) error {
	var chunk storage.Chunk
	defer chunk.Reset()
	limit := storage.Limit{Count: 1024, Bytes: 1 << 20}
	img := assembly{}
	for {
		chunk.Reset()
		err := c.k.Store.Read(ctx, storage.ReadRequest{Queue: queue, Offset: c.next, Hot: limit, Cold: limit}, &chunk)
		if err != nil {
			return fmt.Errorf("reading the catalog at %d: %w", c.next, err)
		}
		switch chunk.Status {
		case storage.Found:
			c.applyChunk(&chunk, &img)
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

func (c *Catalog) applyChunk(chunk *storage.Chunk, img *assembly) {
	frag, rest := 0, []byte(nil)
	var v message.View
	for i := range chunk.Units {
		n := int(chunk.Units[i].Size)
		for len(rest) == 0 && frag < len(chunk.Frags) {
			rest = chunk.Frags[frag]
			frag++
		}
		if n > len(rest) {
			return
		}
		rec := rest[:n:n]
		rest = rest[n:]
		err := message.Parse(rec, &v)
		if err == nil {
			err = v.CheckBody()
		}
		if err == nil {
			err = c.applyBody(v.Body, img)
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

// applyBody applies one record's body.
func (c *Catalog) applyBody(body []byte, img *assembly) error {
	h, rest, err := readHeader(body)
	if err != nil {
		return err
	}
	if h.kind == kindDelta {
		return entries(rest, c.s.applyEntry)
	}
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
	c.s.reset()
	for _, p := range parts {
		if err := entries(p, c.s.applyEntry); err != nil {
			return err
		}
	}
	return nil
}

// published is the hook: a follower applies, by its own goroutine.
func (c *Catalog) published(_ message.Position, units []message.Unit) {
	for i := range units {
		if len(units[i].Queue.Topic) == len(queue.Topic) && units[i].Queue == queue {
			select {
			case c.wake <- struct{}{}:
			default:
			}
			return
		}
	}
}

// truncated builds the tables anew: what was derived from above the cut is gone.
func (c *Catalog) truncated(message.Position) {
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
		if !c.leading && c.loaded {
			if err := c.follow(context.Background()); err != nil {
				c.k.Log.Error("the catalog cannot follow the log", "error", err)
			}
		}
		c.office.Unlock()
	}
}

// follow applies what is new, or builds anew when the log became shorter.
func (c *Catalog) follow(ctx context.Context) error {
	var a storage.OffsetAnswers
	if err := c.k.Store.Offsets(ctx, []storage.OffsetQuery{{Queue: queue}}, &a); err != nil {
		return err
	}
	if len(a.Answers) == 1 && a.Answers[0].Max < c.next {
		return c.load(ctx)
	}
	return c.catchUp(ctx)
}
