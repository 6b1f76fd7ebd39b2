package replicationtest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagemw"
)

var lifecycleCases = []testCase{
	{"shutdown_without_start", func(t *testing.T, h Harness) {
		w := newWorld(t, h)
		w.shutdown()
		w.shutdown()
	}},
	{"not_running", func(t *testing.T, h Harness) {
		w := newWorld(t, h)
		ask := func(when string) {
			t.Helper()
			p := w.pending(1, 10)
			mustIs(t, w.rep.Append(t.Context(), p, w.sink), replication.ErrNotRunning, "Append %s", when)
			w.sink.refused(p)
			mustIs(t, w.rep.Barrier(t.Context()), replication.ErrNotRunning, "Barrier %s", when)
			if k := w.rep.Role().Kind; k == replication.RoleLeader {
				t.Errorf("Role %s is leader", when)
			}
		}
		ask("before Start")
		w.start()
		w.sink.stored(w.append(1, 10))
		w.shutdown()
		w.shutdown()
		ask("after Shutdown")
	}},
	{"office", func(t *testing.T, h Harness) {
		w := newWorld(t, h)
		ctx, cancel := context.WithCancel(t.Context())
		if err := w.rep.Start(ctx); err != nil {
			t.Fatalf("Start: %v", err)
		}
		cancel() // the context of Start bounds starting only
		w.until("it leads", func() bool { return w.rep.Role().Kind == replication.RoleLeader })
		w.until("OnRole was called", func() bool { return len(w.seen()) > 0 })
		r := w.rep.Role()
		if r.Term == 0 {
			t.Error("the leader's term is 0")
		}
		if s := w.rep.Status(); s.Role != r {
			t.Errorf("Status says %+v, Role %+v", s.Role, r)
		}
		last := w.seen()[len(w.seen())-1]
		if last.Kind != replication.RoleLeader || last.Term != r.Term {
			t.Errorf("OnRole was told %+v, Role is %+v", last, r)
		}
		office := w.offices[len(w.offices)-1]
		if office.Err() != nil {
			t.Error("the context of the office ended with the one of Start")
		}
		w.sink.stored(w.append(1, 10))
		w.shutdown()
		if office.Err() == nil {
			t.Error("the context of the office lives on after Shutdown")
		}
	}},
	{"append_in_on_role", func(t *testing.T, h Harness) {
		w := newWorld(t, h)
		var p *storage.Pending
		w.onRole = func(ctx context.Context, r replication.Role) error {
			if r.Kind != replication.RoleLeader || p != nil {
				return nil
			}
			p = w.pending(2, 100)
			if err := w.rep.Append(ctx, p, w.sink); err != nil {
				return fmt.Errorf("Append in OnRole: %w", err)
			}
			w.sink.ordered(p)
			w.sink.stored(p)
			return nil
		}
		w.start()
		w.dense(2)
	}},
	{"office_refused", func(t *testing.T, h Harness) {
		w := newWorld(t, h)
		w.onRole = func(context.Context, replication.Role) error { return errInjected }
		err := w.rep.Start(t.Context())
		if err != nil {
			mustIs(t, err, errInjected, "Start whose OnRole fails")
		}
		p := w.pending(1, 10)
		if err := w.rep.Append(t.Context(), p, w.sink); err == nil {
			t.Error("Append is taken though the engine refused the office")
		}
		w.sink.refused(p)
		w.within("Shutdown", w.shutdown)
	}},
	{"capabilities", func(t *testing.T, h Harness) {
		w := newWorld(t, h)
		before := w.rep.Capabilities().Facets()
		w.start()
		if after := w.rep.Capabilities().Facets(); !slices.Equal(before, after) {
			t.Errorf("facets changed from %v to %v", before, after)
		}
		d, err := h.Factory.Describe(t.Context(), h.Config)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range before {
			if !d.Has(f) {
				t.Errorf("facet %s is offered and not described", f)
			}
		}
	}},
	{"shutdown_answers", func(t *testing.T, h Harness) {
		w := started(t, h)
		var ps []*storage.Pending
		for range 50 {
			ps = append(ps, w.append(3, 100))
		}
		w.shutdown()
		if n := w.sink.count(); n != 150 {
			t.Fatalf("%d of 150 groups are told when Shutdown returned", n)
		}
		for _, p := range ps {
			w.sink.stored(p)
		}
	}},
	{"shutdown_while_appending", func(t *testing.T, h Harness) {
		w := started(t, h)
		var taken atomic.Int64
		var wg sync.WaitGroup
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				p := w.pending(1, 50)
				if err := w.rep.Append(context.WithoutCancel(t.Context()), p, w.sink); err != nil {
					w.sink.refused(p)
					return
				}
				w.sink.ordered(p)
				taken.Add(1)
			}
		}()
		w.until("some were taken", func() bool { return taken.Load() >= 20 })
		w.shutdown()
		wg.Wait()
		if told, want := w.sink.count(), int(taken.Load()); told != want {
			t.Fatalf("%d groups were told, %d were taken", told, want)
		}
	}},
}

