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
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/process"
	"github.com/hardpointmq/hardpoint/sdk/wire/transportwire/transportpb"
)

// Server is the plugin's half: it serves the transports of some factories. One
// process serves many instances.
type Server struct {
	transportpb.UnimplementedTransportServer

	wire.Factories[transport.Params, transport.Transport]
	loggers wire.Loggers
	open    *process.Instances[*instance]
	left    sync.WaitGroup // for the ends of the instances' connections
}

var _ wire.Served = (*Server)(nil)

// NewServer makes a Server.
func NewServer(loggers wire.Loggers, factories ...transport.Factory) *Server {
	return &Server{
		Factories: wire.NewFactories(wire.Transport, factories...), loggers: loggers, open: process.NewInstances[*instance](transport.ErrNotRunning),
	}
}

// Register implements wire.Served.
func (s *Server) Register(r grpc.ServiceRegistrar) { transportpb.RegisterTransportServer(r, s) }

// Close shuts down all instances, for a host that ended without doing so.
func (s *Server) Close(ctx context.Context) error {
	err := s.open.Close(func(i *instance) error {
		i.cancel() // no session waits for the host
		return i.shutdown(ctx)
	})
	s.left.Wait()
	return err
}

// Open implements transportpb.TransportServer.
func (s *Server) Open(ctx context.Context, r *transportpb.OpenRequest) (*transportpb.OpenResponse, error) {
	out, err := s.build(ctx, r)
	if err != nil {
		return &transportpb.OpenResponse{Failure: wire.ToFailure(err)}, nil
	}
	return out, nil
}

func (s *Server) build(ctx context.Context, r *transportpb.OpenRequest) (*transportpb.OpenResponse, error) {
	f, err := s.Lookup(r.GetPlugin())
	if err != nil {
		return nil, err
	}
	i := newInstance()
	p := transport.Params{Settings: s.loggers.Settings(r.GetSettings()), Distant: true}
	i.log, i.clock = p.Logger, p.Clock
	if i.t, err = f.Build(ctx, p, r.GetConfig()); err != nil {
		return nil, err
	}
	i.dialer = i.t.Capabilities().Dialer
	ln, err := data.Listen(r.GetSocketDir())
	if err != nil {
		return nil, errors.Join(err, i.t.Shutdown(ctx))
	}
	i.tasks.Go(func() { i.serve(ln) })
	id, err := s.open.Add(i, func(id uint64) {
		s.left.Go(func() {
			<-i.ctx.Done()
			if _, left := s.open.Take(id); left { // the host is gone, or gave it up
				i.giveUp()
			}
		})
	})
	if err != nil {
		return nil, errors.Join(err, i.shutdown(ctx))
	}
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
	i, err := s.open.Get(r.GetInstance())
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
	i, err := s.open.Get(r.GetInstance())
	if err != nil {
		return "", err
	}
	l := transport.Listen{Address: r.GetAddress(), Limits: fromLimits(r.GetLimits())}
	services := transport.Services{Frames: &handler{i: i, origin: r.GetListener()}}
	var ln transport.Listener
	if r.GetTicket() == 0 {
		ln, err = i.t.Serve(ctx, l, services)
	} else {
		ln, err = i.serveGiven(ctx, r.GetTicket(), l, services)
	}
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
	i, err := s.open.Get(instance)
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
	i, err := s.open.Get(r.GetInstance())
	if err != nil {
		return 0, err
	}
	if i.dialer == nil {
		return 0, fmt.Errorf("%w: the transport cannot connect to %q, it does not offer the facet %s", plugin.ErrUnavailable, r.GetAddress(), transport.FacetDialer)
	}
	h := &handler{i: i, origin: r.GetDial()}
	if _, err := i.dialer.Dial(ctx, r.GetAddress(), fromLimits(r.GetLimits()), nil, h); err != nil {
		return 0, err
	}
	return h.last.Load(), nil
}

// Shutdown implements transportpb.TransportServer.
func (s *Server) Shutdown(ctx context.Context, r *transportpb.ShutdownRequest) (*transportpb.ShutdownResponse, error) {
	i, ok := s.open.Take(r.GetInstance())
	if !ok {
		return &transportpb.ShutdownResponse{}, nil
	}
	err := i.reached(ctx, r.GetMark())
	return &transportpb.ShutdownResponse{Failure: wire.ToFailure(errors.Join(err, i.shutdown(ctx)))}, nil
}
