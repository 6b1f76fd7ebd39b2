package catalog_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/catalog"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
	"github.com/hardpointmq/hardpoint/core/vfs/vfstest"
)

func topic(name string, queues int32) command.TopicConfig {
	return command.TopicConfig{TopicName: name, ReadQueueNums: queues, WriteQueueNums: queues, Perm: 6, TopicFilterType: "SINGLE_TAG"}
}

// tables is everything that must survive, comparable.
type tables struct {
	Topics  map[string]command.TopicConfig
	Groups  map[string]command.SubscriptionGroupConfig
	Offsets map[string]map[int32]int64
}

func tablesOf(e *enginetest.Engine) tables {
	t := tables{map[string]command.TopicConfig{}, map[string]command.SubscriptionGroupConfig{}, nil}
	topics, _ := e.K.Topics.All()
	for _, x := range topics {
		t.Topics[x.Config.TopicName] = x.Config
	}
	groups, _ := e.K.Groups.All()
	for _, x := range groups {
		t.Groups[x.GroupName] = *x
	}
	t.Offsets, _ = e.K.Offsets.All()
	return t
}

// fill makes some of everything.
func fill(t *testing.T, e *enginetest.Engine) {
	t.Helper()
	ctx := t.Context()
	for i := range 10 {
		require.NoError(t, e.K.Topics.Put(ctx, topic(fmt.Sprint("T", i), int32(i+1))))
	}
	require.NoError(t, e.K.Topics.Remove(ctx, "T3"))
	_, err := e.K.Groups.Ensure(ctx, "G")
	require.NoError(t, err)
	g := command.DefaultSubscriptionGroup("H")
	g.RetryMaxTimes = 3
	require.NoError(t, e.K.Groups.Put(ctx, g))
	require.NoError(t, e.K.Groups.Put(ctx, command.DefaultSubscriptionGroup("gone")))
	require.NoError(t, e.K.Groups.Remove(ctx, "gone", true))
	for i := range int32(4) {
		e.K.Offsets.Commit("G", message.Queue{Topic: "T4", ID: i}, int64(100+i))
	}
	e.K.Offsets.Commit("H", message.Queue{Topic: "T5", ID: 1}, 7)
}

// flushed waits until progress is in the log.
func flushed() {
	<-time.After(1100 * time.Millisecond)
	synctest.Wait()
}

func TestSeeds(t *testing.T) {
	each(t, func(t *testing.T, o enginetest.Options) {
		o.Config = func(c *kernel.Config) { c.TraceTopic = "RMQ_SYS_TRACE_TOPIC" }
		e := enginetest.Start(t, o)
		for name, queues := range map[string]int32{
			"TBW102": 8, "SELF_TEST_TOPIC": 1, "BenchmarkTest": 1024, "DefaultCluster": 16, "broker-a": 1, "OFFSET_MOVED_EVENT": 1,
			"SCHEDULE_TOPIC_XXXX": 18, "DefaultCluster_REPLY_TOPIC": 1, "RMQ_SYS_TRANS_HALF_TOPIC": 1, "RMQ_SYS_TRACE_TOPIC": 1,
		} {
			got := e.K.Topics.Named(name)
			require.NotNil(t, got, name)
			require.Equal(t, queues, got.Config.WriteQueueNums, name)
		}
		require.NotNil(t, e.K.Groups.Named("TOOLS_CONSUMER"))
		all, _ := e.K.Topics.All()
		for _, x := range all {
			require.False(t, message.IsInternal(x.Config.TopicName))
		}
	})
}

// The log alone, after a crash that took every file, holds everything.
func TestReplay(t *testing.T) {
	each(t, func(t *testing.T, o enginetest.Options) {
		for _, how := range []string{"log alone", "files", "clean stop", "snapshot and more"} {
			t.Run(how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					e := enginetest.Start(t, o)
					fill(t, e)
					flushed()
					if how == "snapshot and more" {
						e = e.Again(nil)
						require.NoError(t, e.K.Topics.Put(t.Context(), topic("later", 2)))
						require.NoError(t, e.K.Topics.Remove(t.Context(), "T5"))
						e.K.Offsets.Commit("G", message.Queue{Topic: "T4"}, 500)
						flushed()
					}
					want := tablesOf(e)
					require.NotContains(t, want.Topics, "T3")
					require.Equal(t, int64(103), want.Offsets["T4@G"][3])
					_, version := e.K.Topics.All()
					var disk *enginetest.Disk
					switch how {
					case "log alone":
						disk = e.Kill(memfs.KeepNone)
						disk.FS = memfs.New(2)
					case "clean stop":
					default:
						disk = e.Kill(memfs.KeepNone)
					}
					e = e.Again(disk)
					require.Equal(t, want, tablesOf(e))
					_, again := e.K.Topics.All()
					require.GreaterOrEqual(t, again.Counter, version.Counter, "versions do not go back")
					require.False(t, e.HasLog("level=ERROR"), e.Log)
				})
			})
		}
	})
}

