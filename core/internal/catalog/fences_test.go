package catalog_test

import (
	"sync"
	"sync/atomic"
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

// meddler calls f before a record goes on, once, when it is armed, and tells when one
// that comes meanwhile is in the log.
type meddler struct {
	kernel.Journal
	armed atomic.Bool
	f     func()
	other chan struct{}
}

func (m *meddler) Submit(recs []*message.Record, done func(kernel.Placed, error)) {
	if m.armed.CompareAndSwap(true, false) {
		m.f()
		m.Journal.Submit(recs, done)
		return
	}
	m.Journal.Submit(recs, func(p kernel.Placed, err error) {
		done(p, err)
		select {
		case m.other <- struct{}{}:
		default:
		}
	})
}

// A consumer obeys a reset, and while the record that says so is made, its group is
// reset anew: that counts after a restart, too.
func TestResetWhileProgressIsFlushed(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	q := message.Queue{Topic: "T"}
	require.NoError(t, e.K.Topics.Put(t.Context(), command.TopicConfig{TopicName: "T", ReadQueueNums: 1, WriteQueueNums: 1, Perm: 6}))
	require.NoError(t, e.K.Groups.Put(t.Context(), command.DefaultSubscriptionGroup("G")))
	require.NoError(t, e.K.Offsets.Reset(t.Context(), "G", "T", map[int32]int64{0: 5}))
	to, ok := e.K.Offsets.Meets("G", q, 9)
	require.True(t, ok)
	require.EqualValues(t, 5, to)

	var reset sync.WaitGroup
	in := make(chan struct{})
	m := &meddler{Journal: e.K.Journal, other: make(chan struct{}, 1)}
	m.f = func() {
		defer close(in)
		reset.Go(func() {
			assert.NoError(t, e.K.Offsets.Reset(t.Context(), "G", "T", map[int32]int64{0: 7}))
		})
		select {
		case <-m.other: // nothing orders the two
		case <-time.After(200 * time.Millisecond): // it waits for us
		}
	}
	e.K.Journal = m
	m.armed.Store(true)
	_, ok = e.K.Offsets.Meets("G", q, 5) // obeyed: the next flush writes that down
	require.False(t, ok)
	<-in
	reset.Wait()
	e = e.Again(e.Kill(memfs.KeepNone))
	to, ok = e.K.Offsets.Meets("G", q, 9)
	require.True(t, ok, "the second reset is forgotten")
	require.EqualValues(t, 7, to)
}
