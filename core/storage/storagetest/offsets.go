package storagetest

import (
	"testing"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

var offsetCases = []testCase{
	{"by_time", testOffsetsByTime},
	{"unknown_queues", testOffsetsUnknown},
	{"answers_are_reused", testOffsetsReuse},
}

// verifyTimes asks for both boundaries at every interesting time of a queue.
func (w *world) verifyTimes(q message.Queue) {
	w.t.Helper()
	e := w.model.queues()[q]
	times := []int64{0, 1, 1 << 60}
	for _, u := range w.model.unitsOf(q) {
		times = append(times, u.StoreTime-1, u.StoreTime, u.StoreTime+1)
	}
	var query []storage.OffsetQuery
	for _, ms := range times {
		query = append(query, storage.OffsetQuery{Queue: q, Kind: storage.FirstAt, Time: ms}, storage.OffsetQuery{Queue: q, Kind: storage.LastAt, Time: ms})
	}
	var a storage.OffsetAnswers
	must(w.t, w.store.Offsets(w.t.Context(), query, &a), "Offsets")
	if len(a.Answers) != len(query) {
		w.t.Fatalf("%d answers to %d queries", len(a.Answers), len(query))
	}
	for i, got := range a.Answers {
		want := w.model.firstAt(q, e, query[i].Time)
		if query[i].Kind == storage.LastAt {
			want = w.model.lastAt(q, e, query[i].Time)
		}
		if !got.Known || got.Queue != q || got.Min != e.min || got.Max != e.max || got.Offset != want {
			w.t.Fatalf("Offsets %+v: %+v, want offset %d, ends %d and %d", query[i], got, want, e.min, e.max)
		}
	}
}

// testOffsetsByTime follows a reset by time: ten messages at distinct times,
// then a batch of five with one time.
func testOffsetsByTime(t *testing.T, h Harness) {
	w := newWorld(t, h, storage.Immediate)
	q := queue("T", 0)
	for range 10 {
		w.append(one(q, 50), one(queue("T", 1), 5))
		w.clock.Add(1000)
	}
	w.append(many(q, 5, 50))
	w.clock.Add(60_000)
	w.append(one(queue("T", 1), 5))
	w.verifyTimes(q)
	w.verifyTimes(queue("T", 1))
	var a storage.OffsetAnswers
	must(t, w.store.Offsets(t.Context(), []storage.OffsetQuery{
		{Queue: q, Kind: storage.FirstAt, Time: epoch - 1},
		{Queue: q, Kind: storage.FirstAt, Time: epoch + 5000},
		{Queue: q, Kind: storage.FirstAt, Time: epoch + 5001},
		{Queue: q, Kind: storage.FirstAt, Time: epoch + 10_000},
		{Queue: q, Kind: storage.FirstAt, Time: epoch + 3_600_000},
		{Queue: q, Kind: storage.LastAt, Time: epoch + 10_000},
		{Queue: q, Kind: storage.LastAt, Time: epoch - 1},
	}, &a), "Offsets")
	for i, want := range []int64{0, 5, 6, 10, 15, 14, 0} {
		if a.Answers[i].Offset != want {
			t.Errorf("query %d: offset %d, want %d", i, a.Answers[i].Offset, want)
		}
	}
}

func testOffsetsUnknown(t *testing.T, h Harness) {
	w := newWorld(t, h, storage.Immediate)
	w.append(one(queue("T", 0), 5))
	var a storage.OffsetAnswers
	must(t, w.store.Offsets(t.Context(), []storage.OffsetQuery{
		{Queue: queue("T", 1)}, {Queue: queue("T", 0)},
		{Queue: queue("U", 0), Kind: storage.FirstAt, Time: epoch}, {Queue: queue("U", 0), Kind: storage.LastAt, Time: epoch},
	}, &a), "Offsets")
	for i, known := range []bool{false, true, false, false} {
		got := a.Answers[i]
		if got.Known != known || got.Min != 0 || (got.Max == 1) != known || got.Offset != 0 {
			t.Errorf("answer %d: %+v, want known %t", i, got, known)
		}
	}
}

func testOffsetsReuse(t *testing.T, h Harness) {
	w := newWorld(t, h, storage.Immediate)
	var a storage.OffsetAnswers
	for i := range 20 {
		w.append(one(queue("T", int32(i)), 5))
		must(t, w.store.Offsets(t.Context(), nil, &a), "Offsets")
		if len(a.Answers) != i+1 {
			t.Fatalf("%d queues, want %d", len(a.Answers), i+1)
		}
		must(t, w.store.Offsets(t.Context(), []storage.OffsetQuery{{Queue: queue("T", 0)}}, &a), "Offsets")
		if len(a.Answers) != 1 || a.Answers[0].Max != 1 {
			t.Fatalf("answers %+v, want one", a.Answers)
		}
	}
}
