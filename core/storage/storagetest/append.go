package storagetest

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

var appendCases = []testCase{
	{"at_the_tail", testAppendTail},
	{"groups_and_queues", testAppendGroups},
	{"edges", testAppendEdges},
	{"exact_fit", testAppendExactFit},
	{"gaps_are_refused", testAppendGaps},
	{"too_large", testAppendTooLarge},
	{"lower_term_is_fenced", testAppendFenced},
	{"records_without_units", testAppendNoUnits},
	{"queue_that_begins_later", testAppendLateQueue},
	{"cancelled_context", testAppendCancelled},
	{"sync", testSync},
	{"readers_beside_a_writer", testReadersBeside},
}

func testAppendTail(t *testing.T, h Harness) {
	w := newWorld(t, h, storage.Immediate)
	for i := range 5 {
		p := w.append(one(queue("T", 0), 100+i))
		w.verify()
		if w.store.State().Tail != p.End {
			t.Fatalf("the tail is %d, want %d", w.store.State().Tail, p.End)
		}
	}
}

func testAppendGroups(t *testing.T, h Harness) {
	w := newWorld(t, h, storage.Immediate)
	w.append(
		many(queue("T", 0), 10, 50),
		[]Message{{Queue: queue("T", 1)}, {Queue: queue("U", 0), Tags: "TagA", Keys: "a b", Body: []byte{0}}, {Queue: queue("T", 0)}},
		[]Message{{Queue: queue("%RETRY%g", 0), Properties: "A\x01B", NoWait: true}},
		[]Message{{Queue: queue(message.ScheduleTopic, 2), Delay: 3}},
	)
	w.clock.Add(7)
	w.append(one(queue("T", 1), 0))
	w.verify()
	u := w.model.unitsOf(queue(message.ScheduleTopic, 2))[0]
	if u.TagsCode != u.StoreTime+10_000 {
		t.Fatalf("the delayed unit is due at %d, stored at %d, want 10 s later", u.TagsCode, u.StoreTime)
	}
}

// testAppendEdges fills several segments with records of all sizes.
func testAppendEdges(t *testing.T, h Harness) {
	w := newWorld(t, h, storage.Immediate)
	for i := 0; w.model.tail < message.Position(5*h.segment()); i++ {
		w.append(one(queue("T", int32(i%4)), (i*397)%int(h.segment()/2)), many(queue("U", 0), i%5+1, i%90))
	}
	w.verify()
}

// testAppendExactFit leaves exactly what a blank needs, and one byte less.
func testAppendExactFit(t *testing.T, h Harness) {
	for name, left := range map[string]int{"blank of 8": 8, "blank of 9": 9, "moved": 7} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, h, storage.Immediate)
			q := queue("T", 0)
			w.append(one(q, 1000))
			room := int(h.segment()) - int(w.model.tail)
			n := room - left - w.w.Size(Message{Queue: q})
			p := w.append([]Message{{Queue: q, Body: body(n, "fit")}})
			if moved := p.At == message.Position(h.segment()); moved != (left < message.BlankSize) {
				t.Fatalf("a record that leaves %d bytes was placed at %d", left, p.At)
			}
			w.append(one(q, 10))
			w.verify()
		})
	}
}

// placed makes a batch of one record at a position, without the Sequencer.
func (w *world) placed(at message.Position, term uint64, m Message) *storage.Batch {
	p := w.w.Pending([]Message{m})
	message.Stamp(p.Buf, at, 0, epoch)
	for i := range p.Units {
		p.Units[i].At, p.Units[i].StoreTime = at, epoch
	}
	b := &storage.Batch{Term: term, At: at, Buf: p.Buf, Units: p.Units, Keys: p.Keys, Groups: p.Groups}
	w.lend(b)
	return b
}

// refused appends a batch that must be refused and leave nothing.
func (w *world) refused(b *storage.Batch, target error, what string) {
	w.t.Helper()
	before := w.store.State()
	wantErr(w.t, w.store.Append(w.t.Context(), b), target, "Append %s", what)
	if after := w.store.State(); after.Tail != before.Tail || after.Published != before.Published {
		w.t.Fatalf("Append %s was refused but moved the tail from %d to %d", what, before.Tail, after.Tail)
	}
	if n := w.lent[len(w.lent)-1].freed.Load(); n != 1 {
		w.t.Fatalf("Append %s was refused: Free was called %d times, want once", what, n)
	}
}

