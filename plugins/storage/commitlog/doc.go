// Package commitlog is the default store: one log of all records and an index
// for each queue, in files that Apache RocketMQ 4.9 to 5.3 reads and writes.
//
// # Files
//
// Below the store's directory (RocketMQ's storePathRootDir): commitlog/ with
// the segments of the log, consumequeue/TOPIC/QUEUE/ with 20-byte units, index/
// with the key index (package indexfile), checkpoint, abort and lock. Ours
// alone are hardpoint.log, the identity of the log, and hardpoint.cut, which
// exists only while the log is being truncated. A directory that RocketMQ wrote
// has no hardpoint.log and gets one.
//
// # Writing
//
// A batch is one positioned write into the page cache of the current segment
// (or, with commitLogWrite "map", a copy into its mapping). The units of its
// records are written through mappings of the ConsumeQueue files, and its keys
// are handed to a goroutine that owns the key index; until they are in its
// files, Find looks at them in memory. Everything that can run out of space is
// reserved before the first byte of a batch is written, so that a full disk is
// an error and never a signal. The next segment is made by a goroutine when the
// current one is half full.
//
// Sync is a group commit: callers that arrive while one fdatasync runs share
// the next one. ConsumeQueues, key index and checkpoint are flushed every
// flushIntervalConsumeQueue; after a power loss they are rebuilt from the log
// as far back as the checkpoint says.
//
// # Reading
//
// What is resident is lent from the mapping of a segment, without a copy; what
// is not is read into pooled buffers, because a page fault would block a
// thread. A segment with leases is never unmapped.
//
// # Recovery
//
// After a clean end next to nothing is looked at. After a kill or a power loss the log
// is read from the record on that the checkpoint names as flushed, in one goroutine,
// while another makes units and keys of it.
//
// A record is good when its lengths agree, its body has its CRC, and it states
// its own position. A bad place is damage in the middle when a good record
// follows anywhere behind it: then the bytes stay and reads skip them.
// Otherwise it is the torn end of the log, and it is cut and zeroed. RocketMQ
// leaves old bytes behind a cut of its own; records that follow a bad place but
// use queue offsets again that are taken are such bytes.
//
// # Without a broker
//
// [Examine] reads a directory with the reader of recovery and changes nothing,
// [Repair] opens the store without belief in what is derived and closes it, [Seal]
// opens and closes it as it is.
package commitlog
