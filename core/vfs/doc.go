// Package vfs is the file system seam of the storage engines: everything a store does to a disk goes through
// [FS], [File] and [Mapping], so that a test can put a disk underneath that loses power, fills up or fails.
//
// Three implementations exist:
//
//   - [OS], the real file system: fallocate, fdatasync, mmap, msync, madvise, mincore, mlock and POSIX record locks;
//   - memfs.FS, in memory, for brokers that leave nothing behind and for tests: it keeps what was synced apart from
//     what was only written, and its Crash returns the disk as it may look after a power failure;
//   - vfstest.Faults, a wrapper over either: failing and short operations, a full disk, hooks that block or delay.
//
// # Durability
//
// The contract is the weakest one that real file systems offer, and a store must not rely on more:
//
//   - Written bytes are durable after [File.Sync] or [File.SyncData] returned nil; bytes written through a
//     [Mapping] after either of these or after [Mapping.Sync] of their range. Until then any subset of the written
//     4 KiB pages may be found after a crash, in any order.
//   - The length of a file is durable after File.Sync or File.SyncData; after Mapping.Sync it is at least the end of
//     the synced range.
//   - A created, renamed or removed name is durable after [FS.SyncDir] of its directory (both directories for a
//     rename between two). Syncing the file does not make its name durable.
//   - [FS.Rename] is atomic: after a crash either the old or the new state is found, never both and never neither.
//   - After a failed sync the state of the unsynced bytes is unknown and a second sync may lie about them. Do not
//     retry; stop acknowledging.
//
// # Stability
//
// The package is public and its mandatory methods are frozen per major version. It is not a plugin kind, hence not
// bound to the size limit of those contracts; it grows by fields of [Info] and [Usage], by [Advice] values and by
// optional interfaces.
//
// # Files
//
//	vfs.go        the contract
//	errors.go     sentinels and their classification
//	helpers.go    WriteFileAtomic, ReadFile, EnsureDir
//	os.go         OS: what is the same everywhere
//	os_*.go       what is not: linux, darwin, unix (both), windows, other
//	memfs/        FS in memory, which can lose power
//	vfstest/      Faults and the suite that every FS runs
package vfs
