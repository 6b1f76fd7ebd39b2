// Package solo is the replicator of a node without replicas: it orders, writes,
// and with SYNC_FLUSH waits for the disk.
//
//	replication: solo
//	flushDiskType: ASYNC_FLUSH      # or SYNC_FLUSH
//	flushIntervalCommitLog: 500     # ms between flushes, ASYNC_FLUSH
//	syncFlushTimeout: 5000          # ms, SYNC_FLUSH
//
// With ASYNC_FLUSH the store publishes when it appends, and a goroutine flushes
// every interval. With SYNC_FLUSH one goroutine flushes for all that wait
// (group commit), publishes, and tells the outcomes; no goroutine waits per
// message.
//
// A failed flush, or a failed write whose extent is unknown, ends the office:
// what waits is Unknown, and the node is read-only until it is started again. A
// full disk refuses and nothing else.
//
// A store that goes away (storage.Reopener: its process died) ends the office, too.
// What waits is Unknown, and the node is read-only until the store is back; then the
// unpublished end of the log is flushed and published, and the next office begins,
// of a higher term.
package solo
