package catalog_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/catalog"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagemw"
	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
)

// forgetful is a store that does not know where the queues of a topic end, as one
// that lost their files when it has no record of theirs any more.
type forgetful struct {
	storagemw.Base
	topic *atomic.Pointer[string]
}

func (f *forgetful) Capabilities() storage.Capabilities { return f.Store.Capabilities() }

func (f *forgetful) Offsets(ctx context.Context, q []storage.OffsetQuery, a *storage.OffsetAnswers) error {
	err := f.Store.Offsets(ctx, q, a)
	if topic := f.topic.Load(); topic != nil && len(q) == 0 {
		a.Answers = slices.DeleteFunc(a.Answers, func(x storage.OffsetAnswer) bool { return x.Queue.Topic == *topic })
	}
	return err
}

// numbers is an engine whose store forgets, and its topic T with three messages in
// queue 0 and one in queue 1, which an image tells of.
type numbers struct {
	*enginetest.Engine
	t      *testing.T
	forget atomic.Pointer[string]
}

func startNumbers(t *testing.T, o enginetest.Options) *numbers {
	t.Helper()
	n := &numbers{t: t}
	o.Segment = 100 << 10
	o.Config = func(c *kernel.Config) { c.MaxMessageSize = 50 << 10 }
	o.Store = func(_ storage.Params, next storage.Store) storage.Store {
		return &forgetful{storagemw.Base{Store: next}, &n.forget}
	}
	n.Engine = enginetest.Start(t, o)
	require.NoError(t, n.K.Topics.Put(t.Context(), topic("T", 4)))
	for _, q := range []int32{0, 0, 0, 1} {
		n.send("T", q)
	}
	n.edge()
	return n
}

// send gives the number that a message got.
func (n *numbers) send(topic string, queue int32) int64 {
	n.t.Helper()
	r := n.Connect(n.t).Send(enginetest.Message{Topic: topic, Queue: queue, Body: strings.Repeat("x", 3000)})
	require.Zero(n.t, r.Code, r.Remark)
	return r.Int("queueOffset")
}

// edge goes on to the next segment, which begins with an image.
func (n *numbers) edge() {
	n.t.Helper()
	seg := func() int64 { return int64(n.Store.State().Tail) / n.Store.State().Segment }
	for was := seg(); seg() == was; {
		n.send("other", 0)
	}
}

func (n *numbers) again(d *enginetest.Disk) {
	n.t.Helper()
	name := "T"
	n.forget.Store(&name)
	n.Engine = n.Again(d)
}

func (n *numbers) delete(topic string) {
	n.t.Helper()
	r := n.Connect(n.t).Do(command.ReqDeleteTopicInBroker, (&command.TopicRequest{Topic: topic}).Append, nil)
	require.Zero(n.t, r.Code, r.Remark)
}

// Numbers go on where the store does not know any more what was given: the catalog
// does, from an image in the log, whether or not a snapshot is younger.
func TestEnds(t *testing.T) {
	for how, again := range map[string]func(n *numbers){
		"snapshot": func(n *numbers) { n.again(nil) },
		"kill":     func(n *numbers) { n.again(n.Kill(memfs.KeepNone)) },
		"log alone": func(n *numbers) {
			d := n.Kill(memfs.KeepNone)
			d.FS = memfs.New(2)
			n.again(d)
		},
		"more than once": func(n *numbers) {
			for range 3 {
				n.again(nil)
				require.NoError(n.t, n.K.Topics.Put(n.t.Context(), topic("new", 1))) // so that there is a new snapshot
			}
			n.again(n.Kill(memfs.KeepNone))
		},
		"image of a raised end": func(n *numbers) {
			n.again(nil)
			n.edge()
			d := n.Kill(memfs.KeepNone)
			d.FS = memfs.New(2)
			n.again(d)
		},
		"snapshot of an older version": func(n *numbers) {
			n.Stop()
			b, err := vfs.ReadFile(n.Disk.FS, n.File("hardpoint.snapshot"))
			require.NoError(n.t, err)
			old, err := catalog.WithoutEnds(b)
			require.NoError(n.t, err)
			require.Less(n.t, len(old), len(b))
			require.NoError(n.t, vfs.WriteFileAtomic(n.Disk.FS, n.File("hardpoint.snapshot"), old))
			n.again(n.Disk)
		},
	} {
		t.Run(how, func(t *testing.T) {
			each(t, func(t *testing.T, o enginetest.Options) {
				synctest.Test(t, func(t *testing.T) {
					n := startNumbers(t, o)
					again(n)
					require.Equal(t, int64(3), n.send("T", 0))
					require.Equal(t, int64(1), n.send("T", 1))
					require.Equal(t, int64(0), n.send("T", 2))
					require.True(t, n.HasLog("the numbers that the catalog remembers", "queues=2"), n.Log)
					n.forget.Store(nil)
					n.Engine = n.Again(nil)
					require.Equal(t, int64(4), n.send("T", 0))
					require.False(t, n.HasLog("the numbers that the catalog remembers"), "the store knows:\n%s", n.Log)
				})
			})
		})
	}
}

