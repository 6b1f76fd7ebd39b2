package allocatewire

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/grpc"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/allocatewire/allocatepb"
)

// Server is the plugin's half: it serves the allocators of some factories. One
// process serves many instances.
type Server struct {
	wire.Factories[allocate.Params, allocate.Allocator]
	loggers wire.Loggers

	mu        sync.Mutex
	last      uint64
	instances map[uint64]instance
	closed    bool
}

type instance struct {
	plugin string
	a      allocate.Allocator
}

var _ wire.Served = (*Server)(nil)

// NewServer makes a Server.
func NewServer(loggers wire.Loggers, factories ...allocate.Factory) *Server {
	return &Server{Factories: wire.NewFactories(wire.Allocate, factories...), loggers: loggers, instances: map[uint64]instance{}}
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
	s.mu.Lock()
	s.closed = true
	all := s.instances
	s.instances = map[uint64]instance{}
	s.mu.Unlock()
	var errs []error
	for _, i := range all {
		errs = append(errs, allocate.Close(i.a))
	}
	return errors.Join(errs...)
}

// Open implements allocatepb.AllocateServer.
func (v service) Open(ctx context.Context, r *allocatepb.OpenRequest) (*allocatepb.OpenResponse, error) {
	id, err := v.s.open(ctx, r)
	return &allocatepb.OpenResponse{Instance: id, Failure: wire.ToFailure(err)}, nil
}

var errEnding = fmt.Errorf("%w: the process ends", plugin.ErrUnavailable)

func (s *Server) open(ctx context.Context, r *allocatepb.OpenRequest) (uint64, error) {
	f, err := s.Lookup(r.GetPlugin())
	if err != nil {
		return 0, err
	}
	a, err := f.Build(ctx, allocate.Params{Settings: s.loggers.Settings(r.GetSettings())}, r.GetConfig())
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, errors.Join(errEnding, allocate.Close(a))
	}
	s.last++
	s.instances[s.last] = instance{f.Name(), a}
	return s.last, nil
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
	s.mu.Lock()
	i, open := s.instances[m.GetInstance()]
	s.mu.Unlock()
	if !open {
		return nil, fmt.Errorf("%w: the process has no open allocator %d", plugin.ErrUnavailable, m.GetInstance())
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
	return &allocatepb.CloseResponse{Failure: wire.ToFailure(v.s.drop(r.GetInstance()))}, nil
}

func (s *Server) drop(id uint64) error {
	s.mu.Lock()
	i := s.instances[id]
	delete(s.instances, id)
	s.mu.Unlock()
	return allocate.Close(i.a)
}
