package retention_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/internal/metrics"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagemw"
	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
	"github.com/hardpointmq/hardpoint/plugins/replication/solo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	segment = 64 << 10
	always  = kernel.Hours(1<<24 - 1)
)

// rig is an engine whose disk and whose hold-ups are scripted.
type rig struct {
	*enginetest.Engine
	t       *testing.T
	c       *enginetest.Client
	percent *atomic.Int64
	more    *atomic.Uint64 // bytes used beside that
}

// start makes a rig in which messages live for an hour and segments go at any hour,
// unless change says otherwise.
func start(t *testing.T, o enginetest.Options, change func(*kernel.Config)) *rig {
	t.Helper()
	r := &rig{t: t, percent: &atomic.Int64{}, more: &atomic.Uint64{}}
	r.percent.Store(50)
	if o.Replication == nil {
		o.Replication = solo.NewFactory()
	}
	o.Segment = segment
	o.Usage = func(string) (vfs.Usage, error) {
		free := (100-uint64(r.percent.Load()))<<20 - r.more.Load()
		return vfs.Usage{Total: 100 << 20, Free: free, Available: free}, nil
	}
	o.Config = func(c *kernel.Config) {
		c.Reserved, c.Hours = time.Hour, always
		if change != nil {
			change(c)
		}
	}
	r.Engine = enginetest.Start(t, o)
	r.c = r.Connect(t)
	return r
}

func (r *rig) again(d *enginetest.Disk) *rig {
	n := *r
	n.Engine = r.Again(d)
	n.c = n.Connect(r.t)
	return &n
}

// fill sends messages until the log ends in segment n.
func (r *rig) fill(n int64) {
	r.t.Helper()
	body := strings.Repeat("x", 4<<10)
	for r.Store.State().Tail < message.Position(n*segment) {
		require.Zero(r.t, r.c.Send(enginetest.Message{Topic: "T", Body: body}).Code)
	}
}

// first is the first segment's number.
func (r *rig) first() int64 { return int64(r.Store.State().First) / segment }

// pass lets time pass, in a bubble.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func pull(c *enginetest.Client, topic string, at int64) *enginetest.Reply {
	return c.Pull(enginetest.Pull("G", topic, 0, at))
}

// Old segments go, the minimum moves, who reads below it is told where to go on, and
// numbers go on from where they were: in a queue that lost all of its messages, too,
// after a clean stop and after a crash.
func TestByTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := start(t, enginetest.Options{}, nil)
		for range 3 {
			require.Zero(t, r.c.Send(enginetest.Message{Topic: "rare", Body: "x"}).Code)
		}
		r.fill(3)
		pass(50 * time.Minute)
		r.fill(5)
		require.Zero(t, r.first(), "nothing is old yet")
		pass(11 * time.Minute)
		require.Equal(t, int64(3), r.first())
		require.True(t, r.HasLog("deleted old segments", "segments=3", "fileReservedTime and deleteWhen"), r.Log)

		check := func(r *rig) {
			got := pull(r.c, "T", 0)
			require.Equal(t, command.RespPullOffsetMoved, got.Code)
			next := got.Int("nextBeginOffset")
			require.Positive(t, next)
			require.Equal(t, next, got.Int("minOffset"))
			require.Zero(t, pull(r.c, "T", next).Code, "the consumer goes on there")
			got = pull(r.c, "rare", 1)
			require.Equal(t, command.RespPullOffsetMoved, got.Code)
			require.Equal(t, int64(3), got.Int("nextBeginOffset"))
		}
		check(r)
		r = r.again(nil)
		check(r)
		r = r.again(r.Kill(memfs.KeepNone))
		check(r)
		sent := r.c.Send(enginetest.Message{Topic: "rare", Body: "y"})
		require.Equal(t, int64(3), sent.Int("queueOffset"))
		require.Equal(t, "y", string(pull(r.c, "rare", 3).Records()[0].Body))
		pass(2 * time.Hour)
		require.Equal(t, int64(5), r.first(), "the newest segment stays, whatever its age")
	})
}

