package combine_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/combine"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagemw"
	"github.com/hardpointmq/hardpoint/plugins/replication/solo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func each(t *testing.T, f func(t *testing.T, o enginetest.Options)) {
	t.Run("solo", func(t *testing.T) { f(t, enginetest.Options{Replication: solo.NewFactory()}) })
	t.Run("scripted", func(t *testing.T) { f(t, enginetest.Options{}) })
}

func record(queue int32, body string) *message.Record {
	return &message.Record{Topic: "T", QueueID: queue, BornTime: 1, Body: []byte(body)}
}

func TestWrite(t *testing.T) {
	each(t, func(t *testing.T, o enginetest.Options) {
		o.Segment = 64 << 10
		e := enginetest.Start(t, o)
		var wg sync.WaitGroup
		var mu sync.Mutex
		seen := map[int64]bool{}
		for range 8 {
			wg.Go(func() {
				for range 50 {
					p, err := e.K.Journal.Write(t.Context(), record(3, "one"), record(3, "two"), record(4, strings.Repeat("x", 300)))
					if err != nil {
						t.Error(err)
						return
					}
					if len(p.Units) != 3 || p.Units[1].Offset != p.Units[0].Offset+1 || p.Units[0].At/(64<<10) != p.Units[2].At/(64<<10) {
						t.Errorf("a group is not whole: %+v", p.Units)
					}
					if e.Store.State().Published < p.Units[2].At {
						t.Error("Write returned before Publish")
					}
					mu.Lock()
					seen[p.Units[0].Offset], seen[p.Units[1].Offset] = true, true
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		require.Len(t, seen, 800)
	})
}

func TestOutcomes(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	s := e.Script
	write := func() error {
		_, err := e.K.Journal.Write(t.Context(), record(0, "x"))
		return err
	}
	require.NoError(t, write())
	s.Refuse(1, replication.ErrBusy)
	err := write()
	require.ErrorIs(t, err, replication.ErrBusy)
	require.Equal(t, api.ServiceNotAvailable, api.IDOf(err), "clients try again")
	s.Drop(1)
	require.ErrorContains(t, write(), "not stored")

	// Stored, Unknown and NotStored among each other, by a client's eyes.
	s.Hold()
	c := e.Connect(t)
	var ids []int32
	for i := range 3 {
		m := enginetest.Message{Topic: "BenchmarkTest"}
		if i == 1 {
			s.Drop(1)
		}
		ids = append(ids, c.Begin(command.ReqSendMessageV2, m.Header(false), []byte("x")))
		require.NoError(t, s.WaitHeld(t.Context(), i+1))
	}
	require.False(t, c.Answered(ids[0]), "not before Publish")
	require.NoError(t, s.Publish(t.Context(), 1))
	require.Zero(t, c.Wait(ids[0]).Code)
	s.Answer(-1, replication.Unknown)
	dropped, unknown := c.Wait(ids[1]), c.Wait(ids[2])
	require.Equal(t, command.RespServiceNotAvailable, dropped.Code)
	require.Contains(t, dropped.Remark, "was not stored")
	require.Equal(t, command.RespServiceNotAvailable, unknown.Code)
	require.Contains(t, unknown.Remark, "unknown")
	require.Equal(t, "DefaultRegion", unknown.Ext["MSG_REGION"])
	for o, code := range map[replication.Outcome]int32{
		replication.FlushDiskTimeout: 10, replication.FlushReplicaTimeout: 12, replication.NoReplica: 11,
	} {
		require.NoError(t, s.Publish(t.Context(), -1))
		m := enginetest.Message{Topic: "BenchmarkTest"}
		n := c.Begin(command.ReqSendMessageV2, m.Header(false), []byte("x"))
		require.NoError(t, s.WaitHeld(t.Context(), 1))
		s.Answer(1, o)
		r := c.Wait(n)
		require.Equal(t, code, r.Code, o)
		require.NotEmpty(t, r.Ext["msgId"], "the message is stored all the same")
	}
	require.NoError(t, s.Release(t.Context()))
	require.NoError(t, write())
}

// Batches come back although their proposals were dropped or cut: no amount of
// them runs the queue dry.
func TestBatchesComeBack(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	for i := range 100 {
		if i%2 == 0 {
			e.Script.Drop(1)
			_, err := e.K.Journal.Write(t.Context(), record(0, "x"))
			require.ErrorContains(t, err, "not stored")
			continue
		}
		e.Script.Hold()
		done := make(chan error, 1)
		e.K.Journal.Submit([]*message.Record{record(0, "x")}, func(_ kernel.Placed, err error) { done <- err })
		require.NoError(t, e.Script.WaitHeld(t.Context(), 1))
		require.NoError(t, e.Script.Truncate(t.Context(), replication.NotStored))
		require.ErrorContains(t, <-done, "not stored")
		require.NoError(t, e.Script.Release(t.Context()))
		_, err := e.K.Journal.Write(t.Context(), record(0, "x"))
		require.NoError(t, err)
	}
}

func TestWriteGivesUpWaiting(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	e.Script.Hold()
	ctx, cancel := context.WithCancel(t.Context())
	go func() { _ = e.Script.WaitHeld(ctx, 1); cancel() }()
	_, err := e.K.Journal.Write(ctx, record(0, "x"))
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, e.Script.Release(t.Context()))
	_, err = e.K.Journal.Write(ctx, record(0, "never"))
	require.ErrorIs(t, err, context.Canceled)
	p, err := e.K.Journal.Write(t.Context(), record(0, "y"))
	require.NoError(t, err)
	require.Equal(t, int64(1), p.Units[0].Offset, "the record itself was not given up")
}

// What never got its turn is answered, too, when the journal stops; and what is
// flushed later.
func TestStopAnswers(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	e.Script.Hold()
	var told atomic.Int32
	errs := make(chan error, 200)
	for i := range 100 {
		body := "x"
		if i%10 == 0 {
			body = strings.Repeat("x", 300<<10) // travels alone
		}
		e.K.Journal.Submit([]*message.Record{record(0, body)}, func(_ kernel.Placed, err error) {
			told.Add(1)
			errs <- err
		})
	}
	e.Stop()
	require.Equal(t, int32(100), told.Load(), "all are told when the engine is down")
	for range 100 {
		if err := <-errs; err != nil {
			require.ErrorIs(t, err, combine.ErrStopped)
		}
	}
	_, err := e.K.Journal.Write(t.Context(), record(0, "x"))
	require.ErrorIs(t, err, combine.ErrStopped)
}

// A store of 1 MB/s under many connections: sends are refused within SendWait
// with a code that clients retry, memory is bounded, and all is well when the
// throttle ends.
func TestOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Bool
		var appended, most atomic.Int64
		mw := storagemw.Middleware(func(p storage.Params, next storage.Store) storage.Store {
			return &throttled{Base: storagemw.Base{Store: next}, caps: next.Capabilities(), slow: &slow, appended: &appended, most: &most}
		})
		e := enginetest.Start(t, enginetest.Options{Replication: solo.NewFactory(), Store: mw, NewStore: func(p storage.Params) storage.Store { return enginetest.NewNullStore() }, Segment: 1 << 30,
			Config:  func(c *kernel.Config) { c.SendWait = 200 * time.Millisecond },
			Prepare: func(e *enginetest.Engine) { e.K.Images = nil }})
		require.NoError(t, e.K.Topics.Put(t.Context(), command.TopicConfig{TopicName: "T", ReadQueueNums: 4, WriteQueueNums: 4, Perm: 6}))
		slow.Store(true)
		body := strings.Repeat("x", 128<<10)
		var stored, refused, other, waits atomic.Int64
		var wg sync.WaitGroup
		stop := make(chan struct{})
		for range 40 {
			c := e.Connect(t)
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					began := time.Now()
					r := c.Send(enginetest.Message{Topic: "T", Body: body})
					switch r.Code {
					case 0:
						stored.Add(1)
						<-time.After(100 * time.Millisecond)
					case command.RespServiceNotAvailable:
						refused.Add(1)
						waits.Add(int64(time.Since(began)))
						if !strings.Contains(r.Remark, "TIMEOUT_CLEAN_QUEUE") {
							t.Error(r.Remark)
						}
						// A reader that has the turn of the log waits for the log, too.
						if d := time.Since(began); d > 3*time.Second {
							t.Errorf("refused after %v", d)
						}
						<-time.After(50 * time.Millisecond) // as a client backs off
					default:
						other.Add(1)
					}
				}
			})
		}
		<-time.After(5 * time.Second)
		require.NotZero(t, refused.Load())
		require.NotZero(t, stored.Load())
		require.Zero(t, other.Load())
		slow.Store(false)
		<-time.After(2 * time.Second)
		close(stop)
		wg.Wait()
		c := e.Connect(t)
		for range 100 {
			require.Zero(t, c.Send(enginetest.Message{Topic: "T", Body: body}).Code)
		}
		require.LessOrEqual(t, most.Load(), int64(1<<20)+256<<10, "batches are bounded")
		t.Logf("%d stored, %d refused after %v on average", stored.Load(), refused.Load(), time.Duration(waits.Load()/refused.Load()))
	})
}

