// Package transportwire carries the transport contract between a host and a
// plugin process: one adapter pair for every transport that moves frames.
// [NewFactory] is the host's half, [NewServer] the plugin's. The plugin has the
// connections of the peers; the engine and its sessions stay in the host.
//
// # Two connections
//
// gRPC carries what is rare: Open, Start, Serve, Drain, Close, Dial, Shutdown, and
// what moves peers to another process (package transportpb). All that happens to peers goes over one data socket per
// instance, a Unix socket in a directory that the host made with mode 0700 and
// removes when it is connected. It begins with the 32 bytes of the nonce and the
// role 'T'. A frame has the head of all data sockets (24 bytes, little endian:
// uint32 length of the body, uint8 kind, 3 bytes zero, uint64 id, 8 bytes zero);
// the id is the plugin's number of the peer, which is used once.
//
// To the host:
//
//   - Opened (1): whom a listener or a dial brought. The body has the host's
//     number of either, the peer's ID, remote and local address, and Identity.
//   - Arrived (2): the frames that one read yielded, as they came.
//   - Closed (3): why, as a Failure.
//
// To the plugin:
//
//   - Took (4): Opened, Arrived or Closed has returned in the host.
//   - Send (5): encoded frames for the peer.
//   - Close (6): close the peer.
//   - Mark (7): its id is a number that a later call over gRPC names, which
//     waits for it: what was sent to peers before the call is written before.
//
// # Order and back-pressure
//
// In the plugin Opened, Arrived and Closed of a session return when they have
// returned in the host, so that all rules of the contract hold on both sides: a
// peer is not read while the engine works on what it sent, its connection is
// counted until the engine knows that it is closed, and Close waits for that. No
// peer waits for another one's answer; a transport is told so by Params.Distant.
//
// In the host Send copies the frames behind what the data socket has not taken
// yet, up to the budgets of Limits, and one goroutine writes what has come
// together: the answers of one turn of the log go to many peers in one write. The
// plugin never stops reading them: it has budgets of its own, those of the real
// peers. A peer that does not read is closed with ErrSlow by either side; the
// plugin's word comes back with the next Send.
//
// # When the process is gone
//
// All its peers are closed with an error that matches plugin.ErrUnavailable and
// says why. Serve and Dial fail with it. The process is started again, as often as
// it takes and with waits between, and every listener that was not closed or
// drained serves its address again, with the port that it had.
//
// # When the process is replaced
//
// A new process is started beside the old one. With the facet Mover in both, what
// the old one has goes on in the new one, and nobody at the other end notices:
//
//   - Receive makes the new one listen on a Unix socket (a directory of the host's,
//     as for the data socket; role 'H'), HandOver connects the old one with it. Over
//     this connection files are passed, each with its ticket, 8 bytes, little endian.
//   - Each listening socket: GiveListener, then Serve with the ticket. Who connects
//     between the two waits in the socket. GiveListener answers when all who were
//     accepted before are Opened, or closed, so that the host moves them, too.
//   - Each peer, of a listener or dialled: the host holds what is sent to it from now
//     on, and sends a Mark. GivePeer waits for the Mark, for the call of the session
//     under way and for what is to be written, and passes the connection. TakePeer
//     goes on with it: it is Opened, with the number that the host made for the
//     taking. That one is not told the session; the host sends what it held, and Took.
//
// A peer that cannot move (three seconds: it does not read) is closed with the old
// process. Where connections do not move at all (a plugin without the facet, Windows)
// each listener of the old process is drained, which closes its port, and the new one
// serves that port at once. The old one may send answers for another quarter of a
// second, then its peers are closed. A client meets what it meets when a broker
// restarts. No process has a port beside another one, as two with SO_REUSEPORT would:
// closing one of those resets the connections that wait in its queue, although they
// look established to the client.
//
// # What does not cross
//
// Listen.TLS and the tls argument of Dial: a tls.Config has keys and functions.
// They are refused; the plugin's own configuration has to name the files.
// Services.API: only frames cross. Logger: the plugin logs to standard error, the
// host re-labels. Meter and Clock: the plugin has its own.
package transportwire
