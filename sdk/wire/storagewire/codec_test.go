package storagewire

import (
	"bytes"
	"errors"
	"io"
	"math"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

func unit(topic string, id int32, at message.Position) message.Unit {
	return message.Unit{
		Queue: message.Queue{Topic: topic, ID: id}, At: at, Size: 100, Offset: math.MaxInt64,
		TagsCode: math.MinInt64, StoreTime: 1_700_000_000_000 + int64(at),
	}
}

func batch() *storage.Batch {
	return &storage.Batch{
		Term: math.MaxUint64, At: 1 << 40, Buf: []byte("0123456789"),
		Units: []message.Unit{unit("T", 0, 1<<40), unit("T", -1, 1<<40), unit("%RETRY%g", 3, 1<<40+5)},
		Keys:  []message.Key{{Hash: math.MaxInt32, At: 1 << 40, StoreTime: 5}, {Hash: 0, At: 1<<40 + 5, StoreTime: 4}},
		Groups: []storage.Group{
			{Off: 20, Len: 5, Unit: 7, Units: 2, Key: 3, Keys: 1, NoWait: true},
			{Off: 25, Len: 5, Unit: 9, Units: 1, Key: 4, Keys: 1, Edge: true},
		},
	}
}

func TestBatchCrosses(t *testing.T) {
	var w topicWriter
	var r topicReader
	for range 3 {
		b := batch()
		var got storage.Batch
		require.NoError(t, readBatch(append(putBatch(nil, &w, b), b.Buf...), &r, &got))
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
	var w topicWriter
	var r topicReader
	for i := range maxTopics + 3000 {
		b := storage.Batch{Units: []message.Unit{unit(string(rune(i%5000+200))+string(rune(i/5000+200)), 0, 0)}}
		var got storage.Batch
		require.NoError(t, readBatch(putBatch(nil, &w, &b), &r, &got))
		require.Equal(t, b.Units, got.Units)
		require.Len(t, r.names, len(w.ids))
		require.LessOrEqual(t, len(r.names), maxTopics+1)
	}
}

func TestBatchRefused(t *testing.T) {
	for name, change := range map[string]func(*storage.Batch){
		"group too long":  func(b *storage.Batch) { b.Groups[1].Len++ },
		"group too short": func(b *storage.Batch) { b.Groups[1].Len-- },
		"negative group":  func(b *storage.Batch) { b.Groups[0].Len, b.Groups[1].Len = -5, 15 },
		"units missing":   func(b *storage.Batch) { b.Groups[0].Units = 1 },
		"keys missing":    func(b *storage.Batch) { b.Groups[0].Keys = 0 },
	} {
		b := batch()
		change(b)
		var w topicWriter
		require.ErrorIs(t, readBatch(append(putBatch(nil, &w, b), b.Buf...), &topicReader{}, &storage.Batch{}), errFrame, name)
	}
	b := batch()
	var w topicWriter
	body := append(putBatch(nil, &w, b), b.Buf...)
	require.ErrorIs(t, readBatch(append(body, 0), &topicReader{}, &storage.Batch{}), errFrame)
	for n := range body {
		require.ErrorIs(t, readBatch(body[:n], &topicReader{}, &storage.Batch{}), errFrame, "cut at %d", n)
	}
	require.ErrorIs(t, readBatch(append(putBatch(nil, &w, b), b.Buf...), &topicReader{}, &storage.Batch{}), errFrame, "a topic never announced")
}

func TestAnswersCross(t *testing.T) {
	c := storage.Chunk{
		Status: storage.MessageWasRemoving, Next: -1, Min: 3, Max: math.MaxInt64, Cold: true, Skipped: 2,
		Units: []message.Unit{unit("T", 0, 5), unit("U", 1, 6), unit("U", 2, 7)},
		Frags: [][]byte{[]byte("abc"), []byte("def")},
	}
	body := append(append(putChunk(nil, "T", &c), "abc"...), "def"...)
	var got storage.Chunk
	require.NoError(t, readChunk(body, "T", &got))
	c.Frags = [][]byte{[]byte("abcdef")}
	require.Equal(t, c, got)

	r := storage.ReadRequest{
		Queue: message.Queue{Topic: "T", ID: 4}, Offset: 7, Hot: storage.Limit{Count: 1, Bytes: 2}, Cold: storage.Limit{Count: 3, Bytes: 4},
		Scan: 5, Tags: []int64{-1, 0, math.MaxInt64},
	}
	rr, err := readReadRequest(putReadRequest(nil, &r))
	require.NoError(t, err)
	require.Equal(t, r, rr)

	at := []message.Position{-1, 0, math.MaxInt64}
	gotAt, err := readPositions(putPositions(nil, at))
	require.NoError(t, err)
	require.Equal(t, at, gotAt)

	q := []storage.OffsetQuery{{Queue: message.Queue{Topic: "T"}, Kind: storage.LastAt, Time: -5}, {Queue: message.Queue{Topic: "U", ID: 2}}}
	gotQ, err := readQueries(putQueries(nil, q))
	require.NoError(t, err)
	require.Equal(t, q, gotQ)

	a := storage.OffsetAnswers{Published: 9, Answers: []storage.OffsetAnswer{{Queue: q[0].Queue, Known: true, Min: 1, Max: 2, Offset: 2}, {Queue: q[1].Queue}}}
	for _, named := range []bool{true, false} {
		var gotA storage.OffsetAnswers
		require.NoError(t, readAnswers(putAnswers(nil, named, &a), q, &gotA))
		require.Equal(t, a, gotA)
	}
	require.ErrorIs(t, readAnswers(putAnswers(nil, false, &a), q[:1], &storage.OffsetAnswers{}), errFrame)
}

func TestFrameReader(t *testing.T) {
	var all []byte
	bodies := [][]byte{nil, []byte("x"), bytes.Repeat([]byte("y"), readerSize), bytes.Repeat([]byte("z"), 3*keepSize), []byte("end")}
	for i, b := range bodies {
		start := len(all)
		all = append(begin(all), b...)
		finish(all, start, kindRead, uint64(i), int64(i), 0)
	}
	for name, in := range map[string]io.Reader{
		"whole": bytes.NewReader(all), "halves": iotest.HalfReader(bytes.NewReader(all)), "data with EOF": iotest.DataErrReader(bytes.NewReader(all)),
	} {
		f := newFrameReader(in)
		for i, b := range bodies {
			h, body, err := f.next()
			require.NoError(t, err, name)
			require.Equal(t, head{uint32(len(b)), kindRead, uint64(i), int64(i)}, h)
			require.True(t, bytes.Equal(b, body))
		}
		_, _, err := f.next()
		require.ErrorIs(t, err, io.EOF, name)
		require.LessOrEqual(t, len(f.buf), keepSize, "a large frame keeps no memory")
	}
	_, _, err := newFrameReader(bytes.NewReader(all[:headSize+5])).next()
	require.NoError(t, err)
	for _, n := range []int{1, headSize - 1, 2*headSize + 1 + headSize + 7} {
		f := newFrameReader(bytes.NewReader(all[:n]))
		for err = error(nil); err == nil; {
			_, _, err = f.next()
		}
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "cut at %d", n)
	}
	long := begin(nil)
	head{size: maxFrame, kind: kindRead}.place(long)
	f := newFrameReader(bytes.NewReader(append(long, 1, 2, 3)))
	_, _, err = f.next()
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.LessOrEqual(t, len(f.buf), 2*readerSize, "a length alone reserves no memory")
	head{size: maxFrame + 1, kind: kindRead}.place(long)
	_, _, err = newFrameReader(bytes.NewReader(long)).next()
	require.ErrorIs(t, err, errFrame)
}

func (h head) place(b []byte) { h.put(b) }

// FuzzFrame feeds arbitrary bytes to the reader of frames and to all decoders:
// they refuse or understand, and what they understand survives encoding.
func FuzzFrame(f *testing.F) {
	add := func(k kind, body []byte) {
		b := append(begin(nil), body...)
		finish(b, 0, k, 1, 0, 0)
		f.Add(b)
	}
	var w topicWriter
	add(kindAppend, append(putBatch(nil, &w, batch()), batch().Buf...))
	add(kindRead, putReadRequest(nil, &storage.ReadRequest{Queue: message.Queue{Topic: "T"}, Tags: []int64{1}}))
	add(kindGet, putPositions(nil, []message.Position{1, 2}))
	add(kindOffsets, putQueries(nil, []storage.OffsetQuery{{Queue: message.Queue{Topic: "T"}}}))
	add(kindReset, putEnds(putInt(nil, message.Position(5)), []message.Unit{unit("T", 1, 0)}))
	add(kindDone, putChunk(nil, "", &storage.Chunk{Units: []message.Unit{unit("T", 1, 0)}}))
	add(kindDone, putOutcome(nil, &outcome{own: 1, err: storage.ErrFull}))
	add(kindEvent, putEvent(nil, &event{kind: eventPublished, at: 5, units: []message.Unit{unit("T", 1, 0)}}))
	add(kindEvent, putEvent(nil, &event{kind: eventFailed, err: errors.New("x")}))
	f.Fuzz(func(t *testing.T, in []byte) {
		r := newFrameReader(bytes.NewReader(in))
		for {
			h, body, err := r.next()
			if err != nil {
				return
			}
			decodeAll(t, h.kind, body)
		}
	})
}

func decodeAll(t *testing.T, k kind, body []byte) {
	switch k {
	case kindAppend:
		var b, again storage.Batch
		if readBatch(body, &topicReader{}, &b) == nil {
			var w topicWriter
			require.NoError(t, readBatch(append(putBatch(nil, &w, &b), b.Buf...), &topicReader{}, &again))
			require.Equal(t, b, again)
		}
	case kindRead:
		if r, err := readReadRequest(body); err == nil {
			again, err := readReadRequest(putReadRequest(nil, &r))
			require.NoError(t, err)
			require.Equal(t, r, again)
		}
	case kindGet:
		_, _ = readPositions(body)
	case kindOffsets:
		_, _ = readQueries(body)
		_ = readAnswers(body, nil, &storage.OffsetAnswers{})
	case kindReset:
		d := decoder{b: body}
		_ = d.int()
		_ = readEnds(&d)
		_ = d.done("Reset")
	case kindEvent:
		_, _ = readEvent(body)
	default:
		_ = readChunk(body, "T", &storage.Chunk{})
		_, _ = readOutcome(body)
		_, _ = readFailure(body)
	}
}
