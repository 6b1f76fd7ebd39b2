package storagetest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

var lifecycleCases = []testCase{
	{"describes_what_it_offers", testDescribes},
	{"shutdown_without_start", testShutdownWithoutStart},
	{"shutdown_with_an_ended_context", testShutdownEnded},
	{"not_running", testNotRunning},
	{"empty_log", testEmptyLog},
	{"reopen_keeps_everything", testReopen},
	{"identity", testIdentity},
	{"one_opener", testOneOpener},
	{"power_loss", testPowerLoss},
}

// testDescribes compares Describe, Capabilities and the harness.
func testDescribes(t *testing.T, h Harness) {
	d, err := h.Factory.Describe(t.Context(), h.Config)
	must(t, err, "Describe")
	w := stopped(t, h, storage.Immediate)
	w.build()
	caps := w.store.Capabilities()
	if !slices.Equal(d.Facets, caps.Facets()) {
		t.Errorf("Describe says %q, Capabilities %q", d.Facets, caps.Facets())
	}
	if d.Name != h.Factory.Name() || d.Contract != storage.Contract {
		t.Errorf("Describe: name %q and contract %q, want %q and %q", d.Name, d.Contract, h.Factory.Name(), storage.Contract)
	}
	for _, c := range []struct {
		what            string
		offered, lacked bool
	}{
		{storage.FacetRawLog, caps.RawLog != nil, h.Lacks.RawLog},
		{storage.FacetRetention, caps.Retention != nil, h.Lacks.Retention},
		{storage.FacetKeyIndex, caps.KeyIndex != nil, h.Lacks.KeyIndex},
		{"survival of process death", caps.Survives == storage.SurvivesProcessDeath, h.Lacks.ProcessDeath},
	} {
		if c.offered == c.lacked {
			t.Errorf("%s: the store offers it: %t; the harness says that it lacks it: %t", c.what, c.offered, c.lacked)
		}
	}
	must(t, w.store.Start(t.Context()), "Start")
	if !slices.Equal(caps.Facets(), w.store.Capabilities().Facets()) {
		t.Error("Capabilities changed with Start")
	}
}

func testShutdownWithoutStart(t *testing.T, h Harness) {
	w := stopped(t, h, storage.Immediate)
	w.build()
	must(t, w.store.Shutdown(t.Context()), "Shutdown without Start")
	must(t, w.store.Shutdown(t.Context()), "second Shutdown")
}

// testShutdownEnded: Shutdown may return early, but it does shut down.
func testShutdownEnded(t *testing.T, h Harness) {
	w := newWorld(t, h, storage.Immediate)
	w.append(one(queue("T", 0), 10))
	noneOrCancelled(t, w.store.Shutdown(cancelled(t)), "Shutdown")
	must(t, w.store.Shutdown(t.Context()), "second Shutdown")
	w.checkLent(true)
	if !h.Lacks.Reopen {
		w.start()
		w.verify()
	}
}

func testNotRunning(t *testing.T, h Harness) {
	w := newWorld(t, h, storage.Immediate)
	w.append(one(queue("T", 0), 10))
	p := w.assign(one(queue("T", 0), 10))
	must(t, w.store.Shutdown(t.Context()), "Shutdown")
	must(t, w.store.Shutdown(t.Context()), "second Shutdown")
	after := w.store
	w.build()
	before := w.store
	w.store = nil
	for name, s := range map[string]storage.Store{"before Start": before, "after Shutdown": after} {
		ctx := t.Context()
		var c storage.Chunk
		var a storage.OffsetAnswers
		b := p.Batches[0]
		b.Free = nil
		wantErr(t, s.Append(ctx, &b), storage.ErrNotRunning, "Append %s", name)
		wantErr(t, s.Sync(ctx, 0), storage.ErrNotRunning, "Sync %s", name)
		wantErr(t, s.Read(ctx, storage.ReadRequest{Queue: queue("T", 0)}, &c), storage.ErrNotRunning, "Read %s", name)
		wantErr(t, s.Get(ctx, []message.Position{0}, &c), storage.ErrNotRunning, "Get %s", name)
		wantErr(t, s.Offsets(ctx, nil, &a), storage.ErrNotRunning, "Offsets %s", name)
		caps := s.Capabilities()
		if r := caps.RawLog; r != nil {
			wantErr(t, r.ReadLog(ctx, 0, 1, &c), storage.ErrNotRunning, "ReadLog %s", name)
			wantErr(t, r.Publish(ctx, 0), storage.ErrNotRunning, "Publish %s", name)
			wantErr(t, r.Truncate(ctx, 0), storage.ErrNotRunning, "Truncate %s", name)
			wantErr(t, r.Reset(ctx, 0, nil), storage.ErrNotRunning, "Reset %s", name)
		}
		if r := caps.Retention; r != nil {
			_, err := r.Segments(ctx)
			wantErr(t, err, storage.ErrNotRunning, "Segments %s", name)
			wantErr(t, r.Expire(ctx, 0), storage.ErrNotRunning, "Expire %s", name)
			wantErr(t, r.Drop(ctx, nil), storage.ErrNotRunning, "Drop %s", name)
		}
		if k := caps.KeyIndex; k != nil {
			_, err := k.Find(ctx, storage.KeyQuery{Topic: "T", Key: "k", Max: 1}, nil)
			wantErr(t, err, storage.ErrNotRunning, "Find %s", name)
		}
		s.State() // must not panic
		c.Release()
		must(t, s.Shutdown(ctx), "Shutdown %s", name)
	}
	// The batch that was never appended is still the caller's.
	for i := range p.Batches {
		p.Batches[i].Done()
	}
	w.checkLent(true)
}

