package external

import (
	"context"
	"path/filepath"

	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/pluginpb"
)

// Inspection is what a program tells of itself.
type Inspection struct {
	// Plugins are what it serves, in its order.
	Plugins []Served
	// Noise are the first lines that it printed on standard output, which belongs to
	// the handshake. A host logs them and goes on.
	Noise []string
}

// Served is a plugin that a program serves.
type Served struct{ Kind, Name string }

// Inspect starts a program, asks what it serves, and ends it. Errors match
// plugin.ErrUnavailable and say why it did not start.
func Inspect(ctx context.Context, cmd Command, o Options) (*Inspection, error) {
	o.Linger = -1
	l := newLauncher(&wire.Contract{}, filepath.Base(cmd.Path), cmd, o)
	acquired, err := l.Acquire(ctx, nil)
	if err != nil {
		return nil, err
	}
	p := acquired.(*process)
	defer p.Release(false)
	r, err := pluginpb.NewPluginClient(p.Conn()).List(ctx, &pluginpb.ListRequest{})
	if err = wire.FromRPC(ctx, err, nil); err != nil {
		return nil, err
	}
	out := &Inspection{Noise: p.out.noise()}
	for _, s := range r.GetPlugins() {
		out.Plugins = append(out.Plugins, Served{s.GetKind(), s.GetName()})
	}
	return out, nil
}
