// Package allocatewire carries the allocation contract between a host and a
// plugin process: one adapter pair for every allocator. [NewFactory] is the host's
// half, [NewServer] the plugin's.
//
// Everything is gRPC, one call for each generation of a group (package
// allocatepb): each string crosses once, queues and owners are packed numbers, so
// that 1,000 queues and 100 members are some 10 KiB. Contexts end calls on both
// sides, deadlines cross, errors keep their identity (allocate.ErrRequest,
// plugin.ErrConfig, plugin.ErrUnavailable).
//
// # When the process dies or is replaced
//
// An allocator keeps no state, so a call that lost its process is made again,
// once, by a process acquired anew. A process that was replaced gets no new calls
// and is released when those under way have returned. What fails then matches
// plugin.ErrUnavailable and has the exit status and the last output of the
// process.
//
// An allocator made here holds its process until allocate.Close.
package allocatewire
