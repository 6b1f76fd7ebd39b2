// Package nameserver is the name server: it knows which broker has which topic
// and tells clients.
//
// Brokers register over a connection that they keep open, again every 30 s and
// at each change of a topic. What they registered is forgotten when they say so
// (request 104), when that connection closes, or when they were silent for
// longer than their time-out. Nothing about routes is kept on disk: after a
// restart the brokers register again. Only the key-value configuration
// (requests 100 to 102) is, in kvConfig.json with RocketMQ's text.
//
// The rules are those of RocketMQ's RouteInfoManager, with two differences. A
// close is compared with the youngest connection that registered: the late end of
// an old connection does not remove what a newer one registered, not even when a
// registration over the old one is taken after that. And a heartbeat or data version
// query over a new connection moves the registration to it, for the same reason.
//
// # Cost of a route query
//
// Queries (request 105) take no lock. The table of topics is a map that is
// replaced, never changed, behind an atomic pointer; a topic holds an immutable
// list of its queues and its encoded answer. An answer is valid for one list
// and one generation of the table (which grows when an address changes), and
// is encoded by the first query that finds it stale.
//
// A query that names a zone is answered with the brokers of that zone, as by
// RocketMQ's ZoneRouteRPCHook; these answers are encoded for each query.
//
// Not here: static topics, the controller, and slaves acting as masters in the
// answers to clients; brokers that use these are served as RocketMQ's name server
// does with its default configuration.
package nameserver
