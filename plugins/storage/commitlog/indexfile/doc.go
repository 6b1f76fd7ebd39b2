// Package indexfile reads and writes one file of RocketMQ's key index
// (store/index/IndexFile): a header, a table of hash slots, and entries that
// are chained from their slot, newest first.
//
// A File does no locking: one writer at a time, no reader beside it. It is
// written through a mapping whose space was reserved ([File.Reserve]), or by
// position where that is not possible.
package indexfile
