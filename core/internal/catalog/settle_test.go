package catalog_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
	"github.com/hardpointmq/hardpoint/core/vfs/vfstest"
)

// disk is a volume on which topics.json can be held up and its writes are
// counted.
type disk struct {
	*enginetest.Disk
	faults *vfstest.Faults

	mu     sync.Mutex
	gate   chan struct{} // nil: open
	writes int
}

func newDisk() *disk {
	d := &disk{Disk: enginetest.NewDisk()}
	d.faults = vfstest.NewFaults(d.FS)
	d.FS = d.faults
	d.faults.SetHook(func(c vfstest.Call) error {
		if c.Op != vfstest.OpRename || !strings.HasSuffix(c.NewName, "topics.json") {
			return nil
		}
		d.mu.Lock()
		d.writes++
		gate := d.gate
		d.mu.Unlock()
		if gate != nil {
			<-gate
		}
		return nil
	})
	return d
}

// hold holds writes up until the returned function is called, more than once if
// a test fails.
func (d *disk) hold() (open func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	gate := make(chan struct{})
	d.gate, d.writes = gate, 0
	return sync.OnceFunc(func() {
		d.mu.Lock()
		d.gate = nil
		d.mu.Unlock()
		close(gate)
	})
}

func (d *disk) written() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.writes
}

// topicsOf is topics.json as it is now.
func topicsOf(t *testing.T, e *enginetest.Engine) map[string]command.TopicConfig {
	t.Helper()
	b, err := vfs.ReadFile(e.Disk.FS, e.File("topics.json"))
	require.NoError(t, err)
	var w command.TopicConfigSerializeWrapper
	require.NoError(t, command.DecodeBody(b, &w))
	return w.TopicConfigTable
}

func create(name string, queues int32) func(w *command.Writer) {
	return (&command.CreateTopicRequest{
		Topic: name, DefaultTopic: "TBW102", ReadQueueNums: queues, WriteQueueNums: queues, Perm: 6, TopicFilterType: "SINGLE_TAG",
	}).Append
}

// Whoever is told of a topic finds it in topics.json, without any time passing.
func TestTopicsFileBeforeAnswer(t *testing.T) {
	each(t, func(t *testing.T, o enginetest.Options) {
		synctest.Test(t, func(t *testing.T) {
			e := enginetest.Start(t, o)
			c := e.Connect(t)
			began := time.Now()
			for i := range 5 {
				name := fmt.Sprint("made-by-request-", i)
				require.Zero(t, c.Do(command.ReqUpdateAndCreateTopic, create(name, 3), nil).Code)
				require.Equal(t, int32(3), topicsOf(t, e)[name].WriteQueueNums)
				name = fmt.Sprint("made-by-send-", i)
				require.Zero(t, c.Send(enginetest.Message{Topic: name, Body: "x"}).Code)
				require.Contains(t, topicsOf(t, e), name)
			}
			require.Zero(t, c.Do(command.ReqUpdateAndCreateTopic, create("made-by-send-0", 7), nil).Code)
			require.Equal(t, int32(7), topicsOf(t, e)["made-by-send-0"].WriteQueueNums)
			require.NoError(t, e.K.Topics.Remove(t.Context(), "made-by-send-0"))
			require.NotContains(t, topicsOf(t, e), "made-by-send-0")
			_, err := e.K.Groups.Ensure(t.Context(), "G")
			require.NoError(t, err)
			synctest.Wait() // not waited for, but written at once
			b, err := vfs.ReadFile(e.Disk.FS, e.File("subscriptionGroup.json"))
			require.NoError(t, err)
			require.Contains(t, string(b), `"G"`)
			require.Zero(t, time.Since(began))
		})
	})
}

// While topics.json is being written nobody is told that the topic is there or
// that something is stored in it, neither who made it nor who comes after.
func TestNoAnswerBeforeTopicsFile(t *testing.T) {
	each(t, func(t *testing.T, o enginetest.Options) {
		synctest.Test(t, func(t *testing.T) {
			d := newDisk()
			o.Disk = d.Disk
			e := enginetest.Start(t, o)
			require.NoError(t, e.K.Topics.Put(t.Context(), topic("old", 1)))
			synctest.Wait()
			open := d.hold()
			defer open()
			first, second, other, admin := e.Connect(t), e.Connect(t), e.Connect(t), e.Connect(t)
			begin := func(c *enginetest.Client, topic string) func() *enginetest.Reply {
				answer := make(chan *enginetest.Reply, 1)
				go func() { answer <- c.Send(enginetest.Message{Topic: topic, Body: "x"}) }()
				synctest.Wait()
				return func() *enginetest.Reply {
					select {
					case r := <-answer:
						return r
					default:
						return nil
					}
				}
			}
			answers := []func() *enginetest.Reply{begin(first, "new"), begin(second, "new")}
			put := make(chan *enginetest.Reply, 1)
			go func() {
				admin.Do(command.ReqUpdateAndCreateTopic, create("old", 9), nil)
				put <- admin.Do(command.ReqUpdateAndCreateTopic, create("another", 1), nil)
			}()
			synctest.Wait()
			require.Equal(t, int32(9), e.K.Topics.Named("old").Config.ReadQueueNums, "one that was known stays so")
			require.Nil(t, e.K.Topics.Named("new"))
			for _, a := range answers {
				require.Nil(t, a())
			}
			require.Empty(t, put)
			require.Zero(t, other.Send(enginetest.Message{Topic: "old", Body: "x"}).Code, "topics that are there go on")
			open()
			synctest.Wait()
			for _, a := range answers {
				require.Zero(t, a().Code)
			}
			require.Zero(t, (<-put).Code)
			require.Contains(t, topicsOf(t, e), "new")
			require.Contains(t, topicsOf(t, e), "another")
			require.LessOrEqual(t, d.written(), 3, "one for the first, one for all that came meanwhile, one for what came after that")
		})
	})
}

