package replicationtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagemw"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
)

const (
	segment = 16 << 10
	// patience is how long a case waits for what must happen; it is only used up
	// when a test fails.
	patience = time.Minute
)

// world is a replicator under test on a store of its own.
type world struct {
	t     *testing.T
	h     Harness
	store storage.Store
	rep   replication.Replicator
	seq   *storage.Sequencer
	w     *storagetest.Writer
	sink  *sink

	// hook stands before and behind every call of the store.
	hook atomic.Pointer[storagemw.Hook]
	// onRole is asked after the role was recorded; set it before start.
	onRole func(ctx context.Context, r replication.Role) error

	mu      sync.Mutex
	roles   []replication.Role
	offices []context.Context
	inRole  atomic.Int32
}

func newWorld(t *testing.T, h Harness) *world {
	t.Helper()
	w := &world{t: t, h: h, w: storagetest.NewWriter(message.IndexRules{}), seq: storage.NewSequencer(nil)}
	w.sink = newSink(w)
	d, err := h.Factory.Describe(t.Context(), h.Config)
	if err != nil {
		t.Fatalf("Describe: %v", err)
	}
	mode := storage.Immediate
	if d.Publish == storage.Explicit.String() {
		mode = storage.Explicit
	}
	p := storage.Params{Settings: plugin.Settings{Name: "store", Dir: t.TempDir()}.WithDefaults(), Segment: segment, Publish: mode}
	w.store = storagemw.Faults(func(ctx context.Context, c storagemw.Call) error {
		if hook := w.hook.Load(); hook != nil {
			return (*hook)(ctx, c)
		}
		return nil
	})(p, h.NewStore(t, p))
	if err := w.store.Start(t.Context()); err != nil {
		t.Fatalf("starting the store: %v", err)
	}
	rp := replication.Params{
		Settings: plugin.Settings{Name: h.Factory.Name(), Dir: t.TempDir()}.WithDefaults(),
		Store:    w.store, Sequencer: w.seq, OnRole: w.role,
	}
	w.rep, err = h.Factory.Build(t.Context(), rp, h.Config)
	if err != nil {
		t.Fatalf("Build: %v", err)
	}
	t.Cleanup(w.close)
	return w
}

// started is a world whose replicator leads.
func started(t *testing.T, h Harness) *world {
	t.Helper()
	w := newWorld(t, h)
	w.start()
	return w
}

func (w *world) start() {
	w.t.Helper()
	if err := w.rep.Start(w.t.Context()); err != nil {
		w.t.Fatalf("Start: %v", err)
	}
	w.until("it leads", func() bool { return w.rep.Role().Kind == replication.RoleLeader && w.rep.Role().ReadOnly == "" })
}

func (w *world) close() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.t.Context()), patience)
	defer cancel()
	w.hook.Store(nil)
	if err := w.rep.Shutdown(ctx); err != nil {
		w.t.Errorf("Shutdown of the replicator: %v", err)
	}
	if err := w.store.Shutdown(ctx); err != nil {
		w.t.Errorf("Shutdown of the store: %v", err)
	}
	w.sink.check()
}

func (w *world) shutdown() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.t.Context()), patience)
	defer cancel()
	if err := w.rep.Shutdown(ctx); err != nil {
		w.t.Fatalf("Shutdown: %v", err)
	}
}

// role is the engine's OnRole.
func (w *world) role(ctx context.Context, r replication.Role) error {
	if w.inRole.Add(1) > 1 {
		w.t.Error("two calls of OnRole at once")
	}
	defer w.inRole.Add(-1)
	w.mu.Lock()
	w.roles = append(w.roles, r)
	w.offices = append(w.offices, ctx)
	w.mu.Unlock()
	if w.onRole != nil {
		return w.onRole(ctx, r)
	}
	return nil
}

func (w *world) seen() []replication.Role {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]replication.Role(nil), w.roles...)
}

// until waits for a condition that other goroutines bring about.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	end := time.NewTimer(patience)
	defer end.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-end.C:
			w.t.Fatalf("waited in vain until %s", what)
		}
	}
}

// fault sets what happens before (Done false) or behind calls of the store.
func (w *world) fault(h storagemw.Hook) { w.hook.Store(&h) }

// queue of the messages in all cases.
var queue = message.Queue{Topic: "T", ID: 3}

// pending makes one of n groups with bodies of size bytes.
func (w *world) pending(n, size int) *storage.Pending {
	p := &storage.Pending{}
	for range n {
		w.w.Add(p, storagetest.Message{Queue: queue, Body: make([]byte, size)})
	}
	w.sink.expect(p)
	return p
}

// append hands over a new Pending that must be taken.
func (w *world) append(n, size int) *storage.Pending {
	w.t.Helper()
	p := w.pending(n, size)
	if err := w.rep.Append(w.t.Context(), p, w.sink); err != nil {
		w.t.Fatalf("Append: %v", err)
	}
	w.sink.ordered(p)
	return p
}

// dense checks that the queue has the offsets 0 … n-1, each once.
func (w *world) dense(n int) {
	w.t.Helper()
	var c storage.Chunk
	defer c.Reset()
	next := int64(0)
	for next < int64(n) {
		if err := w.store.Read(w.t.Context(), storage.ReadRequest{Queue: queue, Offset: next}, &c); err != nil {
			w.t.Fatalf("Read: %v", err)
		}
		if c.Status != storage.Found {
			w.t.Fatalf("Read at %d of %d: %v", next, n, c.Status)
		}
		for i := range c.Units {
			if c.Units[i].Offset != next {
				w.t.Fatalf("offset %d follows %d", c.Units[i].Offset, next-1)
			}
			next++
		}
	}
	if next != int64(n) {
		w.t.Fatalf("the queue has %d messages, want %d", next, n)
	}
}

