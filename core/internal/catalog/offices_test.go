package catalog_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/vfs"
)

// between is a journal in which one write waits: for whatever happens before it
// is ordered.
type between struct {
	kernel.Journal
	before func()
}

func (b *between) Submit(recs []*message.Record, done func(kernel.Placed, error)) {
	if f := b.before; f != nil {
		b.before = nil
		f()
	}
	b.Journal.Submit(recs, done)
}

// A change or a lock that was handed over in one office and is ordered in the next
// one is in its tables: who asked for it was told that it is.
func TestOrderedInTheNextOffice(t *testing.T) {
	j := &between{}
	e := enginetest.Start(t, enginetest.Options{})
	j.Journal, e.K.Journal = e.K.Journal, j
	offices := func() {
		require.NoError(t, e.Script.Lose(t.Context(), "192.0.2.1:10911", false))
		require.NoError(t, e.Script.Win(t.Context(), true))
	}
	j.before = offices
	require.NoError(t, e.K.Topics.Put(t.Context(), topic("across", 3)))
	require.NotNil(t, e.K.Topics.Named("across"))
	require.Equal(t, int32(3), e.K.Topics.Named("across").Config.WriteQueueNums)

	c := e.Connect(t)
	j.before = offices
	require.Zero(t, c.Do(command.ReqLockBatchMQ, nil, c.Body(lockBody("a", 0))).Code)
	require.True(t, e.K.Locks.Held("G"), "another client would be given the queue, too")
	require.Zero(t, c.Do(command.ReqUnlockBatchMQ, nil, c.Body(lockBody("a", 0))).Code)
	require.False(t, e.K.Locks.Held("G"))
}

// watching is a journal that tells what is handed to it.
type watching struct {
	kernel.Journal
	seen func(recs []*message.Record)
}

func (w *watching) Submit(recs []*message.Record, done func(kernel.Placed, error)) {
	w.seen(recs)
	w.Journal.Submit(recs, done)
}

// An image that is written at the end of the log has all changes that are ordered
// before it: none is handed to the journal between the making of the image and its
// own turn.
func TestNoChangeBeforeAnImage(t *testing.T) {
	const image = 2 // kind of a body
	for _, what := range []string{"topic", "value", "lock", "unlock", "progress", "image"} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := enginetest.Start(t, enginetest.Options{})
				c := e.Connect(t)
				require.Zero(t, c.Do(command.ReqLockBatchMQ, nil, c.Body(lockBody("a", 0))).Code)
				require.NoError(t, e.K.Topics.Put(t.Context(), topic("moved", 1)))
				seen := 0
				e.K.Journal = &watching{e.K.Journal, func(recs []*message.Record) {
					seen++
					some, alone := e.Catalog.Ordering()
					assert.True(t, some)
					assert.Equal(t, recs[0].Body[1] == image, alone)
				}}
				switch what {
				case "topic":
					require.NoError(t, e.K.Topics.Put(t.Context(), topic("T", 1)))
				case "value":
					require.NoError(t, e.K.Values.PutValue(t.Context(), kernel.ValueKey{Kind: "k", Group: "G"}, []byte("v")))
				case "lock":
					require.Zero(t, c.Do(command.ReqLockBatchMQ, nil, c.Body(lockBody("a", 1))).Code)
				case "unlock":
					require.Zero(t, c.Do(command.ReqUnlockBatchMQ, nil, c.Body(lockBody("a", 0))).Code)
				case "progress":
					e.K.Offsets.Commit("G", message.Queue{Topic: "moved"}, 7)
					flushed()
				case "image":
					for _, h := range e.K.Hooks.Holders() {
						if h.Name == "catalog" {
							_, err := h.Ask(t.Context(), kernel.Expiry{First: e.Store.State().Tail, Leading: true})
							require.NoError(t, err)
						}
					}
				}
				require.Equal(t, 1, seen)
				some, _ := e.Catalog.Ordering()
				require.False(t, some)
			})
		})
	}
}

// Many bytes of catalog are a reason for a snapshot, too, not only time.
func TestSnapshotByBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := enginetest.Start(t, enginetest.Options{})
		require.NoError(t, e.K.Topics.Put(t.Context(), topic("T", 1)))
		synctest.Wait()
		read := func() []byte {
			b, _ := vfs.ReadFile(e.Disk.FS, e.File("hardpoint.snapshot"))
			return b
		}
		before := read()
		some := []message.Unit{{Queue: message.Queue{Topic: message.CatalogTopic}, Size: 63 << 20}}
		published := e.K.Hooks.Events(nil).Published
		published(0, some)
		synctest.Wait()
		require.Equal(t, before, read(), "not yet")
		published(0, some)
		synctest.Wait()
		require.NotEqual(t, before, read())
	})
}

// Progress that consumers report while this node is between two offices of its own
// is newer than the log; when another one led it is not.
func TestProgressBetweenOffices(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	q := message.Queue{Topic: "T"}
	require.NoError(t, e.K.Topics.Put(t.Context(), topic("T", 1)))
	committed := func() int64 {
		v, _ := e.K.Offsets.Committed("G", q)
		return v
	}
	require.NoError(t, e.Script.ReadOnly(t.Context(), "the store is away"))
	e.K.Offsets.Commit("G", q, 7)
	require.NoError(t, e.Script.Win(t.Context(), true))
	require.Equal(t, int64(7), committed())
	require.NoError(t, e.Script.ReadOnly(t.Context(), "the store is away"))
	e.K.Offsets.Commit("G", q, 8)
	require.NoError(t, e.Script.Win(t.Context(), true))
	require.Equal(t, int64(8), committed(), "it is still to be made a record")

	require.NoError(t, e.Script.ReadOnly(t.Context(), "the store is away"))
	e.K.Offsets.Commit("G", q, 9)
	require.NoError(t, e.Script.Lose(t.Context(), "192.0.2.1:10911", false))
	require.NotEqual(t, int64(9), committed())
}
