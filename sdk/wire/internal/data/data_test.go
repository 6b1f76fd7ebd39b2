package data

import (
	"bytes"
	"io"
	"math"
	"os"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/internal/wiretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	some Kind = 3
	last Kind = 9
)

func TestBatchCrosses(t *testing.T) {
	var w TopicWriter
	var r TopicReader
	for range 3 {
		b := wiretest.Batch()
		var got storage.Batch
		require.NoError(t, ReadBatch(append(PutBatch(nil, &w, b), b.Buf...), &r, &got))
		for i := range b.Groups { // indexes are relative to the first group
			b.Groups[i].Off -= 20
			b.Groups[i].Unit -= 7
			b.Groups[i].Key -= 3
		}
		require.Equal(t, *b, got)
	}
	require.Equal(t, []string{"T", "%RETRY%g"}, r.names)
}

// TestDictionaryBeginsAnew: names do not pile up for ever.
func TestDictionaryBeginsAnew(t *testing.T) {
	var w TopicWriter
	var r TopicReader
	for i := range maxTopics + 3000 {
		b := storage.Batch{Buf: make([]byte, 5), Units: []message.Unit{wiretest.Unit(string(rune(i%5000+200))+string(rune(i/5000+200)), 0, 0)}}
		var got storage.Batch
		require.NoError(t, ReadBatch(append(PutBatch(nil, &w, &b), b.Buf...), &r, &got))
		require.Equal(t, b.Units, got.Units)
		require.Len(t, r.names, len(w.ids))
		require.LessOrEqual(t, len(r.names), maxTopics+1)
	}
}

func TestBatchRefused(t *testing.T) {
	for name, change := range map[string]func(*storage.Batch){
		"unit before it":      func(b *storage.Batch) { b.Units[0].At = b.At - 1 },
		"unit behind it":      func(b *storage.Batch) { b.Units[2].At++ },
		"unit too long":       func(b *storage.Batch) { b.Units[2].Size = math.MaxInt32 },
		"unit of no size":     func(b *storage.Batch) { b.Units[0].Size = -1 },
		"negative offset":     func(b *storage.Batch) { b.Units[1].Offset = -1 },
		"offset without next": func(b *storage.Batch) { b.Units[1].Offset = math.MaxInt64 },
		"key before it":       func(b *storage.Batch) { b.Keys[0].At = b.At - 1 },
		"key behind it":       func(b *storage.Batch) { b.Keys[1].At = b.End() },
		"group too long":      func(b *storage.Batch) { b.Groups[1].Len++ },
		"group too short":     func(b *storage.Batch) { b.Groups[1].Len-- },
		"negative group":      func(b *storage.Batch) { b.Groups[0].Len, b.Groups[1].Len = -5, 15 },
		"units missing":       func(b *storage.Batch) { b.Groups[0].Units = 1 },
		"keys missing":        func(b *storage.Batch) { b.Groups[0].Keys = 0 },
	} {
		b := wiretest.Batch()
		change(b)
		var w TopicWriter
		require.ErrorIs(t, ReadBatch(append(PutBatch(nil, &w, b), b.Buf...), &TopicReader{}, &storage.Batch{}), ErrFrame, name)
	}
	b := wiretest.Batch()
	var w TopicWriter
	body := append(PutBatch(nil, &w, b), b.Buf...)
	require.ErrorIs(t, ReadBatch(append(body, 0), &TopicReader{}, &storage.Batch{}), ErrFrame)
	for n := range body {
		require.ErrorIs(t, ReadBatch(body[:n], &TopicReader{}, &storage.Batch{}), ErrFrame, "cut at %d", n)
	}
	require.ErrorIs(t, ReadBatch(append(PutBatch(nil, &w, b), b.Buf...), &TopicReader{}, &storage.Batch{}), ErrFrame, "a topic never announced")
}

