// Package storage declares the storage contract: a log of records with an index
// of queues over it.
//
// A store's author needs no RocketMQ. The engine and the [Sequencer] compute
// positions, stamps, queue offsets and tag codes; a store keeps bytes where it
// is told to keep them, keeps units where it is told to keep them, and gives
// both back. core/storage/storekit turns an ordered key-value backend or an
// append-only one into a whole Store.
//
// # Order of a write
//
// Append → (Sync, replicas: whatever was promised) → Publish → answer.
// Append writes and, in a store opened with [Immediate], publishes. With
// [Explicit] nothing is visible above the published mark until
// [RawLog].Publish, also after Start: the mark is kept by the store. Read, Get,
// Offsets and the key index never show more than what is published; ReadLog,
// Truncate and Sync see all. An index that is ahead of the log or of the mark
// is cut at Start.
//
// # Placing
//
// The log is cut into segments of [Params].Segment bytes. A record never
// crosses an edge; what remains of a segment becomes a blank. A record must
// leave [message.BlankSize] bytes behind it, so records larger than
// Segment−BlankSize are refused. Only the Sequencer places; a store, on leader
// and follower, obeys [Batch].At. Log id and segment size are part of the log's
// identity. Hence positions are equal in every engine, and a follower with
// another engine holds the same log.
//
// # Leases
//
// What a [Chunk] lends is valid until Release. Truncate and Expire wait for
// leases. ReadLog copies what is above the published mark, so that Truncate of
// unpublished bytes never waits.
//
// # Failure
//
// After a failed fsync or a failed write whose extent is unknown, a store is
// failed: Append and Sync return [ErrFailed] for ever, [Events].Failed was
// called once, what was published stays readable. It never retries an fsync. A
// full disk is [ErrFull] and leaves nothing of the batch behind; the store
// recovers by itself when there is space again.
//
// # Going away
//
// A store in a process of its own goes away when that dies; it has not failed. Its
// host opens it again, and offers the facet [Reopener]. Until then all calls
// return [plugin.ErrUnavailable] at once, but State, which stays what was known,
// and Capabilities; those that were under way return it, too, and what they were
// to change may be changed. What a Chunk lent stays valid until Release.
//
// When it is back, first everything that happened to the log unseen is told as
// Events, in order with all others: Published with the units that calls under way
// had brought, Truncated and Expired for such calls. Then reads go on. Calls that
// change the log, and Sync, go on returning ErrUnavailable until
// [Reopener].Reopened has returned, so that nobody writes by what he knew of the
// log before. Who writes takes a new office then.
//
// A log that comes back with another id or segment size, that ends before what
// was acknowledged, or after what was ever written, is not gone on with: the store
// is failed, Events.Failed says what was expected, what was found and what to do,
// and reads return the same. Acknowledged is what Append returned for, if that
// survives the death of the process or was published by it, and what Sync or
// Publish returned for.
//
// # Concurrency
//
// Append, Publish, Truncate, Reset, Expire and Drop are called by one goroutine
// at a time in total (the replicator holds the turn of the log; retention takes
// it too, but for Expire of a store with ExpiresBeside). Sync may be called by several goroutines and overlaps with Append.
// Read, Get, Offsets, ReadLog, Find, State, Segments may be called by any
// number of goroutines at any time between Start and Shutdown.
package storage
