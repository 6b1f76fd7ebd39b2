package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"go.uber.org/fx"

	"github.com/hardpointmq/hardpoint/core/adminport"
	"github.com/hardpointmq/hardpoint/core/broker"
	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/nameserver"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/wiring"
	"github.com/hardpointmq/hardpoint/internal/telemetry"
)

// stopTimeout is what components get to stop after a drain: a store has much to flush
// on a slow disk. docs/operations.md names it.
const stopTimeout = 70 * time.Second

// node is a process that serves.
type node struct {
	// Loaded is that of the first group: what belongs to the whole process is the
	// same in all.
	*config.Loaded
	groups  []*group
	began   time.Time
	log     *slog.Logger
	level   slog.LevelVar
	metrics *adminport.Metrics
	traces  *telemetry.Traces // nil: off

	reload   func() ([]*config.Loaded, error)
	files    []func()      // have what runs look at its files; see onHangup
	stopping chan struct{} // closed when the stop begins, after a drain; plugins are told
	stopOnce sync.Once
	up       atomic.Bool   // all components run
	hurry    chan struct{} // closed when there is no time to drain
}

// newNode makes one of what [config.LoadGroups] returned, which writes its log to w.
func newNode(groups []*config.Loaded, w io.Writer) *node {
	n := &node{Loaded: groups[0], began: time.Now(), metrics: adminport.NewMetrics(), stopping: make(chan struct{}), hurry: make(chan struct{})}
	setLevel(&n.level, n.Config.Node.LogLevel)
	n.log = newLogger(w, &n.level, n.Config.Node.LogFormat)
	for _, l := range groups {
		n.groups = append(n.groups, &group{Loaded: l, n: n, several: len(groups) > 1, upgrades: upgrades{}})
	}
	return n
}

// beginStop tells the plugins that the node stops.
func (n *node) beginStop() { n.stopOnce.Do(func() { close(n.stopping) }) }

func nodeCommand(p *program, mode config.Mode, short, long string) *cobra.Command {
	c := &cobra.Command{
		Use: mode.String(), Short: short, Long: long, Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			began := time.Now()
			reload := reloadWith(config.Options{Mode: mode, Env: os.Environ(), Flags: c.Flags()})
			groups, err := reload()
			if err != nil {
				return err
			}
			n := newNode(groups, p.stderr)
			n.began, n.reload = began, reload
			n.warn()
			return n.serve(c.Context(), p)
		},
	}
	config.RegisterFlags(c.Flags())
	config.HideFlags(c.Flags(), mode)
	completeConfigFlags(c)
	return c
}

// serve runs the node until a signal comes or ctx ends.
func (n *node) serve(ctx context.Context, p *program) error {
	hangups := n.hangups()
	app, err := wiring.New(n.options(), parts(n)...)
	if err != nil {
		return err
	}
	ctx, stop := n.untilSignal(ctx)
	defer stop()
	defer context.AfterFunc(ctx, func() {
		if !n.up.Load() { // what starts gives up; afterwards there may be a drain first
			n.beginStop()
		}
	})()
	defer n.onHangup(ctx, hangups)()
	err = app.Run(ctx)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		n.log.Info("stopped while starting")
		return nil
	}
	if err != nil {
		if jsonLog(p.stderr, n.Config.Node.LogFormat) {
			n.log.Error("stopped because of an error", "error", err)
			return errReported
		}
		return err
	}
	n.log.Info("stopped")
	return nil
}

func (n *node) options() wiring.Options {
	return wiring.Options{Logger: n.log, Meter: n.groups[0].meterOfProcess(), StopTimeout: stopTimeout, Hurry: n.hurry}
}

// untilSignal ends the context at the first signal; see obey.
func (n *node) untilSignal(parent context.Context) (context.Context, func()) {
	c := make(chan os.Signal, 2)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	ctx, stop := n.obey(parent, c, os.Exit)
	return ctx, func() {
		signal.Stop(c)
		stop()
	}
}

// obey ends the context at the first signal, has the node not drain (any more) at the
// second, and ends the process at the third. An interrupt counts twice when it is the
// first: a person waits at the terminal, and what runs beside this there gets it, too.
func (n *node) obey(parent context.Context, signals <-chan os.Signal, exit func(int)) (context.Context, func()) {
	ctx, cancel := context.WithCancel(parent)
	gone, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for count := 0; ; {
			var s os.Signal
			select {
			case s = <-signals:
			case <-gone:
				return
			}
			count++
			switch {
			case count == 1 && s != os.Interrupt:
				n.log.Info("stopping; a second signal skips the drain, a third stops at once", "signal", s.String())
				cancel()
			case count <= 2:
				n.log.Info("stopping without a drain; another signal stops at once", "signal", s.String())
				count = 2
				close(n.hurry)
				cancel()
			default:
				n.log.Error("stopped at once by another signal; the next start recovers", "signal", s.String())
				exit(exitFailure)
				return
			}
		}
	}()
	return ctx, func() {
		close(gone)
		<-done
		cancel()
	}
}

