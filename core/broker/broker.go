package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/internal/admin"
	"github.com/hardpointmq/hardpoint/core/internal/assign"
	"github.com/hardpointmq/hardpoint/core/internal/catalog"
	"github.com/hardpointmq/hardpoint/core/internal/client"
	"github.com/hardpointmq/hardpoint/core/internal/combine"
	"github.com/hardpointmq/hardpoint/core/internal/drain"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/internal/offset"
	"github.com/hardpointmq/hardpoint/core/internal/pull"
	"github.com/hardpointmq/hardpoint/core/internal/query"
	"github.com/hardpointmq/hardpoint/core/internal/register"
	"github.com/hardpointmq/hardpoint/core/internal/retention"
	"github.com/hardpointmq/hardpoint/core/internal/retry"
	"github.com/hardpointmq/hardpoint/core/internal/send"
	"github.com/hardpointmq/hardpoint/core/internal/spans"
	"github.com/hardpointmq/hardpoint/core/internal/stats"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagemw"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/core/wiring"
)

// vipOffset is how far below the port the VIP channel listens.
const vipOffset = 2

// Params is what a broker is made of.
type Params struct {
	plugin.Settings
	Config  *config.Config
	Plugins *wiring.Plugins
	// Loaded is where Config came from; nil: UPDATE_BROKER_CONFIG is not served.
	Loaded *config.Loaded
	// Changed is told what that request changed; nil: nobody.
	Changed OnChange
	// FS holds the engine's own files; nil: the system's.
	FS vfs.FS
	// NameServers are name servers beside those of the configuration; Start asks
	// for them. nil: none.
	NameServers func() []string
	// leaving are the names of the broker groups that stop with this one, its own
	// among them; nil: it alone.
	leaving []string
	// Tracer makes the spans of requests; the part of them that has one is
	// Config.Metrics.SampleRatio, so that it samples all it is asked for. nil: no spans.
	Tracer trace.TracerProvider
	// Failed is told once when the store fails; nil: the broker logs it and
	// goes on serving reads.
	Failed func(error)

	_ struct{}
}

// Broker is one broker group in this process. It implements plugin.Component.
type Broker struct {
	p     Params
	k     *kernel.Kernel
	queue *combine.Queue
	store storage.Store
	rep   replication.Replicator
	// trans is that of the client port, carriers all of them, that one first.
	trans    transport.Transport
	carriers []carrier
	gate     *gate
	reg      atomic.Pointer[register.Registrar]
	query    *query.Query
	client   *client.Manager
	sender   *send.Send
	alloc    *allocators
	drain    *drain.Drain
	wait     waiters
	// servers are the name servers, known at start.
	servers atomic.Pointer[[]string]

	umu     sync.Mutex // one update at a time
	loaded  *config.Loaded
	version command.DataVersion // of loaded

	mu        sync.Mutex
	listeners []transport.Listener
	up        []step // what Shutdown undoes, last first
	ready     bool
	address   string
}

// carrier is a transport with its name.
type carrier struct {
	name string
	is   transport.Transport
}

// step is one thing that runs.
type step struct {
	name string
	// share of the stop time, in tenths.
	share int
	stop  func(ctx context.Context) error
}

