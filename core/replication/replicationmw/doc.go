// Package replicationmw decorates replicators: [Metrics] measures calls and
// outcomes, [Faults] makes calls slow or fail on demand.
//
// A decorator embeds [Base] and nothing else: Base forwards the mandatory
// methods and offers no facet, so that none reaches the caller past the
// decorator. A facet is wrapped by name and offered only if the replicator below
// offers it.
package replicationmw
