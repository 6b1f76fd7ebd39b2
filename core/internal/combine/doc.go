// Package combine is the queue in front of the replicator: what many
// connections bring at the same time becomes one batch of the log.
//
// It combines flatly: there is no appender goroutine on the fast path. Whoever
// brings records reserves room in the open batch under a short lock, encodes
// into it in parallel with others, and calls Settle. If nobody has the turn of
// the log the caller takes it: it swaps the open batch for an empty one, waits
// for those who still encode, hands the batch to the replicator, gives the turn
// back, and writes the answers that came out. After two rounds it leaves what
// is left to a goroutine, so that its own connection does not starve.
//
// # Bounds
//
// There are at most [maxBatches] batches, of [batchBytes] and [batchRecords]
// each; larger groups travel in batches of their own, together at most
// [largeBytes]. While all but one are under way, the last one goes on filling;
// when it is full, callers wait for room; after
// Config.SendWait they are refused with an identity that clients retry. So a
// slow disk costs bounded memory. Batches that nobody needs any more are given up
// after a while.
//
// # Lock order
//
// Queue.mu is a leaf: nothing else is locked under it.
package combine