// New assembles a broker without I/O.
func New(ctx context.Context, p Params) (*Broker, error) {
	if p.Name == "" {
		p.Name = p.Config.Broker.Name
	}
	p.Settings = p.WithDefaults()
	if p.FS == nil {
		p.FS = vfs.OS{}
	}
	b := &Broker{p: p}
	cfg := p.Config
	k := kernel.New(kernelConfig(cfg), p.Settings, nil)
	b.k = k
	if p.Tracer != nil {
		k.Spans = spans.New(p.Tracer, cfg.Metrics.SampleRatio, cfg.Broker.Name)
	}
	k.Sequencer = storage.NewSequencer(p.Clock)

	parts, faults := choose(ctx, cfg, p.Plugins)
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	var err error
	mode := storage.Immediate
	if parts.rep.says.Publish == storage.Explicit.String() {
		mode = storage.Explicit
	}
	// In process or not, a store is measured the same way.
	b.store, err = storagemw.Wrap(parts.store.factory, retention.Turn, storagemw.Metrics).Build(ctx, storage.Params{
		Settings: b.settings("storage", cfg.Store.Storage, cfg.Store.RootDir),
		Segment:  cfg.Store.SegmentSize,
		Publish:  mode,
		Index:    k.Config().Index,
		Events:   k.Hooks.Events(b.storeFailed),
	}, parts.store.raw)
	if err != nil {
		return nil, err
	}
	if err := agree(parts.store.says, b.store.Capabilities()); err != nil {
		return nil, err
	}
	k.Store = b.store
	b.rep, err = parts.rep.factory.Build(ctx, replication.Params{
		Settings:  b.settings("replication", cfg.Broker.Replication, filepath.Join(cfg.Node.Data, "replication")),
		Store:     catalog.Numbered(k),
		Sequencer: k.Sequencer,
		OnRole:    k.TakeOffice,
	}, parts.rep.raw)
	if err != nil {
		return nil, err
	}
	k.Replicator = b.rep
	for _, t := range parts.trans {
		name := t.factory.Name()
		built, err := t.factory.Build(ctx, transport.Params{Settings: b.settings("transport", name, "")}, t.raw)
		if err != nil {
			return nil, err
		}
		b.carriers = append(b.carriers, carrier{name, built})
	}
	b.trans = b.carriers[0].is

	// The journal first: its stop hook runs last, when nobody writes any more.
	b.queue = combine.New(k)
	catalog.New(k, p.FS)
	b.client = client.New(k)
	b.query = query.New(k)
	st := stats.New(k)
	b.sender = send.New(k, b.queue, st)
	pull.New(k, b.client, st)
	offset.New(k, b.query)
	retry.New(k, b.queue, st)
	admin.New(k, admin.Params{Query: b.query, Clients: b.client, Stats: st, Usage: p.FS.Usage})
	b.alloc = &allocators{cfg: cfg, from: p.Plugins.Allocate, settings: func(name string) plugin.Settings { return b.settings("allocate", name, "") }}
	assign.New(k, assign.Params{
		Clients: b.client, Allocator: b.alloc.get, NameServers: b.nameServers,
		Dialer: func() transport.Dialer { return b.trans.Capabilities().Dialer },
	})
	kept := retention.New(k, retention.Params{Usage: p.FS.Usage, Dirs: b.disks()})
	if err := b.observe(st, kept); err != nil {
		return nil, err
	}
	if p.Loaded != nil {
		b.loaded = p.Loaded.As(config.Broker)
		b.version = command.DataVersion{Timestamp: p.Clock.Now().UnixMilli()}
		k.Update, k.Properties = b.update, b.properties
	}
	b.drain = b.newDrain(st)
	k.Announce = b.announce
	k.Hooks.OnPublished(b.wait.published)
	k.Hooks.OnTopicChanged(b.topicChanged)
	b.gate = newGate(k)
	return b, nil
}

// disks are the directories whose disks the store fills. One that loses everything
// with its process does not keep it there.
func (b *Broker) disks() []string {
	if b.store.Capabilities().Survives == storage.SurvivesNothing {
		return nil
	}
	dirs := []string{b.p.Config.Store.RootDir}
	if d := b.p.Config.Store.CommitLogDir; d != "" {
		dirs = append(dirs, d)
	}
	return dirs
}

func (b *Broker) settings(kind, name, dir string) plugin.Settings {
	return plugin.Settings{
		Name: name, Logger: b.p.Logger.With(kind, name), Meter: b.p.Meter, Clock: b.p.Clock, Dir: dir,
	}
}

func (b *Broker) storeFailed(err error) {
	b.p.Logger.Error("the store failed; writes are refused until the broker is restarted", "error", err)
	if b.p.Failed != nil {
		b.p.Failed(err)
	}
}

// Start implements plugin.Component. When it fails, what it started is shut
// down.
func (b *Broker) Start(ctx context.Context) error {
	err := b.start(ctx)
	if err != nil {
		b.gate.close()
		return errors.Join(err, b.Shutdown(context.WithoutCancel(ctx)))
	}
	return nil
}

