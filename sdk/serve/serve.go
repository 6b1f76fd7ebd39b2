// Package serve turns plugins into a process that a host launches: the main
// function of a plugin binary is one line,
//
//	func main() { serve.Main(serve.Storage(mystore.NewFactory())) }
//
// The process ends when its host says so, or when the host is gone, however it
// ended: the host holds the other end of the standard input. Then nothing is
// shut down in an orderly way, as nothing was in the host; stores are made for
// that, and their locks are free at once. Signals to end are ignored: a service
// manager sends them to all processes at once, and the host must close its
// stores first. SIGKILL ends a plugin.
//
// Standard output belongs to the handshake. Whatever a plugin prints goes to
// the host's log; its own logger writes JSON lines to standard error.
package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/internal/logunits"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/allocatewire"
	"github.com/hardpointmq/hardpoint/sdk/wire/replicationwire"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire"
	"github.com/hardpointmq/hardpoint/sdk/wire/transportwire"
)

// Options are what a process serves.
type Options struct {
	// Storage are the storage plugins, told apart by their names.
	Storage []storage.Factory
	// Allocate are the allocators.
	Allocate []allocate.Factory
	// Transport are the transports.
	Transport []transport.Factory
	// Replication are the replication plugins.
	Replication []replication.Factory
}

// Storage makes Options of storage plugins.
func Storage(f ...storage.Factory) Options { return Options{Storage: f} }

// Allocate makes Options of allocators.
func Allocate(f ...allocate.Factory) Options { return Options{Allocate: f} }

// Transport makes Options of transports.
func Transport(f ...transport.Factory) Options { return Options{Transport: f} }

// Replication makes Options of replication plugins.
func Replication(f ...replication.Factory) Options { return Options{Replication: f} }

// served are the plugin's halves of the kinds that there are plugins of.
func (o *Options) served(l wire.Loggers, m plugin.Meter) []wire.Served {
	var all []wire.Served
	if len(o.Storage) > 0 {
		all = append(all, storagewire.NewServer(l, metered(m, o.Storage, func(p *storage.Params) *plugin.Settings { return &p.Settings })...))
	}
	if len(o.Allocate) > 0 {
		all = append(all, allocatewire.NewServer(l, metered(m, o.Allocate, func(p *allocate.Params) *plugin.Settings { return &p.Settings })...))
	}
	if len(o.Transport) > 0 {
		all = append(all, transportwire.NewServer(l, metered(m, o.Transport, func(p *transport.Params) *plugin.Settings { return &p.Settings })...))
	}
	if len(o.Replication) > 0 {
		all = append(all, replicationwire.NewServer(l, metered(m, o.Replication, func(p *replication.Params) *plugin.Settings { return &p.Settings })...))
	}
	return all
}

// metered are factories whose instances count in the process's meter.
func metered[P, T any](m plugin.Meter, all []plugin.Factory[P, T], settings func(*P) *plugin.Settings) []plugin.Factory[P, T] {
	out := make([]plugin.Factory[P, T], 0, len(all))
	for _, f := range all {
		out = append(out, plugin.NewRawFactory(f.Name(), f.Describe, func(ctx context.Context, p P, raw plugin.Raw) (T, error) {
			settings(&p).Meter = m
			return f.Build(ctx, p, raw)
		}))
	}
	return out
}

// closeTime bounds how long plugins that the host left open may take to close.
const closeTime = 10 * time.Second

// Main serves o and ends the process.
func Main(o Options) {
	if err := Run(context.Background(), o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// ErrByHand is returned when no host started the process. Test with errors.Is.
var ErrByHand = errors.New("this is a Hardpoint plugin, and no broker started it: run by hand it does nothing. Name it in a broker's configuration (plugins.KIND.NAME.path), or try it with `hardpoint plugin check`")

// Run serves o until the host ends it. Run by hand it returns [ErrByHand]. It
// does not return when the handshake fails or the host dies, but ends the
// process. The end of ctx ends nothing, see the package comment.
func Run(ctx context.Context, o Options) error {
	if h := wire.Handshake(); os.Getenv(h.MagicCookieKey) != h.MagicCookieValue {
		return ErrByHand
	}
	ctx = context.WithoutCancel(ctx)
	stderr := os.Stderr // go-plugin replaces it
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP)
	if os.Getenv(wire.ControlEnv) != "" {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(1)
		}()
	}
	meter := wire.NewMeter()
	served := o.served(func(l slog.Level) *slog.Logger { return NewLogger(stderr, l) }, meter)
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig:  wire.Handshake(),
		VersionedPlugins: wire.Plugins(func(r grpc.ServiceRegistrar) { wire.Register(r, meter, served...) }),
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(opts, grpc.MaxRecvMsgSize(wire.MaxControl), grpc.MaxSendMsgSize(wire.MaxControl))...)
		},
		Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: stderr, JSONFormat: true}),
	})
	ctx, cancel := context.WithTimeout(ctx, closeTime)
	defer cancel()
	var errs []error
	for _, s := range served {
		if err := s.Close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("close the %s plugins that the host left open: %w", s.Kind(), err))
		}
	}
	return errors.Join(errs...)
}

// NewLogger writes lines as hosts of go-plugin expect them: JSON with the text
// keys @timestamp, @level and @message.
func NewLogger(w io.Writer, level slog.Level) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if a = logunits.ReplaceAttr(groups, a); len(groups) > 0 {
				return a
			}
			switch a.Key {
			case slog.TimeKey:
				a.Key = "@timestamp"
			case slog.LevelKey:
				a = slog.String("@level", strings.ToLower(a.Value.String()))
			case slog.MessageKey:
				a.Key = "@message"
			}
			return a
		},
	}))
}
