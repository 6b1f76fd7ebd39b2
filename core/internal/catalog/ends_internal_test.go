package catalog

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// No end is lowered, what is left in a queue stays, and a topic that is not there has
// no ends.
func TestRaise(t *testing.T) {
	q := func(topic string, id int32) message.Queue { return message.Queue{Topic: topic, ID: id} }
	table := endTable{m: map[string]map[int32]int64{
		"T":    {0: 7, 1: 7, 2: 7, 3: 7, 4: 0, 5: -1},
		"gone": {0: 7, 1: 7},
	}}
	a := storage.OffsetAnswers{Answers: []storage.OffsetAnswer{
		{Queue: q("T", 0), Known: true, Min: 3, Max: 9},
		{Queue: q("T", 1), Known: true, Min: 3, Max: 5},
		{Queue: q("T", 2), Known: true, Min: 5, Max: 5},
		{Queue: q("gone", 0), Known: true, Min: 1, Max: 2},
		{Queue: q("other", 0), Known: true, Min: 1, Max: 2},
	}}
	raised := table.raise(&a, func(topic string) bool { return topic != "gone" })
	require.ElementsMatch(t, []message.Queue{q("T", 1), q("T", 2), q("T", 3)}, raised)
	require.Equal(t, []storage.OffsetAnswer{
		{Queue: q("T", 0), Known: true, Min: 3, Max: 9},
		{Queue: q("T", 1), Known: true, Min: 3, Max: 7},
		{Queue: q("T", 2), Known: true, Min: 7, Max: 7},
		{Queue: q("gone", 0), Known: true, Min: 1, Max: 2},
		{Queue: q("other", 0), Known: true, Min: 1, Max: 2},
		{Queue: q("T", 3), Known: true, Min: 7, Max: 7},
	}, a.Answers)
}
