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
// A process that dies takes its stores with it for a while: calls fail with
// plugin.ErrUnavailable until they are open again in another process, which starts
// after a back-off; one that dies again and again is given a rest (Breaker). Whoever
// writes to them goes on by storage.Reopener. A process that does not answer a health
// call counts as dead and is killed (Health). An allocator keeps nothing, so it goes
// on in a new process by itself, and so does a replicator, whose log is the host's
// store.
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
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/allocatewire"
	"github.com/hardpointmq/hardpoint/sdk/wire/replicationwire"
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
	// Checksum is the SHA-256 of the program in hexadecimal digits; empty: any. It is
	// verified before each start, and a program with another one is not started. On
	// Linux the very file that was hashed is executed, whatever is put under its name
	// meanwhile; elsewhere, and for a script, the file is executed by its name right
	// afterwards. Whoever may write into the file itself, or into what it loads
	// (libraries, the interpreter, its modules), is not kept from it.
	Checksum string
}

// Options may be left zero.
type Options struct {
	// StartTimeout bounds launch, handshake and first health call; 0: 30 s.
	StartTimeout time.Duration
	// Linger is how long a process that was described waits for its store; 0: 5 s;
	// negative: not at all.
	Linger time.Duration
	// Replacer, when not nil, can replace the program while it is used.
	Replacer *Replacer
	// Health is how often a process is asked whether it is there; 0: 5 s; negative:
	// never.
	Health time.Duration
	// HealthLimit is how long it may take to answer, 0: 5 s. One that misses it twice
	// in a row, the second time asked afresh, is killed: then it has not answered for
	// twice as long. Time that the host itself did not run does not count.
	HealthLimit time.Duration
	// CallTimeout is how long a store may owe the answer to a call, a transport may
	// leave unread what it is sent, and a replication plugin may owe what waits for no
	// replica, without bringing anything over the same data socket, 0: 1 min; negative:
	// for ever. Then the process is killed, although it answers health calls. The start
	// of a store or transport is not bounded by it, nor is time that the host itself did
	// not run.
	CallTimeout time.Duration
	// Stopping, when not nil, is closed when the host begins to stop. From then on no
	// process is started, and one that does not answer is waited for no longer than
	// StopTimeout: a health call, what it owes on a data socket, the call that ends its
	// plugin. What does not survive its process is waited for as long as the caller of
	// Shutdown says, as long as its process answers health calls.
	Stopping <-chan struct{}
	// StopTimeout 0: 5 s; negative: as long as at other times.
	StopTimeout time.Duration
	// Backoff and Breaker are about processes that die.
	Backoff Backoff
	Breaker Breaker
	// Meter makes the metrics of the process and its calls; nil: none. The metrics
	// of the plugin itself go there, too, when it implements plugin.Collector.
	Meter plugin.Meter
	// Clock is nil for that of the system.
	Clock plugin.Clock
}

// Backoff is the wait before a process is started again after a death: First after
// the first, twice as long after each further one up to Most, and at random down to
// half of that. A process that lived for the Window of the Breaker starts it over.
type Backoff struct {
	First time.Duration // 0: 100 ms
	Most  time.Duration // 0: 30 s
}

// Breaker is the circuit breaker: after so many deaths within Window no process is
// started for Open, and whoever needs one gets an error at once. Then there is one
// attempt: a process that dies before it has lived for Window opens the circuit
// breaker again at once.
type Breaker struct {
	Deaths int           // 0: 5; negative: it never opens
	Window time.Duration // 0: 1 min
	Open   time.Duration // 0: 30 s
}

// Storage makes a factory of a storage plugin in a process; name selects one of
// those that the process serves, and is the factory's name.
func Storage(name string, cmd Command, o Options) storage.Factory {
	return host(storagewire.Contract(), name, cmd, o, storagewire.NewFactory)
}

// Allocate makes a factory of an allocator in a process, as [Storage] does of a
// store. Its allocators hold the process until allocate.Close.
func Allocate(name string, cmd Command, o Options) allocate.Factory {
	return host(allocatewire.Contract(), name, cmd, o, allocatewire.NewFactory)
}

// Transport makes a factory of a transport in a process, as [Storage] does of a
// store. A process that is gone is started again, and its listeners serve their
// addresses again.
func Transport(name string, cmd Command, o Options) transport.Factory {
	return host(transportwire.Contract(), name, cmd, o, transportwire.NewFactory)
}

// Replication makes a factory of a replication plugin in a process, as [Storage] does
// of a store. It works on the store that it is given, which stays where it is. When
// its process dies the broker is read-only until it is back: it is started again by
// itself.
func Replication(name string, cmd Command, o Options) replication.Factory {
	return host(replicationwire.Contract(), name, cmd, o, replicationwire.NewFactory)
}

// host makes a factory of any kind, with a launcher of its own.
func host[P, T any](c *wire.Contract, name string, cmd Command, o Options, newFactory func(string, wire.Launcher) plugin.Factory[P, T]) plugin.Factory[P, T] {
	l := newLauncher(c, name, cmd, o)
	if o.Replacer != nil {
		o.Replacer.add(l)
	}
	f := newFactory(name, l)
	return plugin.NewRawFactory(name,
		func(ctx context.Context, raw plugin.Raw) (plugin.Description, error) {
			d, err := f.Describe(ctx, raw)
			if err == nil {
				l.noteDescribed(raw, &d)
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
