package storagewire

import (
	"context"
	"io"
	"net"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire/storagepb"
)

// overPipe is a session whose other end of the read connection the test has.
func overPipe(t *testing.T, proc wire.Process) (*store, *session, net.Conn) {
	t.Helper()
	s := newStore(&host{name: "piped"}, storage.Params{Settings: plugin.Settings{}.WithDefaults()}, nil, &storagepb.Capabilities{})
	s.tasks.closed = true // a session that is over has no successor
	ours, theirs := net.Pipe()
	log, _ := net.Pipe()
	c := newSession(s)
	c.proc = proc
	c.log.open(log)
	c.read.open(ours)
	s.cur.Store(c)
	_ = s.life.Start(t.Context(), func(_ context.Context, run func()) error { run(); return nil })
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.reader()
	}()
	t.Cleanup(func() {
		_ = theirs.Close()
		<-done
		c.tasks.Wait()
	})
	return s, c, theirs
}

// nextCall reads a request.
func nextCall(t *testing.T, c io.Reader) data.Head {
	t.Helper()
	var b [data.HeadSize]byte
	_, err := io.ReadFull(c, b[:])
	require.NoError(t, err)
	h, err := data.ParseHead(b[:], kindEvent)
	require.NoError(t, err)
	_, err = io.CopyN(io.Discard, c, int64(h.Size))
	require.NoError(t, err)
	return h
}

// TestAnswerToNoCall: whoever asked for what was answered to nobody would wait for
// ever, so the process is given up.
func TestAnswerToNoCall(t *testing.T) {
	nothing := putChunk(nil, "", &storage.Chunk{Status: storage.NoMatchedLogicQueue})
	for name, answer := range map[string]func(id uint64) []byte{
		"another call": func(id uint64) []byte { return frame(kindDone, id+1, nothing) },
		"twice": func(id uint64) []byte {
			return append(frame(kindDone, id-1, nothing), frame(kindDone, id-1, nothing)...)
		},
		"no answer": func(id uint64) []byte { return frame(kindRead, id, nothing) },
	} {
		t.Run(name, func(t *testing.T) {
			s, c, plug := overPipe(t, mute{})
			got := make(chan error, 2)
			for range 2 {
				go func() { got <- s.Read(context.Background(), storage.ReadRequest{}, &storage.Chunk{}) }()
			}
			first, second := nextCall(t, plug), nextCall(t, plug)
			_, err := plug.Write(answer(max(first.ID, second.ID)))
			require.True(t, err == nil || c.cause.Load() != nil)
			errs := slices.DeleteFunc([]error{<-got, <-got}, func(err error) bool { return err == nil })
			require.NotEmpty(t, errs)
			for _, err := range errs {
				require.ErrorIs(t, err, plugin.ErrUnavailable)
			}
			require.ErrorIs(t, *c.cause.Load(), data.ErrFrame)
		})
	}
}

// TestAnswerThatIsLate: nobody waits for it, and it hurts nobody.
func TestAnswerThatIsLate(t *testing.T) {
	s, c, plug := overPipe(t, mute{})
	nothing := putChunk(nil, "", &storage.Chunk{Status: storage.NoMatchedLogicQueue})
	got := make(chan error, 1)
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		go func() { got <- s.Read(ctx, storage.ReadRequest{}, &storage.Chunk{}) }()
		late := nextCall(t, plug)
		cancel()
		require.Equal(t, late.ID, nextCall(t, plug).ID, "it is cancelled")
		require.ErrorIs(t, <-got, context.Canceled)
		_, err := plug.Write(frame(kindDone, late.ID, nothing))
		require.NoError(t, err)
		go func() { got <- s.Read(context.Background(), storage.ReadRequest{}, &storage.Chunk{}) }()
		_, err = plug.Write(frame(kindDone, nextCall(t, plug).ID, nothing))
		require.NoError(t, err)
		require.NoError(t, <-got)
	}
	require.Empty(t, c.read.abandoned)
	require.Equal(t, "answer Read", c.read.owes(), "it was owed since the last look")
	require.Empty(t, c.read.owes())
	require.Nil(t, c.cause.Load())
}

// ended is a process whose end the test says.
type ended struct {
	mute
	gone chan struct{}
}

func (e ended) Gone() <-chan struct{} { return e.gone }

// TestEndIsNoticed: a process has ended, and its connections are open, since a child
// has them: nobody waits for that one.
func TestEndIsNoticed(t *testing.T) {
	gone := make(chan struct{})
	s, c, plug := overPipe(t, ended{gone: gone})
	got := make(chan error, 1)
	go func() { got <- s.Read(context.Background(), storage.ReadRequest{}, &storage.Chunk{}) }()
	nextCall(t, plug)
	close(gone)
	require.ErrorIs(t, <-got, plugin.ErrUnavailable)
	require.NotErrorIs(t, *c.cause.Load(), data.ErrFrame)
}
