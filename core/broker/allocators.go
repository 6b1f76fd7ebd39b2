package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/core/allocate/allocatemw"
	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/internal/assign"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/wiring"
)

// allocators are those that groups have asked for. Which ones is not known before:
// groups choose.
type allocators struct {
	cfg      *config.Config
	from     *wiring.Registry[allocate.Params, allocate.Allocator]
	settings func(name string) plugin.Settings

	mu     sync.Mutex
	m      map[string]*allocator
	closed bool
}

// allocator is an attempt to build one. over is closed when inst or err is there.
type allocator struct {
	over  chan struct{}
	abort context.CancelFunc
	inst  assign.Instance
	err   error
}

// unknownAllocator is the registry's error to the engine.
type unknownAllocator struct{ error }

func (unknownAllocator) Is(target error) bool { return target == assign.ErrUnknown }
func (e unknownAllocator) Unwrap() error      { return e.error }

// get gives the allocator of a name; the first call, and the first after one that
// failed, builds it. That may take as long as launching a process does, and goes on
// when ctx ends first.
func (l *allocators) get(ctx context.Context, name string) (assign.Instance, error) {
	f, err := l.from.Lookup(name)
	if err != nil {
		return assign.Instance{}, unknownAllocator{err}
	}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return assign.Instance{}, errors.New("the broker is shut down")
	}
	if l.m == nil {
		l.m = map[string]*allocator{}
	}
	a := l.m[name]
	if a == nil || a.failed() {
		a = &allocator{over: make(chan struct{})}
		var building context.Context // it outlives the request that comes first
		building, a.abort = context.WithCancel(context.Background())
		l.m[name] = a
		go func() {
			defer close(a.over)
			a.inst, a.err = l.build(building, name, f)
		}()
	}
	l.mu.Unlock()
	select {
	case <-a.over:
		return a.now(), a.err
	case <-ctx.Done():
		return assign.Instance{}, fmt.Errorf("allocator %s is still being started: %w", name, ctx.Err())
	}
}

func (l *allocators) build(ctx context.Context, name string, f allocate.Factory) (assign.Instance, error) {
	raw, err := l.cfg.PluginRaw("allocate", name)
	if err != nil {
		return assign.Instance{}, l.cfg.PluginError("allocate", name, err)
	}
	says, err := f.Describe(ctx, raw)
	if err != nil {
		return assign.Instance{}, l.cfg.PluginError("allocate", name, err)
	}
	s := l.settings(name)
	made, err := f.Build(ctx, allocate.Params{Settings: s}, raw)
	if err != nil {
		return assign.Instance{}, l.cfg.PluginError("allocate", name, err)
	}
	return assign.Instance{Plugin: allocatemw.Metrics(made, s), Version: says.Version}, nil
}

// failed reports whether the attempt is over, and nothing came of it.
func (a *allocator) failed() bool {
	select {
	case <-a.over:
		return a.err != nil
	default:
		return false
	}
}

// now is the instance; its program may have been replaced since it was built.
func (a *allocator) now() assign.Instance {
	i := a.inst
	if i.Plugin == nil {
		return i
	}
	if v := allocate.Version(i.Plugin); v != "" {
		i.Version = v
	}
	return i
}

// close gives back what the allocators hold, such as their processes. Nobody
// allocates any more. When ctx ends first the rest goes on.
func (l *allocators) close(ctx context.Context) error {
	l.mu.Lock()
	l.closed = true
	all := l.m
	l.m = nil
	l.mu.Unlock()
	done := make(chan error, 1)
	go func() {
		var errs []error
		for name, a := range all {
			a.abort()
			<-a.over
			if a.err == nil {
				if err := allocate.Close(a.inst.Plugin); err != nil {
					errs = append(errs, fmt.Errorf("allocator %s: %w", name, err))
				}
			}
		}
		done <- errors.Join(errs...)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// configured checks what is written about allocators.
func configured(ctx context.Context, cfg *config.Config, r *wiring.Registry[allocate.Params, allocate.Allocator]) (faults []error) {
	for name := range cfg.Plugins["allocate"] {
		if known(r, name) != nil {
			continue // said elsewhere
		}
		if _, err := chooseOne(ctx, cfg, r, "allocate", name, cfg.PluginRaw); err != nil {
			faults = append(faults, err)
		}
	}
	return faults
}
