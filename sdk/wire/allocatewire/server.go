package allocatewire

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/allocatewire/allocatepb"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/process"
)

// Server is the plugin's half: it serves the allocators of some factories. One
// process serves many instances.
type Server struct {
	wire.Factories[allocate.Params, allocate.Allocator]
	loggers wire.Loggers
	open    *process.Instances[instance]
}

type instance struct {
	plugin string
	a      allocate.Allocator
}

var _ wire.Served = (*Server)(nil)

// NewServer makes a Server.
func NewServer(loggers wire.Loggers, factories ...allocate.Factory) *Server {
	return &Server{
		Factories: wire.NewFactories(wire.Allocate, factories...), loggers: loggers, open: process.NewInstances[instance](plugin.ErrUnavailable),
	}
}

// Register implements wire.Served.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	allocatepb.RegisterAllocateServer(r, service{s: s})
}

// service is a Server on the wire: both have a Close of their own.
type service struct {
	allocatepb.UnimplementedAllocateServer
	s *Server
}

// Close implements wire.Served.
func (s *Server) Close(context.Context) error {
	return s.open.Close(func(i instance) error { return allocate.Close(i.a) })
}

// Open implements allocatepb.AllocateServer.
func (v service) Open(ctx context.Context, r *allocatepb.OpenRequest) (*allocatepb.OpenResponse, error) {
	id, err := v.s.build(ctx, r)
	return &allocatepb.OpenResponse{Instance: id, Failure: wire.ToFailure(err)}, nil
}

func (s *Server) build(ctx context.Context, r *allocatepb.OpenRequest) (uint64, error) {
	f, err := s.Lookup(r.GetPlugin())
	if err != nil {
		return 0, err
	}
	a, err := f.Build(ctx, allocate.Params{Settings: s.loggers.Settings(r.GetSettings())}, r.GetConfig())
	if err != nil {
		return 0, err
	}
	id, err := s.open.Add(instance{f.Name(), a}, nil)
	if err != nil {
		return 0, errors.Join(err, allocate.Close(a))
	}
	return id, nil
}

// Allocate implements allocatepb.AllocateServer.
func (v service) Allocate(ctx context.Context, m *allocatepb.AllocateRequest) (*allocatepb.AllocateResponse, error) {
	a, err := v.s.allocate(ctx, m)
	if err != nil {
		return &allocatepb.AllocateResponse{Failure: wire.ToFailure(err)}, nil
	}
	return toAnswer(a), nil
}

func (s *Server) allocate(ctx context.Context, m *allocatepb.AllocateRequest) (*allocate.Assignment, error) {
	i, err := s.open.Get(m.GetInstance())
	if err != nil {
		return nil, err
	}
	r, err := fromRequest(m)
	if err != nil {
		return nil, err
	}
	a, err := i.a.Allocate(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := a.Check(r); err != nil {
		return nil, faulty(i.plugin, err)
	}
	return &a, nil
}

// faulty is the error of an allocator whose answer is none.
func faulty(name string, err error) error {
	return fmt.Errorf("allocate plugin %q: %w; this is a fault of the plugin", name, err)
}

// Close implements allocatepb.AllocateServer.
func (v service) Close(_ context.Context, r *allocatepb.CloseRequest) (*allocatepb.CloseResponse, error) {
	i, ok := v.s.open.Take(r.GetInstance())
	if !ok {
		return &allocatepb.CloseResponse{}, nil
	}
	return &allocatepb.CloseResponse{Failure: wire.ToFailure(allocate.Close(i.a))}, nil
}