// Every segment begins with a full image: the last segment alone carries
// everything, ends of queues included.
func TestImages(t *testing.T) {
	each(t, func(t *testing.T, o enginetest.Options) {
		synctest.Test(t, func(t *testing.T) {
			o.Segment = 100 << 10
			o.Config = func(c *kernel.Config) { c.MaxMessageSize = 50 << 10 }
			e := enginetest.Start(t, o)
			fill(t, e)
			flushed()
			c := e.Connect(t)
			sent := 0
			for int64(e.Store.State().Tail) < 5*o.Segment {
				require.Zero(t, c.Send(enginetest.Message{Topic: "T1", Queue: int32(sent % 2), Body: strings.Repeat("x", 3000)}).Code)
				sent++
			}
			tail := message.Position(int64(e.Store.State().Tail) / o.Segment * o.Segment)
			var chunk storage.Chunk
			for at := message.Position(0); at <= tail; at += message.Position(o.Segment) {
				require.NoError(t, e.Store.Get(t.Context(), []message.Position{at}, &chunk))
				require.NotZero(t, chunk.Units[0].Size, "a record begins at %d", at)
				var v message.View
				require.NoError(t, message.Parse(chunk.Frags[0], &v))
				require.Equal(t, message.CatalogTopic, string(v.Topic), "segment at %d", at)
			}
			want := tablesOf(e)
			ret := e.Store.Capabilities().Retention
			require.NoError(t, ret.Expire(t.Context(), tail))
			d := e.Kill(memfs.KeepNone)
			d.FS = memfs.New(3) // no snapshot, no files: only the last segment
			e = e.Again(d)
			require.Equal(t, want, tablesOf(e))
			r := e.Connect(t).Send(enginetest.Message{Topic: "T1", Queue: 0, Body: "x"})
			require.Equal(t, int64((sent+1)/2), r.Int("queueOffset"), "numbering goes on")
		})
	})
}

// A catalog larger than an eighth of a segment is written into some segments
// only, and all of it still comes back.
func TestLargeImages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := enginetest.Start(t, enginetest.Options{Segment: 100 << 10, Config: func(c *kernel.Config) { c.MaxMessageSize = 50 << 10 }})
		for i := range 150 {
			require.NoError(t, e.K.Topics.Put(t.Context(), topic(fmt.Sprintf("topic-with-a-long-name-%04d", i), 4)))
		}
		c := e.Connect(t)
		for e.Store.State().Tail < 20*100<<10 {
			require.Zero(t, c.Send(enginetest.Message{Topic: "T", Body: strings.Repeat("x", 4000)}).Code)
		}
		var chunk storage.Chunk
		with, images := 0, 0
		for at := message.Position(0); at < e.Store.State().Tail; at += 100 << 10 {
			require.NoError(t, e.Store.Get(t.Context(), []message.Position{at}, &chunk))
			var v message.View
			if images++; chunk.Units[0].Size > 0 && message.Parse(chunk.Frags[0], &v) == nil && message.IsInternal(string(v.Topic)) {
				with++
			}
		}
		require.Greater(t, with, 2)
		require.Less(t, with, images/2)
		want := tablesOf(e)
		d := e.Kill(memfs.KeepNone)
		d.FS = memfs.New(3)
		require.Equal(t, want, tablesOf(e.Again(d)))
	})
}

