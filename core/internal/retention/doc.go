// Package retention decides when old segments of the log go, and what a full disk
// does. Stores drop what they are told to drop (storage.Retention); age is that of
// the messages, by store time, not that of files.
//
// # When
//
// Every cleanResourceInterval the disk and the segments are looked at. Segments
// whose messages are all older than fileReservedTime go, oldest first, up to
// deleteFileBatchMax at a time, in the hours of deleteWhen, at any hour while the
// disk is used by more than diskMaxUsedSpaceRatio, and when a tool asks for it
// (DELETE_EXPIRED_COMMITLOG, 329: all of them). Above diskSpaceCleanForciblyRatio
// the oldest go whatever their age, if cleanFileForciblyEnable. The newest segment
// stays always.
//
// Above diskSpaceWarningLevelRatio messages are refused, with a code that clients
// retry, until the disk is used by two percent less: no message more or less
// changes that state, so it does not flap.
//
// # Before
//
// Behaviours are asked first (kernel.Holder): they roll forward or hold back what
// they need. The catalog is one of them: the newest complete image is never passed.
// The log and a metric name who holds back. It is bounded: by expiryHoldMost for
// each segment, and by forced deletion.
//
// Readers keep a segment as long as they hold it. It is not waited for them in the
// turn of the log: the segment is looked at again next time.
//
// # The turn
//
// A store is changed by one call at a time. [Turn] sees to that, so that neither
// replicators nor this package need know of each other. Segments go one at a time,
// with a pause between two, so that sends wait for one at most.
//
// # Stores without the facet
//
// Their records stay. A floor for each queue, kept in the catalog, makes what is
// older than fileReservedTime unreachable by queue.
//
// # Queues
//
// The numbers of a queue go on from where they were, also when all of its messages
// have expired. CLEAN_EXPIRED_CONSUMEQUEUE (306) therefore removes no queue: what
// belongs to a segment goes with it.
package retention
