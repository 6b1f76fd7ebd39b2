package catalog_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
)

// removals are what takes the progress of G in T away.
var removals = map[string]func(t *testing.T, k *kernel.Kernel){
	"topic": func(t *testing.T, k *kernel.Kernel) { assert.NoError(t, k.Topics.Remove(t.Context(), "T")) },
	"group": func(t *testing.T, k *kernel.Kernel) { assert.NoError(t, k.Groups.Remove(t.Context(), "G", true)) },
}

// consumed has G and H, and T and U, in the catalog.
func consumed(t *testing.T) *enginetest.Engine {
	t.Helper()
	e := enginetest.Start(t, enginetest.Options{})
	for _, name := range []string{"T", "U"} {
		require.NoError(t, e.K.Topics.Put(t.Context(), topic(name, 4)))
	}
	for _, name := range []string{"G", "H"} {
		require.NoError(t, e.K.Groups.Put(t.Context(), command.DefaultSubscriptionGroup(name)))
	}
	return e
}

// nothingOfIt kills the engine and makes topic and group again.
func nothingOfIt(t *testing.T, e *enginetest.Engine) *enginetest.Engine {
	t.Helper()
	e = e.Again(e.Kill(memfs.KeepNone))
	require.NoError(t, e.K.Topics.Put(t.Context(), topic("T", 4)))
	require.NoError(t, e.K.Groups.Put(t.Context(), command.DefaultSubscriptionGroup("G")))
	_, ok := e.K.Offsets.Committed("G", message.Queue{Topic: "T"})
	require.False(t, ok, "progress outlived what it was of")
	require.Empty(t, e.K.Offsets.Of("G"))
	return e
}

// A removal that begins while the record of progress is made comes behind it (BC-19).
func TestRemovalWhileProgressIsFlushed(t *testing.T) {
	for name, remove := range removals {
		t.Run(name, func(t *testing.T) {
			e := consumed(t)
			var removal sync.WaitGroup
			in := make(chan struct{})
			m := &meddler{Journal: e.K.Journal, other: make(chan struct{}, 1)}
			m.f = func() {
				defer close(in)
				removal.Go(func() { remove(t, e.K) })
				select {
				case <-m.other: // nothing orders the two
				case <-time.After(200 * time.Millisecond): // it waits for us
				}
			}
			e.K.Journal = m
			m.armed.Store(true)
			e.K.Offsets.Commit("G", message.Queue{Topic: "T"}, 100) // the next flush writes it
			<-in
			removal.Wait()
			nothingOfIt(t, e)
		})
	}
}

// What is reported, locked or obeyed while a removal is on its way into the log is not
// made a record behind it (BC-19).
func TestProgressWhileItsTopicLeaves(t *testing.T) {
	for name, remove := range removals {
		t.Run(name, func(t *testing.T) {
			e := consumed(t)
			c := e.Connect(t)
			locked := func(c *enginetest.Client, id string) int {
				r := c.Do(command.ReqLockBatchMQ, nil, c.Body(lockBody(id, 0)))
				require.Zero(t, r.Code, r.Remark)
				var got command.LockBatchResponse
				require.NoError(t, command.DecodeBody(r.Body, &got))
				return len(got.LockOKMQSet)
			}
			require.Equal(t, 1, locked(c, "old"))
			require.NoError(t, e.K.Offsets.Reset(t.Context(), "G", "T", map[int32]int64{0: 5, 1: 5}))

			e.Script.Hold()
			var removal sync.WaitGroup
			removal.Go(func() { remove(t, e.K) })
			require.NoError(t, e.Script.WaitHeld(t.Context(), 1))
			require.Equal(t, 1, locked(c, "old"), "renewed")
			q := message.Queue{Topic: "T"}
			e.K.Offsets.Meets("G", q, 9)
			e.K.Offsets.Meets("G", q, 5)
			e.K.Offsets.Commit("G", q, 100)
			e.K.Offsets.Commit("H", message.Queue{Topic: "U"}, 7)
			require.NoError(t, e.Script.WaitHeld(t.Context(), 2), "the record of progress")
			require.NoError(t, e.Script.Release(t.Context()))
			removal.Wait()

			e = nothingOfIt(t, e)
			n, ok := e.K.Offsets.Committed("H", message.Queue{Topic: "U"})
			require.True(t, ok)
			require.Equal(t, int64(7), n, "that of others is in the log")
			_, reset := e.K.Offsets.Meets("G", message.Queue{Topic: "T", ID: 1}, 0)
			require.False(t, reset, "a reset outlived what it was of")
			require.Equal(t, 1, locked(e.Connect(t), "new"), "a lock outlived what it was of")
		})
	}
}

// What a consumer reports of a topic that was deleted is of the time before.
func TestProgressInDeletedTopic(t *testing.T) {
	e := consumed(t)
	require.NoError(t, e.K.Topics.Remove(t.Context(), "T"))
	e.K.Offsets.Commit("G", message.Queue{Topic: "T"}, 100)
	require.Error(t, e.K.Offsets.Reset(t.Context(), "G", "T", map[int32]int64{0: 5}))
	require.Empty(t, e.K.Offsets.In("T"))
	nothingOfIt(t, e)
}