// warn logs what the configuration's warnings come to. A file that an Apache
// broker wrote out has hundreds of them.
func (n *node) warn() {
	const shown = 3
	said := map[string]bool{} // environment and flags are read for each file
	for _, g := range n.groups {
		fresh := slices.DeleteFunc(slices.Clone(g.Warnings), func(w config.Warning) bool { return said[w.String()] })
		for i, w := range fresh {
			if i == shown && len(fresh) > shown+1 {
				n.log.Warn("more configuration warnings", "count", len(fresh)-shown, "list_them_with", fmt.Sprintf("hardpoint config check --mode %s %s", n.Mode, g.File))
				break
			}
			said[w.String()] = true
			n.log.Warn("configuration", "warning", w.String())
		}
	}
}

func adminPort(n *node) fx.Option {
	return fx.Module("admin_port",
		fx.Provide(func(s wiring.Options) *adminport.Port {
			return adminport.New(plugin.Settings{Name: "admin", Logger: s.Logger}, n.Config.Node.AdminListen, n.metrics)
		}),
		fx.Invoke(func(p *adminport.Port, s wiring.Options, life *wiring.Lifecycle) {
			life.Add("admin port", p, 1)
			if address := n.Config.Metrics.PromAddress(); address != "" {
				life.Add("metrics port", adminport.NewMetricsPort(plugin.Settings{Name: "metrics", Logger: s.Logger}, address, n.metrics), 1)
			}
		}),
	)
}

// nameServerOf configures the name server and lets the broker beside it find it.
func nameServerOf(n *node) fx.Option {
	return fx.Options(
		fx.Supply(nameserver.OnChange(n.onChange)),
		fx.Provide(
			func() (nameserver.Config, error) {
				return nameserver.FromConfig(&n.Config, broker.Limits(&n.Config))
			},
			func(s *nameserver.Server) broker.NameServers {
				return func() []string { return []string{config.LocalOf(s.Address())} }
			},
		),
		fx.Invoke(func(p *adminport.Port, s *nameserver.Server) {
			p.Check("name server", s.Ready)
			n.files = append(n.files, s.Reload)
		}),
	)
}

// onChange applies what a request changed and belongs to the whole process.
func (n *node) onChange(c config.Change) {
	if c.Key == "logLevel" {
		setLevel(&n.level, c.New)
	}
}

// announcement says, last of all, that everything is up and where.
type announcement struct {
	n  *node
	in announced
}

type announced struct {
	fx.In
	Admin   *adminport.Port
	Names   *nameserver.Server `optional:"true"`
	Brokers *broker.Groups     `optional:"true"`
}

func announce(n *node) fx.Option {
	return fx.Invoke(func(in announced, life *wiring.Lifecycle) { life.Add("announcement", announcement{n, in}, 1) })
}

// Start implements plugin.Component. One broker is in the line that says ready,
// several have one each before it.
func (a announcement) Start(context.Context) error {
	var args []any
	if s := a.in.Names; s != nil {
		args = append(args, "namesrv", s.Address())
	}
	if g := a.in.Brokers; g != nil {
		all := g.All()
		for i, b := range all {
			of := []any{"broker", b.Address(), "advertised", b.Advertised()}
			of = append(of, a.n.groups[i].describe()...)
			if len(all) == 1 {
				args = append(args, of...)
			} else {
				a.n.log.Info("broker group serves", append([]any{"name", b.Name()}, of...)...)
			}
		}
		if len(all) > 1 {
			args = append(args, "brokers", len(all))
		}
	}
	if addr := a.in.Admin.Address(); addr != "" {
		args = append(args, "admin", addr)
	}
	a.n.up.Store(true)
	took := time.Since(a.n.began)
	args = append([]any{"took_ms", took.Milliseconds(), "mode", a.n.Mode.String(), "pid", os.Getpid()}, args...)
	a.n.log.Info(fmt.Sprintf("ready in %d ms", took.Milliseconds()), args...) //nolint:sloglint // people read this line
	a.n.tell(daemon.SdNotifyReady)
	return nil
}

// absolute is path for a reader who does not know the working directory.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// Shutdown implements plugin.Component. It is the first one, whatever the reason.
func (a announcement) Shutdown(context.Context) error {
	a.n.tell(daemon.SdNotifyStopping)
	a.n.beginStop()
	return nil
}
