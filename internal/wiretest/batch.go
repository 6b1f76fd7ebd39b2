package wiretest

import (
	"math"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// Unit is one whose numbers are at the ends of their ranges.
func Unit(topic string, id int32, at message.Position) message.Unit {
	return message.Unit{
		Queue: message.Queue{Topic: topic, ID: id}, At: at, Size: 5, Offset: math.MaxInt64 - 1,
		TagsCode: math.MinInt64, StoreTime: 1_700_000_000_000 + int64(at),
	}
}

// Batch has two groups, one for each thing that a group can be.
func Batch() *storage.Batch {
	return &storage.Batch{
		Term: math.MaxUint64, At: 1 << 40, Buf: []byte("0123456789"),
		Units: []message.Unit{Unit("T", 0, 1<<40), Unit("T", -1, 1<<40), Unit("%RETRY%g", 3, 1<<40+5)},
		Keys:  []message.Key{{Hash: math.MaxInt32, At: 1 << 40, StoreTime: 5}, {Hash: 0, At: 1<<40 + 5, StoreTime: 4}},
		Groups: []storage.Group{
			{Off: 20, Len: 5, Unit: 7, Units: 2, Key: 3, Keys: 1, NoWait: true},
			{Off: 25, Len: 5, Unit: 9, Units: 1, Key: 4, Keys: 1, Edge: true},
		},
	}
}
