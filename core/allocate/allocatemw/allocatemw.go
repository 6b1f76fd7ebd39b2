// Package allocatemw has decorators of the allocation contract.
package allocatemw

import (
	"context"
	"io"
	"time"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/core/plugin"
)

var (
	_ io.Closer            = decorated{}
	_ allocate.Replaceable = decorated{}
)

// decorated is an allocator in front of another, which it closes.
type decorated struct {
	allocate.Func
	next allocate.Allocator
}

// Close implements io.Closer.
func (d decorated) Close() error { return allocate.Close(d.next) }

// Version implements allocate.Replaceable.
func (d decorated) Version() string { return allocate.Version(d.next) }

// Metrics counts and times the calls of an allocator.
func Metrics(next allocate.Allocator, s plugin.Settings) allocate.Allocator {
	s = s.WithDefaults()
	l := plugin.Label{Name: "allocator", Value: s.Name}
	took := s.Meter.Histogram("allocate_seconds", "Time of one allocation of a group.", l)
	failed := s.Meter.Counter("allocate_failures_total", "Allocations that failed.", l)
	return decorated{next: next, Func: func(ctx context.Context, r *allocate.Request) (allocate.Assignment, error) {
		began := s.Clock.Now()
		a, err := next.Allocate(ctx, r)
		took.Observe(s.Clock.Now().Sub(began).Seconds())
		if err != nil {
			failed.Add(1)
		}
		return a, err
	}}
}

// Faults calls before ahead of each allocation; its error is the answer.
func Faults(next allocate.Allocator, before func(r *allocate.Request) error) allocate.Allocator {
	return decorated{next: next, Func: func(ctx context.Context, r *allocate.Request) (allocate.Assignment, error) {
		if err := before(r); err != nil {
			return allocate.Assignment{}, err
		}
		return next.Allocate(ctx, r)
	}}
}

// Timeout ends the context of each allocation after d. An allocator that does not
// look at its context takes as long as it takes.
func Timeout(next allocate.Allocator, d time.Duration) allocate.Allocator {
	return decorated{next: next, Func: func(ctx context.Context, r *allocate.Request) (allocate.Assignment, error) {
		ctx, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		return next.Allocate(ctx, r)
	}}
}
