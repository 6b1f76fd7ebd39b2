package wire

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/sdk/wire/pluginpb"
)

// Loggers makes the logger of an instance, for the lowest level that the host
// wants. Nil discards.
type Loggers func(slog.Level) *slog.Logger

// Settings makes an instance's from what crossed.
func (l Loggers) Settings(s *pluginpb.Settings) plugin.Settings {
	out := plugin.Settings{Name: s.GetName(), Dir: s.GetDir()}
	if l != nil {
		out.Logger = l(slog.Level(s.GetLogLevel()))
	}
	return out.WithDefaults()
}

// Served is the plugin's half of one kind.
type Served interface {
	// Kind is its name, as [Storage].
	Kind() string
	// Names are the plugins of the kind, sorted.
	Names() []string
	// Describe is that of the plugin's factory.
	Describe(ctx context.Context, name string, raw plugin.Raw) (plugin.Description, error)
	// Register adds the services of the kind.
	Register(r grpc.ServiceRegistrar)
	// Close shuts down all instances, for a host that ended without doing so.
	Close(ctx context.Context) error
}

// Factories are those of one kind in a process; with them a Server of a kind is
// half a [Served].
type Factories[P, T any] struct {
	kind   string
	byName map[string]plugin.Factory[P, T]
}

// NewFactories makes Factories; of two with one name the last counts.
func NewFactories[P, T any](kind string, all ...plugin.Factory[P, T]) Factories[P, T] {
	f := Factories[P, T]{kind: kind, byName: map[string]plugin.Factory[P, T]{}}
	for _, one := range all {
		f.byName[one.Name()] = one
	}
	return f
}

// Kind implements [Served].
func (f *Factories[P, T]) Kind() string { return f.kind }

// Names implements [Served].
func (f *Factories[P, T]) Names() []string { return slices.Sorted(maps.Keys(f.byName)) }

// Lookup finds a factory by name.
func (f *Factories[P, T]) Lookup(name string) (plugin.Factory[P, T], error) {
	if one := f.byName[name]; one != nil {
		return one, nil
	}
	return nil, fmt.Errorf("%w: the plugin process does not serve the %s plugin %q, but %s", plugin.ErrConfig, f.kind, name, strings.Join(f.Names(), ", "))
}

// Describe implements [Served].
func (f *Factories[P, T]) Describe(ctx context.Context, name string, raw plugin.Raw) (plugin.Description, error) {
	one, err := f.Lookup(name)
	if err != nil {
		return plugin.Description{}, err
	}
	return one.Describe(ctx, raw)
}

// Register adds the services of all kinds, and the one that tells of them and of
// what m holds; m may be nil.
func Register(r grpc.ServiceRegistrar, m *Meter, served ...Served) {
	pluginpb.RegisterPluginServer(r, &pluginServer{served: served, meter: m})
	for _, s := range served {
		s.Register(r)
	}
}

type pluginServer struct {
	pluginpb.UnimplementedPluginServer
	served []Served
	meter  *Meter
}

// List implements pluginpb.PluginServer.
func (p *pluginServer) List(context.Context, *pluginpb.ListRequest) (*pluginpb.ListResponse, error) {
	out := &pluginpb.ListResponse{}
	for _, s := range p.served {
		for _, name := range s.Names() {
			out.Plugins = append(out.Plugins, &pluginpb.Served{Kind: s.Kind(), Name: name})
		}
	}
	return out, nil
}

// Describe implements pluginpb.PluginServer.
func (p *pluginServer) Describe(ctx context.Context, r *pluginpb.DescribeRequest) (*pluginpb.DescribeResponse, error) {
	d, err := p.describe(ctx, r)
	if err != nil {
		return &pluginpb.DescribeResponse{Failure: ToFailure(err)}, nil
	}
	return &pluginpb.DescribeResponse{Description: &pluginpb.Description{
		Name: d.Name, Version: d.Version, Contract: d.Contract, Facets: d.Facets, Needs: d.Needs,
		Publish: d.Publish, LargestRecord: d.LargestRecord, Schema: d.Schema,
	}}, nil
}

func (p *pluginServer) describe(ctx context.Context, r *pluginpb.DescribeRequest) (plugin.Description, error) {
	var kinds []string
	for _, s := range p.served {
		if s.Kind() == r.GetKind() {
			return s.Describe(ctx, r.GetName(), r.GetConfig())
		}
		kinds = append(kinds, s.Kind())
	}
	return plugin.Description{}, fmt.Errorf("%w: the plugin process serves no %s plugins, but %s", plugin.ErrConfig, r.GetKind(), strings.Join(kinds, ", "))
}
