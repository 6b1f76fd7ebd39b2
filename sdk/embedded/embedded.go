package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/broker"
	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/nameserver"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
	"github.com/hardpointmq/hardpoint/core/wiring"
	"github.com/hardpointmq/hardpoint/plugins/standard"
	"github.com/hardpointmq/hardpoint/plugins/transport/inproc"
)

// Start and stop of a test's broker take no longer than this.
const testTimeout = time.Minute

type options struct {
	set      []string
	storage  string
	dir      string
	names    bool
	servers  []string
	plugins  *wiring.Plugins
	settings plugin.Settings
}

// Option changes what a broker is made of.
type Option func(*options)

// WithDir keeps everything in a directory, in RocketMQ's files unless
// [WithStorage] says otherwise. The next broker on it continues.
func WithDir(dir string) Option { return func(o *options) { o.dir = dir } }

// WithStorage chooses the storage plugin by name [memory, with a directory
// commitlog]. A store that keeps files needs [WithDir].
func WithStorage(name string) Option { return func(o *options) { o.storage = name } }

// WithoutNameServer runs a broker alone, for clients that know its address, or that
// need none ([Broker.API]).
func WithoutNameServer() Option { return func(o *options) { o.names = false } }

// WithNameServers registers the broker with name servers that run already, in place of
// one beside it: brokers of different names ([WithName]) with the name server of the
// first are broker groups of one cluster.
func WithNameServers(addresses ...string) Option {
	return func(o *options) { o.names, o.servers = false, addresses }
}

// WithName names the broker group ["embedded"]. No two at one name server have the same.
func WithName(name string) Option { return With("brokerName", name) }

// With sets a configuration key as in a configuration file; wrong ones are an
// error of [New]. listen and namesrvListen are 127.0.0.1:0 unless they are set.
func With(key, value string) Option {
	return func(o *options) { o.set = append(o.set, key+"="+value) }
}

// WithPlugins offers other plugins than the default ones.
func WithPlugins(p *wiring.Plugins) Option { return func(o *options) { o.plugins = p } }

// WithLogger sets the logger; without it nothing is logged.
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.settings.Logger = l } }

// WithMeter sets where metrics go [nowhere].
func WithMeter(m plugin.Meter) Option { return func(o *options) { o.settings.Meter = m } }

// WithClock sets the clock [the system's].
func WithClock(c plugin.Clock) Option { return func(o *options) { o.settings.Clock = c } }

// Broker is a running broker, usually with a name server beside it. Its methods
// are safe for concurrent use.
type Broker struct {
	broker *broker.Broker
	names  *nameserver.Server

	close sync.Once
	err   error
}

// New starts a broker. ctx bounds starting only. Close it.
func New(ctx context.Context, opts ...Option) (*Broker, error) {
	o := options{names: true}
	for _, opt := range opts {
		opt(&o)
	}
	cfg, err := o.load()
	if err != nil {
		return nil, err
	}
	if o.plugins == nil {
		if o.plugins, err = standard.Plugins(); err != nil {
			return nil, err
		}
	}
	b := &Broker{}
	p := broker.Params{Settings: o.settings, Config: cfg, Plugins: o.plugins}
	p.Name = cfg.Broker.Name
	if o.dir == "" {
		p.FS = memfs.New(1) // nothing touches the disk
	}
	if o.names {
		if err := b.startNames(ctx, &o, cfg); err != nil {
			return nil, err
		}
		p.NameServers = func() []string { return []string{b.names.Address()} }
	}
	if len(o.servers) > 0 { // New then waits until they know it
		p.NameServers = func() []string { return o.servers }
	}
	if b.broker, err = broker.New(ctx, p); err == nil {
		err = b.broker.Start(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("embedded broker: %w", err), b.Close(context.WithoutCancel(ctx)))
	}
	return b, nil
}

func (b *Broker) startNames(ctx context.Context, o *options, cfg *config.Config) error {
	if cfg.Network.Transport == inproc.Name {
		return errors.New("transport inproc does not join broker and name server, which have an instance of it each; leave the name server out (WithoutNameServer)")
	}
	n, err := nameserver.FromConfig(cfg, broker.Limits(cfg))
	if err != nil {
		return err
	}
	if o.dir == "" {
		n.Dir = ""
	}
	f, err := o.plugins.Transport.Lookup(n.Transport)
	if err != nil {
		return err
	}
	if b.names, err = nameserver.New(ctx, o.settings, n, f); err != nil {
		return err
	}
	return b.names.Start(ctx)
}

// load makes a configuration of defaults and what the options set.
func (o *options) load() (*config.Config, error) {
	storage := o.storage
	if storage == "" {
		storage = "memory"
		if o.dir != "" {
			storage = "commitlog"
		}
	}
	set := []string{"listen=127.0.0.1:0", "namesrvListen=127.0.0.1:0", "adminListen=off", "brokerName=embedded", "storage=" + storage}
	if o.dir != "" {
		set = append(set, "data="+o.dir)
	}
	fs := pflag.NewFlagSet("embedded", pflag.ContinueOnError)
	config.RegisterFlags(fs)
	last := map[string]string{} // a later option wins
	var order []string
	for _, kv := range append(set, o.set...) {
		key, _, _ := strings.Cut(kv, "=")
		if _, seen := last[key]; !seen {
			order = append(order, key)
		}
		last[key] = kv
	}
	for _, key := range order {
		if err := fs.Set("set", last[key]); err != nil {
			return nil, err
		}
	}
	l, err := config.Load(config.Options{Flags: fs})
	if err != nil {
		return nil, err
	}
	if err := l.Config.WithoutProcesses(); err != nil {
		return nil, err
	}
	if c := &l.Config; o.dir == "" && c.Store.Storage != "memory" && o.plugins == nil {
		return nil, fmt.Errorf("store %s keeps files; name a directory with WithDir", c.Store.Storage)
	}
	return &l.Config, nil
}

// TB is what [Start] asks of a *testing.T, *testing.B or *testing.F: a program
// that embeds a broker does not link package testing.
type TB interface {
	Helper()
	Output() io.Writer
	Context() context.Context
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Start runs a broker until the test ends. It fails the test when the broker
// does not start or stop. Warnings go to the test's log. How full the disk of the
// machine is does not matter to it, unless [With] says so.
func Start(t TB, opts ...Option) *Broker {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	own := []Option{WithLogger(log), With("diskSpaceWarningLevelRatio", "99"), With("cleanFileForciblyEnable", "false")}
	b, err := New(ctx, append(own, opts...)...)
	if err != nil {
		t.Fatalf("starting an embedded broker: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		if err := b.Close(ctx); err != nil {
			t.Errorf("stopping an embedded broker: %v", err)
		}
	})
	return b
}

// Address is where the broker serves clients.
func (b *Broker) Address() string { return b.broker.Address() }

// NamesrvAddress is the address of the name server beside the broker; empty without one.
func (b *Broker) NamesrvAddress() string {
	if b.names == nil {
		return ""
	}
	return b.names.Address()
}

// API is the broker's typed operations, without a connection.
func (b *Broker) API() api.Broker { return b.broker }

// Ready returns nil when the broker takes writes, else why not.
func (b *Broker) Ready() error { return b.broker.Ready() }

// Close stops broker and name server and waits for it. Twice is legal.
func (b *Broker) Close(ctx context.Context) error {
	b.close.Do(func() {
		if b.broker != nil {
			b.err = b.broker.Shutdown(ctx)
		}
		if b.names != nil {
			b.err = errors.Join(b.err, b.names.Shutdown(ctx))
		}
	})
	return b.err
}
