package storagewire

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/process"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire/storagepb"
)

// Server is the plugin's half: it serves the stores of some factories. One
// process serves many instances.
type Server struct {
	storagepb.UnimplementedStorageServer

	wire.Factories[storage.Params, storage.Store]
	loggers wire.Loggers
	open    *process.Instances[*instance]
	stream  bool // in place of data sockets
}

var _ wire.Served = (*Server)(nil)

// NewServer makes a Server.
func NewServer(loggers wire.Loggers, factories ...storage.Factory) *Server {
	return &Server{
		Factories: wire.NewFactories(wire.Storage, factories...), loggers: loggers, open: process.NewInstances[*instance](storage.ErrNotRunning),
	}
}

// Register implements wire.Served.
func (s *Server) Register(r grpc.ServiceRegistrar) { storagepb.RegisterStorageServer(r, s) }

// Close shuts down all instances, for a host that ended without doing so.
func (s *Server) Close(ctx context.Context) error {
	return s.open.Close(func(i *instance) error { return i.shutdown(ctx) })
}

// params are those of an instance without events.
func (s *Server) params(p *storagepb.Params) storage.Params {
	out := storage.Params{
		Settings: s.loggers.Settings(p.GetSettings()),
		Segment:  p.GetSegment(), Index: message.IndexRules{DelayLevels: p.GetDelayLevels()}, LogID: p.GetLogId(),
	}
	if p.GetExplicitPublish() {
		out.Publish = storage.Explicit
	}
	return out
}

func toParams(p *storage.Params) *storagepb.Params {
	return &storagepb.Params{
		Settings: wire.ToSettings(&p.Settings), Segment: p.Segment, ExplicitPublish: p.Publish == storage.Explicit,
		DelayLevels: p.Index.DelayLevels, LogId: p.LogID,
	}
}

func (s *Server) capabilities(c storage.Capabilities) *storagepb.Capabilities {
	return &storagepb.Capabilities{
		Facets: c.Facets(), SurvivesProcessDeath: c.Survives == storage.SurvivesProcessDeath,
		ExpiresBeside: c.Retention != nil && c.ExpiresBeside && !s.stream,
	}
}

// Probe implements storagepb.StorageServer.
func (s *Server) Probe(ctx context.Context, r *storagepb.ProbeRequest) (*storagepb.ProbeResponse, error) {
	caps, err := s.probe(ctx, r)
	return &storagepb.ProbeResponse{Capabilities: caps, Failure: wire.ToFailure(err)}, nil
}

func (s *Server) probe(ctx context.Context, r *storagepb.ProbeRequest) (*storagepb.Capabilities, error) {
	f, err := s.Lookup(r.GetPlugin())
	if err != nil {
		return nil, err
	}
	st, err := f.Build(ctx, s.params(r.GetParams()), r.GetConfig())
	if err != nil {
		return nil, err
	}
	caps := s.capabilities(st.Capabilities())
	if err := st.Shutdown(ctx); err != nil {
		return nil, fmt.Errorf("shut down a store that was never started: %w", err)
	}
	return caps, nil
}

// Open implements storagepb.StorageServer.
func (s *Server) Open(ctx context.Context, r *storagepb.OpenRequest) (*storagepb.OpenResponse, error) {
	out, err := s.build(ctx, r)
	if err != nil {
		return &storagepb.OpenResponse{Failure: wire.ToFailure(err)}, nil
	}
	return out, nil
}

func (s *Server) build(ctx context.Context, r *storagepb.OpenRequest) (*storagepb.OpenResponse, error) {
	f, err := s.Lookup(r.GetPlugin())
	if err != nil {
		return nil, err
	}
	i := newInstance()
	p := s.params(r.GetParams())
	i.logger = p.Logger
	p.Events = i.events()
	if i.store, err = f.Build(ctx, p, r.GetConfig()); err != nil {
		return nil, err
	}
	i.caps = i.store.Capabilities()
	out := &storagepb.OpenResponse{Capabilities: s.capabilities(i.caps)}
	i.beside = out.Capabilities.ExpiresBeside
	if !s.stream {
		if i.ln, err = data.Listen(r.GetSocketDir()); err != nil {
			return nil, errors.Join(err, i.shutdown(ctx))
		}
		out.Socket, out.Nonce = i.ln.Path, i.ln.Nonce
		out.CallConnections = min(r.GetCallConnections(), mostCallConnections)
		i.tasks.Go(func() { i.accept(out.CallConnections) })
	}
	if out.Instance, err = s.open.Add(i, nil); err != nil {
		return nil, errors.Join(err, i.shutdown(ctx))
	}
	return out, nil
}

// Start implements storagepb.StorageServer.
func (s *Server) Start(ctx context.Context, r *storagepb.StartRequest) (*storagepb.StartResponse, error) {
	i, err := s.open.Get(r.GetInstance())
	if err == nil {
		err = i.start(ctx)
	}
	if err != nil {
		return &storagepb.StartResponse{Failure: wire.ToFailure(err)}, nil
	}
	return &storagepb.StartResponse{State: i.state()}, nil
}

// Shutdown implements storagepb.StorageServer.
func (s *Server) Shutdown(ctx context.Context, r *storagepb.ShutdownRequest) (*storagepb.ShutdownResponse, error) {
	i, ok := s.open.Take(r.GetInstance())
	if !ok {
		return &storagepb.ShutdownResponse{}, nil
	}
	return &storagepb.ShutdownResponse{Failure: wire.ToFailure(i.shutdown(ctx))}, nil
}

// State implements storagepb.StorageServer.
func (s *Server) State(_ context.Context, r *storagepb.StateRequest) (*storagepb.StateResponse, error) {
	i, err := s.open.Get(r.GetInstance())
	if err != nil {
		return &storagepb.StateResponse{Failure: wire.ToFailure(err)}, nil
	}
	return &storagepb.StateResponse{State: i.state()}, nil
}

// Segments implements storagepb.StorageServer.
func (s *Server) Segments(ctx context.Context, r *storagepb.SegmentsRequest) (*storagepb.SegmentsResponse, error) {
	out := &storagepb.SegmentsResponse{}
	i, err := s.open.Get(r.GetInstance())
	if err == nil && i.caps.Retention == nil {
		err = storage.ErrUnsupported
	}
	if err == nil {
		var segs []storage.Segment
		segs, err = i.caps.Retention.Segments(ctx)
		for _, g := range segs {
			out.Segments = append(out.Segments, &storagepb.Segment{
				At: int64(g.At), Bytes: g.Bytes, FirstStoreTime: g.FirstStoreTime, LastStoreTime: g.LastStoreTime, Leases: g.Leases,
			})
		}
	}
	out.Failure = wire.ToFailure(err)
	return out, nil
}

// Find implements storagepb.StorageServer.
func (s *Server) Find(ctx context.Context, r *storagepb.FindRequest) (*storagepb.FindResponse, error) {
	out := &storagepb.FindResponse{}
	i, err := s.open.Get(r.GetInstance())
	if err == nil && i.caps.KeyIndex == nil {
		err = storage.ErrUnsupported
	}
	if err == nil {
		var at []message.Position
		at, err = i.caps.KeyIndex.Find(ctx, storage.KeyQuery{
			Topic: r.GetTopic(), Key: r.GetKey(), From: r.GetFrom(), To: r.GetTo(), Max: r.GetMax(),
		}, nil)
		for _, p := range at {
			out.At = append(out.At, int64(p))
		}
	}
	out.Failure = wire.ToFailure(err)
	return out, nil
}
