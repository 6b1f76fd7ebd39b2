package storagetest

import (
	"slices"
	"testing"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

var retentionCases = []testCase{
	{"segments", testSegments},
	{"expire", testExpire},
	{"expire_all_of_a_queue", testExpireAll},
	{"expire_refused", testExpireRefused},
	{"drop", testDrop},
	{"readers_beside_expiry", testReadersExpiry},
	{"appends_beside_expiry", testAppendsExpiry},
}

// filled writes until the log has n full segments.
func filled(t *testing.T, h Harness, n int64) *world {
	w := newWorld(t, h, storage.Immediate)
	for i := 0; w.model.tail < message.Position(n*h.segment()); i++ {
		w.append(many(queue("T", int32(i%2)), 2, 400), []Message{{Queue: queue("U", 0), Keys: "k" + string(rune('a'+i%26))}})
		w.clock.Add(1000)
	}
	return w
}

func (w *world) verifySegments() {
	w.t.Helper()
	got, err := w.caps.Retention.Segments(w.t.Context())
	must(w.t, err, "Segments")
	type times struct{ first, last int64 }
	want := map[message.Position]times{}
	for i := range w.model.log {
		e := &w.model.log[i]
		edge := e.at - e.at%message.Position(w.model.segment)
		s, ok := want[edge]
		if !ok {
			s.first = e.time
		}
		s.last = e.time
		want[edge] = s
	}
	at := w.model.first
	for _, s := range got {
		if s.At != at {
			w.t.Fatalf("Segments: one at %d, want %d", s.At, at)
		}
		at += message.Position(w.model.segment)
		t := want[s.At] // zero for a segment without records
		delete(want, s.At)
		if s.FirstStoreTime != t.first || s.LastStoreTime != t.last {
			w.t.Fatalf("Segments: the one at %d has store times %d to %d, want %d to %d", s.At, s.FirstStoreTime, s.LastStoreTime, t.first, t.last)
		}
		if t.last != 0 && s.Bytes <= 0 {
			w.t.Fatalf("Segments: the one at %d takes %d bytes", s.At, s.Bytes)
		}
		if s.Leases < 0 {
			w.t.Fatalf("Segments: the one at %d has %d leases", s.At, s.Leases)
		}
	}
	if len(want) > 0 {
		w.t.Fatalf("Segments lack %d segments that have records", len(want))
	}
}

func testSegments(t *testing.T, h Harness) {
	w := newWorld(t, h, storage.Immediate)
	w.verifySegments()
	w.append(one(queue("T", 0), 10))
	w.verifySegments()
	w = filled(t, h, 4)
	w.verifySegments()
	if !h.Lacks.Reopen {
		w.reopen()
		w.verifySegments()
	}
}

func testExpire(t *testing.T, h Harness) {
	w := filled(t, h, 5)
	seg := message.Position(h.segment())
	for _, first := range []message.Position{0, seg, seg, 0, 3 * seg} {
		w.expire(first)
		w.verify()
		w.verifySegments()
		for id := range int32(2) {
			q := queue("T", id)
			w.verifyTimes(q)
			e := w.model.queues()[q]
			if e.min > 0 {
				w.read(storage.ReadRequest{Queue: q, Offset: e.min - 1}, storage.OffsetTooSmall, e.min)
				w.read(storage.ReadRequest{Queue: q, Offset: 0}, storage.OffsetTooSmall, e.min)
			}
		}
		w.get([]message.Position{0})
		if w.caps.RawLog != nil && w.model.first > 0 {
			wantErr(t, w.raw().ReadLog(t.Context(), w.model.first-1, 10, &w.chunk), storage.ErrGap, "ReadLog below the first position")
		}
		if !h.Lacks.Reopen {
			w.reopen()
			w.verify()
			w.verifySegments()
		}
	}
	w.append(one(queue("T", 0), 10))
	w.verify()
}

// testExpireAll: a queue whose records are all gone keeps its numbers.
func testExpireAll(t *testing.T, h Harness) {
	w := newWorld(t, h, storage.Immediate)
	rare := queue("rare", 0)
	w.append(many(rare, 3, 100))
	seg := message.Position(h.segment())
	for w.model.tail < 2*seg {
		w.append(many(queue("T", 0), 3, 400))
	}
	w.expire(seg)
	w.verify()
	w.read(storage.ReadRequest{Queue: rare, Offset: 3}, storage.OffsetOverflowOne, 3)
	w.read(storage.ReadRequest{Queue: rare, Offset: 0}, storage.OffsetTooSmall, 3)
	w.read(storage.ReadRequest{Queue: rare, Offset: 4}, storage.OffsetOverflowBadly, 3)
	w.verifyTimes(rare)
	if !h.Lacks.Reopen {
		w.reopen()
		w.verify()
		w.reopen()
		w.verify()
	}
	w.append(one(rare, 10))
	if u := w.model.unitsOf(rare); len(u) != 1 || u[0].Offset != 3 {
		t.Fatalf("the queue goes on with %+v, want offset 3", u)
	}
	w.verify()
	w.read(storage.ReadRequest{Queue: rare, Offset: 3}, storage.Found, 4)
}

func testExpireRefused(t *testing.T, h Harness) {
	w := filled(t, h, 2)
	seg := message.Position(h.segment())
	for _, first := range []message.Position{1, seg - 1, seg + 8, 3 * seg, 1000 * seg} {
		if w.caps.Retention.Expire(t.Context(), first) == nil {
			t.Errorf("Expire below %d worked; segments have %d, published is %d", first, seg, w.model.published)
		}
	}
	w.verify()
}

func testDrop(t *testing.T, h Harness) {
	w := filled(t, h, 2)
	q := queue("T", 0)
	must(t, w.caps.Retention.Drop(t.Context(), []message.Queue{q, queue("never", 9)}), "Drop")
	w.model.drop(q)
	w.verify()
	w.read(storage.ReadRequest{Queue: q, Offset: 0}, storage.NoMatchedLogicQueue, 0)
	if !h.Lacks.Reopen {
		w.reopen()
		w.verify()
	}
	w.seq.Forget(q)
	w.append(many(q, 3, 20))
	if u := w.model.unitsOf(q); u[0].Offset != 0 {
		t.Fatalf("the dropped queue goes on with %+v, want offset 0", u[0])
	}
	w.verify()
	if !h.Lacks.Reopen {
		w.reopen()
		w.verify()
	}
	w.expire(message.Position(h.segment()))
	w.verify()
	must(t, w.caps.Retention.Drop(t.Context(), nil), "Drop of nothing")
	w.verify()
}

// testReadersExpiry holds a chunk while its segment expires: either Expire waits
// for Release, or the bytes stay what they were.
func testReadersExpiry(t *testing.T, h Harness) {
	w := filled(t, h, 3)
	q := queue("T", 0)
	var c storage.Chunk
	lim := storage.Limit{Count: 5}
	must(t, w.store.Read(t.Context(), storage.ReadRequest{Queue: q, Hot: lim, Cold: lim}, &c), "Read")
	units := w.model.unitsOf(q)[:5]
	w.compareChunk(&c, units)
	keep := slices.Clone(join(c.Frags))
	done := make(chan error, 1)
	first := message.Position(h.segment())
	go func() { done <- w.caps.Retention.Expire(t.Context(), first) }()
	for i := range 50 {
		if !slices.Equal(join(c.Frags), keep) {
			t.Error("bytes changed under a lease")
			break
		}
		w.chunk.Reset()
		if err := w.store.Read(t.Context(), storage.ReadRequest{Queue: queue("T", 1), Offset: int64(i), Hot: lim, Cold: lim}, &w.chunk); err != nil {
			t.Errorf("Read beside Expire: %v", err)
		}
	}
	w.chunk.Release()
	c.Release()
	must(t, <-done, "Expire")
	w.model.expire(first)
	w.verify()
}

// testAppendsExpiry appends while a store that allows it expires; one that does not is
// called in turn.
func testAppendsExpiry(t *testing.T, h Harness) {
	w := filled(t, h, 4)
	first := message.Position(3 * h.segment())
	done := make(chan error, 1)
	expire := func() { done <- w.caps.Retention.Expire(t.Context(), first) }
	if w.caps.ExpiresBeside {
		go expire()
	} else {
		expire()
	}
	for i := range 50 {
		w.append(many(queue("T", int32(i%2)), 2, 100), []Message{{Queue: queue("U", 0), Keys: "beside"}})
	}
	must(t, <-done, "Expire")
	w.model.expire(first)
	w.verify()
	w.verifySegments()
	if !h.Lacks.Reopen {
		w.reopen()
		w.verify()
	}
}
