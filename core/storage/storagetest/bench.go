package storagetest

import (
	"fmt"
	"testing"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
)

const (
	// benchSegment is what brokers use.
	benchSegment = 1 << 30
	// benchBytes is after how much the log is emptied, with the clock stopped:
	// what systems keep in memory before they make writers wait for the disk is
	// more. Until then appending costs what the store costs.
	benchBytes = 512 << 20
)

// Benchmark runs the shared benchmarks: appending batches as the engine makes
// them, through the Sequencer over several queues, into memory and not onto the
// disk; reading 32 records of 1 KiB; and Sync after one batch. An op is a record
// for Append, a call for the others.
func Benchmark(b *testing.B, h Harness) {
	for _, size := range []int{128, 1024} {
		for _, batch := range []int{1, 64, 1024} {
			b.Run(fmt.Sprintf("append/%dB/batch=%d", size, batch), func(b *testing.B) { benchAppend(b, h, size, batch) })
		}
	}
	b.Run("read/32x1024B", func(b *testing.B) { benchRead(b, h) })
	b.Run("sync", func(b *testing.B) { benchSync(b, h) })
}

// bench is a running store with a Sequencer and one Pending that is used again.
type bench struct {
	store storage.Store
	raw   storage.RawLog
	seq   *storage.Sequencer
	p     storage.Pending
	free  func(*storage.Batch)
}

func newBench(b *testing.B, h Harness) *bench {
	b.Helper()
	s, err := h.Factory.Build(b.Context(), storage.Params{
		Settings: plugin.Settings{Name: h.Factory.Name(), Dir: h.dir(b)}.WithDefaults(),
		Segment:  benchSegment, Index: message.IndexRules{DelayLevels: message.DefaultDelayLevels()},
	}, h.Config)
	must(b, err, "Build")
	must(b, s.Start(b.Context()), "Start")
	x := &bench{store: s, raw: s.Capabilities().RawLog, seq: OpenSequencer(b, s, plugin.SystemClock{}, 1)}
	x.free = func(*storage.Batch) {}
	b.Cleanup(func() {
		x.empty(b) // nobody needs what was written: it shall not go to the disk
		must(b, s.Shutdown(background(b)), "Shutdown")
	})
	return x
}

// empty makes the log empty where the store can.
func (x *bench) empty(b *testing.B) {
	if x.raw != nil {
		must(b, x.raw.Reset(background(b), 0, nil), "Reset")
	}
}

// fill makes a Pending of n records over eight queues once; later rounds
// place the same bytes again.
func (x *bench) fill(n, size int) {
	w := NewWriter(message.IndexRules{})
	for i := range n {
		w.Add(&x.p, Message{Queue: queue("BenchmarkTest", int32(i%8)), Tags: "TagA", UniqueKey: fmt.Sprintf("%032X", i), Body: make([]byte, size)})
	}
}

// append places the Pending and appends it; then makes it relative again: in a
// benchmark every store publishes at once and has freed the batches.
func (x *bench) append(b *testing.B) {
	if err := x.seq.Assign(&x.p, 0); err != nil {
		b.Fatal(err)
	}
	for i := range x.p.Batches {
		x.p.Batches[i].Free = x.free
		if err := x.store.Append(b.Context(), &x.p.Batches[i]); err != nil {
			b.Fatal(err)
		}
	}
	Relative(&x.p) // every store publishes at once here, and has freed the batches
	if x.raw != nil && x.seq.Tail() >= benchBytes {
		b.StopTimer()
		x.empty(b)
		x.seq = OpenSequencer(b, x.store, plugin.SystemClock{}, 1)
		b.StartTimer()
	}
}

func benchAppend(b *testing.B, h Harness, size, batch int) {
	x := newBench(b, h)
	x.fill(batch, size)
	x.append(b)
	b.SetBytes(int64(len(x.p.Buf) / batch))
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if n%batch == 0 {
			x.append(b)
		}
		n++
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
}

func benchRead(b *testing.B, h Harness) {
	x := newBench(b, h)
	x.fill(1024, 1024)
	for range 16 {
		x.append(b)
	}
	var c storage.Chunk
	lim := storage.Limit{Count: 32, Bytes: 256 << 10}
	b.SetBytes(32 * int64(len(x.p.Buf)/1024))
	b.ReportAllocs()
	const records = 16 * 1024 / 8 // of a queue
	off, n := int64(0), 0
	for b.Loop() {
		c.Reset()
		if err := x.store.Read(b.Context(), storage.ReadRequest{Queue: queue("BenchmarkTest", 3), Offset: off, Hot: lim, Cold: lim}, &c); err != nil {
			b.Fatal(err)
		}
		if c.Status != storage.Found {
			b.Fatal(c.Status)
		}
		n += len(c.Units)
		if off += 32; off >= records {
			off = 0
		}
	}
	c.Release()
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
}

func benchSync(b *testing.B, h Harness) {
	x := newBench(b, h)
	x.fill(64, 1024)
	b.ReportAllocs()
	for b.Loop() {
		x.append(b)
		if err := x.store.Sync(b.Context(), x.seq.Tail()); err != nil {
			b.Fatal(err)
		}
	}
}