// BC-36: every way in which a metadata file can be damaged.
func TestDamagedFiles(t *testing.T) {
	names := []string{"topics.json", "subscriptionGroup.json", "consumerOffset.json", "hardpoint.snapshot", "hardpoint.files"}
	damages := map[string]func(b []byte) []byte{
		"empty":     func([]byte) []byte { return nil },
		"half":      func(b []byte) []byte { return b[:len(b)/2] },
		"over-long": func(b []byte) []byte { return append(slices.Clone(b), b[:min(100, len(b))]...) },
		"zeros":     func(b []byte) []byte { return make([]byte, len(b)) },
		"garbage":   func(b []byte) []byte { return []byte(strings.Repeat("\xff\xfe{", len(b)/3)) },
		"removed":   nil,
	}
	for _, name := range names {
		for how, damage := range damages {
			t.Run(name+" "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					e := enginetest.Start(t, enginetest.Options{})
					fill(t, e)
					flushed()
					e = e.Again(nil) // so that there are previous copies
					require.NoError(t, e.K.Topics.Put(t.Context(), topic("last", 3)))
					e.K.Offsets.Commit("G", message.Queue{Topic: "T4", ID: 2}, 1000)
					flushed()
					want := tablesOf(e)
					e.Stop()
					path := e.File(name)
					b, err := vfs.ReadFile(e.Disk.FS, path)
					require.NoError(t, err)
					if damage == nil {
						require.NoError(t, e.Disk.FS.Remove(path))
					} else {
						require.NoError(t, vfs.WriteFileAtomic(e.Disk.FS, path, damage(b)))
					}
					e = e.Again(e.Disk)
					require.Equal(t, want, tablesOf(e))
					if damage != nil {
						require.True(t, e.HasLog("level=WARN", name), "said by name:\n%s", e.Log)
					}
					<-time.After(70 * time.Second)
					synctest.Wait()
					e.Stop()
					_, err = vfs.ReadFile(e.Disk.FS, path)
					require.NoError(t, err, "the file is there again")
					e = e.Again(e.Disk)
					require.Equal(t, want, tablesOf(e))
					require.False(t, e.HasLog("level=WARN"), "and whole:\n%s", e.Log)
				})
			})
		}
	}
}

// All files damaged at once, with the log there: nothing is lost.
func TestAllFilesDamaged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := enginetest.Start(t, enginetest.Options{})
		fill(t, e)
		flushed()
		want := tablesOf(e)
		e.Stop()
		files, err := e.Disk.FS.List(e.File(""))
		require.NoError(t, err)
		for _, f := range files {
			require.NoError(t, vfs.WriteFileAtomic(e.Disk.FS, e.File(f), []byte("{")))
		}
		require.Equal(t, want, tablesOf(e.Again(e.Disk)))
	})
}

// A volume that is full, or read-only, while files are saved keeps the old ones;
// the broker goes on, and saves when it can again.
func TestSaveFails(t *testing.T) {
	for name, rule := range map[string]vfstest.Rule{
		"full": {Op: vfstest.OpWrite, Path: "*/config/*", Err: vfs.ErrNoSpace}, "read-only": {Op: vfstest.OpOpen, Path: "*/config/*.tmp", Err: fs.ErrPermission},
		"no rename": {Op: vfstest.OpRename, Path: "*/config/*"}, "no sync": {Op: vfstest.OpSync, Path: "*/config/*"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := enginetest.NewDisk()
				faults := vfstest.NewFaults(d.FS)
				d.FS = faults
				e := enginetest.Start(t, enginetest.Options{Disk: d})
				fill(t, e)
				flushed()
				e = e.Again(nil)
				read := func() map[string]string {
					out := map[string]string{}
					for _, f := range []string{"topics.json", "consumerOffset.json", "hardpoint.snapshot"} {
						b, err := vfs.ReadFile(d.FS, e.File(f))
						require.NoError(t, err)
						out[f] = string(b)
					}
					return out
				}
				before := read()
				faults.Add(rule)
				require.NoError(t, e.K.Topics.Put(t.Context(), topic("new", 1)))
				e.K.Offsets.Commit("G", message.Queue{Topic: "T4"}, 999)
				<-time.After(70 * time.Second)
				synctest.Wait()
				require.Equal(t, before, read(), "the old copies stay")
				require.True(t, e.HasLog("level=WARN", "writing the catalog"), e.Log)
				faults.Clear()
				<-time.After(70 * time.Second)
				synctest.Wait()
				require.Contains(t, read()["topics.json"], `"new"`)
				require.Contains(t, read()["consumerOffset.json"], "999")
				require.NotEqual(t, before["hardpoint.snapshot"], read()["hardpoint.snapshot"])
				want := tablesOf(e)
				require.Equal(t, want, tablesOf(e.Again(nil)))
			})
		})
	}
}

