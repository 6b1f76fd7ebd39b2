package nameserver

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hardpointmq/hardpoint/core/config"
	engine "github.com/hardpointmq/hardpoint/core/internal/nameserver"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/core/vfs"
)

// Server is a name server together with the transport it is served through.
type Server struct {
	cfg       Config
	settings  plugin.Settings
	engine    *engine.Server
	changed   OnChange
	transport transport.Transport

	mu       sync.Mutex
	listener transport.Listener
	loaded   *config.Loaded // nil: requests cannot read or change the configuration
}

var _ plugin.Component = (*Server)(nil)

// New makes a name server and the transport that f builds. It does no I/O.
// Settings.Dir is ignored for Config.Dir. Requests cannot change its configuration.
func New(ctx context.Context, s plugin.Settings, cfg Config, f transport.Factory) (*Server, error) {
	return build(ctx, s, cfg, f, nil, nil)
}

// build is New; loaded, if it is not nil, is where cfg came from, and changed, if it is
// not nil, is told of what requests change there.
func build(ctx context.Context, s plugin.Settings, cfg Config, f transport.Factory, loaded *config.Loaded, changed OnChange) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("name server: %w", err)
	}
	s = s.WithDefaults()
	s.Logger = s.Logger.With("component", "nameserver")
	own := s
	own.Name, own.Dir = "nameserver", cfg.Dir
	n := &Server{cfg: cfg, settings: own, changed: changed}
	p := engine.Params{Settings: own, Config: cfg.rules(), FS: vfs.OS{}}
	if loaded != nil {
		n.loaded = loaded.As(config.Namesrv)
		p.Properties, p.Update = n.properties, n.update
	}
	var err error
	if n.engine, err = engine.New(p); err != nil {
		return nil, err
	}
	s.Name, s.Dir = f.Name(), ""
	if n.transport, err = f.Build(ctx, transport.Params{Settings: s}, cfg.TransportConfig); err != nil {
		return nil, fmt.Errorf("name server: transport %s: %w", f.Name(), err)
	}
	return n, nil
}

// Start serves; it returns when brokers and clients can connect.
func (s *Server) Start(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Shutdown(context.WithoutCancel(ctx)))
		}
	}()
	if err := s.engine.Start(ctx); err != nil {
		return err
	}
	if err := s.transport.Start(ctx); err != nil {
		return fmt.Errorf("transport %s: %w", s.cfg.Transport, err)
	}
	l, err := s.transport.Serve(ctx, s.cfg.Listen, transport.Services{Frames: s.engine.Handler()})
	if err != nil {
		return fmt.Errorf("namesrvListen %s: %w", s.cfg.Listen.Address, err)
	}
	s.mu.Lock()
	s.listener = l
	s.mu.Unlock()
	s.settings.Logger.Info("name server is up", "address", l.Address())
	return nil
}

// Address is where it listens, with the real port; empty before Start.
func (s *Server) Address() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		return ""
	}
	return s.listener.Address()
}

// Reload looks at files that may be replaced while the name server runs, as
// certificates are: what they hold counts for connections that begin after it. The log
// tells what was found. It reads local files; before Start and after Shutdown it does
// nothing.
func (s *Server) Reload() {
	if r := s.transport.Capabilities().Reloader; r != nil {
		r.Reload()
	}
}

// Ready returns nil when brokers and clients can connect, else why not.
func (s *Server) Ready() error {
	if s.Address() == "" {
		return errors.New("starting or stopping")
	}
	if h := s.transport.Capabilities().Health; h != nil {
		return h.Serving()
	}
	return nil
}

// Shutdown closes all connections. What brokers registered is gone then; they
// come back when a name server does.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	l := s.listener
	s.listener = nil
	s.mu.Unlock()
	var err error
	if l != nil {
		err = l.Close()
	}
	return errors.Join(err, s.transport.Shutdown(ctx), s.engine.Shutdown(ctx))
}
