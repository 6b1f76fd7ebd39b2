// Package storekit turns a simple backend into a whole store.
//
// The author of a backend needs nothing of RocketMQ: [FromKV] takes an ordered
// key-value store, [FromLog] an append-only file-like one. The kit adds what the
// contract of storage asks for: blanks at segment edges, index units and time
// search, the ten read statuses, the published mark, the facets RawLog,
// Retention and KeyIndex, the log's identity, the ends of queues, recovery.
//
//	func New(_ context.Context, p storage.Params, cfg *Config) (*storekit.Store, error) {
//		return storekit.FromKV(p, &backend{dir: p.Dir, cfg: cfg}, storekit.Options{Survives: storage.SurvivesProcessDeath}), nil
//	}
//
// A backend of some fifty lines that passes the conformance suite is in this
// package's tests (mapKV); plugins/storage/pebble is a real one.
//
// # Keys
//
// Keys begin with a letter, numbers are big-endian, so that bytes sort as
// numbers do.
//
//	i                                identity: version, segment size, log id
//	s                                state: first, tail, published, last store time, next queue number
//	q topic 0x00 id(4)               ends of a queue: number(4), min, max
//	r position(8)                    the bytes of a record, as they are in every engine
//	u number(4) offset(8)            a unit: position, size, tags code, store time
//	k hash(4) ^position(8)           an entry of the key index, newest first: store time
//
// Records are written by Append. Units, keys and ends are written when they are
// published, with the mark, in one atomic step: an index is never ahead of the
// mark. What was appended but not published when a store is opened is derived
// from the records by message.Deriver. Queues have numbers that are never used
// twice, so that Drop removes one range of keys.
//
// # Cost
//
// A record is copied into the backend and out of it; a Read costs one scan of
// units and one Get a record. That is what a simple backend can do; a store
// that wants more implements storage.Store itself.
package storekit
