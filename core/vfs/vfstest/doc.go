// Package vfstest holds the file systems that tests put below a store, and the suite that every [vfs.FS] runs.
//
//   - [Crash] is a disk in memory that can lose power.
//   - [Faults] wraps any file system and makes chosen operations fail, fall short, block or run out of space.
//   - [Run] checks an implementation against the contract of package vfs.
//
// A crash test writes through a store on a Crash, calls [Crash.Crash] at any moment, opens a store on the file system
// it returns and checks that everything acknowledged before is there. Both wrappers stack:
//
//	disk := vfstest.NewCrash(seed)
//	faults := vfstest.NewFaults(disk)
//	faults.Fail(vfstest.OpSyncData, "*/commitlog/*", 3, syscall.EIO)
package vfstest