func (b *Broker) start(ctx context.Context) error {
	cfg := b.p.Config
	for _, c := range b.carriers {
		if err := b.run(ctx, "transport "+c.name, 1, c.is); err != nil {
			return err
		}
	}
	if err := b.listen(ctx); err != nil {
		return err
	}
	adv, err := b.advertise(ctx)
	if err != nil {
		return err
	}
	b.k.SetAdvertise(adv.IP)
	b.p.Logger.Info("advertising this broker", "broker", cfg.Broker.Name, "address", adv.Addr, "listen", b.address, "because", adv.Reason)

	if err := claim(b.p.FS, cfg.Store.RootDir, cfg.Store.Storage, b.p.Logger); err != nil {
		return err
	}
	if err := b.run(ctx, "store "+cfg.Store.Storage, 4, b.store); err != nil {
		return err
	}
	seg := b.store.State().Segment
	b.queue.Start(b.rep, seg)
	if err := b.run(ctx, "replication "+cfg.Broker.Replication, 2, b.rep); err != nil {
		// The engine is stopped before the replicator otherwise, but it runs.
		return errors.Join(err, b.k.Hooks.Stop(context.WithoutCancel(ctx)))
	}
	b.push(step{"allocators", 1, b.alloc.close})
	b.push(step{"engine", 2, b.stopEngine})
	if err := b.k.Hooks.Start(ctx); err != nil {
		return err
	}
	var servers []string
	if b.p.NameServers != nil {
		servers = b.p.NameServers()
	}
	servers, err = register.Addresses(append(servers, cfg.Broker.NamesrvAddrs...))
	if err != nil {
		return err
	}
	b.servers.Store(&servers)
	b.gate.open()
	b.push(step{"listeners", 3, b.stopListeners})
	b.reach(ctx, adv.Addr)
	if err := b.register(ctx, adv.Addr); err != nil {
		return err
	}
	b.mu.Lock()
	b.ready = true
	b.mu.Unlock()
	return nil
}

// run starts a component and remembers to stop it.
func (b *Broker) run(ctx context.Context, name string, share int, c plugin.Component) error {
	if err := c.Start(ctx); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	b.push(step{name, share, c.Shutdown})
	return nil
}

func (b *Broker) push(s step) {
	b.mu.Lock()
	b.up = append(b.up, s)
	b.mu.Unlock()
}

// listen opens the client port, the VIP channel beside it when the port is fixed,
// and the other listeners of the configuration.
func (b *Broker) listen(ctx context.Context) error {
	l, err := b.serve(ctx, b.trans, b.p.Config.Network.Listen)
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.address = l.Address()
	b.mu.Unlock()
	if err := b.listenVIP(ctx); err != nil {
		return err
	}
	for _, m := range b.p.Config.Network.More() {
		i := slices.IndexFunc(b.carriers, func(c carrier) bool { return c.name == m.Transport })
		l, err := b.serve(ctx, b.carriers[i].is, m.Address)
		if err != nil {
			return fmt.Errorf("moreListeners %v: %w", m, err)
		}
		b.p.Logger.Info("listening beside the client port", "transport", m.Transport, "address", l.Address())
	}
	return nil
}

// serve opens one listener.
func (b *Broker) serve(ctx context.Context, t transport.Transport, address string) (transport.Listener, error) {
	l, err := t.Serve(ctx, transport.Listen{Address: address, Limits: Limits(b.p.Config)}, transport.Services{Frames: b.gate, API: b})
	if err == nil {
		b.mu.Lock()
		b.listeners = append(b.listeners, l)
		b.mu.Unlock()
	}
	return l, err
}

func (b *Broker) listenVIP(ctx context.Context) error {
	n := b.p.Config.Network
	host, port, err := net.SplitHostPort(n.Listen)
	if err != nil || !n.VIPChannel {
		return nil // an address of another kind of transport, or no VIP channel
	}
	num, err := strconv.Atoi(port)
	if err != nil || num <= vipOffset {
		return nil
	}
	vip := net.JoinHostPort(host, strconv.Itoa(num-vipOffset))
	if _, err := b.serve(ctx, b.trans, vip); err != nil {
		return fmt.Errorf("the VIP channel (port %d below the client port; switch it off with vipChannel=false): %w", vipOffset, err)
	}
	return nil
}