// Any number of creations at once share a write.
func TestCreationsShareWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		e := enginetest.Start(t, enginetest.Options{Disk: d.Disk})
		synctest.Wait()
		open := d.hold()
		defer open()
		var wg sync.WaitGroup
		for i := range 300 {
			wg.Go(func() {
				if err := e.K.Topics.Put(t.Context(), topic(fmt.Sprint("T", i), 1)); err != nil {
					t.Error(err)
				}
				if name := fmt.Sprint("T", i); e.K.Topics.Named(name) == nil {
					t.Errorf("%s is not shown", name)
				}
			})
		}
		synctest.Wait()
		open()
		wg.Wait()
		require.LessOrEqual(t, d.written(), 2)
		got := topicsOf(t, e)
		for i := range 300 {
			require.Contains(t, got, fmt.Sprint("T", i))
		}
	})
}

// A list of any length is one change for the files, and whole after a kill; of two lists
// with the same names at once neither waits for the other for ever.
func TestListOfTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		e := enginetest.Start(t, enginetest.Options{Disk: d.Disk})
		synctest.Wait()
		before := d.written()
		list := make([]command.TopicConfig, 900) // several records of the log
		for i := range list {
			list[i] = topic(fmt.Sprintf("one-of-many-topics-%04d", i), 8)
		}
		turned := slices.Clone(list)
		slices.Reverse(turned)
		var wg sync.WaitGroup
		for _, l := range [][]command.TopicConfig{list, turned} {
			wg.Go(func() {
				if err := e.K.Topics.Put(t.Context(), l...); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		require.NotNil(t, e.K.Topics.Named("one-of-many-topics-0899"))
		require.LessOrEqual(t, d.written()-before, 20, "writes of topics.json, of two lists")
		require.Error(t, e.K.Topics.Put(t.Context(), topic("good", 1), topic("b a d", 1)))
		require.Nil(t, e.K.Topics.Named("good"))

		e = enginetest.Start(t, enginetest.Options{})
		require.NoError(t, e.K.Topics.Put(t.Context(), list...))
		e = e.Again(e.Kill(memfs.KeepAll))
		got := topicsOf(t, e)
		for _, l := range list {
			require.EqualValues(t, 8, e.K.Topics.Named(l.TopicName).Config.WriteQueueNums)
			require.Contains(t, got, l.TopicName)
		}
	})
}

// A disk that takes no files, or hangs, keeps nobody from a topic that the log
// has.
func TestTopicsFileFails(t *testing.T) {
	t.Run("error", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d := newDisk()
			e := enginetest.Start(t, enginetest.Options{Disk: d.Disk})
			synctest.Wait()
			d.faults.Add(vfstest.Rule{Op: vfstest.OpRename, Path: "*/config/topics.json"})
			began := time.Now()
			require.Zero(t, e.Connect(t).Send(enginetest.Message{Topic: "new", Body: "x"}).Code)
			require.NoError(t, e.K.Topics.Put(t.Context(), topic("another", 1)))
			require.Zero(t, time.Since(began), "a failure is waited for no longer than a success")
			require.True(t, e.HasLog("level=WARN", "topics.json"), e.Log)
			require.NotContains(t, topicsOf(t, e), "new")
			d.faults.Clear()
			<-time.After(2 * time.Second)
			synctest.Wait()
			require.Contains(t, topicsOf(t, e), "new", "tried again without another change")
		})
	})
	t.Run("hangs", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d := newDisk()
			e := enginetest.Start(t, enginetest.Options{Disk: d.Disk})
			synctest.Wait()
			open := d.hold()
			defer open()
			for i := range 3 {
				began := time.Now()
				require.Zero(t, e.Connect(t).Send(enginetest.Message{Topic: fmt.Sprint("new", i), Body: "x"}).Code)
				require.Equal(t, time.Second, time.Since(began))
			}
			began := time.Now()
			require.Zero(t, e.Connect(t).Send(enginetest.Message{Topic: "new0", Body: "x"}).Code)
			require.Zero(t, time.Since(began), "once is enough")
			require.True(t, e.HasLog("level=WARN", "takes too long"), e.Log)
			open()
			synctest.Wait()
			require.Contains(t, topicsOf(t, e), "new2")
		})
	})
}

// A creator that gives up while the log hangs leaves a topic that is shown all
// the same once it is published and in the file, and found in it.
func TestCreatorGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := enginetest.Start(t, enginetest.Options{})
		synctest.Wait()
		e.Script.Hold()
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() { failed <- e.K.Topics.Put(ctx, topic("given-up", 1)) }()
		require.NoError(t, e.Script.WaitHeld(t.Context(), 1))
		cancel()
		require.ErrorIs(t, <-failed, context.Canceled)
		require.NoError(t, e.Script.Release(t.Context()))
		synctest.Wait()
		require.NotNil(t, e.K.Topics.Named("given-up"))
		require.Contains(t, topicsOf(t, e), "given-up")
	})
}
