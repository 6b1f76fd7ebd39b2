// Package replication declares the replication contract: a Replicator is the
// only writer of the log. It orders what the engine hands it, keeps whatever
// promise it was configured for (flushed, on replicas, on a majority), makes it
// visible and tells the engine the outcome.
//
// # Order of a write
//
// Sequencer.Assign → Store.Append → promise met → RawLog.Publish → Sink.Done.
// A replicator whose Describe says "immediate" may use a store in Immediate
// mode, where Append publishes; only a lone node with ASYNC_FLUSH may, since
// otherwise records that are not safe would be readable.
//
// # After Assign
//
// A failed Store.Append ends the office: the groups are Unknown. Rewind is
// allowed only while nothing of the Pending was written. Truncate completes
// what waits above the cut (Unknown or NotStored) before it cuts. Cancelling a
// context never un-orders.
//
// # Offices
//
// Leading is an office with a term. OnRole is called for each change, in order,
// never two at once; its context ends with the office. Before OnRole returned for
// an office only OnRole itself may append (the engine writes what a new leader
// must). State that must survive (identity,
// votes, epochs) lies in Params.Dir and is synced in every flush mode, or is a
// record of the log.
package replication
