package storagewire_test

import (
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire/storagepb"
)

// goodRead is an answer to Read of queue T/0 from offset 4 on.
func goodRead(change func(*storagepb.Chunk)) *storagepb.DataResponse {
	unit := func(at, offset int64) *storagepb.Unit {
		return &storagepb.Unit{Queue: &storagepb.Queue{Topic: "T"}, At: at, Size: 5, Offset: offset}
	}
	c := &storagepb.Chunk{Units: []*storagepb.Unit{unit(0, 4), unit(5, 5)}, Records: []byte("0123456789"), Next: 6, Min: 1, Max: 9}
	if change != nil {
		change(c)
	}
	return &storagepb.DataResponse{Answer: &storagepb.DataResponse_Chunk{Chunk: c}}
}

// goodDone is the answer to Append of oneBatch(0).
func goodDone(change func(*storagepb.Done)) *storagepb.DataResponse {
	d := &storagepb.Done{Marks: &storagepb.Marks{Version: 2, Tail: 100, Published: 100}, Event: 1, Published: 100}
	if change != nil {
		change(d)
	}
	return &storagepb.DataResponse{Answer: &storagepb.DataResponse_Done{Done: d}}
}

func goodEnds(change func(*storagepb.QueueEnds)) *storagepb.DataResponse {
	e := &storagepb.QueueEnds{Known: true, Min: 2, Max: 4, Offset: 3}
	if change != nil {
		change(e)
	}
	return &storagepb.DataResponse{Answer: &storagepb.DataResponse_Ends{Ends: &storagepb.Ends{Answers: []*storagepb.QueueEnds{e}}}}
}

// liar is a store whose plugin answers each call with the same.
func liar(t *testing.T, says *storagepb.DataResponse) storage.Store {
	t.Helper()
	var mu sync.Mutex
	return (&rude{answer: func(q *storagepb.DataRequest) *storagepb.DataResponse {
		mu.Lock()
		defer mu.Unlock()
		says.Id = q.GetId()
		return says
	}}).store(t)
}

