// Package storagebench is the work of the shared benchmarks of stores: batches as
// the engine makes them, through the Sequencer over several queues. It has no
// clock and no loop of its own, so that package testing (storagetest.Benchmark)
// and a program (hardpoint plugin bench) measure the same.
package storagebench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
)

const (
	// segment is what brokers use.
	segment = 1 << 30
	// mostBytes is after how much the log is full: what systems keep in memory
	// before they make writers wait for the disk is more. Until then appending costs
	// what the store costs.
	mostBytes = 512 << 20

	topic  = "BenchmarkTest"
	queues = 8
)

// Load is a running store with a Sequencer and one Pending that is appended again
// and again. It is not safe for concurrent use.
type Load struct {
	store  storage.Store
	raw    storage.RawLog
	seq    *storage.Sequencer
	p      storage.Pending
	n      int // records of p
	chunk  storage.Chunk
	offset int64 // of the next Read
}

// Open builds and starts a store in dir, which publishes at once.
func Open(ctx context.Context, f storage.Factory, raw plugin.Raw, dir string) (*Load, error) {
	s, err := f.Build(ctx, storage.Params{
		Settings: plugin.Settings{Name: f.Name(), Dir: dir}.WithDefaults(),
		Segment:  segment, Index: message.IndexRules{DelayLevels: message.DefaultDelayLevels()},
	}, raw)
	if err != nil {
		return nil, err
	}
	if err := s.Start(ctx); err != nil {
		return nil, err
	}
	l := &Load{store: s, raw: s.Capabilities().RawLog}
	if err := l.office(ctx); err != nil {
		return nil, errors.Join(err, s.Shutdown(ctx))
	}
	return l, nil
}

// office begins a term of office at the end of the log.
func (l *Load) office(ctx context.Context) error {
	var ends storage.OffsetAnswers
	if err := l.store.Offsets(ctx, nil, &ends); err != nil {
		return err
	}
	l.seq = storage.NewSequencer(plugin.SystemClock{})
	return l.seq.Open(1, l.store.State(), ends.Answers)
}

// Fill makes what Append appends: n records with bodies of size bytes.
func (l *Load) Fill(n, size int) {
	loop := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	rec := message.Record{
		Topic: topic, BornTime: 1, Body: make([]byte, size),
		BornHost:  message.HostOf(netip.AddrPortFrom(loop, 5555)),
		StoreHost: message.HostOf(netip.AddrPortFrom(loop, 10911)),
	}
	derive, view := message.NewDeriver(message.IndexRules{}), message.View{}
	l.p, l.n = storage.Pending{}, n
	for i := range n {
		rec.QueueID = int32(i % queues)
		rec.Properties = message.AppendProperty(message.AppendProperty(nil, message.PropTags, "TagA"), message.PropUniqueKey, fmt.Sprintf("%032X", i))
		g := storage.Group{Off: int32(len(l.p.Buf)), Unit: int32(len(l.p.Units)), Key: int32(len(l.p.Keys))}
		off, size := len(l.p.Buf), rec.Size()
		l.p.Buf = slices.Grow(l.p.Buf, size)[:off+size]
		rec.Encode(l.p.Buf[off:], &view)
		view.Position = message.Position(off)
		l.p.Units, l.p.Keys = derive.Derive(&view, nil, l.p.Units, l.p.Keys)
		g.Len, g.Units, g.Keys = int32(size), int32(len(l.p.Units))-g.Unit, int32(len(l.p.Keys))-g.Key
		l.p.Groups = append(l.p.Groups, g)
	}
}

// RecordBytes is the encoded size of one of the records.
func (l *Load) RecordBytes() int { return len(l.p.Buf) / l.n }

func free(*storage.Batch) {}

// Append appends what Fill made, at new positions.
func (l *Load) Append(ctx context.Context) error {
	if err := l.seq.Assign(&l.p, 0); err != nil {
		return err
	}
	for i := range l.p.Batches {
		l.p.Batches[i].Free = free
		if err := l.store.Append(ctx, &l.p.Batches[i]); err != nil {
			return err
		}
	}
	Relative(&l.p) // the store publishes at once, and has freed the batches
	return nil
}

// Full tells that it is time for Empty, with the clock stopped.
func (l *Load) Full() bool { return l.raw != nil && l.seq.Tail() >= mostBytes }

// Empty makes the log empty where the store can, so that what was written does not
// go to the disk.
func (l *Load) Empty(ctx context.Context) error {
	if l.raw == nil {
		return nil
	}
	if err := l.raw.Reset(ctx, 0, nil); err != nil {
		return err
	}
	l.offset = 0
	return l.office(ctx)
}

// Records of one Read and one queue's worth of them after a Prepare.
const (
	perRead   = 32
	perQueue  = prepared * 1024 / queues
	prepared  = 16
	readQueue = 3
)

// PrepareReads appends what Reads read: records of size bytes each.
func (l *Load) PrepareReads(ctx context.Context, size int) error {
	l.Fill(1024, size)
	for range prepared {
		if err := l.Append(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Read reads the next 32 records of a queue, from the first again after the last,
// and returns how many there were.
func (l *Load) Read(ctx context.Context) (int, error) {
	l.chunk.Reset()
	lim := storage.Limit{Count: perRead, Bytes: 256 << 10}
	q := message.Queue{Topic: topic, ID: readQueue}
	if err := l.store.Read(ctx, storage.ReadRequest{Queue: q, Offset: l.offset, Hot: lim, Cold: lim}, &l.chunk); err != nil {
		return 0, err
	}
	if l.chunk.Status != storage.Found {
		return 0, fmt.Errorf("reading offset %d of %v: %v", l.offset, q, l.chunk.Status)
	}
	if l.offset += perRead; l.offset >= perQueue {
		l.offset = 0
	}
	return len(l.chunk.Units), nil
}

// Sync makes everything durable.
func (l *Load) Sync(ctx context.Context) error { return l.store.Sync(ctx, l.seq.Tail()) }

// Close empties the log and shuts the store down.
func (l *Load) Close(ctx context.Context) error {
	l.chunk.Release() // legal without a Read
	return errors.Join(l.Empty(ctx), l.store.Shutdown(ctx))
}

// Relative undoes what Assign did to the positions in p, so that its records can
// be placed and appended again. All its batches must be freed.
func Relative(p *storage.Pending) {
	u, k, off := 0, 0, 0
	for off < len(p.Buf) {
		at := p.Units[u].At
		for ; u < len(p.Units) && p.Units[u].At == at; u++ {
			p.Units[u].At = message.Position(off)
		}
		for ; k < len(p.Keys) && p.Keys[k].At == at; k++ {
			p.Keys[k].At = message.Position(off)
		}
		off += int(message.Size(p.Buf[off:]))
	}
}
