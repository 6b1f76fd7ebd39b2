package storagewire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
	"github.com/hardpointmq/hardpoint/internal/wiretest"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire/storagepb"
)

// said is a connection whose other end has said all that it is going to say.
type said struct{ *bytes.Reader }

func (said) Write(b []byte) (int, error)     { return len(b), nil }
func (said) Close() error                    { return nil }
func (said) SetReadDeadline(time.Time) error { return nil }

// deaf has all facets and does nothing.
type deaf struct{ storagetest.Nop }

func (d deaf) Capabilities() storage.Capabilities {
	return storage.Capabilities{RawLog: d, Retention: d}
}
func (deaf) ReadLog(context.Context, message.Position, int, *storage.Chunk) error { return nil }
func (deaf) Publish(context.Context, message.Position) error                      { return nil }
func (deaf) Truncate(context.Context, message.Position) error                     { return nil }
func (deaf) Reset(context.Context, message.Position, []message.Unit) error        { return nil }
func (deaf) Segments(context.Context) ([]storage.Segment, error)                  { return nil, nil }
func (deaf) Expire(context.Context, message.Position) error                       { return nil }
func (deaf) Drop(context.Context, []message.Queue) error                          { return nil }

// mute is a process whose control connection does not answer.
type mute struct{ wire.Process }

func (m mute) Conn() grpc.ClientConnInterface { return m }
func (mute) Gone() <-chan struct{}            { return nil }
func (mute) CallTimeout() time.Duration       { return 0 }
func (mute) Stopping() <-chan struct{}        { return nil }
func (mute) StopTimeout() time.Duration       { return 0 }
func (mute) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	return plugin.ErrUnavailable
}

func (mute) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, plugin.ErrUnavailable
}

// frame is one with a head.
func frame(k data.Kind, id uint64, body []byte) []byte {
	b := append(data.Begin(nil), body...)
	data.Finish(b, 0, k, id, 0, 0)
	return b
}

// FuzzPluginSide lets a plugin serve whatever comes over its connections: it
// ends each with an error or the end, and never in another way.
func FuzzPluginSide(f *testing.F) {
	var w data.TopicWriter
	f.Add(frame(kindAppend, 1, append(data.PutBatch(nil, &w, wiretest.Batch()), wiretest.Batch().Buf...)))
	f.Add(frame(kindReset, 2, data.PutEnds(data.PutInt(nil, message.Position(5)), []message.Unit{wiretest.Unit("T", 1, 0)})))
	f.Add(append(frame(kindPublish, 1, data.PutInt(nil, message.Position(5))), frame(kindDrop, 2, data.PutEnds(nil, nil))...))
	f.Add(append(frame(kindRead, 1, putReadRequest(nil, &storage.ReadRequest{Queue: message.Queue{Topic: "T"}})), frame(kindCancel, 1, nil)...))
	f.Add(append(frame(kindGet, 1, putPositions(nil, []message.Position{1})), frame(kindSync, 2, data.PutInt(nil, message.Position(1)))...))
	f.Add(frame(kindReadLog, 1, data.PutInt(data.PutInt(nil, message.Position(1)), int64(1<<40))))
	f.Add(append(frame(kindTruncate, 1, data.PutInt(nil, message.Position(0))), frame(kindExpire, 2, data.PutInt(nil, message.Position(5)))...))
	f.Add(frame(kindOffsets, 1, putQueries(nil, []storage.OffsetQuery{{Queue: message.Queue{Topic: "T"}}})))
	f.Add(frame(kindSync, 1, data.PutInt(nil, message.Position(1))))
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, serve := range []func(*instance) error{(*instance).serveLog, (*instance).serveRead, serveLane} {
			i := newInstance()
			i.store = deaf{}
			i.caps = i.store.Capabilities()
			c := said{bytes.NewReader(in)}
			i.log.Conn, i.read.Conn, i.lanes = c, c, []*lane{newLane(i, c)}
			require.Error(t, serve(i))
			i.cancel()
			i.tasks.Wait()
		}
	})
}

