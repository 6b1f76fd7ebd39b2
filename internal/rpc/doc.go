// Package rpc matches responses with requests over a [transport.Peer], for those
// who call: a broker its name servers, tools and tests a broker, and a server the
// clients that are connected to it.
//
// [Table] is the matching alone, for a session that has one already. [Client] is
// a dialled connection with a table, [Links] are such connections to many servers.
package rpc