// Outside of deleteWhen nothing goes but what a tool asks for.
func TestDeleteWhenAndTools(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := start(t, enginetest.Options{}, func(c *kernel.Config) {
			c.Hours, c.Batch = 1<<time.Now().Add(6*time.Hour).Hour(), 2
		})
		r.fill(5)
		pass(2 * time.Hour)
		require.Zero(t, r.first())
		require.Zero(t, r.c.Do(command.ReqCleanExpiredConsumeQueue, nil, nil).Code)
		require.Zero(t, r.c.Do(command.ReqDeleteExpiredCommitLog, nil, nil).Code)
		pass(time.Second)
		require.Equal(t, int64(5), r.first(), "all of them, whatever deleteFileBatchMax says")
		r.fill(10)
		pass(3 * time.Hour)
		require.Equal(t, int64(5), r.first(), "it was asked for once")
		pass(70 * time.Minute)
		require.Equal(t, int64(10), r.first(), "now it is the hour")
	})
}

// TestBounds is BC-28, steps 1 and 2, with what a tool asks for and is told; how each
// store keeps the bounds is shown in enginematrix.
func TestBounds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := start(t, enginetest.Options{}, func(c *kernel.Config) { c.Hours = 1 << time.Now().Add(12*time.Hour).Hour() })
		const count = 1000
		topics := []string{"A", "B", "C"}
		for _, name := range topics {
			for range count {
				require.Zero(t, r.c.Send(enginetest.Message{Topic: name, Body: strings.Repeat("x", 100)}).Code)
			}
		}
		status := func(topic string) command.TopicOffset {
			a := r.c.Do(command.ReqGetTopicStatsInfo, (&command.TopicRequest{Topic: topic}).Append, nil)
			require.Zero(t, a.Code, a.Remark)
			var s command.TopicStatsTable
			require.NoError(t, command.DecodeBody(a.Body, &s))
			return s.OffsetTable[command.MessageQueue{BrokerName: "broker-a", Topic: topic}]
		}
		for _, name := range topics {
			s := status(name)
			require.Equal(t, []int64{0, count}, []int64{s.MinOffset, s.MaxOffset}, name)
		}
		pass(2 * time.Hour)
		require.Zero(t, r.c.Do(command.ReqDeleteExpiredCommitLog, nil, nil).Code)
		pass(time.Minute)
		last := int64(r.Store.State().Tail) / segment
		require.Equal(t, last, r.first(), "all but the last segment are gone")
		for _, name := range []string{"A", "B"} {
			s := status(name)
			require.Equal(t, []int64{count, count}, []int64{s.MinOffset, s.MaxOffset}, name)
		}
		s := status("C")
		require.Equal(t, int64(count), s.MaxOffset)
		require.Positive(t, s.MinOffset)
		require.Equal(t, s.MinOffset, pull(r.c, "C", s.MinOffset).Records()[0].QueueOffset, "the first that can be read")
		require.Equal(t, s.MinOffset, pull(r.c, "C", s.MinOffset-1).Int("nextBeginOffset"))
		r = r.again(nil)
		require.Equal(t, int64(count), r.c.Send(enginetest.Message{Topic: "A", Body: "x"}).Int("queueOffset"))
		require.Equal(t, int64(count), status("A").MinOffset)
	})
}

// What is old goes above the first level, the oldest whatever its age above the
// second, until the disk is below it.
func TestByDisk(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := start(t, enginetest.Options{}, func(c *kernel.Config) { c.Hours, c.Pause = 0, time.Minute })
		r.fill(3)
		pass(61 * time.Minute)
		r.fill(8)
		require.Zero(t, r.first())
		r.percent.Store(76)
		pass(5 * time.Minute)
		require.Equal(t, int64(3), r.first(), "only what is old")
		r.percent.Store(86)
		pass(11 * time.Second)
		require.Equal(t, int64(4), r.first(), "one, then a pause")
		pass(time.Minute)
		require.Equal(t, int64(5), r.first())
		r.percent.Store(85)
		pass(10 * time.Minute)
		require.Equal(t, int64(5), r.first(), "it stops when there is space")
		r.percent.Store(100)
		pass(10 * time.Minute)
		require.Equal(t, int64(8), r.first(), "the newest stays")
	})
}

