package transportwire

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
	"github.com/hardpointmq/hardpoint/sdk/wire/transportwire/transportpb"
)

// Server is the plugin's half: it serves the transports of some factories. One
// process serves many instances.
type Server struct {
	transportpb.UnimplementedTransportServer

	wire.Factories[transport.Params, transport.Transport]
	loggers wire.Loggers

	mu        sync.Mutex
	last      uint64
	instances map[uint64]*instance
	closed    bool
	left      sync.WaitGroup // instances that their host left
}

var _ wire.Served = (*Server)(nil)

// NewServer makes a Server.
func NewServer(loggers wire.Loggers, factories ...transport.Factory) *Server {
	return &Server{Factories: wire.NewFactories(wire.Transport, factories...), loggers: loggers, instances: map[uint64]*instance{}}
}

// Register implements wire.Served.
func (s *Server) Register(r grpc.ServiceRegistrar) { transportpb.RegisterTransportServer(r, s) }

// Close shuts down all instances, for a host that ended without doing so.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	all := s.instances
	s.instances = map[uint64]*instance{}
	s.mu.Unlock()
	var err error
	for _, i := range all {
		i.cancel() // no session waits for the host
		err = errors.Join(err, i.shutdown(ctx))
	}
	s.left.Wait()
	return err
}

func (s *Server) instance(id uint64) (*instance, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.instances[id]; i != nil {
		return i, nil
	}
	return nil, transport.ErrNotRunning
}

// leave shuts down an instance whose host is gone, or gave it up.
func (s *Server) leave(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.instances[id]; i != nil {
		delete(s.instances, id)
		s.left.Go(i.giveUp)
	}
}

// forget removes an instance; nil when it is not there.
func (s *Server) forget(id uint64) *instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.instances[id]
	delete(s.instances, id)
	return i
}

// Open implements transportpb.TransportServer.
func (s *Server) Open(ctx context.Context, r *transportpb.OpenRequest) (*transportpb.OpenResponse, error) {
	out, err := s.open(ctx, r)
	if err != nil {
		return &transportpb.OpenResponse{Failure: wire.ToFailure(err)}, nil
	}
	return out, nil
}

func (s *Server) open(ctx context.Context, r *transportpb.OpenRequest) (*transportpb.OpenResponse, error) {
	f, err := s.Lookup(r.GetPlugin())
	if err != nil {
		return nil, err
	}
	i := newInstance()
	p := transport.Params{Settings: s.loggers.Settings(r.GetSettings()), Distant: true}
	i.log = p.Logger
	if i.t, err = f.Build(ctx, p, r.GetConfig()); err != nil {
		return nil, err
	}
	i.dialer = i.t.Capabilities().Dialer
	ln, err := data.Listen(r.GetSocketDir())
	if err != nil {
		return nil, errors.Join(err, i.t.Shutdown(ctx))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		ln.Close()
		return nil, transport.ErrNotRunning
	}
	s.last++
	id := s.last
	s.instances[id] = i
	i.tasks.Go(func() {
		i.serve(ln)
		s.leave(id)
	})
	return &transportpb.OpenResponse{Instance: id, Facets: i.t.Capabilities().Facets(), Socket: ln.Path, Nonce: ln.Nonce}, nil
}

// giveUpTime bounds the end of an instance that the host left behind.
const giveUpTime = 10 * time.Second

func (i *instance) giveUp() {
	ctx, cancel := context.WithTimeout(context.Background(), giveUpTime)
	defer cancel()
	if err := i.shutdown(ctx); err != nil {
		i.log.Warn("an instance that the host left did not shut down", "error", err)
	}
}

// Start implements transportpb.TransportServer.
func (s *Server) Start(ctx context.Context, r *transportpb.StartRequest) (*transportpb.StartResponse, error) {
	i, err := s.instance(r.GetInstance())
	if err == nil {
		err = i.start(ctx)
	}
	return &transportpb.StartResponse{Failure: wire.ToFailure(err)}, nil
}