// Crashes at any moment while files are written: what the log has is never
// replaced by an older file of our own.
func TestCrashWhileSaving(t *testing.T) {
	for n := 1; n < 60; n += 2 {
		synctest.Test(t, func(t *testing.T) {
			d := enginetest.NewDisk()
			crash := d.FS.(*memfs.FS)
			e := enginetest.Start(t, enginetest.Options{Disk: d})
			fill(t, e)
			flushed()
			e.Stop()
			faults := vfstest.NewFaults(crash)
			var left vfs.FS
			calls := 0
			var mu sync.Mutex
			faults.SetHook(func(c vfstest.Call) error {
				mu.Lock()
				defer mu.Unlock()
				if c.Op == vfstest.OpRead || c.Op == vfstest.OpList || c.Op == vfstest.OpStat || c.Op == vfstest.OpSize {
					return nil
				}
				if calls++; calls == n {
					left = crash.Crash(memfs.KeepRandom)
				}
				return nil
			})
			e = e.Again(&enginetest.Disk{KV: d.KV, FS: faults})
			require.NoError(t, e.K.Topics.Put(t.Context(), topic("A", 1)))
			flushed()
			require.NoError(t, e.K.Topics.Put(t.Context(), topic("B", 1)))
			e.K.Offsets.Commit("G", message.Queue{Topic: "T4"}, 4242)
			flushed()
			want := tablesOf(e)
			e.Stop()
			mu.Lock()
			defer mu.Unlock()
			if left == nil {
				left = crash
			}
			e = e.Again(&enginetest.Disk{KV: d.KV, FS: left})
			require.Equal(t, want, tablesOf(e), "crash at call %d\n%s", n, e.Log)
		})
	}
}

func write(t *testing.T, d *enginetest.Disk, path string, v any) {
	t.Helper()
	b, ok := v.([]byte)
	if !ok {
		var err error
		b, err = json.Marshal(v)
		require.NoError(t, err)
	}
	require.NoError(t, d.FS.MkdirAll("store/config"))
	require.NoError(t, vfs.WriteFileAtomic(d.FS, path, b))
}

// Files that Apache's broker wrote are authoritative, and enter the log before
// writes open.
func TestForeignFiles(t *testing.T) {
	each(t, func(t *testing.T, o enginetest.Options) {
		synctest.Test(t, func(t *testing.T) {
			e := enginetest.Start(t, o)
			fill(t, e)
			flushed()
			e.Stop()
			foreign := command.TopicConfigSerializeWrapper{
				DataVersion:      command.DataVersion{StateVersion: 0, Timestamp: 77, Counter: 500},
				TopicConfigTable: map[string]command.TopicConfig{"T1": topic("T1", 64), "apache": topic("apache", 3)},
			}
			write(t, e.Disk, e.File("topics.json"), foreign)
			write(t, e.Disk, e.File("consumerOffset.json"), []byte(`{"dataVersion":{"counter":3,"stateVersion":0,"timestamp":5},"offsetTable":{"apache@G":{0:11,1:12},"T4@G":{0:3}}}`))
			e = e.Again(e.Disk)
			require.Equal(t, int32(64), e.K.Topics.Named("T1").Config.ReadQueueNums)
			require.NotNil(t, e.K.Topics.Named("apache"))
			require.Nil(t, e.K.Topics.Named("T2"), "what the file lacks is gone")
			require.NotNil(t, e.K.Topics.Named("TBW102"), "but what every broker has")
			n, ok := e.K.Offsets.Committed("G", message.Queue{Topic: "apache", ID: 1})
			require.True(t, ok)
			require.Equal(t, int64(12), n)
			_, ok = e.K.Offsets.Committed("G", message.Queue{Topic: "T4", ID: 3})
			require.False(t, ok)
			require.NotNil(t, e.K.Groups.Named("H"), "the file that is ours says nothing new")
			_, v := e.K.Topics.All()
			require.Greater(t, v.Counter, command.Int(500))
			want := tablesOf(e)
			// At once killed: the log has it, and the file is not taken again over
			// what came later.
			require.NoError(t, e.K.Topics.Put(t.Context(), topic("after", 1)))
			want.Topics["after"] = e.K.Topics.Named("after").Config
			e = e.Again(e.Kill(memfs.KeepNone))
			require.Equal(t, want, tablesOf(e))
			d := e.Kill(memfs.KeepNone)
			d.FS = memfs.New(9)
			require.Equal(t, want, tablesOf(e.Again(d)))
		})
	})
}