// A store that gives space back late does not lose its whole log for it.
func TestSpaceComesFreeLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := start(t, enginetest.Options{}, func(c *kernel.Config) { c.Hours = 0 })
		r.fill(8)
		r.more.Store(100 << 10) // two segments
		r.percent.Store(85)
		pass(time.Minute)
		require.Equal(t, int64(2), r.first())
		r.more.Store(150 << 10) // and one more
		pass(30 * time.Second)
		require.Equal(t, int64(3), r.first())
		pass(3 * time.Minute)
		require.Equal(t, int64(6), r.first(), "it has waited long enough")
	})
}

func TestCleanForciblyOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := start(t, enginetest.Options{}, func(c *kernel.Config) { c.CleanForcibly = false })
		r.fill(3)
		r.percent.Store(99)
		pass(time.Minute)
		require.Zero(t, r.first())
		require.Equal(t, command.RespServiceNotAvailable, r.c.Send(enginetest.Message{Topic: "T", Body: "x"}).Code)
	})
}

// Above the last level messages are refused; they are taken again two percent below
// it and not before. Everything else goes on.
func TestFullDisk(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := start(t, enginetest.Options{}, func(c *kernel.Config) { c.CleanForcibly = false })
		send := func() *enginetest.Reply { return r.c.Send(enginetest.Message{Topic: "T", Body: "x"}) }
		require.Zero(t, send().Code)
		taken := true
		for _, percent := range []int64{89, 90, 91, 90, 89, 91, 89, 88, 90, 89, 90, 91, 88} {
			r.percent.Store(percent)
			wait := 11 * time.Second
			if !taken {
				wait = 1100 * time.Millisecond // who makes room waits for it
			}
			pass(wait)
			switch {
			case percent > 90:
				taken = false
			case percent <= 88:
				taken = true
			}
			got := send()
			if taken {
				require.Zero(t, got.Code, percent)
				continue
			}
			require.Equal(t, command.RespServiceNotAvailable, got.Code, percent)
			require.Contains(t, got.Remark, "diskSpaceWarningLevelRatio")
			require.Contains(t, got.Remark, "taken again at 88")
		}
		require.Equal(t, 2, strings.Count(r.Log.String(), "the disk is full: messages are refused"), "once for each time")
		r.percent.Store(99)
		pass(11 * time.Second)
		require.Equal(t, command.RespServiceNotAvailable, send().Code)
		require.Zero(t, pull(r.c, "T", 0).Code, "reading goes on")
		require.Zero(t, r.c.Do(command.ReqUpdateConsumerOffset, (&command.UpdateConsumerOffsetRequest{
			ConsumerGroup: []byte("G"), Topic: []byte("T"), CommitOffset: 1,
		}).Append, nil).Code, "progress, too")
		require.NoError(t, r.K.Topics.Remove(t.Context(), "T"), "deletions, too")

		r = r.again(nil)
		require.Equal(t, command.RespServiceNotAvailable, send().Code, "from the start on")
		r.percent.Store(10)
		pass(1100 * time.Millisecond)
		require.Zero(t, send().Code)
	})
}

// script is a behaviour that still needs something.
type script struct {
	mu   sync.Mutex
	hold kernel.Hold
	err  error
	hang chan struct{}
	asks []kernel.Expiry
	roll func(e kernel.Expiry) error
}

func (s *script) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *script) ask(ctx context.Context, e kernel.Expiry) (kernel.Hold, error) {
	s.mu.Lock()
	s.asks = append(s.asks, e)
	hold, err, hang, roll := s.hold, s.err, s.hang, s.roll
	s.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			<-hang // it is not well-behaved
		}
	}
	if roll != nil {
		return kernel.Hold{}, roll(e)
	}
	return hold, err
}

func scripted(s *script, always bool) enginetest.Options {
	return enginetest.Options{Prepare: func(e *enginetest.Engine) {
		e.K.Hooks.OnBeforeExpire(kernel.Holder{Name: "delay", Always: always, Ask: s.ask})
	}}
}

