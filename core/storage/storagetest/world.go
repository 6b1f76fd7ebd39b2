package storagetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// epoch is where the clock of a world begins, ms.
const epoch = 1_700_000_000_000

// world is a store under test with everything around it.
type world struct {
	t     testing.TB
	h     Harness
	dir   string
	mode  storage.PublishMode
	logID string
	rules message.IndexRules

	store storage.Store
	caps  storage.Capabilities
	model *model
	w     *Writer
	seq   *storage.Sequencer
	clock *Clock
	term  uint64
	ev    *recorder
	lent  []*lending
	chunk storage.Chunk
}

// newWorld starts a store on a fresh directory.
func newWorld(t testing.TB, h Harness, mode storage.PublishMode) *world {
	t.Helper()
	w := stopped(t, h, mode)
	w.start()
	return w
}

// stopped prepares a world whose store is not started.
func stopped(t testing.TB, h Harness, mode storage.PublishMode) *world {
	t.Helper()
	rules := message.IndexRules{DelayLevels: message.DefaultDelayLevels()}
	w := &world{
		t: t, h: h, dir: h.dir(t), mode: mode, rules: rules, term: 1,
		model: newModel(h.segment()), w: NewWriter(rules), clock: NewClock(epoch),
	}
	t.Cleanup(w.close)
	return w
}

func (w *world) params() storage.Params {
	p := storage.Params{
		Settings: plugin.Settings{Name: w.h.Factory.Name(), Dir: w.dir}.WithDefaults(),
		Segment:  w.h.segment(), Publish: w.mode, Index: w.rules, LogID: w.logID,
	}
	p.Events = w.ev.events()
	return p
}

func (w *world) build() {
	w.t.Helper()
	w.ev = &recorder{t: w.t}
	s, err := w.h.Factory.Build(w.t.Context(), w.params(), w.h.Config)
	must(w.t, err, "Build")
	w.store, w.caps = s, s.Capabilities()
}

func (w *world) start() {
	w.t.Helper()
	w.build()
	must(w.t, w.store.Start(w.t.Context()), "Start")
	w.ev.began = w.store.State().Published
	w.chunk = storage.Chunk{}
	w.open()
}

// open begins an office when the log is published whole.
func (w *world) open() {
	w.t.Helper()
	w.seq = nil
	if st := w.store.State(); st.Published == st.Tail {
		w.seq = OpenSequencer(w.t, w.store, w.clock, w.term)
	}
}

func (w *world) shutdown() {
	w.t.Helper()
	w.chunk.Release()
	must(w.t, w.store.Shutdown(background(w.t)), "Shutdown")
	w.checkLent(true)
}

func (w *world) reopen() {
	w.t.Helper()
	w.shutdown()
	w.start()
}

func (w *world) close() {
	if w.store == nil {
		return
	}
	w.chunk.Release()
	if err := w.store.Shutdown(background(w.t)); err != nil {
		w.t.Errorf("Shutdown: %v", err)
	}
	w.checkLent(true)
}

// lending watches what a batch lends.
type lending struct {
	freed atomic.Int32
	at    message.Position
}

// lend makes the batch poison its units and keys when they are freed.
func (w *world) lend(b *storage.Batch) {
	l := &lending{at: b.At}
	w.lent = append(w.lent, l)
	b.Free = func(b *storage.Batch) {
		l.freed.Add(1)
		for i := range b.Units {
			b.Units[i] = message.Unit{Queue: message.Queue{Topic: "freed", ID: -1}, At: 1 << 60, Size: 1 << 30, Offset: 1 << 60}
		}
		for i := range b.Keys {
			b.Keys[i] = message.Key{Hash: -1, At: 1 << 60}
		}
	}
}

func (w *world) checkLent(all bool) {
	w.t.Helper()
	for _, l := range w.lent {
		if n := l.freed.Load(); n > 1 || (all && n != 1) {
			w.t.Errorf("Free of the batch at %d was called %d times, must be exactly once by the end of Shutdown", l.at, n)
		}
	}
	if all {
		w.lent = nil
	}
}