func serveLane(i *instance) error { return i.lanes[0].serve() }

// FuzzHostSide lets a host read whatever comes over its connections: calls end,
// and the session is over when the other end does not speak the protocol.
func FuzzHostSide(f *testing.F) {
	ok := putOutcome(nil, &outcome{marks: marks{version: 1, tail: 100}})
	f.Add(frame(kindDone, 1, ok))
	f.Add(append(frame(kindEvent, 1, putEvent(nil, &event{kind: eventPublished, at: 5, units: []message.Unit{wiretest.Unit("T", 1, 0)}})), frame(kindDone, 1, ok)...))
	f.Add(append(frame(kindEvent, 2, putEvent(nil, &event{kind: eventTruncated, at: 5})), frame(kindEvent, 1, putEvent(nil, &event{kind: eventExpired}))...))
	f.Add(frame(kindEvent, 1, putEvent(nil, &event{kind: eventFailed, err: errors.New("x")})))
	f.Add(frame(kindDone, 1, putChunk(nil, "", &storage.Chunk{Units: []message.Unit{wiretest.Unit("T", 1, 0)}})))
	f.Add(frame(kindDone, 1, putAnswers(nil, true, &storage.OffsetAnswers{Answers: []storage.OffsetAnswer{{Known: true}}})))
	f.Add(frame(kindFailed, 1, nil))
	f.Add(frame(kindDone, 1, putOutcome(nil, &outcome{own: 9, upTo: 5})))
	f.Add(append(frame(kindDone, 1, ok), frame(kindDone, 2, ok)...))
	f.Fuzz(func(t *testing.T, in []byte) {
		begin := func() (*store, *session) {
			s := newStore(&host{name: "fuzzed"}, storage.Params{Settings: plugin.Settings{}.WithDefaults(), Publish: storage.Explicit}, nil, &storagepb.Capabilities{})
			s.tasks.closed = true // a session that is over has no successor
			c := newSession(s)
			c.proc = mute{}
			c.log.open(said{bytes.NewReader(in)})
			c.read.open(said{bytes.NewReader(in)})
			c.resumed.Store(true)
			s.cur.Store(c)
			_ = s.life.Start(t.Context(), func(_ context.Context, run func()) error { run(); return nil })
			s.st.state.Damaged = nil
			return s, c
		}
		s, c := begin()
		freed := 0
		b := wiretest.Batch()
		b.Free = func(*storage.Batch) { freed++ }
		got := make(chan error, 1)
		go func() { got <- s.Append(t.Context(), b) }()
		c.reader()
		s.wake()
		err := <-got
		c.tasks.Wait()
		require.NotErrorIs(t, err, storage.ErrNotRunning)
		s.free(0)
		require.Equal(t, 1, freed)

		for _, call := range []func(*store) error{
			func(s *store) error { return s.Read(t.Context(), storage.ReadRequest{}, &storage.Chunk{}) },
			func(s *store) error { return s.Offsets(t.Context(), nil, &storage.OffsetAnswers{}) },
			func(s *store) error { return s.Sync(t.Context(), 0) },
		} {
			s, c := begin()
			begun := make(chan struct{})
			c.read.send.Conn = begins{c.read.send.Conn, begun}
			got := make(chan error, 1)
			go func() { got <- call(s) }()
			<-begun // the answer may be the first frame
			c.reader()
			require.NotErrorIs(t, <-got, storage.ErrNotRunning)
			s.wake()
			c.tasks.Wait()
			require.ErrorIs(t, *c.cause.Load(), plugin.ErrUnavailable)

			s, c = begin() // the answer comes over a call connection
			c.read.own.add(&c.read, said{bytes.NewReader(in)}, &c.tasks)
			require.NotErrorIs(t, call(s), storage.ErrNotRunning)
			c.disconnect()
		}
	})
}

// begins tells that something was written.
type begins struct {
	io.ReadWriteCloser
	begun chan struct{}
}

func (b begins) Write(p []byte) (int, error) {
	close(b.begun)
	return len(p), nil
}
