// Package external makes factories of plugins that run in processes of their
// own. What they give is used like a plugin in process:
//
//	f := external.Storage("pebble", external.Command{Path: "/opt/hardpoint-pebble"}, external.Options{})
//
// The process is launched when it is first needed: by Describe, Build or Start.
// One process serves all instances of a factory and ends with the last of them;
// one that was only described ends after a while. It never outlives the host, however
// the host ends: its standard input is a pipe from the host, and on Linux the
// kernel kills it with the host.
//
// A process that dies takes its stores with it: calls fail with
// plugin.ErrUnavailable, Events.Failed is called. A store built and started anew
// launches a new process. An allocator keeps nothing, so it goes on in a new
// process by itself.
//
// The connection is go-plugin's over gRPC with mutual TLS, plus the data sockets
// of storagewire. What the process prints, anything at all, goes to the logger
// of the first store built, with the plugin's name; a flood is cut short and
// never holds up the process. Its last lines are part of the error when it does
// not start or dies.
package external

import (
	"context"
	"time"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/allocatewire"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire"
	"github.com/hardpointmq/hardpoint/sdk/wire/transportwire"
)

// Command is how the process is launched.
type Command struct {
	// Path is the program; without a slash it is looked for in PATH.
	Path string
	Args []string
	// Env is added to the few variables that a plugin inherits (PATH, HOME,
	// temporary directory, time zone, language, settings of the Go runtime).
	// Nothing else of the host's environment reaches it: that may hold secrets.
	Env []string
}

// Options may be left zero.
type Options struct {
	// StartTimeout bounds launch and handshake; 0: 30 s.
	StartTimeout time.Duration
	// Linger is how long a process that was described waits for its store; 0: 5 s;
	// negative: not at all.
	Linger time.Duration
	// Replacer, when not nil, can replace the program while it is used.
	Replacer *Replacer
}

// Storage makes a factory of a storage plugin in a process; name selects one of
// those that the process serves, and is the factory's name.
func Storage(name string, cmd Command, o Options) storage.Factory {
	return host(wire.Storage, storage.Contract, name, cmd, o, storagewire.NewFactory)
}

// Allocate makes a factory of an allocator in a process, as [Storage] does of a
// store. Its allocators hold the process until allocate.Close.
func Allocate(name string, cmd Command, o Options) allocate.Factory {
	return host(wire.Allocate, allocate.Contract, name, cmd, o, allocatewire.NewFactory)
}

// Transport makes a factory of a transport in a process, as [Storage] does of a
// store. A process that is gone is started again, and its listeners serve their
// addresses again.
func Transport(name string, cmd Command, o Options) transport.Factory {
	return host(wire.Transport, transport.Contract, name, cmd, o, transportwire.NewFactory)
}

// host makes a factory of any kind, with a launcher of its own.
func host[P, T any](kind, contract, name string, cmd Command, o Options, newFactory func(string, wire.Launcher) plugin.Factory[P, T]) plugin.Factory[P, T] {
	if o.StartTimeout <= 0 {
		o.StartTimeout = 30 * time.Second
	}
	if o.Linger == 0 {
		o.Linger = 5 * time.Second
	}
	l := &launcher{kind: kind, name: name, contract: contract, cmd: cmd, o: o}
	if o.Replacer != nil {
		o.Replacer.add(l)
	}
	f := newFactory(name, l)
	return plugin.NewRawFactory(name,
		func(ctx context.Context, raw plugin.Raw) (plugin.Description, error) {
			d, err := f.Describe(ctx, raw)
			if err == nil {
				l.noteDescribed(raw)
			}
			return d, err
		},
		func(ctx context.Context, p P, raw plugin.Raw) (T, error) {
			t, err := f.Build(ctx, p, raw)
			if err == nil {
				l.noteBuilt(raw)
			}
			return t, err
		})
}