var appendCases = []testCase{
	{"once_in_order", func(t *testing.T, h Harness) {
		w := started(t, h)
		n := 0
		var last *storage.Pending
		for i := range 100 {
			last = w.append(1+i%7, i*3)
			n += 1 + i%7
		}
		w.sink.stored(last)
		if got := w.sink.count(); got != n {
			t.Fatalf("%d of %d groups are told when the last one is", got, n)
		}
		w.dense(n)
	}},
	{"across_edges", func(t *testing.T, h Harness) {
		w := started(t, h)
		n, split := 0, false
		var last *storage.Pending
		for range 30 {
			last = w.append(7, 700)
			w.sink.stored(last)
			split = split || len(last.Batches) > 1
			n += 7
		}
		if !split {
			t.Fatal("no Pending became several batches")
		}
		w.dense(n)
	}},
	{"too_large", func(t *testing.T, h Harness) {
		w := started(t, h)
		w.sink.stored(w.append(1, 100))
		p := w.pending(1, segment)
		err := w.rep.Append(t.Context(), p, w.sink)
		mustIs(t, err, storage.ErrTooLarge, "Append of a record larger than a segment")
		w.sink.refused(p)
		if at := p.Units[0].At; at != 0 || len(p.Batches) != 0 {
			t.Errorf("the refused Pending is placed at %d in %d batches", at, len(p.Batches))
		}
		w.sink.stored(w.append(1, 100))
		w.dense(2)
	}},
	{"refused_is_reusable", func(t *testing.T, h Harness) {
		w := newWorld(t, h)
		p := w.pending(2, 100)
		mustIs(t, w.rep.Append(t.Context(), p, w.sink), replication.ErrNotRunning, "Append before Start")
		w.sink.refused(p)
		w.start()
		w.sink.expect(p)
		if err := w.rep.Append(t.Context(), p, w.sink); err != nil {
			t.Fatalf("Append of a Pending that was refused: %v", err)
		}
		w.sink.ordered(p)
		w.sink.stored(p)
		w.dense(2)
	}},
	{"cancelled_context", func(t *testing.T, h Harness) {
		w := started(t, h)
		ctx, cancel := context.WithCancel(t.Context())
		p := w.pending(2, 100)
		err := w.rep.Append(ctx, p, w.sink)
		cancel()
		if err != nil {
			t.Fatalf("Append: %v", err)
		}
		w.sink.ordered(p)
		w.sink.stored(p) // cancelling never un-orders
		w.dense(2)
	}},
	{"barrier", func(t *testing.T, h Harness) {
		w := started(t, h)
		if err := w.rep.Barrier(t.Context()); err != nil {
			t.Fatalf("Barrier on an empty log: %v", err)
		}
		p := w.append(3, 100)
		w.sink.stored(p)
		if err := w.rep.Barrier(t.Context()); err != nil {
			t.Fatalf("Barrier: %v", err)
		}
		if pub := w.store.State().Published; pub < p.End {
			t.Errorf("behind the Barrier published is %d, acknowledged was up to %d", pub, p.End)
		}
	}},
	{"flushed", func(t *testing.T, h Harness) {
		if h.Lacks.Sync {
			t.Skip("the harness says that Stored is told without a flush")
		}
		w := started(t, h)
		for range 5 {
			p := w.append(3, 100)
			w.sink.stored(p)
			if d := w.store.State().Durable; d < p.End {
				t.Fatalf("Stored is told for groups up to %d, durable is %d", p.End, d)
			}
		}
	}},
	{"restart", func(t *testing.T, h Harness) {
		w := started(t, h)
		w.sink.stored(w.append(4, 100))
		w.shutdown()
		st := w.store.State()
		if st.Published != st.Tail {
			t.Errorf("after Shutdown published is %d, the tail %d", st.Published, st.Tail)
		}
	}},
}

// onAppend makes Appends at the nth call, counted from 1, fail with err.
func onAppend(nth int64, err error) storagemw.Hook {
	var n atomic.Int64
	return func(_ context.Context, c storagemw.Call) error {
		if c.Op == storagemw.OpAppend && !c.Done && n.Add(1) == nth {
			return err
		}
		return nil
	}
}