// Numbers of queues that cannot be are bounded before anything goes along all queues.
func TestOddNumbersOfQueues(t *testing.T) {
	d := enginetest.NewDisk()
	write(t, d, "store/config/topics.json", command.TopicConfigSerializeWrapper{TopicConfigTable: map[string]command.TopicConfig{
		"less": topic("less", -1), "more": topic("more", math.MaxInt32), "good": topic("good", 3),
	}})
	write(t, d, "store/config/subscriptionGroup.json", command.SubscriptionGroupWrapper{SubscriptionGroupTable: map[string]command.SubscriptionGroupConfig{
		"G": {GroupName: "G", RetryQueueNums: math.MaxInt32},
	}})
	e := enginetest.Start(t, enginetest.Options{Disk: d})
	for name, want := range map[string]int32{"less": 0, "more": 1 << 16, "good": 3} {
		c := e.K.Topics.Named(name).Config
		require.Equal(t, []int32{want, want}, []int32{c.ReadQueueNums, c.WriteQueueNums}, name)
	}
	require.Equal(t, int32(1<<16), e.K.Groups.Named("G").RetryQueueNums)
	require.True(t, e.HasLog("level=WARN", "name=less"), e.Log)
	require.False(t, e.HasLog("level=WARN", "name=good"), e.Log)
}

// A directory of Apache's without our records: damaged files fall back to their
// copies, or nothing starts.
func TestApacheDirectory(t *testing.T) {
	good := command.TopicConfigSerializeWrapper{TopicConfigTable: map[string]command.TopicConfig{"apache": topic("apache", 3)}}
	t.Run("copy", func(t *testing.T) {
		d := enginetest.NewDisk()
		write(t, d, "store/config/topics.json", []byte("{\x00\x00"))
		write(t, d, "store/config/topics.json.bak", good)
		e := enginetest.Start(t, enginetest.Options{Disk: d})
		require.NotNil(t, e.K.Topics.Named("apache"))
		require.True(t, e.HasLog("level=WARN", "topics.json"), e.Log)
	})
	t.Run("nothing usable", func(t *testing.T) {
		d := enginetest.NewDisk()
		write(t, d, "store/config/consumerOffset.json", []byte("\x00\x00"))
		_, err := enginetest.TryStart(t, enginetest.Options{Disk: d})
		require.ErrorIs(t, err, catalog.ErrFiles)
		require.ErrorContains(t, err, "consumerOffset.json")
		b, rerr := vfs.ReadFile(d.FS, "store/config/consumerOffset.json")
		require.NoError(t, rerr)
		require.Equal(t, "\x00\x00", string(b), "and nothing is overwritten")
	})
	t.Run("messages without metadata", func(t *testing.T) {
		d := enginetest.NewDisk()
		e := enginetest.Start(t, enginetest.Options{Disk: d, Prepare: func(e *enginetest.Engine) { e.K.Images = nil }})
		require.NotNil(t, e)
	})
}

// An office that is lost takes its unpublished changes with it; the tables are
// those of the log.
func TestOfficeLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := enginetest.Start(t, enginetest.Options{})
		fill(t, e)
		flushed()
		want := tablesOf(e)
		ctx := t.Context()
		e.Script.Hold()
		failed := make(chan error, 1)
		go func() { failed <- e.K.Topics.Put(ctx, topic("unpublished", 1)) }()
		require.NoError(t, e.Script.WaitHeld(ctx, 1))
		require.Nil(t, e.K.Topics.Named("unpublished"), "not before it is published")
		e.K.Offsets.Commit("G", message.Queue{Topic: "T4"}, 5555) // not in the log yet
		require.NoError(t, e.Script.Lose(ctx, "192.0.2.1:10911", false))
		err := <-failed
		require.Error(t, err)
		require.Equal(t, api.ServiceNotAvailable, api.IDOf(err))
		require.Equal(t, want, tablesOf(e))
		require.Error(t, e.K.Topics.Put(ctx, topic("refused", 1)))
		require.Equal(t, command.RespServiceNotAvailable, e.Connect(t).Send(enginetest.Message{Topic: "T1", Body: "x"}).Code)
		require.NoError(t, e.Script.Win(ctx, false))
		require.NoError(t, e.Script.Release(ctx))
		require.Equal(t, want, tablesOf(e))
		require.NoError(t, e.K.Topics.Put(ctx, topic("new-office", 1)))
		// Kept instead: what was unpublished is published by the next leader.
		e.Script.Hold()
		go func() { failed <- e.K.Topics.Put(ctx, topic("kept", 1)) }()
		require.NoError(t, e.Script.WaitHeld(ctx, 1))
		require.NoError(t, e.Script.Lose(ctx, "192.0.2.1:10911", false))
		require.Error(t, <-failed)
		require.NoError(t, e.Script.Win(ctx, true))
		require.NoError(t, e.Script.Release(ctx))
		require.NotNil(t, e.K.Topics.Named("kept"))
	})
}