// assign places groups; every batch gets a Free that poisons.
func (w *world) assign(groups ...[]Message) *storage.Pending {
	w.t.Helper()
	if w.seq == nil {
		w.t.Fatal("the suite wants to append while nothing may be assigned")
	}
	p := w.w.Pending(groups...)
	must(w.t, w.seq.Assign(p, 0), "Assign")
	for i := range p.Batches {
		w.lend(&p.Batches[i])
	}
	return p
}

// poison is written over what was lent to a store.
const poison = 0xA5

// append places groups, appends them, poisons the bytes and tells the model.
func (w *world) append(groups ...[]Message) *storage.Pending {
	w.t.Helper()
	p := w.assign(groups...)
	w.write(p)
	return p
}

func (w *world) write(p *storage.Pending) {
	w.t.Helper()
	for i := range p.Batches {
		b := &p.Batches[i]
		w.model.add(b)
		must(w.t, w.store.Append(w.t.Context(), b), "Append at %d", b.At)
		for j := range b.Buf {
			b.Buf[j] = poison
		}
		if w.mode == storage.Immediate {
			w.model.published = w.model.tail
		}
	}
}

func (w *world) raw() storage.RawLog {
	w.t.Helper()
	if w.caps.RawLog == nil {
		w.t.Fatal("the store offers no RawLog, its harness does not say so")
	}
	return w.caps.RawLog
}

func (w *world) publish(upTo message.Position) {
	w.t.Helper()
	must(w.t, w.raw().Publish(w.t.Context(), upTo), "Publish up to %d", upTo)
	w.model.published = max(w.model.published, upTo)
}

func (w *world) truncate(at message.Position) {
	w.t.Helper()
	w.chunk.Release() // it would wait for that
	below := at < w.model.published
	must(w.t, w.raw().Truncate(w.t.Context(), at), "Truncate at %d", at)
	w.model.truncate(at)
	w.ev.truncate(w.t, at, below)
	w.open()
}

func (w *world) expire(first message.Position) {
	w.t.Helper()
	if w.caps.Retention == nil {
		w.t.Fatal("the store offers no Retention, its harness does not say so")
	}
	w.chunk.Release() // it would wait for that
	moves := first > w.model.first
	must(w.t, w.caps.Retention.Expire(w.t.Context(), first), "Expire below %d", first)
	if moves {
		w.model.expire(first)
		w.ev.mu.Lock()
		if w.ev.expired != first {
			w.t.Errorf("Expire below %d told Events.Expired(%d)", first, w.ev.expired)
		}
		w.ev.mu.Unlock()
	}
}

// verify compares everything that can be seen with the model.
func (w *world) verify() {
	w.t.Helper()
	w.verifyState()
	w.verifyQueues()
	w.verifyPositions()
	if w.caps.RawLog != nil {
		w.verifyRaw()
	}
	if w.caps.KeyIndex != nil {
		w.verifyKeys()
	}
	w.ev.compare(w.t, w.model)
	w.checkLent(false)
}

func (w *world) verifyState() {
	w.t.Helper()
	st, m := w.store.State(), w.model
	if st.First != m.first || st.Published != m.published || st.Tail != m.tail || st.Segment != m.segment {
		w.t.Fatalf("State: first %d, published %d, tail %d, segment %d; want %d, %d, %d, %d",
			st.First, st.Published, st.Tail, st.Segment, m.first, m.published, m.tail, m.segment)
	}
	if st.Durable > st.Tail {
		w.t.Fatalf("State: durable %d is above the tail %d", st.Durable, st.Tail)
	}
	if st.LogID == "" {
		w.t.Fatal("State: the log has no id")
	}
	if len(st.Damaged) != 0 {
		w.t.Fatalf("State: damage in a log that nobody damaged: %+v", st.Damaged)
	}
	if n := len(m.log); n > 0 && st.LastStoreTime != m.log[n-1].time {
		w.t.Fatalf("State: the last store time is %d, want %d", st.LastStoreTime, m.log[n-1].time)
	}
}

