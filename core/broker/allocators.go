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

type allocator struct {
	mu    sync.Mutex // one builds, the others wait for it
	built bool
	inst  assign.Instance
}

// unknownAllocator is the registry's error to the engine.
type unknownAllocator struct{ error }

func (unknownAllocator) Is(target error) bool { return target == assign.ErrUnknown }
func (e unknownAllocator) Unwrap() error      { return e.error }

// get gives the allocator of a name; the first call builds it.
func (l *allocators) get(name string) (assign.Instance, error) {
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
	if a == nil {
		a = &allocator{}
		l.m[name] = a
	}
	l.mu.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.built {
		return a.now(), nil
	}
	ctx := context.Background() // it outlives the request that comes first
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
	a.built, a.inst = true, assign.Instance{Plugin: allocatemw.Metrics(made, s), Version: says.Version}
	return a.inst, nil
}

// now is the instance; its program may have been replaced since it was built.
func (a *allocator) now() assign.Instance {
	i := a.inst
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
			a.mu.Lock()
			if a.built {
				if err := allocate.Close(a.inst.Plugin); err != nil {
					errs = append(errs, fmt.Errorf("allocator %s: %w", name, err))
				}
			}
			a.mu.Unlock()
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