func TestFrameReader(t *testing.T) {
	var all []byte
	bodies := [][]byte{nil, []byte("x"), bytes.Repeat([]byte("y"), readerSize), bytes.Repeat([]byte("z"), 3*KeepSize), []byte("end")}
	for i, b := range bodies {
		start := len(all)
		all = append(Begin(all), b...)
		Finish(all, start, some, uint64(i), int64(i), 0)
	}
	for name, in := range map[string]io.Reader{
		"whole": bytes.NewReader(all), "halves": iotest.HalfReader(bytes.NewReader(all)), "data with EOF": iotest.DataErrReader(bytes.NewReader(all)),
	} {
		f := NewReader(in, last)
		for i, b := range bodies {
			h, body, err := f.Next()
			require.NoError(t, err, name)
			require.Equal(t, Head{uint32(len(b)), some, uint64(i), int64(i)}, h)
			require.True(t, bytes.Equal(b, body))
		}
		_, _, err := f.Next()
		require.ErrorIs(t, err, io.EOF, name)
		require.LessOrEqual(t, len(f.buf), KeepSize, "a large frame keeps no memory")
	}
	_, _, err := NewReader(bytes.NewReader(all[:HeadSize+5]), last).Next()
	require.NoError(t, err)
	for _, n := range []int{1, HeadSize - 1, 2*HeadSize + 1 + HeadSize + 7} {
		f := NewReader(bytes.NewReader(all[:n]), last)
		for err = error(nil); err == nil; {
			_, _, err = f.Next()
		}
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "cut at %d", n)
	}
	long := Begin(nil)
	(&Head{Size: MaxFrame, Kind: some}).Put(long)
	f := NewReader(bytes.NewReader(append(long, 1, 2, 3)), last)
	_, _, err = f.Next()
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.LessOrEqual(t, len(f.buf), 2*readerSize, "a length alone reserves no memory")
	(&Head{Size: MaxFrame + 1, Kind: some}).Put(long)
	_, _, err = NewReader(bytes.NewReader(long), last).Next()
	require.ErrorIs(t, err, ErrFrame)
}

// TestReadAlone: a frame is read whole however it comes, a read that was broken off
// goes on, and what follows a frame is refused.
func TestReadAlone(t *testing.T) {
	body := bytes.Repeat([]byte("hardpoint"), 300_000)
	f := append(Begin(nil), body...)
	Finish(f, 0, 3, 7, 0, 0)
	small := Begin(nil)
	Finish(small, 0, 3, 8, 0, 0)
	var b []byte
	for name, r := range map[string]io.Reader{
		"at once": bytes.NewReader(f), "in halves": iotest.HalfReader(bytes.NewReader(f)), "with the end": iotest.DataErrReader(bytes.NewReader(f)),
	} {
		h, got, err := ReadAlone(r, b[:0], 3)
		require.NoError(t, err, name)
		require.Equal(t, Head{Size: uint32(len(body)), Kind: 3, ID: 7}, h)
		require.Equal(t, f, got)
		b = got
		h, _, err = ReadAlone(bytes.NewReader(small), b[:0], 3)
		require.NoError(t, err)
		require.Equal(t, Head{Kind: 3, ID: 8}, h)
	}

	for _, at := range []int{0, 1, HeadSize, len(f) - 1} {
		_, got, err := ReadAlone(io.MultiReader(bytes.NewReader(f[:at]), iotest.ErrReader(os.ErrDeadlineExceeded)), nil, 3)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, f[:at], append([]byte{}, got...))
		_, got, err = ReadAlone(bytes.NewReader(f[at:]), got, 3)
		require.NoError(t, err)
		require.Equal(t, f, got)
		_, _, err = ReadAlone(bytes.NewReader(f[:at]), nil, 3)
		if want := io.ErrUnexpectedEOF; at > 0 {
			require.ErrorIs(t, err, want)
		} else {
			require.Equal(t, io.EOF, err)
		}
	}
	_, _, err := ReadAlone(bytes.NewReader(append(small, 0)), nil, 3)
	require.ErrorIs(t, err, ErrFrame)
	_, _, err = ReadAlone(bytes.NewReader(small), nil, 2)
	require.ErrorIs(t, err, ErrFrame)
	short := Begin(nil)
	Finish(short, 0, 3, 1, 0, MaxFrame)
	_, got, err := ReadAlone(bytes.NewReader(short), nil, 3)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Less(t, cap(got), 4<<20, "a length alone reserves little")
}
