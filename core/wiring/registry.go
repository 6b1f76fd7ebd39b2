package wiring

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.uber.org/fx"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/internal/suggest"
)

// ErrUnknownPlugin: no factory has that name. Test with errors.Is.
var ErrUnknownPlugin = errors.New("unknown plugin")

// ErrDuplicatePlugin: two factories of a kind have one name. Test with
// errors.Is.
var ErrDuplicatePlugin = errors.New("two plugins have the same name")

// Registry holds the factories of one kind by name; immutable.
type Registry[P, T any] struct {
	kind   string
	byName map[string]plugin.Factory[P, T]
}

// NewRegistry makes a registry; duplicates are refused.
func NewRegistry[P, T any](kind string, factories ...plugin.Factory[P, T]) (*Registry[P, T], error) {
	r := &Registry[P, T]{kind: kind, byName: map[string]plugin.Factory[P, T]{}}
	for _, f := range factories {
		if _, dup := r.byName[f.Name()]; dup {
			return nil, fmt.Errorf("%w: %s plugin %q is registered twice; give one of them another name", ErrDuplicatePlugin, kind, f.Name())
		}
		r.byName[f.Name()] = f
	}
	return r, nil
}

// Lookup finds a factory by its configured name; otherwise the error names all, and
// the one that was probably meant.
func (r *Registry[P, T]) Lookup(name string) (plugin.Factory[P, T], error) {
	if f := r.byName[name]; f != nil {
		return f, nil
	}
	return nil, fmt.Errorf("%w: there is no %s plugin %q; known are %s%s", ErrUnknownPlugin, r.kind, name, strings.Join(r.Names(), ", "), suggest.DidYouMean(name, maps.Keys(r.byName)))
}

// With returns a copy of the registry in which f stands for the plugin of its
// name: the same plugin in another form, such as a process of its own.
func (r *Registry[P, T]) With(f plugin.Factory[P, T]) *Registry[P, T] {
	c := &Registry[P, T]{kind: r.kind, byName: maps.Clone(r.byName)}
	c.byName[f.Name()] = f
	return c
}

// Names lists the names, sorted.
func (r *Registry[P, T]) Names() []string {
	return slices.Sorted(maps.Keys(r.byName))
}

// Plugins are the registries of all kinds.
type Plugins struct {
	Storage     *Registry[storage.Params, storage.Store]
	Allocate    *Registry[allocate.Params, allocate.Allocator]
	Replication *Registry[replication.Params, replication.Replicator]
	Transport   *Registry[transport.Params, transport.Transport]
}

const (
	groupStorage     = `group:"hardpoint.storage"`
	groupAllocate    = `group:"hardpoint.allocate"`
	groupReplication = `group:"hardpoint.replication"`
	groupTransport   = `group:"hardpoint.transport"`
)

func supply[F any](f F, group string) fx.Option {
	return fx.Provide(fx.Annotate(func() F { return f }, fx.ResultTags(group)))
}

// Storage registers a storage plugin.
func Storage(f storage.Factory) fx.Option { return supply(f, groupStorage) }

// Allocate registers an allocator.
func Allocate(f allocate.Factory) fx.Option { return supply(f, groupAllocate) }

// Replication registers a replication plugin.
func Replication(f replication.Factory) fx.Option { return supply(f, groupReplication) }

// Transport registers a transport.
func Transport(f transport.Factory) fx.Option { return supply(f, groupTransport) }

type groups struct {
	fx.In
	Storage     []storage.Factory     `group:"hardpoint.storage"`
	Allocate    []allocate.Factory    `group:"hardpoint.allocate"`
	Replication []replication.Factory `group:"hardpoint.replication"`
	Transport   []transport.Factory   `group:"hardpoint.transport"`
}

func newPlugins(g groups) (*Plugins, error) {
	return NewPlugins(g.Storage, g.Allocate, g.Replication, g.Transport)
}

// NewPlugins makes the registries without fx: for tests and embedders.
func NewPlugins(s []storage.Factory, a []allocate.Factory, r []replication.Factory, t []transport.Factory) (*Plugins, error) {
	var p Plugins
	var errs [4]error
	p.Storage, errs[0] = NewRegistry("storage", s...)
	p.Allocate, errs[1] = NewRegistry("allocate", a...)
	p.Replication, errs[2] = NewRegistry("replication", r...)
	p.Transport, errs[3] = NewRegistry("transport", t...)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	return &p, nil
}
