package storagetest

import (
	"slices"
	"testing"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

var readCases = []testCase{
	{"statuses", testReadStatuses},
	{"limits", testReadLimits},
	{"tags", testReadTags},
	{"scan", testReadScan},
	{"get", testGet},
	{"chunks_are_reused", testChunkReuse},
	{"many_queues", testManyQueues},
}

// read checks status and next offset of a Read.
func (w *world) read(r storage.ReadRequest, want storage.ReadStatus, next int64) *storage.Chunk {
	w.t.Helper()
	c := &w.chunk
	c.Reset()
	must(w.t, w.store.Read(w.t.Context(), r, c), "Read %v at %d", r.Queue, r.Offset)
	if c.Status != want || c.Next != next {
		w.t.Fatalf("Read %v at %d: %v, next %d; want %v, next %d", r.Queue, r.Offset, c.Status, c.Next, want, next)
	}
	if want != storage.Found && (len(c.Units) > 0 || len(join(c.Frags)) > 0) {
		w.t.Fatalf("Read %v at %d: %v with %d units", r.Queue, r.Offset, c.Status, len(c.Units))
	}
	return c
}

func testReadStatuses(t *testing.T, h Harness) {
	w := newWorld(t, h, storage.Immediate)
	q := queue("T", 0)
	w.append(many(q, 10, 20))
	c := w.read(storage.ReadRequest{Queue: q, Offset: 0}, storage.Found, 10)
	if c.Min != 0 || c.Max != 10 || len(c.Units) != 10 {
		t.Fatalf("%d units, ends %d and %d; want 10, 0 and 10", len(c.Units), c.Min, c.Max)
	}
	w.read(storage.ReadRequest{Queue: q, Offset: 9}, storage.Found, 10)
	for offset, want := range map[int64]struct {
		status storage.ReadStatus
		next   int64
	}{
		10:      {storage.OffsetOverflowOne, 10},
		11:      {storage.OffsetOverflowBadly, 10},
		100:     {storage.OffsetOverflowBadly, 10},
		1 << 62: {storage.OffsetOverflowBadly, 10},
		-1:      {storage.OffsetTooSmall, 0},
	} {
		c := w.read(storage.ReadRequest{Queue: q, Offset: offset}, want.status, want.next)
		if c.Min != 0 || c.Max != 10 {
			t.Fatalf("Read at %d: ends %d and %d, want 0 and 10", offset, c.Min, c.Max)
		}
	}
	w.read(storage.ReadRequest{Queue: queue("T", 1)}, storage.NoMatchedLogicQueue, 0)
	w.read(storage.ReadRequest{Queue: queue("t", 0)}, storage.NoMatchedLogicQueue, 0)
	w.read(storage.ReadRequest{Queue: queue("T", 1), Offset: 5}, storage.NoMatchedLogicQueue, 0)
	w.read(storage.ReadRequest{Queue: q, Tags: []int64{1}}, storage.NoMatchedMessage, 10)
}

func testReadLimits(t *testing.T, h Harness) {
	w := newWorld(t, h, storage.Immediate)
	q := queue("T", 0)
	w.append(many(q, 10, 100))
	size := int32(w.w.Size(Message{Queue: q, Body: make([]byte, 100)}))
	for _, tc := range []struct {
		count, bytes int32
		offset, next int64
	}{
		{0, 0, 0, 10},
		{1, 0, 0, 1},
		{4, 0, 3, 7},
		{50, 0, 3, 10},
		{0, 3 * size, 0, 3},
		{0, 3*size - 1, 0, 2},
		{0, 3*size + 1, 0, 3},
		{2, 3 * size, 0, 2},
		{5, 3 * size, 0, 3},
		{0, 1, 4, 5},     // the first record is always returned
		{1, 1, 9, 10},    // also when nothing follows
		{32, size, 0, 1}, // exactly one
	} {
		lim := storage.Limit{Count: tc.count, Bytes: tc.bytes}
		c := w.read(storage.ReadRequest{Queue: q, Offset: tc.offset, Hot: lim, Cold: lim}, storage.Found, tc.next)
		w.compareChunk(c, w.model.unitsOf(q)[tc.offset:tc.next])
	}
}

func testReadTags(t *testing.T, h Harness) {
	w := newWorld(t, h, storage.Immediate)
	q := queue("T", 0)
	for i := range 12 {
		tag := []string{"TagA", "", "TagB", "TagA"}[i%4]
		w.append([]Message{{Queue: q, Tags: tag, Body: body(10, "x")}})
	}
	code := func(tags ...string) (out []int64) {
		for _, s := range tags {
			out = append(out, message.TagsCode([]byte(s)))
		}
		slices.Sort(out)
		return out
	}
	for name, tags := range map[string][]int64{
		"one": code("TagA"), "two": code("TagA", "TagB"), "none": code("TagC"), "without": {0},
		"collision": code("TagB", "Aa"),
	} {
		for _, count := range []int32{0, 1, 3} {
			var want []message.Unit
			for _, u := range w.model.unitsOf(q) {
				if slices.Contains(tags, u.TagsCode) {
					want = append(want, u)
				}
			}
			for next := int64(0); ; {
				c := &w.chunk
				c.Reset()
				must(t, w.store.Read(t.Context(), storage.ReadRequest{Queue: q, Offset: next, Tags: tags, Hot: storage.Limit{Count: count}, Cold: storage.Limit{Count: count}}, c), "Read")
				if c.Status == storage.OffsetOverflowOne {
					break
				}
				n := len(c.Units)
				if (c.Status == storage.Found) != (n > 0) || (n == 0 && c.Status != storage.NoMatchedMessage) || c.Next <= next || c.Next > 12 ||
					(count > 0 && n > int(count)) || n > len(want) {
					t.Fatalf("%s: Read at %d: %v with %d units, next %d", name, next, c.Status, n, c.Next)
				}
				w.compareChunk(c, want[:n])
				if want = want[n:]; len(want) > 0 && c.Next > want[0].Offset {
					t.Fatalf("%s: Read at %d goes on at %d, passing over the match at %d", name, next, c.Next, want[0].Offset)
				}
				next = c.Next
			}
			if len(want) > 0 {
				t.Fatalf("%s: %d matches were not read", name, len(want))
			}
		}
	}
}

func testReadScan(t *testing.T, h Harness) {
	w := newWorld(t, h, storage.Immediate)
	q := queue("T", 0)
	for i := range 20 {
		w.append([]Message{{Queue: q, Tags: map[bool]string{true: "yes", false: "no"}[i == 7], Body: body(10, "x")}})
	}
	tags := []int64{message.TagsCode([]byte("yes"))}
	w.read(storage.ReadRequest{Queue: q, Tags: tags, Scan: 5}, storage.NoMatchedMessage, 5)
	c := w.read(storage.ReadRequest{Queue: q, Offset: 5, Tags: tags, Scan: 5}, storage.Found, 10)
	if len(c.Units) != 1 || c.Units[0].Offset != 7 {
		t.Fatalf("found %+v, want the one at 7", c.Units)
	}
	w.read(storage.ReadRequest{Queue: q, Offset: 8, Tags: tags, Scan: 100}, storage.NoMatchedMessage, 20)
	w.read(storage.ReadRequest{Queue: q, Offset: 8, Tags: tags}, storage.NoMatchedMessage, 20)
}

// testGet asks for records in all orders, and for what only looks like one.
func testGet(t *testing.T, h Harness) {
	w := newWorld(t, h, storage.Immediate)
	q := queue("T", 0)
	inner := w.w.Pending(one(q, 5)).Buf // a record inside of a body is none
	w.append([]Message{{Queue: q, Body: inner}})
	w.append(singles(many(q, 30, 700))...)
	w.append([]Message{{Queue: queue("U", 1), Body: inner}})
	w.verifyPositions()
	first := w.model.log[0].at
	w.get([]message.Position{first, first, w.model.log[5].at, first})
	w.get([]message.Position{first + 88})
	w.get([]message.Position{-1 << 62, 1 << 62})
	w.get(nil)
	last := w.model.log[len(w.model.log)-1]
	w.get([]message.Position{last.at + 88})
}

// testChunkReuse reads and releases with one Chunk, and releases twice.
func testChunkReuse(t *testing.T, h Harness) {
	w := newWorld(t, h, storage.Immediate)
	q := queue("T", 0)
	w.append(singles(many(q, 50, 300))...)
	var c, other storage.Chunk
	c.Release() // a zero one
	for i := range 100 {
		c.Reset()
		off := int64(i % 50)
		must(t, w.store.Read(t.Context(), storage.ReadRequest{Queue: q, Offset: off, Hot: storage.Limit{Count: 2}, Cold: storage.Limit{Count: 2}}, &c), "Read")
		must(t, w.store.Read(t.Context(), storage.ReadRequest{Queue: q, Offset: 0, Hot: storage.Limit{Count: 3}, Cold: storage.Limit{Count: 3}}, &other), "Read")
		w.compareChunk(&c, w.model.unitsOf(q)[off:c.Next]) // other does not disturb c
		c.Release()
		c.Release()
		w.compareChunk(&other, w.model.unitsOf(q)[:3])
		other.Reset()
	}
	// Without Reset in between a store must not append to an old answer.
	must(t, w.store.Read(t.Context(), storage.ReadRequest{Queue: q, Offset: 4}, &c), "Read")
	c.Release()
	must(t, w.store.Read(t.Context(), storage.ReadRequest{Queue: q, Offset: 44}, &c), "Read")
	w.compareChunk(&c, w.model.unitsOf(q)[44:])
	c.Release()
}

func testManyQueues(t *testing.T, h Harness) {
	w := newWorld(t, h, storage.Immediate)
	for i := range 300 {
		w.append(one(queue("T", int32(i)), 1), one(queue(string(rune('a'+i%26)), 0), 1))
	}
	w.verify()
	if !h.Lacks.Reopen {
		w.reopen()
		w.verify()
	}
}
