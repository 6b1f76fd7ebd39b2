package storekit_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"io"
	"testing"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
	"github.com/hardpointmq/hardpoint/core/storage/storekit"
)

// bytesLog is a Log in memory.
type bytesLog struct{ b []byte }

func (l *bytesLog) Open(context.Context) (int64, error) { return int64(len(l.b)), nil }
func (l *bytesLog) Append(p []byte) error               { l.b = append(l.b, p...); return nil }
func (l *bytesLog) Truncate(size int64) error           { l.b = l.b[:size]; return nil }
func (l *bytesLog) Sync() error                         { return nil }
func (l *bytesLog) Close() error                        { return nil }
func (l *bytesLog) ReadAt(p []byte, off int64) (int, error) {
	return bytes.NewReader(l.b).ReadAt(p, off)
}

var _ io.ReaderAt = (*bytesLog)(nil)

// written is the log of a store that holds a few records.
func written(tb testing.TB) []byte {
	l := &bytesLog{}
	s := openBytes(l)
	if err := s.Start(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	w, seq := storagetest.NewWriter(message.IndexRules{}), storagetest.OpenSequencer(tb, s, plugin.SystemClock{}, 1)
	for i := range int32(3) {
		p := w.Pending([]storagetest.Message{{Queue: message.Queue{Topic: "T", ID: i}, Keys: "k", UniqueKey: "u", Body: []byte("body")}})
		if err := seq.Assign(p, 0); err != nil {
			tb.Fatal(err)
		}
		if err := s.Append(tb.Context(), &p.Batches[0]); err != nil {
			tb.Fatal(err)
		}
	}
	if err := s.Shutdown(context.WithoutCancel(tb.Context())); err != nil {
		tb.Fatal(err)
	}
	return l.b
}

func openBytes(l *bytesLog) *storekit.Store {
	return storekit.FromLog(storage.Params{Segment: 4096, LogID: "log"}, l, storekit.Options{})
}

// frame gives a body the head that the log expects of it.
func frame(body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
	return append(b, body...)
}

// put is one change of a frame's body: a value for a key.
func put(key, value string) []byte {
	b := append(binary.AppendUvarint([]byte{0}, uint64(len(key))), key...)
	return append(binary.AppendUvarint(b, uint64(len(value))), value...)
}

// FuzzLog opens a store over a log in which bytes are changed, or behind which a
// whole frame of any content stands: it refuses or serves, and never panics.
func FuzzLog(f *testing.F) {
	log := written(f)
	f.Add(uint16(0), []byte{0xFF}, false)
	f.Add(uint16(70), bytes.Repeat([]byte{0}, 40), false)
	f.Add(uint16(len(log)-5), []byte{1, 2, 3}, false)
	for _, kv := range [][2]string{{"u", ""}, {"u\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", "short"}, {"r", "x"}, {"r\x00\x00\x00\x00\x00\x00\x00\x00", "short"}, {"q", ""}, {"qT\x00\x00\x00\x00\x00", "short"}, {"s", "x"}, {"i", ""}, {"k", ""}} {
		f.Add(uint16(0), put(kv[0], kv[1]), true)
	}
	f.Fuzz(func(t *testing.T, at uint16, change []byte, whole bool) {
		l := &bytesLog{b: bytes.Clone(log)}
		if whole {
			l.b = append(l.b, frame(change)...)
		} else if int(at) < len(l.b) {
			copy(l.b[at:], change)
		}
		s := openBytes(l)
		ctx := t.Context()
		if err := s.Start(ctx); err != nil {
			return
		}
		var a storage.OffsetAnswers
		_ = s.Offsets(ctx, nil, &a)
		var c storage.Chunk
		for _, x := range a.Answers {
			lim := storage.Limit{Count: 10, Bytes: 4096}
			_ = s.Read(ctx, storage.ReadRequest{Queue: x.Queue, Offset: x.Min, Hot: lim, Cold: lim}, &c)
			_ = s.Offsets(ctx, []storage.OffsetQuery{{Queue: x.Queue, Kind: storage.LastAt, Time: 1 << 50}}, &a)
		}
		st := s.State()
		_ = s.ReadLog(ctx, st.First, 4096, &c)
		_, _ = s.Find(ctx, storage.KeyQuery{Topic: "T", Key: "k", To: 1 << 60, Max: 10}, nil)
		_ = s.Truncate(ctx, st.First)
		c.Reset()
		_ = s.Shutdown(context.WithoutCancel(ctx))
	})
}
