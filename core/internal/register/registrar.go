package register

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/transport"
)

// Identity is what a broker says of itself.
type Identity struct {
	Cluster, Name string
	ID            int64  // 0: master
	Addr          string // host:port that clients connect to
	HAAddr        string // host:port that replicas connect to
	Zone          string // empty: none
	// EnableActingMaster lets the slave with the lowest id stand in for a lost
	// master.
	EnableActingMaster bool
}

// Answer is what a name server answered to a registration.
type Answer struct {
	NameServer string
	// MasterAddr and HAAddr are the master's if this broker is a slave and the
	// name server knows one, else empty.
	MasterAddr, HAAddr string
	// OrderTopics is how many queues of ordered topics each broker has
	// ("broker-a:4;broker-b:4"), by topic; nil: none.
	OrderTopics map[string]string
}

// Params is what a Registrar is made from.
type Params struct {
	plugin.Settings
	// NameServers are host:port each; an element may hold several, separated by
	// ";". None is legal: then there is nothing to do.
	NameServers []string
	Dialer      transport.Dialer
	// Identity is asked before each registration; it may change with the role.
	Identity func() Identity
	// Source returns the topics and the version of their table, which differs
	// whenever they do. It is asked before each registration, by several
	// goroutines; the slice is only read.
	Source func() ([]command.TopicConfig, command.DataVersion)
	// Permission is the broker's: command.PermRead and PermWrite; 0 means both. Topics are
	// registered with no more than it.
	Permission int32
	// Period between registrations, 10 to 60 s, values outside are clamped; 0
	// means 30 s (registerNameServerPeriod).
	Period time.Duration
	// Timeout of one registration; 0 means 24 s (registerBrokerTimeoutMills).
	Timeout time.Duration
	// ConnectTimeout; 0 means 3 s.
	ConnectTimeout time.Duration
	// Resolve looks up host names of NameServers, every 10 s; nil: the system does. The
	// Dialer looks them up again with each connection.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	// Answered is called after each registration, by several goroutines; may be
	// nil.
	Answered func(Answer)

	_ struct{}
}

const (
	minPeriod, defaultPeriod, maxPeriod = 10 * time.Second, 30 * time.Second, 60 * time.Second
	defaultTimeout                      = 24 * time.Second
	defaultConnectTimeout               = 3 * time.Second

	// unregisterTimeout bounds saying goodbye to one name server.
	unregisterTimeout = 3 * time.Second

	// maxPause is so short because clients that use a name server do not find this
	// broker until it has registered with it.
	firstPause, maxPause = 100 * time.Millisecond, time.Second
	// askPeriod is how often a name server is asked whether it still knows the broker.
	askPeriod = time.Second
	// resolvePeriod is how often host names of name servers are looked up.
	resolvePeriod = 10 * time.Second
)

// Registrar keeps a broker registered. All methods are safe for concurrent use.
type Registrar struct {
	p       Params
	asked   time.Duration // the period before it was clamped
	keepers []*keeper

	first     chan struct{} // closed at the first success
	firstOnce sync.Once
	wanted    atomic.Uint64 // grows with each change that must be registered

	mu      sync.Mutex
	started bool
	cancel  context.CancelFunc
	done    chan struct{} // closed when all keepers ended
	drops   []func()
	moved   chan struct{} // closed and replaced when a keeper moved on
}

var _ plugin.Component = (*Registrar)(nil)

