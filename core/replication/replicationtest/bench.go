package replicationtest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
)

const (
	// benchSegment is large enough that rolling does not count.
	benchSegment = 64 << 20
	// benchUnderWay Pendings are with the replicator at once: the next are
	// ordered while the last are confirmed, as in the engine.
	benchUnderWay = 4
)

// Benchmark runs the shared benchmarks: "append", Pendings of some groups of one
// record each, appended as fast as their outcomes come; and "barrier". An op is
// a record for append, a call for barrier; in steady state a replicator allocates
// nothing. Let NewStore make a store that costs nothing, where the replicator can
// do without what it appended: the benchmark is about the replicator.
func Benchmark(b *testing.B, h Harness) {
	for _, size := range []int{128, 1024} {
		for _, groups := range []int{1, 64, 1024} {
			b.Run(fmt.Sprintf("append/%dB/groups=%d", size, groups), func(b *testing.B) { benchAppend(b, h, size, groups) })
		}
	}
	b.Run("barrier", func(b *testing.B) { benchBarrier(b, h) })
}

// course is a leading replicator on a store, and the Pendings that go round.
type course struct {
	b    *testing.B
	rep  replication.Replicator
	keep storage.Retention
	free chan *lap
	gone message.Position // expired up to here
}

// lap is a Pending that is appended again when everything about it was told.
type lap struct {
	c *course
	p storage.Pending
	// left counts outcomes, freed batches and the return of Append; how many
	// batches there are is only known when Append has returned.
	left atomic.Int64
}

const appending = 1 << 32

func newCourse(b *testing.B, h Harness) *course {
	b.Helper()
	d, err := h.Factory.Describe(b.Context(), h.Config)
	if err != nil {
		b.Fatalf("Describe: %v", err)
	}
	p := storage.Params{Settings: plugin.Settings{Name: "store", Dir: b.TempDir()}.WithDefaults(), Segment: benchSegment}
	if d.Publish == storage.Explicit.String() {
		p.Publish = storage.Explicit
	}
	store := h.NewStore(b, p)
	if err := store.Start(b.Context()); err != nil {
		b.Fatalf("starting the store: %v", err)
	}
	c := &course{b: b, keep: store.Capabilities().Retention, free: make(chan *lap, benchUnderWay)}
	led := make(chan struct{}, 1)
	c.rep, err = h.Factory.Build(b.Context(), replication.Params{
		Settings: plugin.Settings{Name: h.Factory.Name(), Dir: b.TempDir()}.WithDefaults(),
		Store:    store, Sequencer: storage.NewSequencer(nil),
		OnRole: func(_ context.Context, r replication.Role) error {
			if r.Kind == replication.RoleLeader {
				select {
				case led <- struct{}{}:
				default:
				}
			}
			return nil
		},
	}, h.Config)
	if err != nil {
		b.Fatalf("Build: %v", err)
	}
	if err := c.rep.Start(b.Context()); err != nil {
		b.Fatalf("Start: %v", err)
	}
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(b.Context()), patience)
		defer cancel()
		if err := c.rep.Shutdown(ctx); err != nil {
			b.Errorf("Shutdown of the replicator: %v", err)
		}
		if err := store.Shutdown(ctx); err != nil {
			b.Errorf("Shutdown of the store: %v", err)
		}
	})
	<-led
	return c
}

// fill makes the Pendings.
func (c *course) fill(groups, size int) {
	w := storagetest.NewWriter(message.IndexRules{})
	for range benchUnderWay {
		l := &lap{c: c}
		for i := range groups {
			w.Add(&l.p, storagetest.Message{Queue: message.Queue{Topic: "BenchmarkTest", ID: int32(i % 8)}, Tags: "TagA", Body: make([]byte, size)})
		}
		l.p.Free = func(*storage.Batch) { l.less(1) }
		c.free <- l
	}
}

// append takes the Pending that has come back and appends it.
func (c *course) append() {
	l := <-c.free
	end := l.p.End
	storagetest.Relative(&l.p)
	l.left.Store(appending + int64(len(l.p.Groups)))
	if err := c.rep.Append(c.b.Context(), &l.p, l); err != nil {
		c.b.Fatalf("Append: %v", err)
	}
	l.less(appending - int64(len(l.p.Batches)))
	// Old segments go, so that long runs measure writing, not a filling disk.
	if edge := end - end%benchSegment - 4*benchSegment; c.keep != nil && edge > c.gone {
		if err := c.keep.Expire(c.b.Context(), edge); err != nil {
			c.b.Fatalf("Expire: %v", err)
		}
		c.gone = edge
	}
}

// rest waits until nothing is under way.
func (c *course) rest() {
	laps := make([]*lap, benchUnderWay)
	for i := range laps {
		laps[i] = <-c.free
	}
	for _, l := range laps {
		c.free <- l
	}
}

// Done implements [replication.Sink].
func (l *lap) Done(_ *storage.Pending, from, to int, o replication.Outcome, err error) {
	if o != replication.Stored {
		l.c.b.Errorf("%v: %v", o, err)
	}
	l.less(int64(to - from))
}

func (l *lap) less(n int64) {
	if l.left.Add(-n) == 0 {
		l.c.free <- l
	}
}

func benchAppend(b *testing.B, h Harness, size, groups int) {
	c := newCourse(b, h)
	c.fill(groups, size)
	for range 4 * benchUnderWay {
		c.append() // buffers have their size
	}
	c.rest()
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if n%groups == 0 {
			c.append()
		}
		n++
	}
	c.rest()
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
}

func benchBarrier(b *testing.B, h Harness) {
	c := newCourse(b, h)
	c.fill(1, 128)
	c.append()
	c.rest()
	b.ReportAllocs()
	for b.Loop() {
		if err := c.rep.Barrier(b.Context()); err != nil {
			b.Fatalf("Barrier: %v", err)
		}
	}
}