func (b *Broker) advertise(ctx context.Context) (config.Advertised, error) {
	n := b.p.Config.Network
	if _, _, err := net.SplitHostPort(b.address); err != nil {
		// A transport without ports (inproc): message ids carry loopback.
		return config.Advertised{Addr: b.address, IP: loopback, Reason: "the transport has no network address"}, nil
	}
	return config.ChooseAdvertise(ctx, config.AddressOptions{Listen: b.address, Advertise: n.Advertise, Dev: b.p.Config.Node.Dev})
}

// reach dials the own address: a wrong one is the most common mistake, and
// clients would only say that they cannot connect.
func (b *Broker) reach(ctx context.Context, address string) {
	d := b.trans.Capabilities().Dialer
	if d == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if err := register.CheckReachable(ctx, d, address, nil); err != nil {
		b.p.Logger.Warn("the advertised address cannot be reached from here; if clients cannot reach it either, set advertise", "address", address, "error", err)
	}
}

// nameServers are the name servers at which the broker registers.
func (b *Broker) nameServers() []string {
	if s := b.servers.Load(); s != nil {
		return *s
	}
	return nil
}

// register announces the broker to its name servers. It does not wait for them:
// they may start later.
func (b *Broker) register(ctx context.Context, address string) error {
	cfg := b.p.Config
	d := b.trans.Capabilities().Dialer
	servers := b.nameServers()
	if len(servers) == 0 {
		return nil
	}
	if err := dials(b.carriers[0].name, d != nil); err != nil {
		return err
	}
	who := register.Identity{Cluster: cfg.Broker.ClusterName, Name: cfg.Broker.Name, ID: cfg.Broker.ID, Addr: address, HAAddr: haAddress(address, cfg.Network.HAAdvertise), Zone: cfg.Broker.ZoneName}
	reg, err := register.New(register.Params{
		Settings:    b.settings("part", "register", ""),
		NameServers: servers,
		Dialer:      d,
		Identity:    func() register.Identity { return who },
		Source: func() ([]command.TopicConfig, command.DataVersion) {
			all, v := b.k.Topics.All()
			out := make([]command.TopicConfig, len(all))
			for i, t := range all {
				out[i] = t.Config
				out[i].Perm &= b.permission(t.Config.TopicName)
			}
			return out, v
		},
		Period: cfg.Broker.RegisterNameServerPeriod, Timeout: cfg.Broker.RegisterBrokerTimeout,
		ConnectTimeout: cfg.Network.ConnectTimeout,
	})
	if err != nil {
		return err
	}
	b.reg.Store(reg)
	if err := b.run(ctx, "registration", 1, reg); err != nil || b.p.NameServers == nil {
		return err
	}
	// A name server in the same process is there: ready means that clients find
	// the broker.
	wait := b.p.Clock.NewTimer(cfg.Broker.RegisterBrokerTimeout)
	defer wait.Stop()
	select {
	case <-reg.Registered():
	case <-wait.C():
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// haAddress is the client address with the next port (haListenPort).
func haAddress(address, host string) string {
	h, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	if host != "" {
		h = host
	}
	n, _ := strconv.Atoi(port)
	return net.JoinHostPort(h, strconv.Itoa(n+1))
}

// announce waits until the name servers know all topics. In time or not, they
// will know. Clients may ask before the registrar is made.
func (b *Broker) announce(ctx context.Context) {
	if reg := b.reg.Load(); reg != nil {
		_ = reg.Sync(ctx)
	}
}

// topicChanged registers anew, so that clients find the topic at once.
func (b *Broker) topicChanged(string) {
	if reg := b.reg.Load(); reg != nil {
		reg.Changed()
	}
}

// stopEngine stops it. What it keeps of clients, such as the progress of consumers since
// it was last written down, cannot be written while the process of the store or of the
// replicator is away: messages are delivered again then, none is lost.
func (b *Broker) stopEngine(ctx context.Context) error {
	err := b.k.Hooks.Stop(ctx)
	var hooks interface{ Unwrap() []error }
	if !errors.As(err, &hooks) {
		return err
	}
	var left []error
	for _, one := range hooks.Unwrap() {
		if !errors.Is(one, plugin.ErrUnavailable) || errors.Is(one, storage.ErrFailed) {
			left = append(left, one)
			continue
		}
		b.p.Logger.Warn("the newest progress of consumers was not written at the stop, a plugin is away; no message is lost, some may be delivered again", "error", one)
	}
	return errors.Join(left...)
}

// Shutdown implements plugin.Component.
func (b *Broker) Shutdown(ctx context.Context) error {
	b.mu.Lock()
	up := b.up
	b.up, b.ready = nil, false
	b.mu.Unlock()
	sum := 0
	for _, s := range up {
		sum += s.share
	}
	var errs []error
	for i := len(up) - 1; i >= 0; i-- {
		s := up[i]
		one, cancel := ctx, context.CancelFunc(func() {})
		if d, ok := ctx.Deadline(); ok {
			// A share of what is left: who is quick leaves more to the others.
			one, cancel = context.WithTimeout(ctx, time.Until(d)*time.Duration(s.share)/time.Duration(max(sum, 1)))
		}
		if err := s.stop(one); err != nil {
			errs = append(errs, fmt.Errorf("stopping %s: %w", s.name, err))
		}
		cancel()
		sum -= s.share
	}
	b.gate.close()
	b.mu.Lock()
	ls := b.listeners
	b.listeners = nil
	b.mu.Unlock()
	for _, l := range ls { // a start that failed between listening and the gate
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// Reload looks at files that may be replaced while the broker runs, as certificates
// are: what they hold counts for connections that begin after it. The log tells what
// was found. It reads local files; before Start and after Shutdown it does nothing.
func (b *Broker) Reload() {
	for _, c := range b.carriers {
		if r := c.is.Capabilities().Reloader; r != nil {
			r.Reload()
		}
	}
}

// Name is the name of the broker group (brokerName).
func (b *Broker) Name() string { return b.p.Config.Broker.Name }

// Address is where the broker listens.
func (b *Broker) Address() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.address
}

// Advertised is the address that clients are told.
func (b *Broker) Advertised() string { return b.k.Config().Advertise.String() }

// Ready returns nil when the broker serves and takes writes, else why not. A broker
// whose disk is full is ready: consumers need it, and metrics and log tell of the disk.
func (b *Broker) Ready() error {
	b.mu.Lock()
	ready := b.ready
	b.mu.Unlock()
	if !ready {
		return errors.New("the broker is starting or stopping")
	}
	if err := b.drain.Ready(); err != nil {
		return err
	}
	if d := b.queue.Stuck(); d >= hangs {
		return fmt.Errorf("the log hangs: store %s has been taking one batch for %v", b.p.Config.Store.Storage, d.Round(time.Second))
	}
	if h := b.trans.Capabilities().Health; h != nil { // of the client port; what listens beside it is not told to clients
		if err := h.Serving(); err != nil {
			return fmt.Errorf("the client port is away: %w", err)
		}
	}
	return b.k.Writable()
}

// hangs is after how long one batch makes a broker not ready: a disk, or the
// process of a store, that does not come back. A slow one is not meant.
const hangs = 10 * time.Second

// gate makes peers wait until the broker can serve them.
type gate struct {
	k      *kernel.Kernel
	opened chan struct{}
	closed chan struct{}
	once   sync.Once
}

func newGate(k *kernel.Kernel) *gate {
	return &gate{k: k, opened: make(chan struct{}), closed: make(chan struct{})}
}

func (g *gate) open()  { close(g.opened) }
func (g *gate) close() { g.once.Do(func() { close(g.closed) }) }

// Opened implements transport.Handler: it blocks the reader of the new peer.
func (g *gate) Opened(p transport.Peer) transport.Session {
	select {
	case <-g.opened:
		return g.k.Opened(p)
	case <-g.closed:
		_ = p.Close()
		return shut{}
	}
}

// Settle implements transport.Handler.
func (g *gate) Settle() { g.k.Settle() }
