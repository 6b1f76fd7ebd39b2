// Package message holds the records of the log and everything that can be
// computed from their bytes alone: layout, properties, ids, the units that an
// index keeps of a record, names and their limits.
//
// A message is encoded once, in RocketMQ's store layout ([Record]). The same
// bytes lie on disk, travel to replicas and go to consumers. [Deriver] is the
// only place that turns a record into index units and keys; stores that rebuild
// their indexes, the send path and verification all use it.
//
// All integers in a record are big-endian and signed. Times are Unix
// milliseconds. Sizes are bytes. The layout is Apache RocketMQ's
// (store/MessageExtEncoder, common/message/MessageDecoder), versions 4.9 to 5.3.
//
// Nothing in this package blocks, keeps state between calls (but for the topic
// names a Deriver has seen), logs or allocates on its hot paths.
package message
