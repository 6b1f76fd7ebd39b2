// Package kernel is what the behaviours of the broker share: the configuration
// of one broker group, the store, the journal through which records reach the
// log, metadata look-ups, hooks, and the endpoint that turns frames into calls
// of registered handlers.
//
// # How a behaviour is added
//
// A behaviour is a package under core/internal. Its constructor takes the
// [Kernel], registers handlers for its request codes ([Kernel.Handle]) and the
// hooks it needs ([Hooks]); no other package is touched. It writes records with
// [Journal] and never to the store.
//
// # Order at start and stop
//
// Constructors register, then core/broker starts: store, replicator (whose first
// office calls [Kernel.TakeOffice]: the Role hooks run in order of registration),
// Start hooks, transports. Stop is the reverse.
//
// # Locks
//
// Hooks and handlers are called with no lock of the kernel held. Published hooks
// run in the store's event order, inside the turn of the log for some
// replicators: they must not block, and must not call Journal.Write.
package kernel
