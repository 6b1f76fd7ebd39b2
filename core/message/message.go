package message

import "fmt"

// Position is the byte offset of a record in the log. The Sequencer gives
// positions, everybody else obeys them. A position is never used twice.
type Position int64

// Queue is one message queue of a topic.
type Queue struct {
	Topic string
	ID    int32
}

// String gives "topic/id".
func (q Queue) String() string { return fmt.Sprintf("%s/%d", q.Topic, q.ID) }

// Slot spreads queues over 256 places, for a small cache in front of a map of
// queues: the ids of a topic lie apart, and it costs much less than hashing the
// topic.
func (q Queue) Slot() uint8 {
	n := len(q.Topic)
	h := uint32(q.ID)*31 + uint32(n)*7
	if n > 1 {
		h += uint32(q.Topic[n-1]) + 3*uint32(q.Topic[n/2])
	}
	return uint8(h)
}

// Unit is what an index holds of a record: RocketMQ's ConsumeQueue unit and
// what is needed to find it. A record has none (raft frames, half messages of
// old brokers), one, or several units.
type Unit struct {
	Queue Queue
	// At is the record's position; relative to the start of the buffer until
	// the Sequencer has placed the record.
	At Position
	// Size is the record's size in bytes.
	Size int32
	// Offset is the index in the queue, from 0.
	Offset int64
	// TagsCode is the Java hash of TAGS, 0 without tags; in ScheduleTopic the
	// time in ms at which the message is due (before stamping: the delay in ms).
	TagsCode int64
	// StoreTime is when the record was ordered, ms.
	StoreTime int64
}

// Key is an entry of the key index.
type Key struct {
	// Hash is [KeyHash] of topic and key: never negative, and not unique.
	Hash int32
	// At is as in Unit.
	At Position
	// StoreTime is as in Unit.
	StoreTime int64
}
