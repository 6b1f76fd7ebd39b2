package wiretest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/hardpointmq/hardpoint/core/plugin"
)

// Starting is the life of a component whose Start takes until its context ends; a
// component of a test embeds it.
type Starting struct {
	entered chan struct{}
	once    sync.Once
	down    chan struct{} // closed when Shutdown was called

	mu      sync.Mutex
	starts  int
	overlap bool // Shutdown was called while Start was under way
}

var _ plugin.Component = (*Starting)(nil)

// NewStarting makes a Starting.
func NewStarting() *Starting {
	return &Starting{entered: make(chan struct{}), down: make(chan struct{})}
}

// Start implements plugin.Component.
func (s *Starting) Start(ctx context.Context) error {
	s.mu.Lock()
	s.starts++
	s.mu.Unlock()
	close(s.entered)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.down:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.overlap = true
		return errors.New("shut down before Start returned")
	}
}

// Shutdown implements plugin.Component.
func (s *Starting) Shutdown(context.Context) error {
	s.once.Do(func() { close(s.down) })
	return nil
}

// Check starts and shuts down an instance that has the component: Shutdown ends the
// context of a Start under way and waits for it, and no Start comes behind it, whose
// error matches none.
func (s *Starting) Check(t *testing.T, start, shutdown func(context.Context) error, none error) {
	t.Helper()
	started := make(chan error, 1)
	go func() { started <- start(t.Context()) }()
	<-s.entered
	if err := shutdown(t.Context()); err != nil {
		t.Error("shut down while it starts:", err)
	}
	if err := <-started; !errors.Is(err, context.Canceled) {
		t.Errorf("Start ended with %v, not because its context ended", err)
	}
	if err := start(t.Context()); !errors.Is(err, none) {
		t.Errorf("Start behind Shutdown returns %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.overlap {
		t.Error("Shutdown was called while Start was under way")
	}
	if s.starts != 1 {
		t.Errorf("it was started %d times", s.starts)
	}
}