func (w *world) verifyQueues() {
	w.t.Helper()
	queues := w.model.queues()
	var all storage.OffsetAnswers
	must(w.t, w.store.Offsets(w.t.Context(), nil, &all), "Offsets of all queues")
	if all.Published != w.model.published {
		w.t.Fatalf("Offsets are true up to %d, want %d", all.Published, w.model.published)
	}
	seen := map[message.Queue]bool{}
	for _, a := range all.Answers {
		e, ok := queues[a.Queue]
		if !ok && a.Min == 0 && a.Max == 0 {
			continue // a store may remember that it once knew a queue
		}
		if seen[a.Queue] || !ok || !a.Known || a.Min != e.min || a.Max != e.max {
			w.t.Fatalf("Offsets of all queues: %+v, want ends %d and %d, once (known to the model: %t)", a, e.min, e.max, ok)
		}
		seen[a.Queue] = true
	}
	for q, e := range queues {
		if !seen[q] && e.max > 0 {
			w.t.Fatalf("Offsets of all queues lack %v with ends %d and %d", q, e.min, e.max)
		}
		w.verifyQueue(q, e)
	}
}

// verifyQueue reads a queue from its beginning to its end, in small steps.
func (w *world) verifyQueue(q message.Queue, e ends) {
	w.t.Helper()
	units := w.model.unitsOf(q)
	next, c := e.min, &w.chunk
	lim := storage.Limit{Count: 7}
	if len(units) > 50 {
		lim.Count = 61 // steps of a long queue cost too much time
	}
	for i := 0; ; {
		c.Reset()
		must(w.t, w.store.Read(w.t.Context(), storage.ReadRequest{
			Queue: q, Offset: next, Hot: lim, Cold: lim,
		}, c), "Read %v at %d", q, next)
		if e.max == 0 && (c.Status == storage.NoMessageInQueue || c.Status == storage.NoMatchedLogicQueue) {
			return
		}
		if c.Min != e.min || c.Max != e.max {
			w.t.Fatalf("Read %v at %d: ends %d and %d, want %d and %d", q, next, c.Min, c.Max, e.min, e.max)
		}
		if next == e.max {
			if c.Status != storage.OffsetOverflowOne || i != len(units) {
				w.t.Fatalf("Read %v at its end %d: %v after %d records, want OFFSET_OVERFLOW_ONE after %d", q, next, c.Status, i, len(units))
			}
			return
		}
		if c.Status != storage.Found || len(c.Units) == 0 || len(c.Units) > int(lim.Count) || c.Next <= next {
			w.t.Fatalf("Read %v at %d: %v with %d records, next %d; want FOUND with 1 to %d", q, next, c.Status, len(c.Units), c.Next, lim.Count)
		}
		if i+len(c.Units) > len(units) {
			w.t.Fatalf("Read %v at %d: %d records where %d are left", q, next, len(c.Units), len(units)-i)
		}
		w.compareChunk(c, units[i:i+len(c.Units)])
		i += len(c.Units)
		next = c.Next
	}
}

// compareChunk checks units and bytes of a chunk.
func (w *world) compareChunk(c *storage.Chunk, want []message.Unit) {
	w.t.Helper()
	if len(c.Units) != len(want) {
		w.t.Fatalf("%d units, want %d", len(c.Units), len(want))
	}
	var bytes []byte
	for i := range want {
		if c.Units[i] != want[i] {
			w.t.Fatalf("unit %+v, want %+v", c.Units[i], want[i])
		}
		e, ok := w.model.find(want[i].At)
		if !ok {
			w.t.Fatalf("the model has no record at %d", want[i].At)
		}
		bytes = append(bytes, e.rec...)
	}
	if got := join(c.Frags); !slices.Equal(got, bytes) {
		w.t.Fatalf("Frags hold %d bytes that differ from the %d of the records appended%s", len(got), len(bytes), differ(got, bytes))
	}
}

// verifyPositions gets every record of the log, in and above published, and
// positions inside of records.
func (w *world) verifyPositions() {
	w.t.Helper()
	var at []message.Position
	for i := range w.model.log {
		at = append(at, w.model.log[i].at)
	}
	at = append(at, -1, w.model.tail, w.model.tail+1, w.model.tail+1<<30)
	slices.Reverse(at)
	w.get(at)
	for i := range w.model.log {
		if i == 3 {
			break
		}
		e := &w.model.log[len(w.model.log)-1-i]
		w.get([]message.Position{e.at + 1, e.at + 4, e.end() - 1})
	}
}