// throttled lets 1 MB a second through.
type throttled struct {
	storagemw.Base
	caps           storage.Capabilities
	slow           *atomic.Bool
	appended, most *atomic.Int64
}

func (s *throttled) Capabilities() storage.Capabilities { return s.caps }

func (s *throttled) Append(ctx context.Context, b *storage.Batch) error {
	n := int64(len(b.Buf))
	s.most.Store(max(s.most.Load(), n))
	if s.slow.Load() {
		<-time.After(time.Duration(n) * time.Microsecond)
	}
	s.appended.Add(n)
	return s.Store.Append(ctx, b)
}

func TestLargeBatchesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := enginetest.Start(t, enginetest.Options{Segment: 256 << 20})
		e.Script.Hold()
		var errs []error
		var mu sync.Mutex
		var wg sync.WaitGroup
		body := strings.Repeat("x", 10<<20)
		for range 12 {
			wg.Go(func() {
				e.K.Journal.Submit([]*message.Record{record(0, body)}, func(_ kernel.Placed, err error) {
					mu.Lock()
					defer mu.Unlock()
					errs = append(errs, err)
				})
			})
		}
		wg.Wait()
		mu.Lock()
		refused := len(errs)
		for _, err := range errs {
			require.Error(t, err)
			require.Equal(t, api.ServiceNotAvailable, api.IDOf(err))
		}
		mu.Unlock()
		require.Equal(t, 6, refused, "64 MiB are six of them")
		require.NoError(t, e.Script.Release(t.Context()))
		synctest.Wait()
		_, err := e.K.Journal.Write(t.Context(), record(0, body))
		require.NoError(t, err, "room is given back")
	})
}

// Large batches are not starved by a steady stream of small ones.
func TestLargeIsNotStarved(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{Replication: solo.NewFactory(), Segment: 16 << 20})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_, _ = e.K.Journal.Write(context.WithoutCancel(t.Context()), record(0, "x"))
				}
			}
		})
	}
	for range 5 {
		_, err := e.K.Journal.Write(t.Context(), record(1, strings.Repeat("x", 2<<20)))
		require.NoError(t, err)
	}
	close(stop)
	wg.Wait()
}

func TestRefusedProperties(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	r := record(0, "x")
	r.Properties = fmt.Appendf(nil, "a\x01%s\x02", strings.Repeat("x", message.MaxProperties))
	_, err := e.K.Journal.Write(t.Context(), r)
	require.Equal(t, api.MessageIllegal, api.IDOf(err))
	require.NotErrorIs(t, err, combine.ErrStopped)
}
