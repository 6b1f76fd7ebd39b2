package storagewire

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/internal/wiretest"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire/storagepb"
)

// frameOf reads the one frame in b.
func frameOf(t *testing.T, b []byte) (data.Head, []byte) {
	t.Helper()
	r := data.NewReader(bytes.NewReader(b), kindEvent)
	h, body, err := r.Next()
	require.NoError(t, err)
	require.Len(t, b, data.HeadSize+len(body))
	return h, body
}

// FuzzStream: whatever messages the other end of the stream sends, the translators
// refuse them or make frames of them; and what the decoders of frames take
// survives the way back and forth.
func FuzzStream(f *testing.F) {
	add := func(m proto.Message) {
		b, err := proto.Marshal(m)
		require.NoError(f, err)
		f.Add(b)
	}
	add(&storagepb.DataRequest{Id: 1, Call: &storagepb.DataRequest_Append{Append: toAppend(wiretest.Batch())}})
	add(&storagepb.DataRequest{Id: 2, Timeout: 3, Call: &storagepb.DataRequest_Read{Read: &storagepb.Read{Queue: &storagepb.Queue{Topic: "T"}, Tags: []int64{-1}}}})
	add(&storagepb.DataRequest{Id: 3, Call: &storagepb.DataRequest_Reset_{Reset_: &storagepb.Reset{First: 5, Ends: []*storagepb.QueueEnd{{Offset: 7}}}}})
	add(&storagepb.DataRequest{Id: 4, Call: &storagepb.DataRequest_Cancel{Cancel: &storagepb.Cancel{ChangesLog: true}}})
	add(&storagepb.DataResponse{Id: 1, Failure: wire.ToFailure(storage.ErrFull), Answer: &storagepb.DataResponse_Done{Done: &storagepb.Done{Marks: &storagepb.Marks{Version: 1}, Event: 2, Published: 3}}})
	add(&storagepb.DataResponse{Id: 1, Answer: &storagepb.DataResponse_Chunk{Chunk: &storagepb.Chunk{Units: toUnits([]message.Unit{wiretest.Unit("T", 1, 0)}), Records: []byte("x")}}})
	add(&storagepb.DataResponse{Id: 1, Answer: &storagepb.DataResponse_Ends{Ends: &storagepb.Ends{Answers: []*storagepb.QueueEnds{{Known: true, Max: 4}}}}})
	add(&storagepb.DataResponse{Answer: &storagepb.DataResponse_Event{Event: &storagepb.Event{Number: 1, What: &storagepb.Event_Truncated{Truncated: 9}}}})
	f.Fuzz(func(t *testing.T, in []byte) {
		var q storagepb.DataRequest
		if proto.Unmarshal(in, &q) == nil {
			requestThere(t, &q)
		}
		var r storagepb.DataResponse
		if proto.Unmarshal(in, &r) == nil {
			eventThere(t, &r)
			for k := kindAppend; k <= kindOffsets; k++ {
				answerThere(t, &r, &asked{kind: k, topic: "T"})
				answerThere(t, &r, &asked{kind: k, queries: make([]storage.OffsetQuery, 1)})
			}
		}
	})
}

func requestThere(t *testing.T, q *storagepb.DataRequest) {
	b, _, err := putRequest(nil, q, &data.TopicWriter{})
	if err != nil || q.GetTimeout() < 0 {
		return
	}
	h, body := frameOf(t, b)
	again, _, err := toRequest(&h, body, &data.TopicReader{})
	if err != nil {
		return
	}
	b, _, err = putRequest(nil, again, &data.TopicWriter{})
	require.NoError(t, err)
	h, body = frameOf(t, b)
	third, _, err := toRequest(&h, body, &data.TopicReader{})
	require.NoError(t, err)
	require.True(t, proto.Equal(again, third), "%v\n%v", again, third)
}

func answerThere(t *testing.T, r *storagepb.DataResponse, a *asked) {
	b, err := putAnswer(nil, r, a)
	if err != nil {
		return
	}
	h, body := frameOf(t, b)
	again, err := toAnswer(&h, body, a)
	if err != nil {
		return
	}
	b, err = putAnswer(nil, again, a)
	require.NoError(t, err)
	h, body = frameOf(t, b)
	third, err := toAnswer(&h, body, a)
	require.NoError(t, err)
	require.True(t, proto.Equal(again, third), "%v\n%v", again, third)
}

func eventThere(t *testing.T, r *storagepb.DataResponse) {
	b, err := putEventOf(nil, r.GetEvent())
	if err != nil {
		return
	}
	h, body := frameOf(t, b)
	again, err := toEvent(&h, body, r.GetId())
	if err != nil {
		return
	}
	b, err = putEventOf(nil, again.GetEvent())
	require.NoError(t, err)
	h, body = frameOf(t, b)
	third, err := toEvent(&h, body, r.GetId())
	require.NoError(t, err)
	require.True(t, proto.Equal(again, third), "%v\n%v", again, third)
}
