package storagewire

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/internal/wiretest"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
)

func TestAnswersCross(t *testing.T) {
	c := storage.Chunk{
		Status: storage.MessageWasRemoving, Next: -1, Min: 3, Max: math.MaxInt64, Cold: true, Skipped: 2,
		Units: []message.Unit{wiretest.Unit("T", 0, 5), wiretest.Unit("U", 1, 6), wiretest.Unit("U", 2, 7)},
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
	for _, rr := range []storage.ReadRequest{{}, {Queue: message.Queue{Topic: "U"}, Tags: []int64{7}}, r} {
		require.NoError(t, readReadRequest(putReadRequest(nil, &r), &rr))
		require.Equal(t, r, rr)
	}

	at := []message.Position{-1, 0, math.MaxInt64}
	gotAt, err := readPositions(putPositions(nil, at), nil)
	require.NoError(t, err)
	require.Equal(t, at, gotAt)

	q := []storage.OffsetQuery{{Queue: message.Queue{Topic: "T"}, Kind: storage.LastAt, Time: -5}, {Queue: message.Queue{Topic: "U", ID: 2}}}
	for _, before := range [][]storage.OffsetQuery{nil, {{Queue: message.Queue{Topic: "U"}}}, slices.Clone(q)} {
		gotQ, err := readQueries(putQueries(nil, q), before[:0])
		require.NoError(t, err)
		require.Equal(t, q, gotQ)
	}

	a := storage.OffsetAnswers{Published: 9, Answers: []storage.OffsetAnswer{{Queue: q[0].Queue, Known: true, Min: 1, Max: 2, Offset: 2}, {Queue: q[1].Queue}}}
	for _, named := range []bool{true, false} {
		var gotA storage.OffsetAnswers
		require.NoError(t, readAnswers(putAnswers(nil, named, &a), q, &gotA))
		require.Equal(t, a, gotA)
	}
	require.ErrorIs(t, readAnswers(putAnswers(nil, false, &a), q[:1], &storage.OffsetAnswers{}), data.ErrFrame)
}

// FuzzFrame feeds arbitrary bytes to the reader of frames and to all decoders:
// they refuse or understand, and what they understand survives encoding.
func FuzzFrame(f *testing.F) {
	add := func(k data.Kind, body []byte) {
		b := append(data.Begin(nil), body...)
		data.Finish(b, 0, k, 1, 0, 0)
		f.Add(b)
	}
	var w data.TopicWriter
	add(kindAppend, append(data.PutBatch(nil, &w, wiretest.Batch()), wiretest.Batch().Buf...))
	add(kindRead, putReadRequest(nil, &storage.ReadRequest{Queue: message.Queue{Topic: "T"}, Tags: []int64{1}}))
	add(kindGet, putPositions(nil, []message.Position{1, 2}))
	add(kindOffsets, putQueries(nil, []storage.OffsetQuery{{Queue: message.Queue{Topic: "T"}}}))
	add(kindReset, data.PutEnds(data.PutInt(nil, message.Position(5)), []message.Unit{wiretest.Unit("T", 1, 0)}))
	add(kindDone, putChunk(nil, "", &storage.Chunk{Units: []message.Unit{wiretest.Unit("T", 1, 0)}}))
	add(kindDone, putOutcome(nil, &outcome{own: 1, err: storage.ErrFull}))
	add(kindEvent, putEvent(nil, &event{kind: eventPublished, at: 5, units: []message.Unit{wiretest.Unit("T", 1, 0)}}))
	add(kindEvent, putEvent(nil, &event{kind: eventFailed, err: errors.New("x")}))
	f.Fuzz(func(t *testing.T, in []byte) {
		r := data.NewReader(bytes.NewReader(in), kindEvent)
		for {
			h, body, err := r.Next()
			if err != nil {
				return
			}
			decodeAll(t, h.Kind, body)
		}
	})
}

func decodeAll(t *testing.T, k data.Kind, body []byte) {
	switch k {
	case kindAppend:
		var b, again storage.Batch
		if data.ReadBatch(body, &data.TopicReader{}, &b) == nil {
			var w data.TopicWriter
			require.NoError(t, data.ReadBatch(append(data.PutBatch(nil, &w, &b), b.Buf...), &data.TopicReader{}, &again))
			require.Equal(t, b, again)
		}
	case kindRead:
		var r, again storage.ReadRequest
		if readReadRequest(body, &r) == nil {
			require.NoError(t, readReadRequest(putReadRequest(nil, &r), &again))
			require.Equal(t, r, again)
		}
	case kindGet:
		_, _ = readPositions(body, nil)
	case kindOffsets:
		_, _ = readQueries(body, nil)
		_ = readAnswers(body, nil, &storage.OffsetAnswers{})
	case kindReset:
		d := data.Decoder{B: body}
		_ = d.Int()
		_ = data.ReadEnds(&d)
		_ = d.Done("Reset")
	case kindEvent:
		_, _ = readEvent(body)
	default:
		_ = readChunk(body, "T", &storage.Chunk{})
		_, _ = readOutcome(body)
		_, _ = data.ReadFailure(body)
	}
}