// Who needs old messages is asked, holds back, and is named; it is passed over when
// its time is over.
func TestHoldBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{hold: kernel.Hold{Back: true, From: 2*segment + 17, Why: "a message is due on Friday"}}
		reg := prometheus.NewRegistry()
		o := scripted(s, false)
		o.Meter = metrics.New(reg)
		r := start(t, o, nil)
		r.fill(5)
		pass(61 * time.Minute)
		require.Equal(t, int64(2), r.first(), "what lies before it goes")
		require.True(t, r.HasLog("level=WARN", "held back", "holder=delay", "a message is due on Friday"), r.Log)
		require.Equal(t, 1, strings.Count(r.Log.String(), "held back"), "said once")
		require.InDelta(t, 3, value(t, reg, "hardpoint_retention_held_segments", "delay"), 0)
		require.InDelta(t, 0, value(t, reg, "hardpoint_retention_held_segments", "catalog"), 0)
		s.set(func() {
			last := s.asks[len(s.asks)-1]
			require.True(t, last.Leading)
			require.Equal(t, message.Position(5*segment), last.First)
			require.Equal(t, message.Position(2*segment), last.Segments[0].At)
			s.hold.From = 3 * segment
		})
		pass(23 * time.Hour)
		require.Equal(t, int64(3), r.first())
		s.set(func() { s.hold.Why, s.err = "", errors.New("a fault of it") })
		pass(50 * time.Minute)
		require.Equal(t, int64(3), r.first(), "its time is counted for each segment")
		pass(time.Hour)
		require.Equal(t, int64(5), r.first())
		require.True(t, r.HasLog("level=ERROR", "still needs is deleted", "holder=delay", "a fault of it", "expiryHoldMost"), r.Log)
		require.InDelta(t, 0, value(t, reg, "hardpoint_retention_held_segments", "delay"), 0)
		require.InDelta(t, 5, value(t, reg, "hardpoint_retention_expired_segments_total", ""), 0)
	})
}

func TestHoldBackOnAFullDisk(t *testing.T) {
	for _, always := range []bool{false, true} {
		t.Run(fmt.Sprint("always=", always), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := start(t, scripted(&script{hold: kernel.Hold{Back: true, Why: "a replica is behind"}}, always), nil)
				r.fill(3)
				pass(2 * time.Hour)
				require.Zero(t, r.first())
				r.percent.Store(86)
				pass(time.Minute)
				if always {
					require.Zero(t, r.first())
					pass(48 * time.Hour)
					require.Zero(t, r.first())
					return
				}
				require.Equal(t, int64(3), r.first())
				require.True(t, r.HasLog("still needs is deleted", "too full"), r.Log)
			})
		})
	}
}

// A behaviour writes what it needs anew and lets the rest go.
func TestRollForward(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{}
		r := start(t, scripted(s, false), nil)
		var rolled atomic.Int64
		s.set(func() {
			s.roll = func(e kernel.Expiry) error {
				var c storage.Chunk
				defer c.Reset()
				err := r.Store.Get(t.Context(), []message.Position{e.Segments[0].At}, &c)
				if err != nil || c.Units[0].Size == 0 {
					return fmt.Errorf("nothing to roll forward: %w", err)
				}
				p, err := r.K.Journal.Write(t.Context(), &message.Record{Topic: "T", BornTime: 1, Body: []byte("rolled")})
				if err == nil {
					rolled.Store(p.Units[0].Offset)
				}
				return err
			}
		})
		r.fill(3)
		pass(61 * time.Minute)
		require.Equal(t, int64(3), r.first())
		require.Equal(t, "rolled", string(pull(r.c, "T", rolled.Load()).Records()[0].Body))
	})
}

// One that does not return holds everything back, does not stop the watch over the
// disk, and is asked again when it has returned.
func TestHolderHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{hang: make(chan struct{})}
		r := start(t, scripted(s, false), nil)
		r.fill(3)
		pass(2 * time.Hour)
		require.Zero(t, r.first())
		require.True(t, r.HasLog("held back", "holder=delay", "does not answer"), r.Log)
		s.set(func() { require.Len(t, s.asks, 1, "one call at a time") })
		r.percent.Store(91)
		pass(20 * time.Second)
		require.Equal(t, command.RespServiceNotAvailable, r.c.Send(enginetest.Message{Topic: "T", Body: "x"}).Code)
		require.Equal(t, int64(3), r.first(), "and does not keep a full disk full")
		r.percent.Store(10)
		pass(20 * time.Second)
		r.fill(5)
		s.set(func() { close(s.hang); s.hang = nil })
		pass(2 * time.Hour)
		require.Equal(t, int64(5), r.first())
	})
}