func (w *world) hasMembers() {
	w.start()
	c := w.rep.Capabilities()
	if c.Members == nil {
		w.t.Fatal("no Members facet is offered, and the harness does not say so")
	}
}

// told is an outcome.
type told struct {
	o   replication.Outcome
	err error
}

// sink records outcomes and checks the rules of their telling.
type sink struct {
	w    *world
	busy atomic.Int32

	mu    sync.Mutex
	order []*record
	of    map[*storage.Pending]*record
	next  int // of order, first that is not wholly told
	some  chan struct{}
}

// record is what is known of one Pending.
type record struct {
	groups  int
	told    []told
	ordered bool
	frees   atomic.Int32
	batches int
}

func newSink(w *world) *sink {
	return &sink{w: w, of: map[*storage.Pending]*record{}, some: make(chan struct{})}
}

// expect registers a Pending that is about to be appended.
func (s *sink) expect(p *storage.Pending) {
	r := &record{groups: len(p.Groups)}
	p.Free = func(*storage.Batch) { r.frees.Add(1) }
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[p] = r
	s.order = append(s.order, r)
}

// ordered notes that Append returned nil.
func (s *sink) ordered(p *storage.Pending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[p].ordered = true
}

// refused notes that Append returned an error: p may be expected again.
func (s *sink) refused(p *storage.Pending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.of[p]
	if len(r.told) > 0 {
		s.w.t.Errorf("Append failed, and %d outcomes were told", len(r.told))
	}
	delete(s.of, p)
	for i, x := range s.order {
		if x == r {
			s.order = append(s.order[:i], s.order[i+1:]...)
		}
	}
}

// Done implements [replication.Sink].
func (s *sink) Done(p *storage.Pending, from, to int, o replication.Outcome, err error) {
	if s.busy.Add(1) > 1 {
		s.w.t.Error("two calls of Done at once")
	}
	defer s.busy.Add(-1)
	// No lock may be held: these would hang, or the race detector complains.
	_ = s.w.rep.Role()
	_ = s.w.rep.Status()
	published := s.w.store.State().Published
	end := p.End
	if n := len(p.Batches); n > 0 && to < len(p.Groups) {
		g := &p.Groups[to-1]
		for i := range p.Batches {
			b := &p.Batches[i]
			if first := b.Groups[0].Off; g.Off >= first && g.Off < first+int32(len(b.Buf)) {
				end = b.At + message.Position(g.Off-first+g.Len)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.of[p]
	switch {
	case r == nil:
		s.w.t.Error("Done for a Pending that is not under way")
		return
	case from != len(r.told) || to <= from || to > r.groups:
		s.w.t.Errorf("Done for groups [%d, %d) of %d after %d were told", from, to, r.groups, len(r.told))
		return
	case s.order[s.next] != r:
		s.w.t.Error("Done out of log order")
	case o == replication.Stored && published < end:
		s.w.t.Errorf("Stored is told for groups up to %d, published is %d", end, published)
	case o == replication.Stored && err != nil:
		s.w.t.Errorf("Stored with the error %v", err)
	case (o == replication.NotStored || o == replication.Unknown) && err == nil:
		s.w.t.Errorf("%v without an error that explains it", o)
	}
	for range to - from {
		r.told = append(r.told, told{o, err})
	}
	if len(r.told) == r.groups {
		r.batches = len(p.Batches)
		s.next++
	}
	close(s.some)
	s.some = make(chan struct{})
}

// wait waits until all groups of p are told.
func (s *sink) wait(p *storage.Pending) []told {
	s.w.t.Helper()
	end := time.NewTimer(patience)
	defer end.Stop()
	for {
		s.mu.Lock()
		r, some := s.of[p], s.some
		done := len(r.told) == r.groups
		s.mu.Unlock()
		if done {
			return r.told
		}
		select {
		case <-some:
		case <-end.C:
			s.w.t.Fatalf("waited in vain for outcomes: %d of %d were told", len(r.told), r.groups)
		}
	}
}

// stored waits for p and demands Stored of all groups.
func (s *sink) stored(p *storage.Pending) {
	s.w.t.Helper()
	for i, x := range s.wait(p) {
		if x.o != replication.Stored {
			s.w.t.Fatalf("group %d: %v: %v", i, x.o, x.err)
		}
	}
}

// count tells how many groups were told.
func (s *sink) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.order {
		n += len(r.told)
	}
	return n
}

// check holds everything against the contract when the store is shut down.
func (s *sink) check() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range s.order {
		if !r.ordered {
			continue
		}
		if len(r.told) != r.groups {
			s.w.t.Errorf("pending %d: %d of %d groups were told by the end of Shutdown", i, len(r.told), r.groups)
		}
		if n := int(r.frees.Load()); n != r.batches {
			s.w.t.Errorf("pending %d: Free was called %d times for %d batches", i, n, r.batches)
		}
	}
}

// within runs f and fails when it does not end.
func (w *world) within(what string, f func()) {
	w.t.Helper()
	over := make(chan struct{})
	go func() { defer close(over); f() }()
	end := time.NewTimer(patience)
	defer end.Stop()
	select {
	case <-over:
	case <-end.C:
		w.t.Fatalf("%s does not end", what)
	}
}

var errInjected = errors.New("injected")

func mustIs(t *testing.T, err, want error, format string, args ...any) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", fmt.Sprintf(format, args...), err, want)
	}
}
