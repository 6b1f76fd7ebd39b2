// Package process is what the halves of all kinds in a plugin process have in common.
package process

import (
	"errors"
	"fmt"
	"sync"

	"github.com/hardpointmq/hardpoint/core/plugin"
)

// Instances are those of one kind in a plugin process, by the numbers under which
// hosts know them; no number is given twice. Make it with [NewInstances]. Safe for
// concurrent use.
type Instances[I any] struct {
	none error

	mu     sync.Mutex
	last   uint64
	byID   map[uint64]I
	closed bool
}

// NewInstances makes Instances without any. The error for a number that has none
// matches none.
func NewInstances[I any](none error) *Instances[I] {
	return &Instances[I]{none: none, byID: map[uint64]I{}}
}

// Add gives an instance its number. begin, which may be nil, is called before anybody
// else can find it, and must not call back. After Close the error matches
// plugin.ErrUnavailable, and the instance remains the caller's to end.
func (s *Instances[I]) Add(i I, begin func(id uint64)) (id uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, fmt.Errorf("%w: the process ends", plugin.ErrUnavailable)
	}
	s.last++
	s.byID[s.last] = i
	if begin != nil {
		begin(s.last)
	}
	return s.last, nil
}

// Get finds an instance.
func (s *Instances[I]) Get(id uint64) (i I, err error) {
	err = s.Hold(id, func(found I) error { i = found; return nil })
	return i, err
}

// Hold calls f with an instance that nobody takes away meanwhile. f must not call
// back; its error is returned.
func (s *Instances[I]) Hold(id uint64, f func(I) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := s.byID[id]
	if !ok {
		return fmt.Errorf("%w: the process has no open instance %d", s.none, id)
	}
	return f(i)
}

// Take removes an instance; whoever gets it ends it, nobody else.
func (s *Instances[I]) Take(id uint64) (i I, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok = s.byID[id]
	delete(s.byID, id)
	return i, ok
}

// Close takes all instances, ends them, all at the same time, and waits for that.
// None is added any more. It joins the errors of end.
func (s *Instances[I]) Close(end func(I) error) error {
	s.mu.Lock()
	s.closed = true
	all := s.byID
	s.byID = map[uint64]I{}
	s.mu.Unlock()
	var tasks sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for _, i := range all {
		tasks.Go(func() {
			err := end(i)
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	tasks.Wait()
	return errors.Join(errs...)
}