// The newest whole image of the catalog is never passed. Where there is none a
// leader writes one.
func TestImageIsNotPassed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		o := enginetest.Options{Prepare: func(e *enginetest.Engine) { e.K.Images = nil }} // none at edges
		r := start(t, o, nil)
		require.NoError(t, r.K.Topics.Put(t.Context(), command.TopicConfig{TopicName: "kept", ReadQueueNums: 7, WriteQueueNums: 7, Perm: 6}))
		r.fill(4)
		pass(61 * time.Minute)
		require.Equal(t, int64(4), r.first())
		d := r.Kill(memfs.KeepNone)
		require.NoError(t, d.FS.RemoveAll("store")) // no snapshot, no JSON file: the log has all
		r = r.again(d)
		require.Equal(t, int32(7), r.K.Topics.Named("kept").Config.ReadQueueNums)
		require.Equal(t, command.RespPullOffsetMoved, pull(r.c, "T", 0).Code)
	})
}

// A node that may not write waits for the image of one that may.
func TestImageOfAFollower(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := start(t, enginetest.Options{}, nil)
		e := kernel.Expiry{First: 4 * segment}
		r.fill(3)
		for at := message.Position(0); at <= 4*segment; at += segment {
			e.Segments = append(e.Segments, storage.Segment{At: at})
		}
		h := r.K.Hooks.Holders()[0]
		require.Equal(t, "catalog", h.Name)
		require.True(t, h.Always)
		hold, err := h.Ask(t.Context(), e)
		require.NoError(t, err)
		require.True(t, hold.Back)
		require.Equal(t, message.Position(3*segment), hold.From)
		e.First = 3 * segment
		hold, err = h.Ask(t.Context(), e)
		require.NoError(t, err)
		require.False(t, hold.Back)
	})
}

// readers is a store whose segments are read.
type readers struct {
	storage.Retention
	leases   atomic.Int32
	deadline atomic.Bool // readers come after they were looked for
	expires  atomic.Int32
}

type read struct {
	storagemw.Base
	caps storage.Capabilities
}

func (s *read) Capabilities() storage.Capabilities { return s.caps }

func (x *readers) Segments(ctx context.Context) ([]storage.Segment, error) {
	segs, err := x.Retention.Segments(ctx)
	if len(segs) > 0 {
		segs[0].Leases = x.leases.Load()
	}
	return segs, err
}

func (x *readers) Expire(ctx context.Context, first message.Position) error {
	x.expires.Add(1)
	if x.deadline.Load() {
		<-ctx.Done()
		return fmt.Errorf("waiting for readers: %w", ctx.Err())
	}
	return x.Retention.Expire(ctx, first)
}

// Readers keep their segment; the store is not asked meanwhile, and it is said.
func TestReaders(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := &readers{}
		r := start(t, enginetest.Options{Store: func(_ storage.Params, next storage.Store) storage.Store {
			s := &read{storagemw.Base{Store: next}, next.Capabilities()}
			x.Retention = s.caps.Retention
			s.caps.Retention = x
			return s
		}}, nil)
		x.leases.Store(3)
		r.fill(3)
		pass(61 * time.Minute)
		require.Zero(t, r.first())
		require.Zero(t, x.expires.Load(), "the turn of the log is not taken for nothing")
		pass(2 * time.Minute)
		require.True(t, r.HasLog("level=WARN", "readers keep an old segment", "readers=3"), r.Log)
		x.deadline.Store(true)
		x.leases.Store(0)
		pass(time.Minute)
		require.Zero(t, r.first())
		require.Less(t, x.expires.Load(), int32(8))
		require.Equal(t, 1, strings.Count(r.Log.String(), "readers keep an old segment"))
		x.deadline.Store(false)
		pass(time.Minute)
		require.Equal(t, int64(3), r.first())
		require.False(t, r.HasLog("level=ERROR"), r.Log)
	})
}

