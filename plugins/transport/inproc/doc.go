// Package inproc moves frames between peers of one process, for brokers that are
// embedded in a test or a program. Listeners have names; who wants to connect
// needs the same Transport instance, as there is no registry besides it.
//
// Send copies the frames behind what the other end has not taken yet; a
// goroutine per end delivers them in order. [transport.Limits] hold as on a
// network, with these exceptions: Idle and ReadBytes mean nothing (a peer in the
// same process does not vanish silently, and nothing is half read), a connection
// too many is refused by Dial with ErrLimit, and TLS is refused.
//
// Addresses of peers are made up: 127.0.0.1 with a port that counts connections.
package inproc
