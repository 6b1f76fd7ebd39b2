package replicationmw

import (
	"context"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
)

// Base forwards to Replicator but for its facets, of which it offers none.
type Base struct{ replication.Replicator }

// Capabilities offers nothing.
func (Base) Capabilities() replication.Capabilities { return replication.Capabilities{} }

// Middleware decorates a replicator that was built with p.
type Middleware func(p replication.Params, next replication.Replicator) replication.Replicator

// Wrap makes a factory whose replicators are decorated, the first middleware
// being outermost. Name and description stay those of f.
func Wrap(f replication.Factory, mw ...Middleware) replication.Factory {
	build := func(ctx context.Context, p replication.Params, raw plugin.Raw) (replication.Replicator, error) {
		r, err := f.Build(ctx, p, raw)
		if err != nil {
			return nil, err
		}
		for i := len(mw) - 1; i >= 0; i-- {
			r = mw[i](p, r)
		}
		return r, nil
	}
	return plugin.NewRawFactory(f.Name(), f.Describe, build)
}