// A store that cannot delete says so once, and is asked again.
func TestStoreFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var broken atomic.Bool
		hook := func(_ context.Context, c storagemw.Call) error {
			if broken.Load() && c.Op == storagemw.OpExpire && !c.Done {
				return errors.New("a bad disk")
			}
			return nil
		}
		r := start(t, enginetest.Options{Store: storagemw.Faults(hook)}, nil)
		broken.Store(true)
		r.fill(2)
		pass(2 * time.Hour)
		require.Zero(t, r.first())
		require.True(t, r.HasLog("level=ERROR", "cannot be deleted", "a bad disk"), r.Log)
		broken.Store(false)
		pass(time.Minute)
		require.Equal(t, int64(2), r.first())
	})
}

// The disk fills: it is said when it will be full, and shown.
func TestForecast(t *testing.T) {
	bubble(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		r := start(t, enginetest.Options{Meter: metrics.New(reg)}, nil)
		require.Zero(t, r.c.Send(enginetest.Message{Topic: "T", Body: "x"}).Code)
		pass(2 * time.Hour)
		require.Greater(t, value(t, reg, "hardpoint_retention_disk_full_hours", ""), 1e300, "it does not fill")
		told := func() string { return r.c.Do(command.ReqGetBrokerRuntimeInfo, nil, nil).Ext["fullInHours"] }
		require.Empty(t, told())
		require.InDelta(t, 7200, value(t, reg, "hardpoint_retention_oldest_message_age_seconds", ""), 60)
		for range 10 { // 5 percent an hour
			r.percent.Add(1)
			pass(12 * time.Minute)
		}
		require.InDelta(t, 0.6, value(t, reg, "hardpoint_retention_disk_used_ratio", ""), 0.001)
		require.InDelta(t, 5, value(t, reg, "hardpoint_retention_disk_full_hours", ""), 1.3)
		require.Contains(t, []string{"3", "4", "5", "6"}, told(), "tools are told, too")
		require.True(t, r.HasLog("level=WARN", "the disk will be full soon", "in_about=\"17 hours\"", "deleted before their time"), r.Log)
		require.Equal(t, 1, strings.Count(r.Log.String(), "will be full soon"))
		r.percent.Store(95)
		pass(time.Minute)
		require.InDelta(t, 1, value(t, reg, "hardpoint_retention_sends_refused", ""), 0)
	})
}

// value is a metric, with a holder if that is not "".
func value(t *testing.T, reg *prometheus.Registry, name, holder string) float64 {
	t.Helper()
	all, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range all {
		for _, m := range f.GetMetric() {
			ok := f.GetName() == name
			for _, l := range m.GetLabel() {
				ok = ok && (l.GetName() != "holder" || l.GetValue() == holder)
			}
			if ok {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("no metric %s %s", name, holder)
	return 0
}

// A store without the facet keeps its records; what is old cannot be reached, after a
// restart either, and numbers go on.
func TestFloors(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := start(t, enginetest.Options{Store: noRetention}, nil)
		for range 3 {
			require.Zero(t, r.c.Send(enginetest.Message{Topic: "T", Body: "old"}).Code)
			require.Zero(t, r.c.Send(enginetest.Message{Topic: "rare", Body: "x"}).Code)
		}
		pass(50 * time.Minute)
		require.Zero(t, r.c.Send(enginetest.Message{Topic: "T", Body: "new"}).Code)
		require.Zero(t, pull(r.c, "T", 0).Code)
		pass(11 * time.Minute)
		check := func(r *rig) {
			got := pull(r.c, "T", 0)
			require.Equal(t, command.RespPullOffsetMoved, got.Code)
			require.Equal(t, int64(3), got.Int("nextBeginOffset"))
			got = pull(r.c, "T", 3)
			require.Equal(t, "new", string(got.Records()[0].Body))
			require.Equal(t, int64(3), got.Int("minOffset"))
			got = pull(r.c, "rare", 2)
			require.Equal(t, command.RespPullOffsetMoved, got.Code)
			require.Equal(t, int64(3), got.Int("nextBeginOffset"))
			require.Equal(t, command.RespPullNotFound, pull(r.c, "rare", 3).Code)
		}
		check(r)
		r = r.again(r.Kill(memfs.KeepNone))
		check(r)
		require.Equal(t, int64(3), r.c.Send(enginetest.Message{Topic: "rare", Body: "y"}).Int("queueOffset"))
		require.Zero(t, r.first(), "nothing is deleted")
		require.False(t, r.HasLog("level=ERROR"), r.Log)
	})
}

// Calls that change the log never overlap, whoever makes them.
func TestTurn(t *testing.T) {
	var inside atomic.Int32
	var overlaps atomic.Bool
	hook := func(_ context.Context, c storagemw.Call) error {
		switch c.Op {
		case storagemw.OpAppend, storagemw.OpPublish, storagemw.OpExpire, storagemw.OpDrop:
			if c.Done {
				inside.Add(-1)
			} else if inside.Add(1) > 1 {
				overlaps.Store(true)
			}
		}
		return nil
	}
	r := start(t, enginetest.Options{Store: func(p storage.Params, next storage.Store) storage.Store {
		s := storagemw.Faults(hook)(p, next)
		x := &read{storagemw.Base{Store: s}, s.Capabilities()}
		x.caps.ExpiresBeside = false
		return x
	}}, nil)
	var wg sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		c := r.Connect(t)
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					c.Send(enginetest.Message{Topic: "T", Body: strings.Repeat("x", 8<<10)})
				}
			}
		})
	}
	facet := r.K.Store.Capabilities().Retention
	for seg := message.Position(segment); seg < 30*segment; seg += segment {
		require.Eventually(t, func() bool { return r.Store.State().Published >= seg }, enginetest.Patience, time.Millisecond)
		require.NoError(t, facet.Expire(t.Context(), seg))
		require.NoError(t, facet.Drop(t.Context(), []message.Queue{{Topic: "none"}}))
	}
	close(done)
	wg.Wait()
	require.False(t, overlaps.Load())
}

