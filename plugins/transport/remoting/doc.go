// Package remoting moves RocketMQ's frames over TCP, at both ends: it serves
// clients, and dials name servers and brokers.
//
// # Reading
//
// On Linux plain connections are read by loops, one for every two processors: a
// goroutine with an epoll descriptor of its own takes all that are ready, reads
// each once into a pooled 64 KiB buffer, cuts the frames out and hands them to
// the session; Handler.Settle comes once, after all of them, so that one turn of
// the log takes what all connections have brought. The sockets are not in Go's
// poller, the loop's descriptor is. An idle connection costs no goroutine and no
// buffer. A session may block on the log: a watchdog then passes the loop to
// another goroutine, and for some rounds each peer is served by its own.
//
// When the handlers are in another process (Params.Distant) it is always so: the
// loop finds out who is ready, and a goroutine each reads them.
//
// Everywhere else, and for TLS, one goroutine per connection reads.
//
// For a frame that does not fit, the buffer grows fourfold each time it is full:
// what a peer costs follows what it really sent, not what it announced.
//
// # Writing
//
// A peer of a loop is written to straight from the frames with one writev that
// never waits. What the socket refuses is copied, up to the byte budgets, and the
// loop writes it when there is room. TLS connections and those of other systems
// always copy; a goroutine that lives only as long as there is something to
// write takes it from there.
//
// # TLS
//
// A listener takes TLS when it is given a TLS configuration (Listen.TLS) or the
// transport's own says so (Config.TLSMode). It tells the two kinds of connections
// apart by the first byte, as RocketMQ does: 0x16 begins a TLS handshake, and would
// begin a frame far above any limit. On such a listener a peer is opened when its
// first byte is there, on a plain listener when it connects. Where there are loops
// they wait for that byte, too, so that whoever says nothing costs no goroutine.
//
// In the mode "enforcing" a plain connection is closed before anything of it is
// decoded. A handshake must end within ten seconds; of more than 512 that are under
// way at a listener the oldest is ended, so that those who do not go on are in
// nobody's way.
//
// A connection with TLS does not move to another process (GivePeer), because its keys
// do not; it stays, and ends with its process. The listening socket moves.
package remoting