func fromLimits(l *transportpb.Limits) transport.Limits {
	return transport.Limits{
		Frame: int(l.GetFrame()), Header: int(l.GetHeader()), Connections: int(l.GetConnections()), PeerBytes: int(l.GetPeerBytes()),
		TotalBytes: l.GetTotalBytes(), ReadBytes: l.GetReadBytes(), Idle: time.Duration(l.GetIdle()),
	}
}

// Serve implements transportpb.TransportServer.
func (s *Server) Serve(ctx context.Context, r *transportpb.ServeRequest) (*transportpb.ServeResponse, error) {
	address, err := s.serve(ctx, r)
	return &transportpb.ServeResponse{Address: address, Failure: wire.ToFailure(err)}, nil
}

func (s *Server) serve(ctx context.Context, r *transportpb.ServeRequest) (string, error) {
	i, err := s.instance(r.GetInstance())
	if err != nil {
		return "", err
	}
	ln, err := i.t.Serve(ctx, transport.Listen{Address: r.GetAddress(), Limits: fromLimits(r.GetLimits())},
		transport.Services{Frames: &handler{i: i, origin: r.GetListener()}})
	if err != nil {
		return "", err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.listeners[r.GetListener()] = ln
	return ln.Address(), nil
}

// Drain implements transportpb.TransportServer.
func (s *Server) Drain(ctx context.Context, r *transportpb.DrainRequest) (*transportpb.DrainResponse, error) {
	ln, err := s.listener(ctx, r.GetInstance(), r.GetListener(), r.GetMark(), false)
	if err == nil && ln != nil {
		err = ln.Drain(ctx)
	}
	return &transportpb.DrainResponse{Failure: wire.ToFailure(err)}, nil
}

// CloseListener implements transportpb.TransportServer.
func (s *Server) CloseListener(ctx context.Context, r *transportpb.CloseListenerRequest) (*transportpb.CloseListenerResponse, error) {
	ln, err := s.listener(ctx, r.GetInstance(), r.GetListener(), r.GetMark(), true)
	if err == nil && ln != nil {
		err = ln.Close()
	}
	return &transportpb.CloseListenerResponse{Failure: wire.ToFailure(err)}, nil
}

// listener finds one when the mark has come; nil without an error when it is
// closed.
func (s *Server) listener(ctx context.Context, instance, num, mark uint64, forget bool) (transport.Listener, error) {
	i, err := s.instance(instance)
	if err != nil {
		return nil, err
	}
	if err := i.reached(ctx, mark); err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	ln := i.listeners[num]
	if forget {
		delete(i.listeners, num)
	}
	return ln, nil
}

// Dial implements transportpb.TransportServer.
func (s *Server) Dial(ctx context.Context, r *transportpb.DialRequest) (*transportpb.DialResponse, error) {
	num, err := s.dial(ctx, r)
	return &transportpb.DialResponse{Peer: num, Failure: wire.ToFailure(err)}, nil
}

func (s *Server) dial(ctx context.Context, r *transportpb.DialRequest) (uint64, error) {
	i, err := s.instance(r.GetInstance())
	if err != nil {
		return 0, err
	}
	if i.dialer == nil {
		return 0, fmt.Errorf("%w: the transport plugin %q cannot connect, it does not offer the facet %s", plugin.ErrUnavailable, r.GetAddress(), transport.FacetDialer)
	}
	h := &handler{i: i, origin: r.GetDial()}
	if _, err := i.dialer.Dial(ctx, r.GetAddress(), fromLimits(r.GetLimits()), nil, h); err != nil {
		return 0, err
	}
	return h.last.Load(), nil
}

// Shutdown implements transportpb.TransportServer.
func (s *Server) Shutdown(ctx context.Context, r *transportpb.ShutdownRequest) (*transportpb.ShutdownResponse, error) {
	i := s.forget(r.GetInstance())
	if i == nil {
		return &transportpb.ShutdownResponse{}, nil
	}
	err := i.reached(ctx, r.GetMark())
	return &transportpb.ShutdownResponse{Failure: wire.ToFailure(errors.Join(err, i.shutdown(ctx)))}, nil
}
