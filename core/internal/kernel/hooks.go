package kernel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// Hooks are what several behaviours need of each other's events. Constructors
// register; nothing registers after Start. Hooks of a kind run in order of
// registration, stop hooks in the opposite one.
type Hooks struct {
	start        []func(ctx context.Context) error
	stop         []func(ctx context.Context) error
	published    []func(upTo message.Position, units []message.Unit)
	truncated    []func(to message.Position)
	expired      []func(first message.Position)
	role         []func(ctx context.Context, r replication.Role) error
	leave        []func()
	disconnect   []func(c *Conn)
	topicRemoved []func(topic string)
	topicChanged []func(topic string)
	groupRemoved []func(group string)
	offsetReset  []func(group string, q message.Queue)
	beforeExpire []Holder

	groupAttributes map[string]GroupAttribute
}

// GroupAttribute is an attribute of consumer groups that a behaviour serves.
type GroupAttribute struct {
	// Check refuses a value; the error says what is allowed.
	Check func(value string) error
	// Changed is called after a tool changed it of a group; it must not block.
	Changed func(group string)
}

// OnGroupAttribute registers an attribute of groups; a name has one behaviour.
func (h *Hooks) OnGroupAttribute(name string, a GroupAttribute) {
	if _, dup := h.groupAttributes[name]; dup {
		panic(fmt.Sprintf("kernel: group attribute %s has two behaviours", name))
	}
	if h.groupAttributes == nil {
		h.groupAttributes = map[string]GroupAttribute{}
	}
	h.groupAttributes[name] = a
}

// GroupAttributes are the attributes of groups that are served, by name; the map is
// not to be changed.
func (h *Hooks) GroupAttributes() map[string]GroupAttribute { return h.groupAttributes }

// OnStart and OnStop bracket the life of a behaviour: after the first office,
// before the transports listen, and in reverse.
func (h *Hooks) OnStart(f func(ctx context.Context) error) { h.start = append(h.start, f) }

// OnStop registers a stop hook; it may run although Start failed or never ran.
func (h *Hooks) OnStop(f func(ctx context.Context) error) { h.stop = append(h.stop, f) }

// OnPublished is called when records became readable; it must not block.
func (h *Hooks) OnPublished(f func(upTo message.Position, units []message.Unit)) {
	h.published = append(h.published, f)
}

// OnTruncated is called when the log was cut below what was published.
func (h *Hooks) OnTruncated(f func(to message.Position)) { h.truncated = append(h.truncated, f) }

// OnExpired is called when retention dropped segments.
func (h *Hooks) OnExpired(f func(first message.Position)) { h.expired = append(h.expired, f) }

// OnBeforeExpire registers who is asked before segments are dropped.
func (h *Hooks) OnBeforeExpire(x Holder) { h.beforeExpire = append(h.beforeExpire, x) }

// Holders are who is asked before segments are dropped; not to be changed.
func (h *Hooks) Holders() []Holder { return h.beforeExpire }

// OnRole is called at each change of office.
func (h *Hooks) OnRole(f func(ctx context.Context, r replication.Role) error) {
	h.role = append(h.role, f)
}

// OnLeave is called when a broker that stops reads nothing of clients any more, right
// before their connections are closed: what waits for something is answered, since the
// clients of some languages wait for an answer however their connection ends. It must
// not block.
func (h *Hooks) OnLeave(f func()) { h.leave = append(h.leave, f) }

// Leave runs the hooks.
func (h *Hooks) Leave() {
	for _, f := range h.leave {
		f()
	}
}

// OnDisconnect is called when a connection is gone.
func (h *Hooks) OnDisconnect(f func(c *Conn)) { h.disconnect = append(h.disconnect, f) }

// OnTopicChanged is called after a topic was created, changed or removed.
func (h *Hooks) OnTopicChanged(f func(topic string)) { h.topicChanged = append(h.topicChanged, f) }

// OnTopicRemoved is called after a topic was removed.
func (h *Hooks) OnTopicRemoved(f func(topic string)) { h.topicRemoved = append(h.topicRemoved, f) }

// OnGroupRemoved is called after a group was removed.
func (h *Hooks) OnGroupRemoved(f func(group string)) { h.groupRemoved = append(h.groupRemoved, f) }

// OnOffsetReset is called after the progress of a group in a queue was set by a tool;
// it must not block.
func (h *Hooks) OnOffsetReset(f func(group string, q message.Queue)) {
	h.offsetReset = append(h.offsetReset, f)
}

// OffsetReset runs the hooks; the catalog calls it.
func (h *Hooks) OffsetReset(group string, q message.Queue) {
	for _, f := range h.offsetReset {
		f(group, q)
	}
}

// TopicChanged runs the hooks; the catalog calls it, removed tells how.
func (h *Hooks) TopicChanged(topic string, removed bool) {
	if removed {
		for _, f := range h.topicRemoved {
			f(topic)
		}
	}
	for _, f := range h.topicChanged {
		f(topic)
	}
}

// GroupRemoved runs the hooks; the catalog calls it.
func (h *Hooks) GroupRemoved(group string) {
	for _, f := range h.groupRemoved {
		f(group)
	}
}

// Start runs the start hooks; when one fails, the stop hooks of those that ran
// are the caller's to run with Stop.
func (h *Hooks) Start(ctx context.Context) error {
	for _, f := range h.start {
		if err := f(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Stop runs all stop hooks in reverse and returns their errors. Each may take its
// share of the time that ctx leaves. One that has not returned then is left behind,
// so that the next ones, and the store after them, have their turn: what it waits
// for may be a store that hangs.
func (h *Hooks) Stop(ctx context.Context) error {
	var errs []error
	for i := len(h.stop) - 1; i >= 0; i-- {
		one, cancel := ctx, context.CancelFunc(func() {})
		if d, ok := ctx.Deadline(); ok {
			one, cancel = context.WithTimeout(ctx, time.Until(d)/time.Duration(i+1))
		}
		done := make(chan error, 1)
		go func() { done <- h.stop[i](one) }()
		select {
		case err := <-done:
			errs = append(errs, err)
		case <-one.Done():
			errs = append(errs, fmt.Errorf("stop hook %d of %d did not return: %w", i+1, len(h.stop), one.Err()))
		}
		cancel()
	}
	return errors.Join(errs...)
}

// Events gives the store what runs the hooks; failed is called once.
func (h *Hooks) Events(failed func(error)) storage.Events {
	return storage.Events{
		Published: func(upTo message.Position, units []message.Unit) {
			for _, f := range h.published {
				f(upTo, units)
			}
		},
		Truncated: func(to message.Position) {
			for _, f := range h.truncated {
				f(to)
			}
		},
		Expired: func(first message.Position) {
			for _, f := range h.expired {
				f(first)
			}
		},
		Failed: failed,
	}
}
