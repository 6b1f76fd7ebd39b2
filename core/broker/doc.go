// Package broker is the public face of the engine: [New] assembles a broker
// group from a configuration and registries of plugins, [Module] does it in an
// fx program. What a broker does is under core/internal, one package per
// behaviour.
//
// # Start
//
// Listen (connections wait at a gate) → choose and announce the advertised
// address → store → journal → replicator, whose first office loads the catalog →
// behaviours → open the gate → dial the own address → register with the name
// servers.
//
// # Drain and Shutdown
//
// Drain, which may be left out: register without write permission what other brokers
// take messages of → go on serving until producers know.
//
// Shutdown: unregister → refuse new writes → drain listeners → answer who waits →
// behaviours → replicator → store. The store has a share of the time that nobody else can take.
package broker
