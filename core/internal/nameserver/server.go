package nameserver

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hardpointmq/hardpoint/core/internal/rarely"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/core/vfs"
)

// Params is what a Server is made from.
type Params struct {
	// Settings.Dir is where kvConfig.json is kept; empty: in memory only.
	plugin.Settings
	Config Config
	// FS holds Settings.Dir; nil: in memory only.
	FS vfs.FS
	// Properties answers GET_NAMESRV_CONFIG, Update applies the text of
	// UPDATE_NAMESRV_CONFIG (all or nothing; it returns what changed, and calls
	// SetConfig). nil: not served.
	Properties func() []byte
	Update     func(text []byte) (string, error)

	_ struct{}
}

// Server is a name server. It serves whoever comes through Handler; who listens
// is not its business.
type Server struct {
	cfg   atomic.Pointer[Config]
	clock plugin.Clock
	meter plugin.Meter
	table *table
	kv    *kvStore
	props func() []byte
	alter func([]byte) (string, error)

	opened  atomic.Uint64 // sessions so far
	brokers atomic.Int64  // sessions that registered one
	// large is a place for each large registration that may be decoded at a
	// time: a compressed one needs many times the memory of its frame.
	large chan struct{}
	// Lines of the log that anybody can cause.
	malformed, refused rarely.Line

	queries plugin.Counter
	unknown plugin.Counter

	mu    sync.Mutex // of the fields below
	stop  context.CancelFunc
	done  chan struct{}
	drops []func()
}

var _ plugin.Component = (*Server)(nil)

const (
	largeBody = 256 << 10 // bytes of a registration from which on it is large, compressed ones always
	maxLarge  = 2
)

// New makes a server; it starts nothing and reads nothing.
func New(p Params) (*Server, error) {
	if err := p.Config.Validate(); err != nil {
		return nil, fmt.Errorf("name server: %w", err)
	}
	set := p.Settings.WithDefaults()
	s := &Server{
		props: p.Properties, alter: p.Update, clock: set.Clock, meter: set.Meter, kv: newKV(p.FS, set.Dir, set.Logger), large: make(chan struct{}, maxLarge),
		queries: set.Meter.Counter("nameserver_route_queries_total", "Route queries."),
		unknown: set.Meter.Counter("nameserver_route_misses_total", "Route queries for topics that nobody registered."),
	}
	s.cfg.Store(&p.Config)
	s.table = newTable(set.Logger, set.Clock, func() time.Duration { return s.cfg.Load().BrokerExpiry }, s.order)
	return s, nil
}

// SetConfig replaces the configuration while the server runs; the scan takes a new
// interval after the one that is under way. The error is Config.Validate's.
func (s *Server) SetConfig(c Config) error {
	if err := c.Validate(); err != nil {
		return fmt.Errorf("name server: %w", err)
	}
	s.cfg.Store(&c)
	s.table.gen.Add(1) // routes may show the configuration of ordered topics, or not any more
	return nil
}

// Handler serves the peers of a transport.
func (s *Server) Handler() transport.Handler { return handler{s} }

// Start reads the key-value configuration and begins to look for silent
// brokers. Serve peers after it.
func (s *Server) Start(context.Context) error {
	if err := s.kv.load(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop, s.done = cancel, make(chan struct{})
	s.drops = []func(){
		s.meter.Gauge("nameserver_topics", "Topics with a route.", func() float64 { return float64(len(*s.table.topics.Load())) }),
		s.meter.Gauge("nameserver_broker_connections", "Connections over which brokers registered.", func() float64 { return float64(s.brokers.Load()) }),
	}
	go s.scan(ctx, s.done)
	return nil
}

// scan removes silent brokers.
func (s *Server) scan(ctx context.Context, done chan<- struct{}) {
	defer close(done)
	timer := s.clock.NewTimer(s.cfg.Load().ScanInterval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C():
			s.table.expire()
			timer.Reset(s.cfg.Load().ScanInterval)
		}
	}
}

// Shutdown ends the scan. Close the listener first.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	stop, done, drops := s.stop, s.done, s.drops
	s.drops = nil
	s.mu.Unlock()
	if stop == nil {
		return nil
	}
	for _, drop := range drops {
		drop()
	}
	stop()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
