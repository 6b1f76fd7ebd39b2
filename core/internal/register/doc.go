// Package register makes a broker known to its name servers and keeps it so.
//
// A name server forgets a broker when the connection closes over which it
// registered, so a [Registrar] keeps one connection to each name server, all of
// them independent of each other: one that is down or slow delays none of the
// others. Over it the whole table of topics is registered at once, then every
// 30 s, and when a topic changed; changes that come while a registration is
// under way are covered by one more. A lost connection is made again at once
// and then with growing pauses of up to 2 s.
//
// The body is plain JSON; above 4 MiB, a quarter of what a frame may hold, it
// is RocketMQ's compressed form.
package register