func testAppendGaps(t *testing.T, h Harness) {
	w := newWorld(t, h, storage.Immediate)
	w.append(one(queue("T", 0), 100))
	tail, seg := w.model.tail, message.Position(h.segment())
	for _, at := range []message.Position{0, tail - 1, tail + 1, tail + 8, seg - 8, seg + 1, 2 * seg, -1} {
		w.refused(w.placed(at, 1, Message{Queue: queue("T", 0)}), storage.ErrGap, fmt.Sprintf("at %d with the tail at %d", at, tail))
	}
	w.verify()
	w.append(one(queue("T", 0), 100))
	w.verify()
}

func testAppendTooLarge(t *testing.T, h Harness) {
	w := newWorld(t, h, storage.Immediate)
	q := queue("T", 0)
	largest := int(h.segment()) - message.BlankSize - w.w.Size(Message{Queue: q})
	w.refused(w.placed(0, 1, Message{Queue: q, Body: make([]byte, largest+1)}), storage.ErrTooLarge, "of a record one byte too large")
	w.append([]Message{{Queue: q, Body: make([]byte, largest)}})
	w.append(one(q, 1))
	w.verify()
}

func testAppendFenced(t *testing.T, h Harness) {
	w := newWorld(t, h, storage.Immediate)
	w.term = 5
	w.open()
	w.append(one(queue("T", 0), 10))
	w.refused(w.placed(w.model.tail, 4, Message{Queue: queue("T", 0)}), storage.ErrFenced, "of term 4 after term 5")
	w.append(one(queue("T", 0), 10))
	w.term = 9
	w.open()
	w.append(one(queue("T", 0), 10))
	w.refused(w.placed(w.model.tail, 5, Message{Queue: queue("T", 0)}), storage.ErrFenced, "of term 5 after term 9")
	w.verify()
}

// testAppendNoUnits writes records that no queue has: raft frames, half messages.
func testAppendNoUnits(t *testing.T, h Harness) {
	w := newWorld(t, h, storage.Immediate)
	w.append(
		[]Message{{Queue: queue("T", 0), SysFlag: message.SysTxRollback, UniqueKey: "gone"}, {Queue: queue("T", 0)}},
		[]Message{{Queue: queue("T", 0), SysFlag: message.SysTxPrepared, UniqueKey: "half"}},
		[]Message{{Queue: queue("T", 0), SysFlag: message.SysTxCommit, UniqueKey: "done"}},
	)
	w.append([]Message{{Queue: queue("T", 0), SysFlag: message.SysTxRollback}})
	if n := len(w.model.unitsOf(queue("T", 0))); n != 2 {
		t.Fatalf("%d of 5 records have units, want 2", n)
	}
	w.verify()
	if !h.Lacks.Reopen {
		w.reopen()
		w.verify()
	}
}

// testAppendLateQueue: a follower may get a queue from its middle on.
func testAppendLateQueue(t *testing.T, h Harness) {
	w := newWorld(t, h, storage.Immediate)
	p := w.w.Pending(one(queue("T", 0), 10))
	message.Stamp(p.Buf, 0, 7, epoch)
	u := &p.Units[0]
	u.At, u.Offset, u.StoreTime = 0, 7, epoch
	b := &storage.Batch{Term: 1, Buf: p.Buf, Units: p.Units, Keys: p.Keys, Groups: p.Groups}
	w.lend(b)
	w.model.add(b)
	w.model.published = w.model.tail
	must(t, w.store.Append(t.Context(), b), "Append")
	w.verify()
	w.read(storage.ReadRequest{Queue: queue("T", 0), Offset: 3}, storage.OffsetTooSmall, 7)
	w.open()
	w.append(one(queue("T", 0), 10))
	w.verify()
}

func testAppendCancelled(t *testing.T, h Harness) {
	w := newWorld(t, h, storage.Immediate)
	w.append(one(queue("T", 0), 10))
	ctx := cancelled(t)
	p := w.assign(one(queue("T", 0), 10))
	b := &p.Batches[0]
	keep := newModel(h.segment())
	keep.add(b)
	err := w.store.Append(ctx, b)
	noneOrCancelled(t, err, "Append")
	if err == nil {
		w.model.log = append(w.model.log, keep.log...)
		w.model.tail, w.model.published = keep.tail, keep.tail
	} else if w.lent[len(w.lent)-1].freed.Load() != 1 {
		t.Fatal("Append failed without calling Free")
	}
	noneOrCancelled(t, w.store.Sync(ctx, w.model.tail), "Sync")
	var c storage.Chunk
	noneOrCancelled(t, w.store.Read(ctx, storage.ReadRequest{Queue: queue("T", 0)}, &c), "Read")
	c.Reset()
	noneOrCancelled(t, w.store.Get(ctx, []message.Position{0}, &c), "Get")
	c.Reset()
	noneOrCancelled(t, w.store.Offsets(ctx, nil, &storage.OffsetAnswers{}), "Offsets")
	w.verify()
}

