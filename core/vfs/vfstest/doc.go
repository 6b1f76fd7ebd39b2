// Package vfstest holds the file system that injects faults below a store, and the suite that every [vfs.FS] runs.
//
//   - [Faults] wraps any file system and makes chosen operations fail, fall short, block or run out of space.
//   - [Run] checks an implementation against the contract of package vfs.
//
// It stacks with the file system in memory, which can lose power:
//
//	disk := memfs.New(seed)
//	faults := vfstest.NewFaults(disk)
//	faults.Fail(vfstest.OpSyncData, "*/commitlog/*", 3, syscall.EIO)
package vfstest
