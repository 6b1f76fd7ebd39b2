// Command hardpoint is the broker: name server, broker, or both in one process,
// and the tools around them. This file is the list of what it contains; a broker
// with other parts is another such list (examples/reference-broker).
package main

import (
	"context"
	"os"

	"go.uber.org/fx"

	"github.com/hardpointmq/hardpoint/core/broker"
	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/nameserver"
	"github.com/hardpointmq/hardpoint/plugins/standard"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// parts is the program for one mode.
func parts(n *node) []fx.Option { return append(components(n), announce(n)) }

// components are what runs in a mode. They start in this order: the admin
// port answers while a store recovers, the broker finds the name server running.
// Each is a module of fx, because fx calls modules in order and before what is
// not in one.
func components(n *node) []fx.Option {
	list := []fx.Option{standard.Module, fx.Supply(&n.Config, n.Loaded), outOfProcess(n), pluginsChecked(n), lockDir(n), adminPort(n), tracesOf(n)}
	if n.Mode&config.Namesrv != 0 {
		list = append(list, nameserver.Module, nameServerOf(n))
	}
	if n.Mode&config.Broker != 0 {
		list = append(list, broker.Module, brokersOf(n))
	}
	return append(list, metricsOf(n))
}