// noRetention is a store without the facet.
func noRetention(_ storage.Params, next storage.Store) storage.Store {
	s := &read{storagemw.Base{Store: next}, next.Capabilities()}
	s.caps.Retention = nil
	return s
}

// A topic that is deleted at a store without the facet leaves nothing to be read to one
// that is made again with its name: its floors are the ends of its queues, and stay.
func TestFloorsOfDeletedTopics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := start(t, enginetest.Options{Store: noRetention}, nil)
		for range 3 {
			require.Zero(t, r.c.Send(enginetest.Message{Topic: "T", Body: "of the deleted one"}).Code)
			require.Zero(t, r.c.Send(enginetest.Message{Topic: "kept", Body: "x"}).Code)
		}
		remove := func(r *rig) {
			h := command.TopicRequest{Topic: "T"}
			got := r.c.Do(command.ReqDeleteTopicInBroker, h.Append, nil)
			require.Zero(t, got.Code, got.Remark)
		}
		remove(r)
		// They are no group's, whatever somebody calls one.
		g := command.DeleteGroupRequest{GroupName: "topic/T", CleanOffset: true}
		require.Zero(t, r.c.Do(command.ReqDeleteSubscriptionGroup, g.Append, nil).Code)
		next := int64(3)
		check := func(r *rig) {
			t.Helper()
			got := r.c.Send(enginetest.Message{Topic: "T", Body: "again"})
			require.Zero(t, got.Code, got.Remark)
			require.Equal(t, next, got.Int("queueOffset"))
			got = pull(r.c, "T", 0)
			require.Equal(t, command.RespPullOffsetMoved, got.Code)
			require.Equal(t, int64(3), got.Int("nextBeginOffset"))
			require.Equal(t, "again", string(pull(r.c, "T", 3).Records()[0].Body))
			require.Len(t, pull(r.c, "kept", 0).Records(), 3)
			next++
		}
		check(r)
		r = r.again(r.Kill(memfs.KeepNone))
		check(r)
		pass(time.Minute) // floors of retention leave those of deletion as they are
		check(r)
		remove(r)
		r = r.again(nil)
		require.Equal(t, next, r.c.Send(enginetest.Message{Topic: "T", Body: "the third"}).Int("queueOffset"))
		require.Equal(t, next, pull(r.c, "T", 3).Int("nextBeginOffset"))
	})
}