// A node that followed, and one that leads again, too.
func TestEndsOfOffices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNumbers(t, enginetest.Options{})
		name := "T"
		n.forget.Store(&name)
		require.NoError(t, n.Script.ReadOnly(t.Context(), "the store is away"))
		require.NoError(t, n.Script.Win(t.Context(), true))
		require.Equal(t, int64(3), n.send("T", 0))
		n.edge()
		require.NoError(t, n.Script.Lose(t.Context(), "192.0.2.1:10911", false))
		require.NoError(t, n.Script.Win(t.Context(), true))
		require.Equal(t, int64(4), n.send("T", 0))
	})
}

// A topic that was removed begins at 0 when it is there again, whichever of the
// images in the log and of the snapshots remember it.
func TestEndsOfRemovedTopics(t *testing.T) {
	again := map[string]func(n *numbers){
		"clean": func(n *numbers) { n.again(nil) },
		"kill":  func(n *numbers) { n.again(n.Kill(memfs.KeepNone)) },
		"log alone": func(n *numbers) {
			d := n.Kill(memfs.KeepNone)
			d.FS = memfs.New(2)
			n.again(d)
		},
	}
	for how, again := range again {
		for when, remove := range map[string]func(n *numbers, remake func()){
			"made again before": func(n *numbers, remake func()) { n.delete("T"); remake(); again(n) },
			"made again after":  func(n *numbers, remake func()) { n.delete("T"); again(n); remake() },
			"image between":     func(n *numbers, remake func()) { n.delete("T"); n.edge(); again(n); remake() },
			"start between":     func(n *numbers, remake func()) { n.again(nil); n.delete("T"); again(n); remake(); again(n) },
		} {
			t.Run(when+" "+how, func(t *testing.T) {
				each(t, func(t *testing.T, o enginetest.Options) {
					synctest.Test(t, func(t *testing.T) {
						n := startNumbers(t, o)
						remove(n, func() { require.NoError(t, n.K.Topics.Put(t.Context(), topic("T", 4))) })
						require.Equal(t, int64(0), n.send("T", 0))
						require.Equal(t, int64(1), n.send("T", 0))
					})
				})
			})
		}
	}
}

// failing is a store after whose answer about the ends of all queues no office can
// begin.
type failing struct {
	storagemw.Base
	asked atomic.Bool
}

func (f *failing) Capabilities() storage.Capabilities { return f.Store.Capabilities() }

func (f *failing) State() storage.State {
	st := f.Store.State()
	if f.asked.Load() {
		st.Segment = 1
	}
	return st
}

func (f *failing) Offsets(ctx context.Context, q []storage.OffsetQuery, a *storage.OffsetAnswers) error {
	f.asked.Store(f.asked.Load() || len(q) == 0)
	return f.Store.Offsets(ctx, q, a)
}

// With the ends of all queues no office has begun: a start that goes no further leaves
// the files alone, which somebody else may have written.
func TestEndsBeforeAnOffice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNumbers(t, enginetest.Options{})
		o := enginetest.Options{Disk: n.Kill(memfs.KeepNone), Segment: 100 << 10}
		write(t, o.Disk, n.File("topics.json"), command.TopicConfigSerializeWrapper{
			TopicConfigTable: map[string]command.TopicConfig{"apache": topic("apache", 3)},
		})
		before, err := vfs.ReadFile(o.Disk.FS, n.File("topics.json"))
		require.NoError(t, err)
		o.Store = func(_ storage.Params, next storage.Store) storage.Store {
			return &failing{Base: storagemw.Base{Store: next}}
		}
		_, err = enginetest.TryStart(t, o)
		require.ErrorContains(t, err, "segments of 1 bytes hold no record")
		after, err := vfs.ReadFile(o.Disk.FS, n.File("topics.json"))
		require.NoError(t, err)
		require.Equal(t, string(before), string(after))
		o.Store = nil
		require.NotNil(t, enginetest.Start(t, o).K.Topics.Named("apache"))
	})
}

// Numbers that were given to records which were lost, as with the process of a store, are
// given again: an image counts for the office behind it when it is in the log.
func TestEndsOfLostImages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNumbers(t, enginetest.Options{})
		ahead := func(yield func(message.Queue, int64) bool) {
			n.K.Sequencer.Ends(func(q message.Queue, next int64) bool {
				if q.Topic == "T" {
					next += 100
				}
				return yield(q, next)
			})
		}
		image := func() func(stored bool) {
			for {
				if recs, settled := n.K.Images.Image(ahead); recs != nil {
					return settled
				}
			}
		}
		lost, failed := image(), image()
		failed(false)
		require.NoError(t, n.Script.ReadOnly(t.Context(), "the store is away"))
		require.NoError(t, n.Script.Win(t.Context(), true))
		require.Equal(t, int64(3), n.send("T", 0))
		lost(true) // of the office before: what it began with is read from the log
		require.NoError(t, n.Script.ReadOnly(t.Context(), "the store is away"))
		require.NoError(t, n.Script.Win(t.Context(), true))
		require.Equal(t, int64(4), n.send("T", 0))
		image()(false)
		image() // a snapshot is taken meanwhile
		n.Engine = n.Again(nil)
		require.Equal(t, int64(5), n.send("T", 0))
	})
}
