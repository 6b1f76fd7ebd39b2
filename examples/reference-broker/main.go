// Command reference-broker is a name server and a broker in one process, in one
// screen: the same plugins and the same engine as the hardpoint binary. Add a
// line to parts to add a plugin of your own.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
	"go.uber.org/fx"

	"github.com/hardpointmq/hardpoint/core/broker"
	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/nameserver"
	"github.com/hardpointmq/hardpoint/core/wiring"
	"github.com/hardpointmq/hardpoint/plugins/standard"
)

// parts is what the program consists of, in the order in which it starts.
func parts(cfg *config.Config) []fx.Option {
	return []fx.Option{
		standard.Module, // the default plugins
		// wiring.Storage(mystore.NewFactory()) and the like go here.
		fx.Supply(cfg, []broker.Params{{Config: cfg}}), // one for each broker group
		fx.Provide(func() (nameserver.Config, error) { return nameserver.FromConfig(cfg, broker.Limits(cfg)) }),
		fx.Provide(func(s *nameserver.Server) broker.NameServers {
			return func() []string { return []string{config.LocalOf(s.Address())} }
		}),
		nameserver.Module,
		broker.Module,
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process, also while it drains
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "reference-broker:", err)
		if errors.Is(err, errUsage) {
			os.Exit(2)
		}
		os.Exit(1)
	}
}

var errUsage = errors.New("usage: reference-broker [flags]; --help lists them")

func run(ctx context.Context, args []string) error {
	flags := pflag.NewFlagSet("reference-broker", pflag.ContinueOnError)
	config.RegisterFlags(flags)
	if err := flags.Parse(args); errors.Is(err, pflag.ErrHelp) {
		return nil // the flags have been printed
	} else if err != nil {
		return fmt.Errorf("%w\n%w", err, errUsage)
	} else if flags.NArg() > 0 {
		return fmt.Errorf("takes no arguments, and there is %q\n%w", flags.Arg(0), errUsage)
	}
	loaded, err := config.Load(config.Options{Env: os.Environ(), Flags: flags})
	if err != nil {
		return err
	}
	if err := loaded.Config.WithoutProcesses(); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	app, err := wiring.New(wiring.Options{Logger: log}, parts(&loaded.Config)...)
	if err != nil {
		return err
	}
	return app.Run(ctx)
}
