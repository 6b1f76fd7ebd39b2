// Package transportmw decorates transports: [Metrics] measures what the engine
// does with their frames, [Faults] makes them fail on demand.
//
// A decorator embeds [Base], which offers no facet; a facet that is to pass the
// decorator must be wrapped by it, and is offered only if the transport below
// offers it.
package transportmw