var failureCases = []testCase{
	{"full", func(t *testing.T, h Harness) {
		w := started(t, h)
		w.sink.stored(w.append(2, 100))
		w.fault(onAppend(1, fmt.Errorf("%w: no space", storage.ErrFull)))
		p := w.pending(3, 100)
		if err := w.rep.Append(t.Context(), p, w.sink); err != nil {
			w.sink.refused(p)
		} else {
			w.sink.ordered(p)
			for i, x := range w.sink.wait(p) {
				if x.o != replication.NotStored {
					t.Errorf("group %d on a full disk: %v", i, x.o)
				}
				mustIs(t, x.err, storage.ErrFull, "group %d", i)
			}
		}
		// A full disk refuses and nothing else, and no offset is lost.
		w.sink.stored(w.append(2, 100))
		w.dense(4)
	}},
	{"full_at_edge", func(t *testing.T, h Harness) {
		w := started(t, h)
		n := 0
		for w.store.State().Tail < segment-3000 {
			w.sink.stored(w.append(1, 700))
			n++
		}
		p := w.pending(6, 700) // some fit before the edge, some do not
		w.fault(onAppend(2, storage.ErrFull))
		if err := w.rep.Append(t.Context(), p, w.sink); err != nil {
			t.Fatalf("Append: %v", err)
		}
		w.sink.ordered(p)
		stored := 0
		for i, x := range w.sink.wait(p) {
			switch x.o {
			case replication.Stored:
				if i != stored {
					t.Errorf("group %d is stored behind one that is not", i)
				}
				stored++
			case replication.NotStored:
			default:
				t.Errorf("group %d: %v", i, x.o)
			}
		}
		if stored == 0 || stored == 6 {
			t.Fatalf("%d of 6 groups are stored, want some", stored)
		}
		w.sink.stored(w.append(2, 100))
		w.dense(n + stored + 2)
	}},
	{"failed_write", func(t *testing.T, h Harness) {
		w := started(t, h)
		w.sink.stored(w.append(2, 100))
		w.fault(func(_ context.Context, c storagemw.Call) error {
			if c.Op == storagemw.OpAppend && !c.Done {
				return storage.ErrFailed
			}
			return nil
		})
		p := w.append(3, 100)
		for i, x := range w.sink.wait(p) {
			if x.o != replication.Unknown {
				t.Errorf("group %d of a failed write: %v", i, x.o)
			}
		}
		w.noWrites()
	}},
	{"failed_flush", func(t *testing.T, h Harness) {
		if h.Lacks.Sync {
			t.Skip("the harness says that nothing waits for a flush")
		}
		w := started(t, h)
		w.sink.stored(w.append(2, 100))
		var syncs atomic.Int64
		w.fault(func(_ context.Context, c storagemw.Call) error {
			if c.Op == storagemw.OpSync && !c.Done {
				syncs.Add(1)
				return errInjected
			}
			return nil
		})
		p := w.append(3, 100)
		for i, x := range w.sink.wait(p) {
			if x.o != replication.Unknown {
				t.Errorf("group %d of a failed flush: %v", i, x.o)
			}
			mustIs(t, x.err, errInjected, "group %d", i)
		}
		w.noWrites()
		w.shutdown()
		if n := syncs.Load(); n != 1 {
			t.Errorf("the flush that failed was followed by %d more", n-1)
		}
	}},
	{"shutdown_while_flushing", func(t *testing.T, h Harness) {
		w := started(t, h)
		open, began := make(chan struct{}), make(chan struct{}, 100)
		w.fault(func(_ context.Context, c storagemw.Call) error {
			if c.Op == storagemw.OpSync && !c.Done {
				began <- struct{}{}
				<-open
			}
			return nil
		})
		p := w.append(3, 100)
		q := w.append(2, 100)
		if !h.Lacks.Sync {
			<-began
		}
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() { over <- w.rep.Shutdown(ctx) }()
		if !h.Lacks.Sync {
			cancel()
			mustIs(t, <-over, context.Canceled, "Shutdown that is given up")
			if n := w.sink.count(); n != 0 {
				t.Errorf("%d groups are told while the flush is under way", n)
			}
		}
		close(open)
		w.within("Shutdown", w.shutdown)
		cancel()
		w.sink.stored(p)
		w.sink.stored(q)
	}},
}

// noWrites demands that the office ended as far as writes go.
func (w *world) noWrites() {
	w.t.Helper()
	w.until("the role says that writes are over", func() bool {
		r := w.rep.Role()
		return r.Kind != replication.RoleLeader || r.ReadOnly != ""
	})
	p := w.pending(1, 10)
	if err := w.rep.Append(w.t.Context(), p, w.sink); err == nil {
		w.t.Error("Append is taken after the log failed")
	}
	w.sink.refused(p)
	w.until("OnRole was told", func() bool {
		r := w.seen()
		last := r[len(r)-1]
		return last.Kind != replication.RoleLeader || last.ReadOnly != ""
	})
	if w.offices[0].Err() == nil {
		w.t.Error("the context of the office lives on")
	}
}