// A list of topics is stored whole or not at all; one that is too long for that leaves
// the first of them, which are there like others, and whoever asked is told which.
func TestListOfTopicsFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changed []string
		e := enginetest.Start(t, enginetest.Options{Segment: 64 << 10, Prepare: func(e *enginetest.Engine) {
			e.K.Hooks.OnTopicChanged(func(name string) { changed = append(changed, name) })
		}})
		list := func(prefix string, n int) (out []command.TopicConfig) {
			for i := range n {
				out = append(out, topic(fmt.Sprintf("%s-%03d", prefix, i), 1))
			}
			return out
		}
		there := func(ts []command.TopicConfig) (n int) {
			for _, c := range ts {
				if e.K.Topics.Named(c.TopicName) != nil {
					n++
				}
			}
			return n
		}
		lost := errors.New("the quorum is gone")

		few := list("few", 40) // several records
		e.Script.Refuse(1, lost)
		require.Error(t, e.K.Topics.Put(t.Context(), few...))
		require.Zero(t, there(few), "all or none")
		require.Empty(t, changed)
		require.NoError(t, e.K.Topics.Put(t.Context(), few...))
		require.Equal(t, len(few), there(few))
		require.Len(t, changed, len(few))

		changed = nil
		many := list("many", 200)
		e.Script.Hold()
		failed := make(chan error, 1)
		go func() { failed <- e.K.Topics.Put(t.Context(), many...) }()
		require.NoError(t, e.Script.WaitHeld(t.Context(), 1))
		e.Script.Refuse(1, lost)
		require.NoError(t, e.Script.Release(t.Context()))
		err := <-failed
		require.Equal(t, api.ServiceNotAvailable, api.IDOf(err))
		n := there(many)
		require.Greater(t, n, 1)
		require.Less(t, n, len(many)-1)
		require.Equal(t, n, there(many[:n]), "the first ones")
		require.Len(t, changed, n)
		require.ErrorContains(t, err, fmt.Sprintf("%d of 200 topics are stored, up to many-%03d; many-%03d and those behind it", n, n-1, n))
		require.NoError(t, e.K.Topics.Put(t.Context(), many...), "again")
		require.Equal(t, len(many), there(many))
	})
}

// A follower applies what its leader writes, in log order.
func TestFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// What the leader writes is taken from another engine's log.
		leader := enginetest.Start(t, enginetest.Options{})
		d := newDisk()
		open := d.hold()
		e := enginetest.Start(t, enginetest.Options{Disk: d.Disk, Prepare: func(e *enginetest.Engine) {
			e.Script.StartAs(replication.Role{Kind: replication.RoleFollower, Term: 1, Leader: "192.0.2.1:10911"})
		}})
		require.Nil(t, e.K.Topics.Named("TBW102"))
		copied := message.Position(0)
		follow := func() {
			t.Helper()
			var c storage.Chunk
			for copied < leader.Store.State().Published {
				require.NoError(t, leader.Store.Get(t.Context(), []message.Position{copied}, &c))
				require.NotZero(t, c.Units[0].Size)
				rec := slices.Clone(c.Frags[0])
				p := &storage.Pending{Buf: rec}
				var v message.View
				require.NoError(t, message.Parse(rec, &v))
				v.Position = 0
				p.Units, p.Keys = message.NewDeriver(e.K.Config().Index).Derive(&v, nil, nil, nil)
				for i := range p.Units {
					p.Units[i].Queue.Topic = strings.Clone(p.Units[i].Queue.Topic)
				}
				p.Groups = []storage.Group{{Len: int32(len(rec)), Units: int32(len(p.Units)), Keys: int32(len(p.Keys))}}
				require.NoError(t, e.Script.Follow(t.Context(), p))
				copied += message.Position(len(rec))
			}
			synctest.Wait()
		}
		follow()
		require.Equal(t, tablesOf(leader), tablesOf(e))
		fill(t, leader)
		flushed()
		follow()
		require.Equal(t, tablesOf(leader), tablesOf(e))
		require.NotNil(t, e.K.Topics.Named("T4"), "what a follower applies waits for no file")
		open()
		// Promoted, it has everything and goes on.
		require.NoError(t, e.Script.Win(t.Context(), false))
		require.NoError(t, e.K.Topics.Put(t.Context(), topic("mine", 1)))
		require.NotNil(t, e.K.Topics.Named("mine"))
		require.NotNil(t, e.K.Topics.Named("T4"))
		// Files are written by followers, too.
		<-time.After(10 * time.Second)
		synctest.Wait()
		b, err := vfs.ReadFile(e.Disk.FS, e.File("topics.json"))
		require.NoError(t, err)
		require.Contains(t, string(b), `"T4"`)
	})
}

