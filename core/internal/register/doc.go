// Package register makes a broker known to its name servers and keeps it so.
//
// A name server forgets a broker when the connection closes over which it
// registered, so a [Registrar] keeps one connection to each name server, all of
// them independent of each other: one that is down or slow delays none of the
// others. Over it the whole table of topics is registered at once, then every
// 30 s, and when a topic changed; changes that come while a registration is
// under way are covered by one more. A lost connection is made again at once
// and then with growing pauses of up to 1 s.
//
// A name server whose machine is lost, or that a partition hides, closes no connection.
// While it does not answer, it is asked over other connections (request 901, or 106 where
// that is not known): when it can be reached again and does not know the broker, the broker
// registers there. That is less than two seconds later where answers come within 150 ms and
// registrations within 500 ms; where they take longer, more is waited. One that knows the
// broker is waited for, and asked more and more seldom, up to every 4 s; it is registered
// with over another connection only if there is a change to tell, or if a registration
// takes four times as long as the last one, and at least 5 s. The old connection is kept
// until that has ended, so that the name server never forgets the broker. The first
// registration over a connection has at least 5 s, since a name server that returned has
// those of all brokers to do. If a host name stands for several name servers, what another
// one answers counts only when the first takes no connections any more or the name does not
// stand for it any more.
//
// A name server that forgot the broker without closing the connection is noticed within a
// second: it is asked (request 322) whether it still knows what was registered. When the
// host name of a name server comes to stand for other addresses, the broker goes over to
// there. It registers with one of the addresses of a name: several name servers are
// several entries.
//
// The body is plain JSON; above 4 MiB, a quarter of what a frame may hold, it
// is RocketMQ's compressed form.
package register
