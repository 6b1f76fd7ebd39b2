package storagewire_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
	"github.com/hardpointmq/hardpoint/internal/wiretest"
	"github.com/hardpointmq/hardpoint/plugins/storage/memory"
	"github.com/hardpointmq/hardpoint/sdk/wire/pluginpb"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire/storagepb"
)

// TestLargeBatches: the limits of gRPC apply to records in neither direction.
func TestLargeBatches(t *testing.T) { everyWay(t, largeBatches) }

func largeBatches(t *testing.T, newPair maker) {
	s, err := storagewire.NewFactory(memory.Name, newPair(t, memory.NewFactory())).Build(t.Context(), storage.Params{
		Settings: plugin.Settings{Name: "s"}.WithDefaults(), Segment: 64 << 20,
	}, nil)
	require.NoError(t, err)
	require.NoError(t, s.Start(t.Context()))
	defer func() { require.NoError(t, s.Shutdown(context.WithoutCancel(t.Context()))) }()
	w, seq, q := storagetest.NewWriter(message.IndexRules{}), storagetest.OpenSequencer(t, s, plugin.SystemClock{}, 1), message.Queue{Topic: "T", ID: 1}
	add := func(bodies ...[]byte) {
		var all []storagetest.Message
		for _, b := range bodies {
			all = append(all, storagetest.Message{Queue: q, Body: b})
		}
		p := w.Pending(all)
		require.NoError(t, seq.Assign(p, 0))
		for i := range p.Batches {
			require.NoError(t, s.Append(t.Context(), &p.Batches[i]))
		}
	}
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // 16 MiB
	add(big)
	small := make([][]byte, 32)
	for i := range small {
		small[i] = bytes.Repeat([]byte{byte(i)}, 1<<20)
	}
	add(small...)
	var c storage.Chunk
	defer c.Release()
	require.NoError(t, s.Read(t.Context(), storage.ReadRequest{Queue: q}, &c))
	require.Len(t, c.Units, 33)
	for i, rec := range c.Records {
		var v message.View
		require.NoError(t, message.Parse(rec, &v))
		require.NoError(t, v.CheckBody())
		if i == 0 {
			require.True(t, bytes.Equal(big, v.Body))
		} else {
			require.True(t, bytes.Equal(small[i-1], v.Body))
		}
	}
}

// rude is a plugin whose stream a test writes.
type rude struct {
	*storagewire.Server

	most   int64
	answer func(*storagepb.DataRequest) *storagepb.DataResponse // nil ends the stream
}

func (r *rude) Register(reg grpc.ServiceRegistrar) { storagepb.RegisterStorageServer(reg, r) }

func (r *rude) Open(context.Context, *storagepb.OpenRequest) (*storagepb.OpenResponse, error) {
	return &storagepb.OpenResponse{Instance: 1, Capabilities: &storagepb.Capabilities{Facets: []string{
		storage.FacetKeyIndex, storage.FacetRawLog, storage.FacetRetention,
	}}, MaxMessage: r.most}, nil
}

func (r *rude) Start(context.Context, *storagepb.StartRequest) (*storagepb.StartResponse, error) {
	return &storagepb.StartResponse{State: &storagepb.LogState{Version: 1, LogId: "l", Segment: 1 << 20}}, nil
}

func (r *rude) Data(s grpc.BidiStreamingServer[storagepb.DataRequest, storagepb.DataResponse]) error {
	for {
		q, err := s.Recv()
		if err != nil {
			return err
		}
		if q.GetAttach() != nil {
			continue
		}
		a := r.answer(q)
		if a == nil {
			return nil
		}
		if err := s.Send(a); err != nil {
			return err
		}
	}
}

