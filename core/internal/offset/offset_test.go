package offset_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
	"github.com/hardpointmq/hardpoint/plugins/replication/solo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func query(c *enginetest.Client, group, topic string, zero bool) *enginetest.Reply {
	return c.Do(command.ReqQueryConsumerOffset, (&command.QueryConsumerOffsetRequest{
		ConsumerGroup: []byte(group), Topic: []byte(topic), SetZeroIfNotFound: zero,
	}).Append, nil)
}

func update(c *enginetest.Client, group, topic string, queue int32, offset int64) int32 {
	return c.Do(command.ReqUpdateConsumerOffset, (&command.UpdateConsumerOffsetRequest{
		ConsumerGroup: []byte(group), Topic: []byte(topic), QueueID: queue, CommitOffset: offset,
	}).Append, nil).Code
}

func engine(t *testing.T, o enginetest.Options) (*enginetest.Engine, *enginetest.Client) {
	t.Helper()
	e := enginetest.Start(t, o)
	_, err := e.K.Groups.Ensure(t.Context(), "G")
	require.NoError(t, err)
	c := e.Connect(t)
	require.Zero(t, c.Send(enginetest.Message{Topic: "T", Body: "x"}).Code)
	return e, c
}

func TestProgress(t *testing.T) {
	for name, o := range map[string]enginetest.Options{"solo": {Replication: solo.NewFactory()}, "scripted": {}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, c := engine(t, o)
				require.Equal(t, command.RespQueryNotFound, query(c, "G", "T", false).Code)
				require.Zero(t, update(c, "G", "T", 0, 42))
				r := query(c, "G", "T", false)
				require.Zero(t, r.Code)
				require.Equal(t, int64(42), r.Int("offset"), "at once")
				c.Oneway(command.ReqUpdateConsumerOffset, (&command.UpdateConsumerOffsetRequest{
					ConsumerGroup: []byte("G"), Topic: []byte("T"), CommitOffset: 43,
				}).Append, nil)
				require.Equal(t, int64(43), query(c, "G", "T", false).Int("offset"))
				require.Zero(t, update(c, "G", "T", 0, 7), "back is allowed, too")
				<-time.After(1100 * time.Millisecond)
				synctest.Wait()
				// kill -9 and power loss: it is a record of the log within a second.
				d := e.Kill(memfs.KeepNone)
				d.FS = memfs.New(1)
				e = e.Again(d)
				c = e.Connect(t)
				require.Equal(t, int64(7), query(c, "G", "T", false).Int("offset"))
				// A clean stop loses nothing at all.
				require.Zero(t, update(c, "G", "T", 0, 99))
				e = e.Again(nil)
				require.Equal(t, int64(99), query(e.Connect(t), "G", "T", false).Int("offset"))
			})
		})
	}
}

// One record a second carries all that changed.
func TestOneRecordASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, c := engine(t, enginetest.Options{})
		<-time.After(2 * time.Second)
		synctest.Wait()
		before := e.Store.State().Tail
		for i := range int64(1000) {
			require.Zero(t, update(c, "G", "T", int32(i%8), i))
		}
		require.Equal(t, before, e.Store.State().Tail)
		<-time.After(1100 * time.Millisecond)
		synctest.Wait()
		require.Less(t, int64(e.Store.State().Tail-before), int64(1000))
		require.NotEqual(t, before, e.Store.State().Tail)
		before = e.Store.State().Tail
		<-time.After(10 * time.Second)
		synctest.Wait()
		require.Equal(t, before, e.Store.State().Tail, "nothing changed, nothing is written")
	})
}

func TestUnknownProgress(t *testing.T) {
	e, c := engine(t, enginetest.Options{Segment: 100 << 10, Config: func(c *kernel.Config) { c.MaxMessageSize = 32 << 10 }})
	r := query(c, "G", "T", true)
	require.Zero(t, r.Code, "a queue that begins at 0, in memory: from the start")
	require.Equal(t, int64(0), r.Int("offset"))
	require.Zero(t, query(c, "G", "never written", true).Code)
	require.Equal(t, command.RespQueryNotFound, query(c, "G", "T", false).Code)
	for e.Store.State().Tail < 250<<10 {
		require.Zero(t, c.Send(enginetest.Message{Topic: "T", Body: string(make([]byte, 8000))}).Code)
	}
	require.NoError(t, e.Store.Capabilities().Retention.Expire(t.Context(), 100<<10))
	require.Equal(t, command.RespQueryNotFound, query(c, "G", "T", true).Code, "the beginning is gone: never 0")
}

func TestRefusals(t *testing.T) {
	e, c := engine(t, enginetest.Options{})
	require.Equal(t, command.RespSubscriptionGroupNotExist, update(c, "nobody", "T", 0, 1))
	require.Equal(t, command.RespTopicNotExist, update(c, "G", "nothing", 0, 1))
	require.Equal(t, command.RespTopicNotExist, update(c, "G", message.CatalogTopic, 0, 1))
	require.Equal(t, command.RespInvalidParameter, update(c, "G", "T", -1, 1))
	require.Equal(t, command.RespInvalidParameter, update(c, "G", "T", 0, -1))
	require.NotZero(t, c.Do(command.ReqUpdateConsumerOffset, nil, nil).Code)
	require.NotZero(t, c.Do(command.ReqQueryConsumerOffset, nil, nil).Code)
	e.Script.FailBarrier(replication.ErrNotLeader)
	require.Equal(t, command.RespServiceNotAvailable, query(c, "G", "T", false).Code)
}

func TestAll(t *testing.T) {
	_, c := engine(t, enginetest.Options{})
	for q := range int32(4) {
		require.Zero(t, update(c, "G", "T", q, int64(10*q)))
	}
	r := c.Do(command.ReqGetAllConsumerOffset, nil, nil)
	require.Zero(t, r.Code)
	var w command.ConsumerOffsetSerializeWrapper
	require.NoError(t, command.DecodeBody(r.Body, &w))
	require.Equal(t, map[string]map[int32]int64{"T@G": {0: 0, 1: 10, 2: 20, 3: 30}}, map[string]map[int32]int64(w.OffsetTable))
}

// What comes while the store is being stopped is told to go elsewhere, or to come back.
func TestOffsetsOfAStoppedStore(t *testing.T) {
	e, c := engine(t, enginetest.Options{})
	require.NoError(t, e.Store.Shutdown(t.Context()))
	q := command.QueueRequest{Topic: []byte("T")}
	for _, code := range []int32{command.ReqGetMaxOffset, command.ReqGetMinOffset} {
		r := c.Do(code, q.Append, nil)
		require.Equal(t, command.RespServiceNotAvailable, r.Code, r.Remark)
	}
	at := command.SearchOffsetRequest{Topic: q.Topic, Timestamp: 1}
	require.Equal(t, command.RespServiceNotAvailable, c.Do(command.ReqSearchOffsetByTimestamp, at.Append, nil).Code)
}