// New makes a registrar; it connects to nobody. Errors name the setting.
func New(p Params) (*Registrar, error) {
	addrs, err := Addresses(p.NameServers)
	if err != nil {
		return nil, err
	}
	if len(addrs) > 0 && (p.Dialer == nil || p.Identity == nil || p.Source == nil) {
		return nil, errors.New("registration with name servers needs a transport that can dial, an identity and a source of topics")
	}
	p.Settings = p.Settings.WithDefaults()
	if p.Period == 0 {
		p.Period = defaultPeriod
	}
	asked := p.Period
	p.Period = min(max(p.Period, minPeriod), maxPeriod)
	if p.Timeout <= 0 {
		p.Timeout = defaultTimeout
	}
	if p.ConnectTimeout <= 0 {
		p.ConnectTimeout = defaultConnectTimeout
	}
	if p.Resolve == nil {
		p.Resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	if p.Permission == 0 {
		p.Permission = permBoth
	}
	r := &Registrar{p: p, asked: asked, first: make(chan struct{}), moved: make(chan struct{})}
	for _, a := range addrs {
		r.keepers = append(r.keepers, &keeper{
			r: r, addr: a, kick: make(chan struct{}, 1), resolved: make(chan []netip.Addr), wait: firstPatience,
		})
	}
	return r, nil
}

// Addresses splits and checks a list of name servers; duplicates are dropped.
func Addresses(list []string) ([]string, error) {
	var out []string
	for _, l := range list {
		for a := range strings.SplitSeq(l, ";") {
			if a = strings.TrimSpace(a); a == "" || slices.Contains(out, a) {
				continue
			}
			if host, port, err := net.SplitHostPort(a); err != nil || host == "" || port == "" {
				return nil, fmt.Errorf("namesrvAddr: %q is no host:port", a)
			}
			out = append(out, a)
		}
	}
	return out, nil
}

// Start begins to register and returns at once: name servers may come later
// than brokers. See Registered.
func (r *Registrar) Start(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.started {
		return errors.New("the registrar was started before")
	}
	r.started = true
	if len(r.keepers) == 0 {
		r.succeeded()
	}
	if r.asked != r.p.Period {
		r.p.Logger.Warn("registerNameServerPeriod is out of range, the nearest legal value is used", "given", r.asked, "used", r.p.Period)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel, r.done = cancel, make(chan struct{})
	var wg sync.WaitGroup
	for _, k := range r.keepers {
		r.drops = append(r.drops, r.p.Meter.Gauge("broker_registered", "1 while the name server knows this broker.", k.gauge,
			plugin.Label{Name: "nameserver", Value: k.addr}))
		wg.Go(func() { k.run(ctx) })
		if host := hostName(k.addr); host != "" {
			wg.Go(func() { k.watch(ctx, host) })
		}
	}
	go func(done chan struct{}) {
		wg.Wait()
		close(done)
	}(r.done)
	return nil
}

// Shutdown unregisters from every name server and closes the connections. Call
// it first when a broker drains, so that clients learn to go elsewhere while it
// still serves.
func (r *Registrar) Shutdown(ctx context.Context) error {
	r.mu.Lock()
	cancel, done, drops := r.cancel, r.done, r.drops
	r.drops = nil
	r.mu.Unlock()
	if cancel == nil {
		return nil
	}
	for _, drop := range drops {
		drop()
	}
	cancel()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("unregistering from name servers: %w", ctx.Err())
	}
}

// Registered is closed when a name server has accepted the broker for the first
// time; after Start if there is no name server.
func (r *Registrar) Registered() <-chan struct{} { return r.first }

func (r *Registrar) succeeded() { r.firstOnce.Do(func() { close(r.first) }) }

// Changed says that topics or the identity changed: they are registered at once.
// It does not wait.
func (r *Registrar) Changed() {
	r.wanted.Add(1)
	for _, k := range r.keepers {
		select {
		case k.kick <- struct{}{}:
		default: // one is waiting; it covers this change, too
		}
	}
}

// Sync is Changed, and returns when every name server that is known to be up
// has the change. Name servers that are down, or refuse, are not waited for.
// The error is ctx's.
func (r *Registrar) Sync(ctx context.Context) error {
	r.Changed()
	want := r.wanted.Load()
	for {
		r.mu.Lock()
		moved, behind := r.moved, ""
		for _, k := range r.keepers {
			if k.state == registered && k.covered < want {
				behind = k.addr
			}
		}
		r.mu.Unlock()
		if behind == "" {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("registering with name server %s: %w", behind, ctx.Err())
		}
	}
}
