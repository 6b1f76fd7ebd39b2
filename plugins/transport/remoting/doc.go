// Package remoting moves RocketMQ's frames over TCP, at both ends: it serves
// clients, and dials name servers and brokers.
//
// # Reading
//
// One goroutine per connection reads. Where the system allows (Linux, macOS) it
// waits without holding a buffer: an idle connection costs a goroutine and a few
// hundred bytes. When bytes are there it takes a 64 KiB buffer from a pool, cuts
// the frames out of it and hands them to the session; a read that filled its
// buffer is followed by another one before Handler.Settle, so that one turn of
// the log takes all that a busy peer has sent. For a frame that does not fit,
// the buffer grows fourfold each time it is full: what a peer costs follows what
// it really sent, not what it announced.
//
// # Writing
//
// Send writes straight from the frames with one writev that never waits. What
// the socket refuses is copied, up to the byte budgets, and a goroutine that
// lives only as long as there is something to write takes it from there. TLS
// connections, and systems other than Linux and macOS, always take that way.
//
// # TLS
//
// A listener with a TLS configuration serves both kinds of connections on one
// port and tells them apart by the first byte, as RocketMQ's permissive mode
// does: 0x16 begins a TLS handshake, and would begin a frame far above any limit.
// On such a listener a peer is opened when its first byte is there, on a plain
// listener when it connects.
package remoting