// TestLies: an answer that cannot be true, in frames that are in order, fails its call
// and ends the process, whatever a broker would have done with it.
func TestLies(t *testing.T) {
	read := func(s storage.Store) error {
		return s.Read(t.Context(), storage.ReadRequest{Queue: message.Queue{Topic: "T"}, Offset: 4}, &storage.Chunk{})
	}
	get := func(s storage.Store) error {
		return s.Get(t.Context(), []message.Position{0, 5}, &storage.Chunk{})
	}
	readLog := func(s storage.Store) error {
		return s.Capabilities().RawLog.ReadLog(t.Context(), 7, 100, &storage.Chunk{})
	}
	offsets := func(s storage.Store) error {
		return s.Offsets(t.Context(), []storage.OffsetQuery{{Kind: storage.FirstAt}}, &storage.OffsetAnswers{})
	}
	add := func(s storage.Store) error { return s.Append(t.Context(), oneBatch(0, nil)) }
	chunk := func(change func(*storagepb.Chunk)) *storagepb.DataResponse { return goodRead(change) }

	require.NoError(t, read(liar(t, goodRead(nil))))
	require.NoError(t, get(liar(t, goodRead(nil))))
	require.NoError(t, offsets(liar(t, goodEnds(nil))))
	require.NoError(t, add(liar(t, goodDone(nil))))
	require.NoError(t, readLog(liar(t, goodRead(func(c *storagepb.Chunk) { c.Units, c.Next = nil, 17 }))))

	for name, c := range map[string]struct {
		call func(storage.Store) error
		says *storagepb.DataResponse
	}{
		"a negative size":         {read, chunk(func(c *storagepb.Chunk) { c.Units[0].Size, c.Units[1].Size = -1, 11 })},
		"a size of nothing":       {read, chunk(func(c *storagepb.Chunk) { c.Units[0].Size, c.Units[1].Size = 0, 10 })},
		"a size too large":        {read, chunk(func(c *storagepb.Chunk) { c.Units[0].Size = math.MaxInt32 })},
		"a negative position":     {read, chunk(func(c *storagepb.Chunk) { c.Units[0].At = -5 })},
		"no bytes":                {read, chunk(func(c *storagepb.Chunk) { c.Records = nil })},
		"too many bytes":          {read, chunk(func(c *storagepb.Chunk) { c.Records = append(c.Records, 0) })},
		"too few bytes":           {read, chunk(func(c *storagepb.Chunk) { c.Records = c.Records[1:] })},
		"no records":              {read, chunk(func(c *storagepb.Chunk) { c.Units, c.Records = nil, nil })},
		"records of nothing":      {read, chunk(func(c *storagepb.Chunk) { c.Status = storagepb.ReadStatus_NO_MATCHED_MESSAGE })},
		"another queue":           {read, chunk(func(c *storagepb.Chunk) { c.Units[1].Queue.Id = 1 })},
		"an offset before":        {read, chunk(func(c *storagepb.Chunk) { c.Units[0].Offset = 3 })},
		"an offset twice":         {read, chunk(func(c *storagepb.Chunk) { c.Units[1].Offset = 4 })},
		"the last offset":         {read, chunk(func(c *storagepb.Chunk) { c.Units[1].Offset, c.Next = math.MaxInt64, math.MaxInt64 })},
		"the same again":          {read, chunk(func(c *storagepb.Chunk) { c.Next = 4 })},
		"a negative next":         {read, chunk(func(c *storagepb.Chunk) { c.Next = -6 })},
		"an unknown status":       {read, chunk(func(c *storagepb.Chunk) { c.Status = 9 })},
		"negative ends":           {read, chunk(func(c *storagepb.Chunk) { c.Min = -1 })},
		"ends in the wrong order": {read, chunk(func(c *storagepb.Chunk) { c.Min, c.Max = 9, 1 })},
		"too small, and it is not": {read, chunk(func(c *storagepb.Chunk) {
			*c = storagepb.Chunk{Status: storagepb.ReadStatus_OFFSET_TOO_SMALL, Min: 4, Max: 9}
		})},
		"too large, and it is not": {read, chunk(func(c *storagepb.Chunk) {
			*c = storagepb.Chunk{Status: storagepb.ReadStatus_OFFSET_OVERFLOW_BADLY, Min: 4, Max: 9}
		})},

		"get, a record too few":    {get, chunk(func(c *storagepb.Chunk) { c.Units, c.Records = c.Units[1:], c.Records[5:] })},
		"get, another record":      {get, chunk(func(c *storagepb.Chunk) { c.Units[1].At = 6 })},
		"get, no bytes":            {get, chunk(func(c *storagepb.Chunk) { c.Records = nil })},
		"get, a negative size":     {get, chunk(func(c *storagepb.Chunk) { c.Units[0].Size, c.Units[1].Size = -5, 15 })},
		"log, somewhere else":      {readLog, chunk(func(c *storagepb.Chunk) { c.Units, c.Next = nil, 18 })},
		"log, more than asked":     {readLog, chunk(func(c *storagepb.Chunk) { c.Units, c.Next, c.Records = nil, 108, make([]byte, 101) })},
		"offsets, negative":        {offsets, goodEnds(func(e *storagepb.QueueEnds) { e.Min = -1 })},
		"offsets, wrong order":     {offsets, goodEnds(func(e *storagepb.QueueEnds) { e.Min = 5 })},
		"offsets, without next":    {offsets, goodEnds(func(e *storagepb.QueueEnds) { e.Max = math.MaxInt64 })},
		"offsets, outside":         {offsets, goodEnds(func(e *storagepb.QueueEnds) { e.Offset = 5 })},
		"offsets, negative offset": {offsets, goodEnds(func(e *storagepb.QueueEnds) { e.Offset = -1 })},

		"append, the end is lower":    {add, goodDone(func(d *storagepb.Done) { d.Marks.Tail, d.Marks.Published = 99, 99 })},
		"append, the end is higher":   {add, goodDone(func(d *storagepb.Done) { d.Marks.Tail = 101 })},
		"append, not published":       {add, goodDone(func(d *storagepb.Done) { d.Marks.Published = 0 })},
		"append, published above":     {add, goodDone(func(d *storagepb.Done) { d.Marks.Published = 101 })},
		"append, durable above":       {add, goodDone(func(d *storagepb.Done) { d.Marks.Durable = 101 })},
		"append, negative":            {add, goodDone(func(d *storagepb.Done) { d.Marks.First = -1 })},
		"append, not told":            {add, goodDone(func(d *storagepb.Done) { d.Event, d.Published = 0, 0 })},
		"append, told less":           {add, goodDone(func(d *storagepb.Done) { d.Published = 50 })},
		"append, told more":           {add, goodDone(func(d *storagepb.Done) { d.Published = 1 << 60 })},
		"append, told what is before": {add, goodDone(func(d *storagepb.Done) { d.Published = -1 })},
		"append, an old version": {func(s storage.Store) error {
			if err := add(s); err != nil {
				return err
			}
			return s.Append(t.Context(), oneBatch(100, nil))
		}, goodDone(nil)},
	} {
		t.Run(name, func(t *testing.T) {
			s := liar(t, c.says)
			err := c.call(s)
			require.ErrorIs(t, err, plugin.ErrUnavailable)
			require.ErrorContains(t, err, "what cannot be true")
			require.ErrorContains(t, s.Capabilities().Reopener.Gone(t.Context()), "what cannot be true", "its process is ended")
		})
	}
}

// TestLyingEvents: the same for what nobody asked for.
func TestLyingEvents(t *testing.T) {
	unit := func(at int64, size int32) *storagepb.Unit {
		return &storagepb.Unit{Queue: &storagepb.Queue{Topic: "T"}, At: at, Size: size}
	}
	published := func(upTo int64, units ...*storagepb.Unit) *storagepb.Event {
		return &storagepb.Event{Number: 1, Marks: &storagepb.Marks{}, What: &storagepb.Event_Published{Published: &storagepb.Published{UpTo: upTo, Units: units}}}
	}
	for name, e := range map[string]*storagepb.Event{
		"above the end":     published(101),
		"before the log":    published(-1),
		"a negative record": published(0, unit(0, -1)),
		"a record above":    published(0, unit(0, 5)),
		"a log of nonsense": {Number: 1, Marks: &storagepb.Marks{Tail: -1}, What: &storagepb.Event_Expired{}},
		"number 0":          {Marks: &storagepb.Marks{}, What: &storagepb.Event_Expired{}},
	} {
		t.Run(name, func(t *testing.T) {
			s := liar(t, &storagepb.DataResponse{Answer: &storagepb.DataResponse_Event{Event: e}})
			require.ErrorIs(t, s.Append(t.Context(), oneBatch(0, nil)), plugin.ErrUnavailable)
			require.ErrorContains(t, s.Capabilities().Reopener.Gone(t.Context()), "what cannot be true")
		})
	}
}
