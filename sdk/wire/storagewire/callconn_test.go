package storagewire

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
)

// withCallConn is overPipe with a call connection.
func withCallConn(t *testing.T) (s *store, c *session, read, calls net.Conn) {
	t.Helper()
	s, c, read = overPipe(t, mute{})
	ours, theirs := net.Pipe()
	c.read.own.add(&c.read, ours, &c.tasks)
	return s, c, read, theirs
}

func answer(t *testing.T, c io.Writer, id uint64) {
	t.Helper()
	_, err := c.Write(frame(kindDone, id, putChunk(nil, "", &storage.Chunk{Status: storage.NoMatchedMessage, Next: int64(id)})))
	require.NoError(t, err)
}

// TestCallConn: a call has a call connection for itself; when there is none, it goes
// over the read connection.
func TestCallConn(t *testing.T) {
	s, c, read, calls := withCallConn(t)
	got := make(chan int64, 2)
	ask := func() {
		var k storage.Chunk
		err := s.Read(t.Context(), storage.ReadRequest{}, &k)
		k.Release()
		if err != nil {
			k.Next = -1
		}
		got <- k.Next
	}
	for range 3 {
		go ask()
		first := nextCall(t, calls)
		go ask()
		second := nextCall(t, read)
		require.Equal(t, "answer Read", c.read.owes())
		answer(t, read, second.ID)
		require.Equal(t, int64(second.ID), <-got)
		require.Equal(t, "answer Read", c.read.owes())
		answer(t, calls, first.ID)
		require.Equal(t, int64(first.ID), <-got)
		require.Empty(t, c.read.owes())
	}
}

// TestCallConnCancelled: nobody waits for the answer to a call that is cancelled, the
// plugin is told which one it is, and no other call gets the answer.
func TestCallConnCancelled(t *testing.T) {
	s, c, read, calls := withCallConn(t)
	got := make(chan error, 1)
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		go func() { got <- s.Read(ctx, storage.ReadRequest{}, &storage.Chunk{}) }()
		late := nextCall(t, calls)
		cancel()
		told := nextCall(t, read)
		require.Equal(t, data.Head{Kind: kindCancel, ID: late.ID, Timeout: cancelCalls}, told)
		require.ErrorIs(t, <-got, context.Canceled)
		require.Nil(t, c.read.own.take(), "its answer has not come")
		answer(t, calls, late.ID)
		require.Eventually(t, func() bool {
			p := c.read.own.take()
			return p != nil && c.read.own.give(p)
		}, time.Minute, time.Millisecond)
		go func() { got <- s.Read(context.Background(), storage.ReadRequest{}, &storage.Chunk{}) }()
		answer(t, calls, nextCall(t, calls).ID)
		require.NoError(t, <-got)
	}
	require.Nil(t, c.cause.Load())
}

// TestCallConnLate: a context that ended when it was watched and had no call ends the
// call that begins then.
func TestCallConnLate(t *testing.T) {
	_, c, read, _ := withCallConn(t)
	p := c.read.own.take()
	ctx, cancel := context.WithCancel(t.Context())
	p.begin(ctx, &c.read, kindRead, 1)
	require.False(t, p.end())
	require.True(t, p.unwatch(), "as if it had ended by itself")
	cancel()
	p.begin(ctx, &c.read, kindRead, 2)
	require.NoError(t, read.SetReadDeadline(time.Now().Add(time.Minute)))
	require.Equal(t, data.Head{Kind: kindCancel, ID: 2, Timeout: cancelCalls}, nextCall(t, read))
	require.True(t, p.end(), "its read is broken off")
	require.True(t, c.read.own.give(p))
}

// TestCallConnFaults: what comes over a call connection and is no answer to the call
// ends the session, and the call says so.
func TestCallConnFaults(t *testing.T) {
	nothing := putChunk(nil, "", &storage.Chunk{Status: storage.NoMatchedLogicQueue})
	for name, said := range map[string]func(id uint64) []byte{
		"another call":   func(id uint64) []byte { return frame(kindDone, id+1, nothing) },
		"no answer":      func(id uint64) []byte { return frame(kindEvent, id, nothing) },
		"more than that": func(id uint64) []byte { return append(frame(kindDone, id, nothing), 0) },
		"a bad body":     func(id uint64) []byte { return frame(kindDone, id, nil) },
		"a bad failure":  func(id uint64) []byte { return frame(kindFailed, id, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			s, c, _, calls := withCallConn(t)
			got := make(chan error, 1)
			go func() { got <- s.Read(t.Context(), storage.ReadRequest{}, &storage.Chunk{}) }()
			_, err := calls.Write(said(nextCall(t, calls).ID))
			require.NoError(t, err)
			err = <-got
			require.ErrorIs(t, err, plugin.ErrUnavailable)
			require.ErrorIs(t, err, data.ErrFrame)
			require.NotNil(t, c.cause.Load())
		})
	}
}

