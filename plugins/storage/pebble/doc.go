// Package pebble keeps the log in a Pebble database: an LSM tree of Go, for
// those who want a single well-known storage engine. Records stay the bytes that
// they are in every engine, at the same positions, so that a node with this
// store and one with commitlog can follow each other. The keys are those of
// storekit; this package is only the backend.
//
// # What an Append survives
//
// Pebble with NoSync keeps what was written in a buffer of the process, and
// kill -9 loses it. Pebble with Sync waits for the disk. This store wants what
// lies between: every step is committed with Sync, which makes Pebble hand its
// write-ahead log to the system, over a file system layer ([deferFS]) whose WAL
// files do not reach for the disk on Sync but remember that they are dirty.
// Store.Sync syncs the dirty ones. Closing a WAL file syncs it, because Pebble
// relies on that a finished log is whole.
//
// For the same reason the database stays at a format version whose WAL does not
// record what was synced: with deferred syncs that record would be untrue, and
// Pebble would call a torn tail corruption.
//
// # Failure
//
// A failed sync of a WAL fails the store for ever; nothing is tried again. Below
// Config.ReserveBytes of free space a step is refused as storage.ErrFull before
// anything is written, so that flushes and compactions, which need space of
// their own, go on and the store recovers when there is space again. How much there
// is is asked before a write, when the last answer is a second old or 16 MiB were
// written since. A directory that has lost the marker of its MANIFEST is refused at
// Start: Pebble would begin an empty store there. When Pebble
// itself cannot go on in the background (its MANIFEST cannot be written) the
// process ends with a panic that says so: what was acknowledged is on disk.
//
// Start waits up to 5 s for the lock of the directory: a process that was killed
// holds it until the system has taken it down.
package pebble