func (w *world) get(at []message.Position) {
	w.t.Helper()
	c := &w.chunk
	c.Reset()
	must(w.t, w.store.Get(w.t.Context(), at, c), "Get of %d positions", len(at))
	if len(c.Units) != len(at) {
		w.t.Fatalf("Get of %d positions gives %d units", len(at), len(c.Units))
	}
	var bytes []byte
	for i, p := range at {
		want := int32(0)
		if e, ok := w.model.find(p); ok && e.end() <= w.model.published {
			want = int32(len(e.rec))
			bytes = append(bytes, e.rec...)
		}
		if c.Units[i].Size != want {
			w.t.Fatalf("Get %d: size %d, want %d (published up to %d)", p, c.Units[i].Size, want, w.model.published)
		}
		if want > 0 && c.Units[i].At != p {
			w.t.Fatalf("Get %d: the unit says %d", p, c.Units[i].At)
		}
	}
	if got := join(c.Frags); !slices.Equal(got, bytes) {
		w.t.Fatalf("Get: Frags hold %d bytes that differ from the %d of the records%s", len(got), len(bytes), differ(got, bytes))
	}
}

// verifyRaw reads the whole log in two step widths.
func (w *world) verifyRaw() {
	w.t.Helper()
	m := w.model
	want := m.raw(m.first, m.tail)
	small := 977
	if len(want) > 100_000 {
		small = 9973
	}
	for _, step := range []int{small, 1 << 20} {
		var got []byte
		for pos := m.first; pos < m.tail; {
			c := &w.chunk
			c.Reset()
			must(w.t, w.raw().ReadLog(w.t.Context(), pos, step, c), "ReadLog at %d", pos)
			n := len(join(c.Frags))
			if n == 0 || n > step {
				w.t.Fatalf("ReadLog at %d: %d bytes, want 1 to %d", pos, n, step)
			}
			if c.Next != int64(pos)+int64(n) {
				w.t.Fatalf("ReadLog at %d: %d bytes, but goes on at %d", pos, n, c.Next)
			}
			got = append(got, join(c.Frags)...)
			pos = message.Position(c.Next)
		}
		if !slices.Equal(got, want) {
			w.t.Fatalf("ReadLog from %d: %d bytes that differ from the %d of the log%s", m.first, len(got), len(want), differ(got, want))
		}
	}
}

// verifyKeys looks for every key of the log, published or not.
func (w *world) verifyKeys() {
	w.t.Helper()
	asked := map[string]bool{}
	var v message.View
	var f message.Facts
	for i := range w.model.log {
		e := &w.model.log[i]
		if message.Parse(e.rec, &v) != nil {
			continue
		}
		f.Scan(v.Properties)
		for _, k := range append(splitKeys(string(f.Keys)), string(f.UniqueKey)) {
			id := string(v.Topic) + "#" + k
			if k == "" || asked[id] {
				continue
			}
			asked[id] = true
			w.findKey(storage.KeyQuery{Topic: string(v.Topic), Key: k, From: 0, To: 1 << 62, Max: 64})
		}
	}
}

// imprecise is how far outside of a time range a candidate may lie: key indexes
// count in seconds.
const imprecise = 2000

// findKey compares the candidates with the model: all true ones in order;
// others only when their hash collides or their time is close.
func (w *world) findKey(q storage.KeyQuery) []message.Position {
	w.t.Helper()
	got, err := w.caps.KeyIndex.Find(w.t.Context(), q, nil)
	must(w.t, err, "Find %s#%s", q.Topic, q.Key)
	if len(got) > int(q.Max) {
		w.t.Fatalf("Find %s#%s: %d candidates, want at most %d", q.Topic, q.Key, len(got), q.Max)
	}
	legal := map[message.Position]bool{}
	var want []message.Position
	for _, k := range w.model.keyed(message.KeyHash([]byte(q.Topic), []byte(q.Key))) {
		if k.StoreTime >= q.From && k.StoreTime <= q.To {
			want = append(want, k.At)
		}
		legal[k.At] = k.StoreTime >= q.From-imprecise && k.StoreTime <= q.To+imprecise
	}
	for i, p := range got {
		if !legal[p] && p >= w.model.first {
			w.t.Fatalf("Find %s#%s from %d to %d: candidate %d is none (published up to %d)", q.Topic, q.Key, q.From, q.To, p, w.model.published)
		}
		if i > 0 && p > got[i-1] {
			w.t.Fatalf("Find %s#%s: %v are not newest first", q.Topic, q.Key, got)
		}
	}
	at := 0
	for _, p := range want {
		if len(got) == int(q.Max) && p < got[len(got)-1] {
			break
		}
		for at < len(got) && got[at] != p {
			at++
		}
		if at == len(got) {
			w.t.Fatalf("Find %s#%s from %d to %d: %v lack %d of %v", q.Topic, q.Key, q.From, q.To, got, p, want)
		}
	}
	return got
}

