package storagewire_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
	"github.com/hardpointmq/hardpoint/plugins/storage/commitlog"
	"github.com/hardpointmq/hardpoint/plugins/storage/memory"
	"github.com/hardpointmq/hardpoint/plugins/storage/pebble"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire"
)

// TestConformance runs the suite over the wire, both halves in this process.
func TestConformance(t *testing.T) {
	all := []storage.Factory{memory.NewFactory(), pebble.NewFactory(), commitlog.NewFactory()}
	p, q := newPair(t, all...), newStreamPair(t, all...)
	storagetest.Run(t, storagetest.Harness{
		Factory: storagewire.NewFactory(memory.Name, p), Form: storagetest.Wire,
		Lacks: storagetest.Lacks{ProcessDeath: true, Reopen: true},
	}, storagetest.Harness{
		Factory: storagewire.NewFactory(memory.Name, q), Form: "stream",
		Lacks: storagetest.Lacks{ProcessDeath: true, Reopen: true},
	})
	storagetest.Run(t, storagetest.Harness{
		Factory: storagewire.NewFactory(pebble.Name, p), Form: storagetest.Wire,
		Config: plugin.Raw(`{"cacheBytes": 1048576, "memTableBytes": 1048576}`),
	}, storagetest.Harness{
		Factory: storagewire.NewFactory(pebble.Name, q), Form: "stream",
		Config: plugin.Raw(`{"cacheBytes": 1048576, "memTableBytes": 1048576}`),
	})
	storagetest.Run(t, storagetest.Harness{
		Factory: storagewire.NewFactory(commitlog.NewFactory().Name(), p), Form: storagetest.Wire,
		Config: plugin.Raw(`{"mappedFileSizeConsumeQueue": 4000, "maxHashSlotNum": 500, "maxIndexNum": 1000}`),
	}, storagetest.Harness{
		Factory: storagewire.NewFactory(commitlog.NewFactory().Name(), q), Form: "stream",
		Config: plugin.Raw(`{"mappedFileSizeConsumeQueue": 4000, "maxHashSlotNum": 500, "maxIndexNum": 1000}`),
	})
}

// ready is a store whose reads cost nothing: what remains is the border.
type ready struct{ storagetest.Nop }

var records = [1024]byte{}

func (ready) Read(_ context.Context, r storage.ReadRequest, c *storage.Chunk) error {
	c.Reset()
	c.Frags = append(c.Frags, records[:])
	c.Units = append(c.Units, message.Unit{Queue: r.Queue, Offset: r.Offset, Size: int32(len(records))})
	c.Next, c.Max = r.Offset+1, r.Offset+1
	return nil
}

func (ready) Offsets(_ context.Context, q []storage.OffsetQuery, a *storage.OffsetAnswers) error {
	a.Answers = a.Answers[:0]
	for i := range q {
		a.Answers = append(a.Answers, storage.OffsetAnswer{Queue: q[i].Queue, Known: true})
	}
	return nil
}

// BenchmarkCalls is one call at a time over the border, both sides in this process.
func BenchmarkCalls(b *testing.B) {
	s, ctx := startReady(b), b.Context()
	var c storage.Chunk
	var a storage.OffsetAnswers
	r := storage.ReadRequest{Queue: message.Queue{Topic: "T"}}
	q := []storage.OffsetQuery{{Queue: r.Queue}}
	for name, call := range map[string]func() error{
		"read/1x1024B": func() error { return s.Read(ctx, r, &c) },
		"offsets":      func() error { return s.Offsets(ctx, q, &a) },
		"sync":         func() error { return s.Sync(ctx, 0) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				require.NoError(b, call())
			}
		})
	}
}

// TestCallsAllocateNothing: neither end allocates for a call once its buffers have
// grown, whatever context the caller has.
func TestCallsAllocateNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("sync.Pool drops what it is given at random under the race detector")
	}
	s, ctx := startReady(t), t.Context()
	var c storage.Chunk
	var a storage.OffsetAnswers
	r := storage.ReadRequest{Queue: message.Queue{Topic: "T"}, Tags: []int64{1, 2}}
	q := []storage.OffsetQuery{{Queue: r.Queue}, {Queue: message.Queue{Topic: "U"}}}
	all := func() {
		if s.Read(ctx, r, &c) != nil || len(c.Units) != 1 || len(c.Frags[0]) != len(records) || s.Offsets(ctx, q, &a) != nil || len(a.Answers) != 2 || s.Sync(ctx, 0) != nil {
			t.Error("a call failed")
		}
	}
	require.Zero(t, testing.AllocsPerRun(200, all))
}

func startReady(tb testing.TB) storage.Store {
	tb.Helper()
	f := storage.NewFactory("ready", func(none) plugin.Description { return plugin.Description{} }, func() none { return none{} },
		func(context.Context, storage.Params, none) (ready, error) { return ready{}, nil })
	s, err := storagewire.NewFactory("ready", newPair(tb, f)).Build(tb.Context(), storage.Params{
		Settings: plugin.Settings{Name: "s"}.WithDefaults(), Segment: 1 << 20,
	}, nil)
	require.NoError(tb, err)
	require.NoError(tb, s.Start(tb.Context()))
	tb.Cleanup(func() { require.NoError(tb, s.Shutdown(context.WithoutCancel(tb.Context()))) })
	return s
}

func BenchmarkStore(b *testing.B) {
	for name, newPair := range map[string]maker{"sockets": newPair, "stream": newStreamPair} {
		b.Run(name, func(b *testing.B) {
			storagetest.Benchmark(b, storagetest.Harness{Factory: storagewire.NewFactory(memory.Name, newPair(b, memory.NewFactory()))})
		})
	}
}