func (r *rude) store(t *testing.T) storage.Store {
	t.Helper()
	r.Server = storagewire.NewServer(nil, memory.NewFactory())
	s, err := storagewire.NewFactory(memory.Name, wiretest.New(t, r)).Build(t.Context(), storage.Params{
		Settings: plugin.Settings{Name: "s"}.WithDefaults(), Segment: 1 << 20,
	}, nil)
	require.NoError(t, err)
	require.NoError(t, s.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, s.Shutdown(context.WithoutCancel(t.Context()))) })
	return s
}

// TestBadAnswers: what no plugin of this contract says ends the use of it.
func TestBadAnswers(t *testing.T) {
	event := func(id uint64, e *storagepb.Event) *storagepb.DataResponse {
		return &storagepb.DataResponse{Id: id, Answer: &storagepb.DataResponse_Event{Event: e}}
	}
	for name, answer := range map[string]func(*storagepb.DataRequest) *storagepb.DataResponse{
		"the stream ends": func(*storagepb.DataRequest) *storagepb.DataResponse { return nil },
		"nothing":         func(q *storagepb.DataRequest) *storagepb.DataResponse { return &storagepb.DataResponse{Id: q.GetId()} },
		"to another call": func(q *storagepb.DataRequest) *storagepb.DataResponse {
			return &storagepb.DataResponse{Id: q.GetId() + 7}
		},
		"an event of no kind": func(q *storagepb.DataRequest) *storagepb.DataResponse {
			return event(q.GetId(), &storagepb.Event{Number: 1})
		},
		"another call's": func(q *storagepb.DataRequest) *storagepb.DataResponse {
			return &storagepb.DataResponse{Id: q.GetId(), Answer: &storagepb.DataResponse_Ends{Ends: &storagepb.Ends{Answers: []*storagepb.QueueEnds{{}, {}}}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := (&rude{answer: answer}).store(t)
			require.ErrorIs(t, s.Read(t.Context(), storage.ReadRequest{}, &storage.Chunk{}), plugin.ErrUnavailable)
			require.ErrorIs(t, s.Capabilities().Reopener.Gone(t.Context()), plugin.ErrUnavailable)
			freed := 0
			require.ErrorIs(t, s.Append(t.Context(), oneBatch(0, func(*storage.Batch) { freed++ })), plugin.ErrUnavailable)
			require.Equal(t, 1, freed)
		})
	}
}

// TestFailureWithoutText: it is an error all the same.
func TestFailureWithoutText(t *testing.T) {
	s := (&rude{answer: func(q *storagepb.DataRequest) *storagepb.DataResponse {
		return &storagepb.DataResponse{Id: q.GetId(), Failure: &pluginpb.Failure{}}
	}}).store(t)
	require.ErrorContains(t, s.Read(t.Context(), storage.ReadRequest{}, &storage.Chunk{}), "without a text")
	require.ErrorContains(t, s.Append(t.Context(), oneBatch(0, nil)), "without a text")
}

// TestPluginsMessageLimit: a batch that the plugin's gRPC would refuse is refused by
// name, with both limits, and the store goes on.
func TestPluginsMessageLimit(t *testing.T) {
	s := (&rude{most: 1000, answer: func(q *storagepb.DataRequest) *storagepb.DataResponse {
		return &storagepb.DataResponse{Id: q.GetId(), Answer: &storagepb.DataResponse_Done{Done: &storagepb.Done{
			Marks: &storagepb.Marks{Version: 2, Tail: 100, Published: 100}, Event: 1, Published: 100,
		}}}
	}}).store(t)
	large := oneBatch(0, nil)
	large.Buf = make([]byte, 2000)
	large.Units[0].Size, large.Groups[0].Len = 2000, 2000
	err := s.Append(t.Context(), large)
	require.ErrorIs(t, err, storage.ErrTooLarge)
	require.ErrorContains(t, err, "takes 1000")
	require.ErrorContains(t, err, "it takes 2025")
	require.NoError(t, s.Append(t.Context(), oneBatch(0, nil)))
	require.Equal(t, message.Position(100), s.State().Tail)
}
