// Package pull serves PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361), with long
// polling.
//
// A request that finds nothing new is parked: first the waiter is registered,
// then the queue is read again, then the request waits. Events.Published wakes
// the waiters of a queue whose filter the new message may pass; a woken request
// is read again by a worker, never inside the event. Deadlines are kept in one
// heap. There is no sweep over queues.
//
// Tags are filtered twice: by hash in the store's index, then by text here, since
// hashes collide.
package pull
