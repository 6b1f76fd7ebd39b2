package replicationwire

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc"

	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/process"
	"github.com/hardpointmq/hardpoint/sdk/wire/replicationwire/replicationpb"
)

// Server is the plugin's half: it serves the replicators of some factories. One
// process serves many instances.
type Server struct {
	replicationpb.UnimplementedReplicationServer

	wire.Factories[replication.Params, replication.Replicator]
	loggers wire.Loggers
	open    *process.Instances[*instance]
}

var _ wire.Served = (*Server)(nil)

// NewServer makes a Server.
func NewServer(loggers wire.Loggers, factories ...replication.Factory) *Server {
	return &Server{
		Factories: wire.NewFactories(wire.Replication, factories...), loggers: loggers, open: process.NewInstances[*instance](replication.ErrNotRunning),
	}
}

// Register implements wire.Served.
func (s *Server) Register(r grpc.ServiceRegistrar) { replicationpb.RegisterReplicationServer(r, s) }

// Close shuts down all instances, for a host that ended without doing so.
func (s *Server) Close(ctx context.Context) error {
	return s.open.Close(func(i *instance) error {
		i.cancel()
		select {
		case <-i.ended:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("shut down a replicator: %w", ctx.Err())
		}
	})
}

// build makes an instance that has no connections yet.
func (s *Server) build(ctx context.Context, name string, raw []byte, p *replicationpb.Params) (*instance, error) {
	f, err := s.Lookup(name)
	if err != nil {
		return nil, err
	}
	i := newInstance()
	settings := s.loggers.Settings(p.GetSettings())
	i.logger, i.clock = settings.Logger, settings.Clock
	if p.GetRawLog() {
		i.store.caps.RawLog = i.store
	}
	if p.GetReopener() {
		i.store.caps.Reopener = reopener{i}
	}
	if p.GetSurvivesProcessDeath() {
		i.store.caps.Survives = storage.SurvivesProcessDeath
	}
	i.seq = storage.NewSequencer(settings.Clock)
	i.seq.Continue(p.GetTerm())
	i.seq.Watch(i)
	i.rep, err = f.Build(ctx, replication.Params{
		Settings: settings, Store: i.store, Sequencer: i.seq, Network: noNetwork{}, OnRole: i.onRole,
	}, raw)
	if err != nil {
		i.cancel()
		return nil, err
	}
	return i, nil
}

// Probe implements replicationpb.ReplicationServer.
func (s *Server) Probe(ctx context.Context, r *replicationpb.ProbeRequest) (*replicationpb.ProbeResponse, error) {
	i, err := s.build(ctx, r.GetPlugin(), r.GetConfig(), r.GetParams())
	if err != nil {
		return &replicationpb.ProbeResponse{Failure: wire.ToFailure(err)}, nil
	}
	defer i.cancel()
	facets := i.rep.Capabilities().Facets()
	if err := i.rep.Shutdown(ctx); err != nil {
		err = fmt.Errorf("shut down a replicator that was never started: %w", err)
		return &replicationpb.ProbeResponse{Failure: wire.ToFailure(err)}, nil
	}
	return &replicationpb.ProbeResponse{Facets: facets}, nil
}

// Open implements replicationpb.ReplicationServer.
func (s *Server) Open(ctx context.Context, r *replicationpb.OpenRequest) (*replicationpb.OpenResponse, error) {
	i, err := s.build(ctx, r.GetPlugin(), r.GetConfig(), r.GetParams())
	if err != nil {
		return &replicationpb.OpenResponse{Failure: wire.ToFailure(err)}, nil
	}
	ln, err := data.Listen(r.GetSocketDir())
	if err == nil {
		if _, err = s.open.Add(i, func(id uint64) {
			go func() {
				defer s.open.Take(id)
				i.live(ln)
			}()
		}); err != nil {
			ln.Close()
		}
	}
	if err != nil {
		i.cancel()
		return &replicationpb.OpenResponse{Failure: wire.ToFailure(errors.Join(err, i.rep.Shutdown(ctx)))}, nil
	}
	return &replicationpb.OpenResponse{Facets: slices.Clone(i.rep.Capabilities().Facets()), Socket: ln.Path, Nonce: ln.Nonce}, nil
}
