// Package transport declares the transport contract: a transport moves frames
// between peers, or calls typed operations; it knows no request code.
//
// # Flow
//
// A transport reads what a peer sent, cuts it into frames and hands all whole
// frames of one read to Session.Arrived. When nothing more is ready on the
// reader it calls Handler.Settle: the engine then takes the turn of the log for
// what many readers have brought, so that one read becomes one batch and one
// vectored write.
//
// # Back-pressure
//
// A peer is not read while Arrived runs; that is how the log slows clients
// down. Send never blocks: what the socket refuses is copied up to the byte
// budget of the peer, beyond it the peer is closed with [ErrSlow]. So neither a
// slow reader nor a slow disk takes unbounded memory.
//
// # Lifetime
//
// Frames given to Arrived are lent until it returns; frames given to Send until
// it returns. Opened comes before the first Arrived, Closed after the last, each
// exactly once per peer, and the calls of one session never overlap.
package transport
