package process

import (
	"context"
	"fmt"
	"time"

	"github.com/hardpointmq/hardpoint/core/plugin"
)

// lateTime bounds a Shutdown that its caller did not wait for.
const lateTime = 10 * time.Second

// Life is that of a component in a plugin process. A host that gave up its call of
// Start calls Shutdown, and a connection may end at any time: Life puts both one after
// the other, and no Start comes behind a Shutdown, for nobody would end what it begins.
// Make it with [NewLife]. Safe for concurrent use.
type Life struct {
	none error

	turn  chan struct{}   // a lock
	begun bool            // by Start; has the turn
	over  context.Context // ends with the first Shutdown
	end   context.CancelFunc
}

// NewLife makes the Life of a component that was not started. The error of a Start that
// comes behind Shutdown matches none.
func NewLife(none error) *Life {
	l := &Life{none: none, turn: make(chan struct{}, 1)}
	l.over, l.end = context.WithCancel(context.Background())
	return l
}

// take takes the turn; it fails with ctx's error when that ends before the turn is free.
func (l *Life) take(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}: // also when ctx has ended
		return nil
	default:
	}
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *Life) give() { <-l.turn }

// Start calls start, whose context a Shutdown ends, and returns its error. A second one
// is an error that matches plugin.ErrUnavailable.
func (l *Life) Start(ctx context.Context, start func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.over, cancel)()
	err := l.take(ctx)
	if err == nil {
		defer l.give()
	}
	switch {
	case l.over.Err() != nil:
		return fmt.Errorf("%w: the host shut it down already", l.none)
	case err != nil:
		return err
	case l.begun:
		return fmt.Errorf("%w: the host starts an instance a second time", plugin.ErrUnavailable)
	}
	l.begun = true
	return start(ctx)
}

// Shutdown calls shutdown, when a Start that is under way has returned, and returns its
// error. When ctx ends before that, it returns ctx's, and shutdown is called beside the
// caller as soon as Start has returned.
func (l *Life) Shutdown(ctx context.Context, shutdown func(context.Context) error) error {
	l.end()
	if err := l.take(ctx); err != nil {
		go func() {
			l.turn <- struct{}{}
			defer l.give()
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lateTime)
			defer cancel()
			_ = shutdown(ctx) // nobody waits for it
		}()
		return fmt.Errorf("its Start does not return although its context has ended: %w", err)
	}
	defer l.give()
	return shutdown(ctx)
}
