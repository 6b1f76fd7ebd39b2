// Package storagewire carries the storage contract between a host and a plugin
// process: one adapter pair for every storage plugin. [NewFactory] is the host's
// half, [NewServer] the plugin's. What a store is, how it is configured and what
// it answers does not change with the form.
//
// # Connections
//
// gRPC carries control: Describe, Open, Start, Shutdown, State, Segments, Find
// (package storagepb). Everything that holds payload, changes the log or comes
// once per request of a client goes over a few data sockets per instance, raw
// frames on Unix sockets, because gRPC alone costs more than the store itself.
// The host makes a directory with mode 0700 for them, Open answers with the
// socket's path and a nonce, the host connects as often as there are connections
// and removes the directory again: nothing is left behind whoever is killed.
//
//   - The log connection ('L') carries what changes the log, one call at a time,
//     as the contract has it: Append, Publish, Truncate, Reset, Expire, Drop. At
//     both ends the calling goroutine itself reads and writes.
//   - Call connections ('C') carry Read, Get, ReadLog, Offsets and Sync, one call at
//     a time and nothing else, in the same way: no goroutine is woken but the two
//     that talk, which is most of what a call costs. The host says in Open how many
//     it wants, the plugin how many of them it takes; one that was built before
//     there were any takes none.
//   - The read connection ('R') carries the same calls, many at once, when no call
//     connection is free; cancellations of calls on any connection (their head has
//     the connection in place of the time: 0 for this one, 1 for the log connection,
//     2 for the first call connection); events that belong to no call; and Expire, if
//     both ends know expires_beside of the capabilities and the store has it: then its
//     answer has the number of its event in place of that of what was published.
//
// A connection begins with the 32 bytes of the nonce and the role. A frame has a
// head of 24 bytes, little endian: uint32 length of the body, uint8 kind, 3
// bytes zero, uint64 id of the call (of an event: its number), int64 nanoseconds
// that the caller still has, 0 for no deadline. Numbers in bodies are varints of
// encoding/binary, strings have their length before them. The bytes of records
// come last in their frame, so that they are written from and read to where they
// are: a batch crosses with one system call at each side.
//
// # The stream
//
// A plugin that does not speak the data sockets, because it is written in another
// language, answers Open without a socket and serves the stream Data (stream.proto):
// what the frames carry, as protobuf messages, on one gRPC stream for each
// instance. At the host a translator stands between the store and the stream, so
// that all else here is true of both forms. It costs a copy more at either end,
// and what gRPC costs.
//
// # Events
//
// Events are one ordered stream: each has a number, and the host delivers them
// by it, whichever connection brought them: those of the read connection by one
// goroutine. 65,536 of them, or 256 MiB, may wait for it; a process that sends more
// is given up. Those that belong to a call have
// returned at the host when the call returns there. Publishing what came through
// the log connection needs no units on the wire: the answer says how far, the
// host has them. What was in the log before (after Start with Explicit) is sent
// with its units.
//
// # State
//
// Every answer to a write, and every event, carries the marks of the log with a
// number that orders them. State at the host is a copy of the newest, so it costs
// no call. What a plugin makes durable by itself is therefore known late.
//
// # Errors
//
// The sentinels of storage, plugin and context and *storage.CorruptError keep
// their identity; the text is that of the plugin. A plugin's own
// plugin.ErrUnavailable on a write is storage.ErrFailed too: by itself it means
// that the process is gone.
//
// # When the process dies
//
// The store is away ([storage.Reopener], and "Going away" there): every call under
// way and later fails with plugin.ErrUnavailable. The host launches the process
// again, opens and starts the instance in it, and compares: id, segment size, and
// that the log holds what Append, Sync and Publish returned for. Otherwise the
// store is failed, reads included. Attempts that fail are made again, after 50 ms
// at first and every 5 s at most, as long as the store is not shut down.
//
// Units of batches that were under way or not published are kept by the host. What
// of them the new process has published is told by Events.Published before anything
// else; the rest is told, by the plugin or the host, when it is published, and once.
//
// A process that sends what is not the protocol, or ends a data connection while it
// lives on, is killed and counts as dead: nothing that it says can be relied on.
//
// # Limits
//
// A frame holds at most 1 GiB. There is no other limit on records: gRPC's 4 MiB
// do not apply, because payload does not use it, and because the stream lifts them
// at the host's end. A plugin that keeps a limit of its own at the other end
// announces it; the host refuses what is larger with storage.ErrTooLarge, naming
// both.
//
// What does not cross: Logger (the plugin logs to stderr, the host re-labels),
// Meter and Clock (the plugin has its own).
package storagewire