// recorder is the receiver of events.
type recorder struct {
	t      testing.TB
	inside atomic.Int32

	mu        sync.Mutex
	began     message.Position // what was published at Start is not told
	upTo      message.Position
	units     []message.Unit
	truncated message.Position
	truncates int
	expired   message.Position
	failed    []error
}

func (r *recorder) enter() func() {
	if r.inside.Add(1) != 1 {
		r.t.Error("two events at once")
	}
	r.mu.Lock()
	return func() { r.mu.Unlock(); r.inside.Add(-1) }
}

func (r *recorder) events() storage.Events {
	return storage.Events{
		Published: func(upTo message.Position, units []message.Unit) {
			defer r.enter()()
			if upTo < r.upTo {
				r.t.Errorf("Events.Published(%d) after %d", upTo, r.upTo)
			}
			r.upTo = upTo
			r.units = append(r.units, units...)
			for i := range units {
				if units[i].At+message.Position(units[i].Size) > upTo {
					r.t.Errorf("Events.Published(%d) has a unit at %d with %d bytes", upTo, units[i].At, units[i].Size)
				}
			}
		},
		Truncated: func(to message.Position) {
			defer r.enter()()
			r.truncates++
			r.truncated, r.upTo, r.began = to, min(r.upTo, to), min(r.began, to)
			r.units = slices.DeleteFunc(r.units, func(u message.Unit) bool { return u.At >= to })
		},
		Expired: func(first message.Position) { defer r.enter()(); r.expired = first },
		Failed:  func(err error) { defer r.enter()(); r.failed = append(r.failed, err) },
	}
}

// truncate checks that a Truncate below published was told, and only that.
func (r *recorder) truncate(t testing.TB, at message.Position, below bool) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if below && (r.truncates == 0 || r.truncated != at) {
		t.Fatalf("Truncate at %d below published: Events.Truncated was called %d times, last with %d", at, r.truncates, r.truncated)
	}
	if !below && r.truncates > 0 {
		t.Fatalf("Truncate at %d, not below published, told Events.Truncated(%d)", at, r.truncated)
	}
	r.truncates = 0
}

// compare checks that all units published since Start were told, and no others.
func (r *recorder) compare(t testing.TB, m *model) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.failed) > 0 {
		t.Fatalf("Events.Failed: %v", errors.Join(r.failed...))
	}
	var want []message.Unit
	for i := range m.log {
		if e := &m.log[i]; e.end() <= m.published && e.at >= r.began {
			want = append(want, e.units...)
		}
	}
	got := r.units
	for len(got) > 0 && got[0].At < m.first {
		got = got[1:] // expired since
	}
	if !slices.Equal(got, want) {
		t.Fatalf("Events.Published told %d units since Start, want %d; or they differ", len(got), len(want))
	}
	if r.upTo != m.published && r.upTo != 0 {
		t.Fatalf("Events.Published told last up to %d, published is %d", r.upTo, m.published)
	}
}

// must ends the test when there is an error.
func must(t testing.TB, err error, format string, args ...any) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", fmt.Sprintf(format, args...), err)
	}
}

// wantErr ends the test when err does not match target.
func wantErr(t testing.TB, err, target error, format string, args ...any) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("%s: error %v, want one that matches %q", fmt.Sprintf(format, args...), err, target)
	}
}

func join(frags [][]byte) []byte {
	if len(frags) == 1 {
		return frags[0]
	}
	var out []byte
	for _, f := range frags {
		out = append(out, f...)
	}
	return out
}

// differ tells where two byte strings differ first.
func differ(got, want []byte) string {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			said := fmt.Sprintf(", first at byte %d: %#x, want %#x", i, got[i], want[i])
			if got[i] == poison {
				said += "; the suite writes that over bytes that were lent to the store: copy what is kept"
			}
			return said
		}
	}
	return ", behind the common length"
}
