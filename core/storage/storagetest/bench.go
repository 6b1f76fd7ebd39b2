package storagetest

import (
	"fmt"
	"testing"

	"github.com/hardpointmq/hardpoint/core/storage/storagebench"
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

// newBench is a running store under load.
func newBench(b *testing.B, h Harness) *storagebench.Load {
	b.Helper()
	x, err := storagebench.Open(background(b), h.Factory, h.Config, h.dir(b))
	must(b, err, "Open")
	b.Cleanup(func() { must(b, x.Close(background(b)), "Close") })
	return x
}

// appendTo appends once, and empties a log that is full with the clock stopped.
func appendTo(b *testing.B, x *storagebench.Load) {
	if err := x.Append(b.Context()); err != nil {
		b.Fatal(err)
	}
	if x.Full() {
		b.StopTimer()
		must(b, x.Empty(background(b)), "Empty")
		b.StartTimer()
	}
}

func benchAppend(b *testing.B, h Harness, size, batch int) {
	x := newBench(b, h)
	x.Fill(batch, size)
	appendTo(b, x)
	b.SetBytes(int64(x.RecordBytes()))
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if n%batch == 0 {
			appendTo(b, x)
		}
		n++
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
}

func benchRead(b *testing.B, h Harness) {
	x := newBench(b, h)
	must(b, x.PrepareReads(b.Context(), 1024), "PrepareReads")
	b.SetBytes(32 * int64(x.RecordBytes()))
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		records, err := x.Read(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		n += records
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
}

func benchSync(b *testing.B, h Harness) {
	x := newBench(b, h)
	x.Fill(64, 1024)
	b.ReportAllocs()
	for b.Loop() {
		appendTo(b, x)
		if err := x.Sync(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