// A log that is cut below what was published takes the tables back, also with a
// snapshot that holds more.
func TestCutBelowPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := enginetest.Start(t, enginetest.Options{})
		fill(t, e)
		flushed()
		want := tablesOf(e)
		cut := e.Store.State().Tail
		require.NoError(t, e.K.Topics.Put(t.Context(), topic("cut", 1)))
		<-time.After(70 * time.Second) // a snapshot holds it
		synctest.Wait()
		_, err := vfs.ReadFile(e.Disk.FS, e.File("hardpoint.snapshot"))
		require.NoError(t, err)
		require.NoError(t, e.Script.Lose(t.Context(), "192.0.2.1:10911", false))
		require.NotNil(t, e.K.Topics.Named("cut"))
		require.NoError(t, e.Store.Capabilities().RawLog.Truncate(t.Context(), cut))
		synctest.Wait()
		require.Equal(t, want, tablesOf(e))
		e = e.Again(e.Kill(memfs.KeepNone))
		require.Equal(t, want, tablesOf(e))
	})
}

// A leader whose office begins with a full disk takes the office later, and the
// log has everything then.
func TestOfficeFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := enginetest.NewDisk()
		_, err := enginetest.TryStart(t, enginetest.Options{Disk: d, Prepare: func(e *enginetest.Engine) { e.Script.Refuse(100, replication.ErrBusy) }})
		require.ErrorIs(t, err, replication.ErrBusy)
		e := enginetest.Start(t, enginetest.Options{Disk: d, Prepare: func(e *enginetest.Engine) {
			e.Script.StartAs(replication.Role{Kind: replication.RoleFollower, Term: 1})
		}})
		e.Script.Refuse(2, replication.ErrBusy)
		require.Error(t, e.Script.Win(t.Context(), false))
		require.Equal(t, command.RespServiceNotAvailable, e.Connect(t).Send(enginetest.Message{Topic: "TBW102", Body: "x"}).Code)
		e.Script.Refuse(0, nil)
		require.NoError(t, e.Script.Win(t.Context(), false))
		want := tablesOf(e)
		require.Contains(t, want.Topics, "TBW102")
		k := e.Kill(memfs.KeepNone)
		k.FS = memfs.New(4)
		k2 := e.Again(k)
		require.Equal(t, want, tablesOf(k2))
	})
}