// TestCallConnBreaks: calls under way fail with the reason when the session is over,
// whichever connection broke, and so do those that come later.
func TestCallConnBreaks(t *testing.T) {
	for name, end := range map[string]func(read, calls net.Conn) error{
		"this one": func(_, calls net.Conn) error { return calls.Close() },
		"another":  func(read, _ net.Conn) error { return read.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			s, c, read, calls := withCallConn(t)
			c.resumed.Store(true)
			got := make(chan error, 1)
			go func() { got <- s.Sync(t.Context(), 0) }()
			nextCall(t, calls)
			require.NoError(t, end(read, calls))
			require.ErrorIs(t, <-got, plugin.ErrUnavailable)
			require.ErrorIs(t, s.Read(t.Context(), storage.ReadRequest{}, &storage.Chunk{}), plugin.ErrUnavailable)
		})
	}
}

// asks is a store that says how the context of a Sync is.
type asks struct {
	deaf
	entered, ended chan error
}

func (a asks) Sync(ctx context.Context, end message.Position) error {
	a.entered <- ctx.Err()
	if end > 0 {
		<-ctx.Done()
	}
	a.ended <- ctx.Err()
	return ctx.Err()
}

// TestLaneCancelled: a call is cancelled before it arrives, or while it is under way,
// and the next one is not.
func TestLaneCancelled(t *testing.T) {
	i := newInstance()
	a := asks{entered: make(chan error, 1), ended: make(chan error, 1)}
	i.store, i.caps = a, a.Capabilities()
	ours, theirs := net.Pipe()
	l := newLane(i, theirs)
	i.lanes = []*lane{l}
	over := make(chan error, 1)
	go func() { over <- l.serve() }()
	cancel := func(id uint64) { i.cancelCall(&data.Head{Kind: kindCancel, ID: id, Timeout: cancelCalls}) }
	ask := func(id uint64, end message.Position) {
		_, err := ours.Write(frame(kindSync, id, data.PutInt(nil, end)))
		require.NoError(t, err)
	}
	for id := uint64(1); id < 10; id += 3 {
		cancel(id)
		ask(id, 1)
		require.ErrorIs(t, <-a.entered, context.Canceled)
		require.ErrorIs(t, <-a.ended, context.Canceled)
		require.Equal(t, id, nextCall(t, ours).ID)

		ask(id+1, 1)
		require.NoError(t, <-a.entered)
		cancel(id)     // is over
		cancel(id + 1) // is under way
		require.ErrorIs(t, <-a.ended, context.Canceled)
		require.Equal(t, id+1, nextCall(t, ours).ID)

		ask(id+2, 0)
		require.NoError(t, <-a.entered)
		require.NoError(t, <-a.ended)
		require.Equal(t, id+2, nextCall(t, ours).ID)
	}
	i.cancelCall(&data.Head{Kind: kindCancel, ID: 1, Timeout: cancelCalls + 1}) // there is no such connection
	require.NoError(t, ours.Close())
	require.ErrorIs(t, <-over, io.EOF)
}

// TestEventsAreBounded: a process that sends events without end is given up, and does
// not fill the host.
func TestEventsAreBounded(t *testing.T) {
	e := events{more: make(chan struct{}, 1)}
	for n := range mostEvents {
		require.NoError(t, e.put(arrived{seq: uint64(n), bytes: 1}))
	}
	require.ErrorIs(t, e.put(arrived{seq: mostEvents, bytes: 1}), data.ErrFrame)
	list := e.take(nil)
	require.Len(t, list, mostEvents)
	for n := range list {
		require.Equal(t, uint64(n), list[n].seq)
	}
	require.NoError(t, e.put(arrived{seq: 1, bytes: mostEventBytes + 1}), "one alone may be as large as a frame")
	require.ErrorIs(t, e.put(arrived{seq: 2, bytes: 1}), data.ErrFrame)
	require.Len(t, e.take(list), 1)
	require.Empty(t, e.take(nil))
}