func testEmptyLog(t *testing.T, h Harness) {
	w := stopped(t, h, storage.Immediate)
	w.logID = "log-of-the-suite"
	w.start()
	st := w.store.State()
	if st.LogID != w.logID || st.First != 0 || st.Tail != 0 || st.Published != 0 || st.LastStoreTime != 0 {
		t.Errorf("State of a new log: %+v", st)
	}
	w.verify()
	must(t, w.store.Sync(t.Context(), 0), "Sync of nothing")
	w.read(storage.ReadRequest{Queue: queue("T", 0)}, storage.NoMatchedLogicQueue, 0)
	w.read(storage.ReadRequest{Queue: queue("T", 0), Offset: 5}, storage.NoMatchedLogicQueue, 0)
}

func testReopen(t *testing.T, h Harness) {
	needsReopen(t, h)
	w := newWorld(t, h, storage.Immediate)
	for i := range 40 {
		w.append(many(queue("T", int32(i%3)), 3, 300), []Message{{Queue: queue("U", 0), Tags: "TagA", Keys: "k1 k2", UniqueKey: "u", Body: []byte("x")}})
		w.clock.Add(100)
	}
	w.verify()
	id := w.store.State().LogID
	for range 2 {
		w.reopen()
		w.verify()
		if got := w.store.State().LogID; got != id {
			t.Fatalf("the log's id was %q, is %q after opening again", id, got)
		}
		w.append(one(queue("T", 1), 30))
		w.verify()
	}
}

func testIdentity(t *testing.T, h Harness) {
	needsReopen(t, h)
	w := stopped(t, h, storage.Immediate)
	w.logID = "one"
	w.start()
	w.append(one(queue("T", 0), 10))
	w.shutdown()

	other := h
	other.Segment = 2 * h.segment()
	for name, change := range map[string]func(){
		"another segment size": func() { w.h = other },
		"another log id":       func() { w.logID = "two" },
	} {
		change()
		w.build()
		wantErr(t, w.store.Start(t.Context()), storage.ErrIdentity, "Start with %s", name)
		must(t, w.store.Shutdown(t.Context()), "Shutdown after a failed Start")
		w.h, w.logID = h, "one"
		w.start() // the failed one released what it took
		w.verify()
		w.shutdown()
	}
	w.logID = "" // any
	w.start()
	w.verify()
}

func testOneOpener(t *testing.T, h Harness) {
	needsReopen(t, h)
	w := newWorld(t, h, storage.Immediate)
	w.append(one(queue("T", 0), 10))
	second, err := h.Factory.Build(t.Context(), func() storage.Params { p := w.params(); p.Events = storage.Events{}; return p }(), h.Config)
	must(t, err, "Build")
	if err := second.Start(t.Context()); err == nil {
		t.Error("a second store started on the directory of a running one: Start takes a lock in it (vfs.OS{}.Lock) and keeps it")
	}
	must(t, second.Shutdown(t.Context()), "Shutdown of the second")
	w.append(one(queue("T", 0), 10))
	w.verify()
	w.reopen()
	w.verify()
}

// testPowerLoss needs a harness that can crash.
func testPowerLoss(t *testing.T, h Harness) {
	if h.Crash == nil {
		t.Skip("the harness cannot simulate power loss")
	}
	w := newWorld(t, h, storage.Immediate)
	for round := range 4 {
		for range 20 {
			w.append(many(queue("T", int32(round%2)), 4, 200), []Message{{Queue: queue("U", 0), UniqueKey: "u"}})
		}
		end := w.model.tail
		must(t, w.store.Sync(t.Context(), end), "Sync")
		kept := len(w.model.log)
		for range round * 5 {
			w.append(one(queue("T", 0), 100))
		}
		h.Crash(t, w.dir)
		w.chunk.Release()
		_ = w.store.Shutdown(background(t)) // it may say that its disk is gone
		w.checkLent(true)
		w.start()
		st := w.store.State()
		if st.Tail < end || st.Published < end {
			t.Fatalf("synced up to %d, after power loss the tail is %d, published %d", end, st.Tail, st.Published)
		}
		// What was not synced may be there, as a prefix.
		for n := len(w.model.log); n >= kept; n-- {
			if n == 0 || w.model.log[n-1].end() == st.Tail {
				w.model.truncate(st.Tail)
				break
			}
			w.model.log = w.model.log[:n-1]
		}
		w.verify()
	}
}

// cancelled is a context that is done.
func cancelled(t testing.TB) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// noneOrCancelled fails for errors other than that of the context.
func noneOrCancelled(t testing.TB, err error, what string) {
	t.Helper()
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Fatalf("%s with a cancelled context: %v", what, err)
	}
}
