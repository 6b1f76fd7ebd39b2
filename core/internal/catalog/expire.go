package catalog

import (
	"context"
	"fmt"

	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// beforeExpire is the Ask of a kernel.Holder: a log without a whole image has lost
// its topics, groups, progress and ends of queues. Images begin segments; when none
// of those that stay has one (the log of an Apache broker, images that were lost to
// a full disk) a leader writes one, others wait for one.
func (i *imager) beforeExpire(ctx context.Context, e kernel.Expiry) (kernel.Hold, error) {
	i.mu.Lock()
	fresh := i.known && i.newest >= e.First
	i.mu.Unlock()
	if fresh {
		return kernel.Hold{}, nil
	}
	older := message.Position(-1) // the newest image below First
	for n := len(e.Segments) - 1; n >= 0; n-- {
		at := e.Segments[n].At
		whole, err := i.wholeAt(ctx, at)
		if err != nil {
			return kernel.Hold{}, fmt.Errorf("looking for an image of the catalog at %d: %w", at, err)
		}
		if !whole {
			continue
		}
		if at >= e.First {
			i.found(at)
			return kernel.Hold{}, nil
		}
		older = at
		break
	}
	if e.Leading {
		if err := i.write(ctx); err != nil {
			return kernel.Hold{}, fmt.Errorf("writing an image of the catalog: %w", err)
		}
		return kernel.Hold{}, nil
	}
	if older < 0 {
		return kernel.Hold{Back: true, From: e.Segments[0].At, Why: "the log has no image of the catalog, which a leader writes"}, nil
	}
	return kernel.Hold{Back: true, From: older, Why: fmt.Sprintf("the newest image of the catalog is at %d", older)}, nil
}

// write brings a whole image into the log, at its end.
func (i *imager) write(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("nothing was written: %w", err)
	}
	done := make(chan error, 1)
	err := func() error {
		i.order.Lock()
		defer i.order.Unlock()
		recs, settled, err := i.records(i.c.k.Sequencer.Ends, i.c.k.Clock.Now())
		if err == nil {
			i.c.k.Journal.Submit(recs, func(p kernel.Placed, err error) {
				settled(err == nil)
				if err == nil {
					i.found(p.Units[0].At)
				}
				done <- err
			})
		}
		return err
	}()
	if err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("waiting for the log: %w", ctx.Err())
	}
}

func (i *imager) found(at message.Position) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.newest, i.known = max(i.newest, at), true
}

// truncated forgets an image that may have been cut off.
func (i *imager) truncated(to message.Position) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.newest >= to {
		i.newest, i.known = 0, false
	}
}

// wholeAt tells whether an image begins at a position and has all of its parts. A
// crash may have cut the last ones off.
func (i *imager) wholeAt(ctx context.Context, at message.Position) (bool, error) {
	var c storage.Chunk
	defer c.Reset()
	var first header
	for part := uint64(0); ; part++ {
		c.Reset()
		if err := i.c.k.Store.Get(ctx, []message.Position{at}, &c); err != nil {
			return false, err
		}
		var v message.View
		if len(c.Units) != 1 || c.Units[0].Size == 0 || len(c.Frags) == 0 || message.Parse(c.Frags[0], &v) != nil ||
			v.CheckBody() != nil || string(v.Topic) != queue.Topic {
			return false, nil
		}
		h, _, err := readHeader(v.Body)
		if err != nil || h.kind != kindImage || h.part != part || part > 0 && (h.id != first.id || h.parts != first.parts) {
			return false, nil
		}
		if part == 0 {
			first = h
		}
		if part+1 == h.parts {
			return true, nil
		}
		at += message.Position(v.Size)
	}
}
