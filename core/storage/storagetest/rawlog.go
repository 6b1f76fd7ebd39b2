package storagetest

import (
	"errors"
	"slices"
	"testing"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

var rawLogCases = []testCase{
	{"nothing_above_published", testPublishLate},
	{"publish", testPublish},
	{"unpublished_after_reopen", testUnpublishedReopen},
	{"read_log", testReadLog},
	{"truncate_unpublished", testTruncateUnpublished},
	{"truncate_published", testTruncatePublished},
	{"truncate_refused", testTruncateRefused},
	{"truncated_never_returns", testTruncatedNeverReturns},
	{"reset", testReset},
	{"follow", testFollow},
	{"mark_at_an_edge", testMarkAtEdge},
	{"mark_of_a_blank", testMarkOfABlank},
	{"mark_after_power_loss", testMarkPowerLoss},
}

// testPublishLate appends several batches before any is published.
func testPublishLate(t *testing.T, h Harness) {
	w := newWorld(t, h, storage.Explicit)
	q := queue("T", 0)
	w.append(many(q, 3, 50), []Message{{Queue: queue("U", 0), Keys: "key", UniqueKey: "u1"}})
	w.verify() // the model shows nothing either
	w.read(storage.ReadRequest{Queue: q}, storage.NoMatchedLogicQueue, 0)
	var a storage.OffsetAnswers
	must(t, w.store.Offsets(t.Context(), []storage.OffsetQuery{{Queue: q}, {Queue: q, Kind: storage.FirstAt, Time: epoch}}, &a), "Offsets")
	if a.Answers[0].Known || a.Answers[0].Max != 0 || a.Answers[1].Offset != 0 || a.Published != 0 {
		t.Fatalf("Offsets show what is not published: %+v", a)
	}
	var batches []message.Position
	for i := range 6 {
		p := w.append(many(q, i+1, 100), []Message{{Queue: queue("U", 0), Keys: "key"}})
		w.clock.Add(3000)
		batches = append(batches, p.End)
	}
	w.verify()
	for _, end := range batches {
		w.publish(end)
		w.verify()
		w.verifyTimes(q)
	}
}

func testPublish(t *testing.T, h Harness) {
	w := newWorld(t, h, storage.Explicit)
	a := w.append(one(queue("T", 0), 50)).End
	b := w.append(one(queue("T", 0), 50)).End
	w.publish(b)
	w.verify()
	w.publish(a) // lower: changes nothing
	w.publish(0)
	w.publish(b)
	w.verify()
	wantErr(t, w.raw().Publish(t.Context(), b+1), storage.ErrGap, "Publish above the tail")
	// Several batches at once, over an edge.
	for range 30 {
		w.append(many(queue("T", 0), 2, 500))
	}
	w.publish(w.model.tail)
	w.verify()
	for _, l := range w.lent {
		if l.freed.Load() != 1 {
			t.Fatalf("the batch at %d is published, but Free was called %d times", l.at, l.freed.Load())
		}
	}
	if !h.Lacks.Reopen {
		w.reopen()
		w.verify()
	}
}

// testUnpublishedReopen: the mark is kept, in both modes of the next opening.
func testUnpublishedReopen(t *testing.T, h Harness) {
	needsReopen(t, h)
	w := newWorld(t, h, storage.Explicit)
	q := queue("T", 0)
	schedule := Message{Queue: queue(message.ScheduleTopic, 1), Delay: 2, UniqueKey: "d"}
	mark := w.append(many(q, 5, 700), []Message{schedule}).End
	w.publish(mark)
	var ends []message.Position
	for range 12 {
		ends = append(ends, w.append(many(q, 3, 700), []Message{schedule}, []Message{{Queue: q, SysFlag: message.SysTxRollback}}, []Message{{Queue: queue("new", 0), Keys: "a b"}}).End)
		w.clock.Add(1000)
	}
	w.verify()
	w.reopen()
	w.verify() // published is mark, nothing above is shown
	w.publish(ends[2])
	w.verify()
	w.reopen()
	w.verify()
	w.publish(ends[5])
	w.publish(ends[7])
	w.verify()
	w.truncate(ends[9])
	w.verify()
	w.publish(ends[9])
	w.verify()
	w.open()
	last := w.append(one(q, 10)).End
	w.verify()

	w.shutdown()
	w.mode = storage.Immediate
	w.model.published = last // opened with Immediate, everything is visible
	w.start()
	w.verify()
	w.append(one(q, 10))
	w.verify()
}

// testReadLog reads from every byte around blanks and record edges.
func testReadLog(t *testing.T, h Harness) {
	w := newWorld(t, h, storage.Explicit)
	for w.model.tail < message.Position(2*h.segment()+h.segment()/2) {
		w.append(many(queue("T", 0), 3, 600))
	}
	w.publish(w.model.log[len(w.model.log)/2].end())
	w.verifyRaw()
	c := &w.chunk
	check := func(from message.Position, n int) {
		t.Helper()
		c.Reset()
		must(t, w.raw().ReadLog(t.Context(), from, n, c), "ReadLog at %d", from)
		got := join(c.Frags)
		if len(got) == 0 || len(got) > n || c.Next != int64(from)+int64(len(got)) {
			t.Fatalf("ReadLog at %d, at most %d: %d bytes, goes on at %d", from, n, len(got), c.Next)
		}
		if want := w.model.raw(from, from+message.Position(len(got))); !slices.Equal(got, want) {
			t.Fatalf("ReadLog at %d: %d bytes%s", from, len(got), differ(got, want))
		}
	}
	tail := w.model.tail
	for _, e := range w.model.edges() {
		for d := message.Position(-9); d <= 9; d++ {
			if p := e + d; p >= 0 && p < tail {
				check(p, 1)
				check(p, 20)
				check(p, 5000)
			}
		}
	}
	check(0, int(tail)+1)
	c.Reset()
	must(t, w.raw().ReadLog(t.Context(), tail, 100, c), "ReadLog at the tail")
	if n := len(join(c.Frags)); n != 0 || c.Next != int64(tail) {
		t.Fatalf("ReadLog at the tail: %d bytes, goes on at %d", n, c.Next)
	}
	wantErr(t, w.raw().ReadLog(t.Context(), tail+1, 100, c), storage.ErrGap, "ReadLog above the tail")
	wantErr(t, w.raw().ReadLog(t.Context(), -1, 100, c), storage.ErrGap, "ReadLog below the first")
}

func testTruncateUnpublished(t *testing.T, h Harness) {
	w := newWorld(t, h, storage.Explicit)
	q := queue("T", 0)
	w.publish(w.append(many(q, 4, 300)).End)
	mark := w.model.tail
	w.append(many(q, 2, 300))
	w.append(singles(many(queue("new", 0), 60, 600))...) // over edges
	w.verify()
	w.truncate(mark)
	w.verify()
	if !h.Lacks.Reopen {
		w.reopen()
		w.verify()
	}
	p := w.append(many(q, 2, 10))
	if p.At != mark {
		t.Fatalf("after the cut at %d the next record is at %d", mark, p.At)
	}
	w.publish(p.End)
	w.verify()
	u := w.model.unitsOf(q)
	if u[4].Offset != 4 || u[4].At != mark {
		t.Fatalf("the record after the cut is %+v, want offset 4 at %d", u[4], mark)
	}
	w.truncate(w.model.tail) // nothing to cut
	w.verify()
}

// testTruncatePublished cuts a published log ever shorter, at each kind of edge.
func testTruncatePublished(t *testing.T, h Harness) {
	w := newWorld(t, h, storage.Explicit)
	for i := 0; w.model.tail < message.Position(3*h.segment()); i++ {
		w.append(many(queue("T", int32(i%3)), 2, 500), []Message{{Queue: queue("U", 0), Keys: "k", UniqueKey: "u"}})
		w.clock.Add(100)
		w.publish(w.model.tail)
	}
	for n := len(w.model.log); n > 0; n -= 7 {
		e := w.model.log[n-1]
		w.truncate(e.at)
		w.verify()
		w.verifyTimes(queue("U", 0))
		if n%3 == 0 && !h.Lacks.Reopen {
			w.reopen()
			w.verify()
		}
		// What comes next begins at the cut and continues the queues.
		w.append(one(queue("T", 1), 40), []Message{{Queue: queue("U", 0), Keys: "k"}})
		w.publish(w.model.tail)
		w.verify()
	}
	w.truncate(0)
	w.verify()
	w.append(one(queue("T", 1), 40))
	w.publish(w.model.tail)
	w.verify()
}

func testTruncateRefused(t *testing.T, h Harness) {
	w := newWorld(t, h, storage.Explicit)
	w.append(many(queue("T", 0), 5, 100))
	w.publish(w.model.tail)
	w.append(many(queue("T", 0), 5, 100))
	for _, at := range []message.Position{-1, 1, w.model.log[2].at + 8, w.model.log[7].at - 1, w.model.tail - 1, w.model.tail + 1, message.Position(h.segment())} {
		wantErr(t, w.raw().Truncate(t.Context(), at), storage.ErrGap, "Truncate at %d", at)
		w.verify()
	}
}

// testTruncatedNeverReturns cuts inside a segment and opens again with shorter
// records over the old ones: a later scan must not take old bytes for records.
func testTruncatedNeverReturns(t *testing.T, h Harness) {
	w := newWorld(t, h, storage.Explicit)
	q := queue("T", 0)
	w.append(many(q, 8, 150))
	size := w.model.log[0].end()
	w.publish(w.model.tail)
	w.truncate(w.model.log[3].at)
	if !h.Lacks.Reopen {
		w.reopen()
		w.verify()
	}
	// A record exactly as long as the old one: what follows it on disk would be
	// the old next one.
	w.append(many(q, 1, 150))
	if got := w.model.tail; got != 4*size {
		t.Fatalf("the tail is %d, want %d: the suite's records differ in size", got, 4*size)
	}
	if !h.Lacks.Reopen {
		w.reopen()
		w.verify()
	}
	w.publish(w.model.tail)
	w.verify()
	// The same over an edge.
	for w.model.tail < message.Position(2*h.segment()) {
		w.open()
		w.append(many(q, 2, 900))
		w.publish(w.model.tail)
	}
	for _, e := range w.model.log {
		if e.at == message.Position(h.segment()) {
			w.truncate(e.at)
			break
		}
	}
	w.verify()
	if !h.Lacks.Reopen {
		w.reopen()
		w.verify()
	}
	w.append(many(q, 1, 10))
	w.publish(w.model.tail)
	w.verify()
}

func testReset(t *testing.T, h Harness) {
	w := newWorld(t, h, storage.Explicit)
	w.append(singles(many(queue("T", 0), 40, 700))...)
	w.publish(w.model.tail)
	w.append(many(queue("T", 0), 3, 700))
	seg := message.Position(h.segment())
	ends := []message.Unit{
		{Queue: queue("T", 0), Offset: 17},
		{Queue: queue("T", 3), Offset: 1},
		{Queue: queue("fresh", 0), Offset: 0},
	}
	if err := w.raw().Reset(t.Context(), seg+1, nil); err == nil {
		t.Fatal("Reset to a position that is no edge worked")
	}
	for _, first := range []message.Position{7 * seg, 2 * seg} { // also backward
		w.chunk.Release() // it would wait for that
		must(t, w.raw().Reset(t.Context(), first, ends), "Reset to %d", first)
		w.reset(first, ends)
		w.verify()
		w.read(storage.ReadRequest{Queue: queue("T", 0), Offset: 17}, storage.OffsetOverflowOne, 17)
		w.read(storage.ReadRequest{Queue: queue("T", 0), Offset: 3}, storage.OffsetTooSmall, 17)
		if !h.Lacks.Reopen {
			w.reopen()
			w.verify()
		}
		w.open()
		p := w.append(one(queue("T", 0), 30), one(queue("T", 1), 30), one(queue("fresh", 0), 30))
		if p.At != first {
			t.Fatalf("the first record after Reset is at %d, want %d", p.At, first)
		}
		w.publish(p.End)
		w.verify()
		if u := w.model.unitsOf(queue("T", 0)); u[0].Offset != 17 {
			t.Fatalf("the first unit after Reset is %+v, want offset 17", u[0])
		}
		if !h.Lacks.Reopen {
			w.reopen()
			w.verify()
		}
	}
}

func (w *world) reset(first message.Position, ends []message.Unit) {
	w.model.reset(first, ends)
	w.ev.mu.Lock()
	w.ev.units, w.ev.upTo, w.ev.truncates = nil, 0, 0
	w.ev.mu.Unlock()
}

// testFollow copies a log to a second store through ReadLog and a Deriver, as a
// follower does.
func testFollow(t *testing.T, h Harness) {
	lead := newWorld(t, h, storage.Explicit)
	for i := 0; lead.model.tail < message.Position(2*h.segment()+700); i++ {
		lead.append(many(queue("T", int32(i%2)), 3, 400), []Message{{Queue: queue(message.ScheduleTopic, 0), Delay: 1, Tags: "x"}},
			[]Message{{Queue: queue("U", 0), Tags: "TagA", Keys: "a b", UniqueKey: "u"}})
		lead.clock.Add(50)
	}
	lead.publish(lead.model.tail)
	follow := newWorld(t, h, storage.Explicit)
	d := message.NewDeriver(lead.rules)
	var c storage.Chunk
	var rest []byte
	at := message.Position(0)
	for pos := message.Position(0); pos < lead.model.tail; pos = message.Position(c.Next) {
		c.Reset()
		must(t, lead.raw().ReadLog(t.Context(), pos, 1500, &c), "ReadLog")
		rest = append(rest, join(c.Frags)...)
		for {
			var v message.View
			err := message.Parse(rest, &v)
			if errors.Is(err, message.ErrBlank) && int(v.Size) <= len(rest) {
				rest = rest[v.Size:]
				at += message.Position(v.Size)
				continue
			}
			if err != nil {
				break // the rest comes with the next read
			}
			units, keys := d.Derive(&v, nil, nil, nil)
			b := &storage.Batch{
				Term: 1, At: at, Buf: slices.Clone(v.Raw), Units: units, Keys: keys,
				Groups: []storage.Group{{Len: v.Size, Units: int32(len(units)), Keys: int32(len(keys))}},
			}
			follow.lend(b)
			follow.model.add(b)
			must(t, follow.store.Append(t.Context(), b), "Append to the follower")
			rest, at = rest[v.Size:], b.End()
		}
	}
	c.Release()
	follow.publish(at)
	follow.verify()
	if a, b := lead.model.raw(0, at), follow.model.raw(0, at); !slices.Equal(a, b) {
		t.Fatalf("the logs differ%s", differ(b, a))
	}
	lead.verify()
}

// testMarkAtEdge: a mark behind the blank of a segment stays there, whether or
// not something unpublished follows it.
func testMarkAtEdge(t *testing.T, h Harness) {
	needsReopen(t, h)
	w := newWorld(t, h, storage.Explicit)
	q := queue("T", 0)
	for w.model.tail < message.Position(h.segment()) {
		w.append(many(q, 2, 700))
		w.publish(w.model.tail)
	}
	edge := message.Position(h.segment())
	if _, ok := w.model.find(edge); !ok {
		t.Fatalf("no record begins at the edge %d", edge)
	}
	w.truncate(edge)
	w.reopen()
	w.verify()
	w.append(many(q, 2, 700))
	w.verify()
	w.reopen()
	w.verify() // what follows is not published, the blank is
	w.publish(w.model.tail)
	w.verify()

	// The other way round: the mark stays before a blank with which the log ends.
	i := slices.IndexFunc(w.model.log, func(e entry) bool { return e.at == edge })
	w.truncate(w.model.log[i-1].at)
	w.open()
	p := w.append(many(q, 1, 700))
	for w.model.tail < edge {
		w.append(many(q, 1, 700))
	}
	w.publish(p.End)
	w.truncate(edge)
	w.reopen()
	w.verify()
	w.publish(edge)
	w.verify()
}

// testMarkOfABlank: a log that ends with a blank is published up to its end, and
// that is told.
func testMarkOfABlank(t *testing.T, h Harness) {
	w := newWorld(t, h, storage.Explicit)
	edge := message.Position(h.segment())
	fill := func(to message.Position) message.Position {
		for w.model.tail < to {
			w.append(many(queue("T", 0), 2, 700))
		}
		w.truncate(to)
		return w.model.log[len(w.model.log)-1].end()
	}
	if last := fill(edge); last == edge {
		t.Fatal("no blank is before the edge")
	}
	w.publish(edge) // records and the blank
	w.verify()
	w.open()
	w.publish(fill(2 * edge))
	w.verify()
	w.publish(2 * edge) // the blank alone
	w.verify()
}

// testMarkPowerLoss: the mark may be an older one, and what was synced can be
// published again.
func testMarkPowerLoss(t *testing.T, h Harness) {
	if h.Crash == nil {
		t.Skip("the harness cannot simulate power loss")
	}
	w := newWorld(t, h, storage.Explicit)
	for range 10 {
		w.publish(w.append(many(queue("T", 0), 3, 200)).End)
	}
	tail := w.append(many(queue("T", 0), 3, 200)).End
	must(t, w.store.Sync(t.Context(), tail), "Sync")
	h.Crash(t, w.dir)
	w.chunk.Release()
	_ = w.store.Shutdown(background(t))
	w.checkLent(true)
	w.start()
	st := w.store.State()
	if st.Tail != tail || st.Published > tail {
		t.Fatalf("synced up to %d; after power loss: published %d, tail %d", tail, st.Published, st.Tail)
	}
	w.model.published = st.Published
	w.verify()
	w.publish(tail)
	w.verify()
}