func testSync(t *testing.T, h Harness) {
	w := newWorld(t, h, storage.Immediate)
	for range 3 {
		w.append(many(queue("T", 0), 20, 300))
		tail := w.model.tail
		var wg sync.WaitGroup
		for _, end := range []message.Position{0, tail / 2, tail, tail} {
			wg.Go(func() {
				if err := w.store.Sync(t.Context(), end); err != nil {
					t.Errorf("Sync up to %d: %v", end, err)
				}
				if d := w.store.State().Durable; d < end {
					t.Errorf("synced up to %d, State says %d", end, d)
				}
			})
		}
		wg.Wait()
		wantErr(t, w.store.Sync(t.Context(), tail+1), storage.ErrGap, "Sync above the tail")
	}
	w.verify()
}

// testReadersBeside reads queues while they grow: what is seen is always a
// dense prefix, and the marks only grow.
func testReadersBeside(t *testing.T, h Harness) {
	w := newWorld(t, h, storage.Immediate)
	const queues = 3
	var stop atomic.Bool
	var wg sync.WaitGroup
	defer wg.Wait() // the writer may end the test
	for id := range int32(queues) {
		wg.Go(func() {
			r := reader{t: t, store: w.store, q: queue("T", id)}
			for last := false; !last && !t.Failed(); {
				last = stop.Load() // one more round after the writer's end
				r.round()
			}
			if r.next == 0 {
				t.Errorf("a reader of %v saw nothing", r.q)
			}
		})
	}
	for i := range 300 {
		w.append(many(queue("T", int32(i%queues)), i%7+1, 60), one(queue("T", int32((i+1)%queues)), 200))
		if i%50 == 0 {
			must(t, w.store.Sync(t.Context(), w.model.tail), "Sync")
		}
	}
	stop.Store(true)
	wg.Wait()
	w.verify()
}

// reader follows one queue.
type reader struct {
	t         testing.TB
	store     storage.Store
	q         message.Queue
	c         storage.Chunk
	a         storage.OffsetAnswers
	next, max int64
	published message.Position
}

func (r *reader) round() {
	ctx := r.t.Context()
	if err := r.store.Offsets(ctx, []storage.OffsetQuery{{Queue: r.q}}, &r.a); err != nil {
		r.t.Errorf("Offsets: %v", err)
		return
	}
	a := r.a.Answers[0]
	if a.Max < r.max || r.a.Published < r.published {
		r.t.Errorf("the end of %v fell from %d to %d, published from %d to %d", r.q, r.max, a.Max, r.published, r.a.Published)
	}
	r.max, r.published = a.Max, r.a.Published
	r.c.Reset()
	defer r.c.Release()
	lim := storage.Limit{Count: 32, Bytes: 1 << 20}
	if err := r.store.Read(ctx, storage.ReadRequest{Queue: r.q, Offset: r.next, Hot: lim, Cold: lim}, &r.c); err != nil {
		r.t.Errorf("Read: %v", err)
		return
	}
	if r.next < r.max && r.c.Status != storage.Found {
		r.t.Errorf("Read %v at %d: %v, though Offsets said %d before", r.q, r.next, r.c.Status, r.max)
	}
	if r.c.Status != storage.Found {
		return
	}
	buf := join(r.c.Frags)
	for i := range r.c.Units {
		u := &r.c.Units[i]
		if u.Offset != r.next || int(u.Size) > len(buf) ||
			binary.BigEndian.Uint64(buf[20:]) != uint64(u.Offset) || binary.BigEndian.Uint64(buf[28:]) != uint64(u.At) {
			r.t.Errorf("Read %v at %d: unit %+v does not belong to its record", r.q, r.next, *u)
			return
		}
		buf = buf[u.Size:]
		r.next++
	}
	if len(buf) != 0 || r.c.Next != r.next || r.c.Max < r.next {
		r.t.Errorf("Read %v: %d bytes too many, goes on at %d of %d, want %d", r.q, len(buf), r.c.Next, r.c.Max, r.next)
	}
}
