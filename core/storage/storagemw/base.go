package storagemw

import (
	"context"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// Base forwards to Store but for its facets, of which it offers none.
type Base struct{ storage.Store }

// Capabilities offers no facet and keeps what is true whatever is decorated.
func (b Base) Capabilities() storage.Capabilities {
	c := b.Store.Capabilities()
	return storage.Capabilities{Survives: c.Survives, ExpiresBeside: c.ExpiresBeside}
}

// Middleware decorates a store that was built with p.
type Middleware func(p storage.Params, next storage.Store) storage.Store

// Wrap makes a factory whose stores are decorated, the first middleware being
// outermost. Name and description stay those of f.
func Wrap(f storage.Factory, mw ...Middleware) storage.Factory {
	build := func(ctx context.Context, p storage.Params, raw plugin.Raw) (storage.Store, error) {
		s, err := f.Build(ctx, p, raw)
		if err != nil {
			return nil, err
		}
		for i := len(mw) - 1; i >= 0; i-- {
			s = mw[i](p, s)
		}
		return s, nil
	}
	return plugin.NewRawFactory(f.Name(), f.Describe, build)
}