// Many changes at once are all there, now and after a crash.
func TestConcurrentChanges(t *testing.T) {
	each(t, func(t *testing.T, o enginetest.Options) {
		o.Segment = 100 << 10
		e := enginetest.Start(t, o)
		var wg sync.WaitGroup
		for p := range 8 {
			wg.Go(func() {
				for i := range 20 {
					if err := e.K.Topics.Put(t.Context(), topic(fmt.Sprintf("own-%d-%d", p, i), 1)); err != nil {
						t.Error(err)
					}
					if err := e.K.Topics.Put(t.Context(), topic("shared", int32(1+p*20+i))); err != nil {
						t.Error(err)
					}
					if i%5 == 4 {
						if err := e.K.Topics.Remove(t.Context(), fmt.Sprintf("own-%d-%d", p, i)); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
		wg.Wait()
		want := tablesOf(e)
		names := slices.Sorted(maps.Keys(want.Topics))
		require.Len(t, slices.DeleteFunc(names, func(n string) bool { return !strings.HasPrefix(n, "own-") }), 8*16)
		k := e.Kill(memfs.KeepNone)
		k.FS = memfs.New(4)
		require.Equal(t, want, tablesOf(e.Again(k)))
	})
}

func lockBody(id string, queues ...int32) command.LockBatchBody {
	b := command.LockBatchBody{ClientID: id, ConsumerGroup: "G"}
	for _, q := range queues {
		b.MQSet = append(b.MQSet, command.MessageQueue{Topic: "T", BrokerName: "broker-a", QueueID: q})
	}
	return b
}

func TestLocks(t *testing.T) {
	each(t, func(t *testing.T, o enginetest.Options) {
		synctest.Test(t, func(t *testing.T) {
			e := enginetest.Start(t, o)
			c := e.Connect(t)
			lock := func(id string, queues ...int32) []int32 {
				t.Helper()
				r := c.Do(command.ReqLockBatchMQ, nil, c.Body(lockBody(id, queues...)))
				require.Zero(t, r.Code, r.Remark)
				var got command.LockBatchResponse
				require.NoError(t, command.DecodeBody(r.Body, &got))
				var ids []int32
				for _, q := range got.LockOKMQSet {
					ids = append(ids, q.QueueID)
				}
				slices.Sort(ids)
				return ids
			}
			require.Equal(t, []int32{0, 1}, lock("a", 0, 1))
			require.Equal(t, []int32{2}, lock("b", 0, 1, 2))
			require.Equal(t, []int32{0, 1}, lock("a", 0, 1), "renewed")
			require.True(t, e.K.Locks.Held("G"))
			require.False(t, e.K.Locks.Held("other"))
			<-time.After(40 * time.Second)
			require.Equal(t, []int32{0}, lock("a", 0), "renewed")
			// Locks survive the broker, also those renewed.
			flushed()
			e = e.Again(e.Kill(memfs.KeepNone))
			c = e.Connect(t)
			require.Empty(t, lock("b", 0))
			<-time.After(25 * time.Second)
			require.Equal(t, []int32{1, 2}, lock("b", 0, 1, 2), "that of 1 is over, that of 0 is not")
			require.Zero(t, c.Do(command.ReqUnlockBatchMQ, nil, c.Body(lockBody("b", 0, 1, 2))).Code)
			require.Equal(t, []int32{0, 1, 2}, lock("a", 0, 1, 2), "only the owner unlocks, and has")
			c.Oneway(command.ReqUnlockBatchMQ, nil, c.Body(lockBody("a", 0, 1, 2)))
			require.Equal(t, []int32{0}, lock("b", 0))
			require.NotZero(t, c.Do(command.ReqLockBatchMQ, nil, []byte("{")).Code)
			require.Equal(t, command.RespInvalidParameter, c.Do(command.ReqLockBatchMQ, nil, c.Body(lockBody("", 3))).Code, "nobody's lock")
			require.Equal(t, []int32{3}, lock("a", 3))
		})
	})
}

// A lock that did not reach the log is nobody's.
func TestLockNotLogged(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	c := e.Connect(t)
	e.Script.Refuse(1, replication.ErrBusy)
	require.NotZero(t, c.Do(command.ReqLockBatchMQ, nil, c.Body(lockBody("a", 0))).Code)
	require.False(t, e.K.Locks.Held("G"))
	// While the record of a lock is under way, the same client does not get it
	// without one either.
	e.Script.Hold()
	n1 := c.Begin(command.ReqLockBatchMQ, nil, c.Body(lockBody("a", 0)))
	require.NoError(t, e.Script.WaitHeld(t.Context(), 1))
	n2 := c.Begin(command.ReqLockBatchMQ, nil, c.Body(lockBody("a", 0)))
	require.False(t, c.Answered(n2))
	require.NoError(t, e.Script.Release(t.Context()))
	require.Zero(t, c.Wait(n1).Code)
	require.Zero(t, c.Wait(n2).Code)
	e.Script.FailBarrier(replication.ErrNotLeader)
	require.Equal(t, command.RespServiceNotAvailable, c.Do(command.ReqLockBatchMQ, nil, c.Body(lockBody("a", 0))).Code)
}
