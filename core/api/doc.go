// Package api holds the typed operations of a broker and its errors. Protocols
// are endpoints above them: the remoting endpoint maps frames onto the same
// operations that an embedder calls in Go.
//
// Requests are plain structs that the caller owns; nothing is kept after a call
// returns unless it says so. All operations are safe for concurrent use, take a
// context that bounds waiting (not what is already ordered), and return *[Error]
// for what a client did wrong or must know.
package api
