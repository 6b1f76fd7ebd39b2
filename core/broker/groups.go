package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hardpointmq/hardpoint/core/wiring"
)

// Groups are the broker groups of one process. They start and stop at the same time,
// and share nothing: the failure of one's store leaves the others serving. It
// implements wiring.Drainer.
type Groups struct{ all []*Broker }

var _ wiring.Drainer = (*Groups)(nil)

// NewGroups assembles broker groups, one or more, without I/O. The error names the
// group that it is about.
func NewGroups(ctx context.Context, groups ...Params) (*Groups, error) {
	g := &Groups{}
	var errs []error
	names := make([]string, len(groups))
	for i, p := range groups {
		names[i] = p.Config.Broker.Name
	}
	for _, p := range groups {
		p.leaving = names
		b, err := New(ctx, p)
		if err != nil {
			errs = append(errs, named(len(groups), p.Config.Broker.Name, err))
			continue
		}
		g.all = append(g.all, b)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return g, nil
}

// named tells of which of several groups an error is.
func named(groups int, name string, err error) error {
	if groups < 2 || err == nil {
		return err
	}
	return fmt.Errorf("broker %s: %w", name, err)
}

// All are the groups in the order in which they were given. It is the caller's.
func (g *Groups) All() []*Broker { return append([]*Broker(nil), g.all...) }

// title is how messages call them.
func (g *Groups) title() string {
	names := make([]string, len(g.all))
	for i, b := range g.all {
		names[i] = b.Name()
	}
	if len(names) == 1 {
		return "broker " + names[0]
	}
	return "brokers " + strings.Join(names, ", ")
}

// Start implements plugin.Component. When one group does not start, the others are
// stopped again, and the error names it.
func (g *Groups) Start(ctx context.Context) error {
	starting, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := g.each(func(b *Broker) error {
		err := named(len(g.all), b.Name(), b.Start(starting))
		if err != nil {
			cancel() // nobody need wait for the others
		}
		return err
	})
	if len(errs) == 0 {
		return nil
	}
	if own := slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return errors.Is(err, context.Canceled) }); len(own) > 0 {
		errs = own
	}
	stop := context.WithoutCancel(ctx)
	return errors.Join(append(errs, g.each(func(b *Broker) error { return named(len(g.all), b.Name(), b.Shutdown(stop)) })...)...)
}

// Drain implements wiring.Drainer: [Broker.Drain] of all groups. None leads producers
// to another one.
func (g *Groups) Drain(ctx context.Context) {
	_ = g.each(func(b *Broker) error {
		b.Drain(ctx)
		return nil
	})
}

// Shutdown implements plugin.Component: each group has all of the time.
func (g *Groups) Shutdown(ctx context.Context) error {
	return errors.Join(g.each(func(b *Broker) error {
		defer context.AfterFunc(ctx, func() {
			b.p.Logger.Warn("a broker takes long to stop", "name", b.Name())
		})()
		return named(len(g.all), b.Name(), b.Shutdown(ctx))
	})...)
}

// each calls f for all groups at the same time and returns what went wrong.
func (g *Groups) each(f func(*Broker) error) []error {
	done := make(chan error, len(g.all))
	for _, b := range g.all {
		go func() { done <- f(b) }()
	}
	var errs []error
	for range g.all {
		if err := <-done; err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}
