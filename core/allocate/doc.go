// Package allocate declares the allocation contract: which member of a consumer
// group gets which message queue.
//
// An Allocator is pure and deterministic: no clock, no I/O, no goroutine, no
// state between calls. The same request gives the same assignment on every
// broker. It is called once per generation of a group (a member joined or left,
// queues changed), never per message.
package allocate
