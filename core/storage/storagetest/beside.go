package storagetest

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// besideCases read while the log is published, cut and followed.
var besideCases = []testCase{
	{"log_reader_beside_a_writer", testLogReaderBeside},
	{"readers_beside_truncate", testReadersTruncate},
	{"truncate_and_leases", testTruncateLease},
}

// testLogReaderBeside follows the log as a replica's connection does.
func testLogReaderBeside(t *testing.T, h Harness) {
	w := newWorld(t, h, storage.Explicit)
	raw := w.raw()
	var end atomic.Int64 // set when the writer is done
	end.Store(-1)
	var got []byte
	var wg sync.WaitGroup
	defer wg.Wait() // the writer may end the test
	wg.Go(func() {
		var c storage.Chunk
		defer c.Release()
		for pos := message.Position(0); ; {
			last := end.Load()
			if last >= 0 && int64(pos) == last || t.Failed() {
				return
			}
			c.Reset()
			if err := raw.ReadLog(t.Context(), pos, 3000, &c); err != nil {
				t.Errorf("ReadLog at %d: %v", pos, err)
				return
			}
			got = append(got, join(c.Frags)...)
			if c.Next != int64(len(got)) {
				t.Errorf("ReadLog at %d goes on at %d, want %d", pos, c.Next, len(got))
				return
			}
			pos = message.Position(c.Next)
		}
	})
	for i := 0; w.model.tail < message.Position(6*h.segment()); i++ {
		w.append(many(queue("T", int32(i%3)), 1+i%4, 300))
		if i%3 == 0 {
			w.publish(w.model.tail)
		}
	}
	end.Store(int64(w.model.tail))
	wg.Wait()
	if want := w.model.raw(0, w.model.tail); !slices.Equal(got, want) && !t.Failed() {
		t.Fatalf("the follower has %d bytes that differ from the %d of the log%s", len(got), len(want), differ(got, want))
	}
	w.publish(w.model.tail)
	w.verify()
}

// testReadersTruncate cuts and writes again below readers: each answer is whole
// and belongs together, whichever side of the cut it is from.
func testReadersTruncate(t *testing.T, h Harness) {
	w := newWorld(t, h, storage.Explicit)
	q := queue("T", 0)
	var stop atomic.Bool
	var wg sync.WaitGroup
	defer wg.Wait() // the writer may end the test
	for id := range 2 {
		wg.Go(func() {
			var c storage.Chunk
			defer c.Release()
			lim := storage.Limit{Count: 16}
			for off := int64(0); !stop.Load() && !t.Failed(); off += int64(1 + id) {
				c.Reset()
				if err := w.store.Read(t.Context(), storage.ReadRequest{Queue: q, Offset: off, Hot: lim, Cold: lim}, &c); err != nil {
					t.Errorf("Read: %v", err)
					return
				}
				if off > c.Max {
					off = -1
				}
				checkStamps(t, &c)
			}
		})
	}
	for range 60 {
		w.append(many(q, 5, 100), many(queue("T", 1), 2, 700))
		w.publish(w.model.tail)
		edges := w.model.edges()
		if n := len(edges); n > 12 {
			w.truncate(edges[n-8])
		}
	}
	stop.Store(true)
	wg.Wait()
	w.verify()
}

// checkStamps compares the units of a chunk with what stands in the records.
func checkStamps(t testing.TB, c *storage.Chunk) {
	t.Helper()
	buf := join(c.Frags)
	for i, u := range c.Units {
		if int(u.Size) > len(buf) || u.Size < message.MinRecordSize ||
			int64(binary.BigEndian.Uint64(buf[20:])) != u.Offset || int64(binary.BigEndian.Uint64(buf[28:])) != int64(u.At) ||
			(i > 0 && u.Offset != c.Units[i-1].Offset+1) || u.Offset >= c.Max || u.Offset < c.Min {
			t.Errorf("unit %+v does not belong to its record (ends %d and %d)", u, c.Min, c.Max)
			return
		}
		buf = buf[u.Size:]
	}
	if len(buf) > 0 {
		t.Errorf("%d bytes behind the records", len(buf))
	}
}

// testTruncateLease: a chunk that is lent keeps its bytes, and a Truncate that
// waits for it gives up when its context ends.
func testTruncateLease(t *testing.T, h Harness) {
	w := newWorld(t, h, storage.Explicit)
	q := queue("T", 0)
	w.append(many(q, 10, 200))
	w.publish(w.model.tail)
	var c storage.Chunk
	must(t, w.store.Read(t.Context(), storage.ReadRequest{Queue: q, Offset: 5}, &c), "Read")
	units := w.model.unitsOf(q)[5:]
	w.compareChunk(&c, units)
	keep := slices.Clone(join(c.Frags))
	at := units[2].At
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	err := w.raw().Truncate(ctx, at)
	cancel()
	if !slices.Equal(join(c.Frags), keep) {
		t.Fatal("bytes changed under a lease")
	}
	c.Release()
	if err != nil {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Truncate below a lease: %v", err)
		}
		w.verify() // nothing was cut
		w.truncate(at)
	} else {
		w.model.truncate(at)
		w.ev.truncate(t, at, true)
		w.open()
	}
	w.verify()
	w.append(many(q, 3, 10))
	w.publish(w.model.tail)
	w.verify()
}
