package admin_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagemw"
	"github.com/hardpointmq/hardpoint/plugins/replication/solo"
)

func TestConfig(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	c := e.Connect(t)
	require.Equal(t, command.RespRequestCodeNotSupported, c.Do(command.ReqGetBrokerConfig, nil, nil).Code)
	require.Equal(t, command.RespRequestCodeNotSupported, c.Do(command.ReqUpdateBrokerConfig, nil, []byte("a=b")).Code)
	e = enginetest.Start(t, enginetest.Options{Prepare: func(e *enginetest.Engine) {
		e.K.Properties = func() ([]byte, command.DataVersion) {
			return []byte("a=1\nb=2\n"), command.DataVersion{Counter: 3, Timestamp: 4}
		}
		e.K.Update = func(text []byte) (string, error) {
			if string(text) != "a=2" {
				return "", errors.New("a is 1 or 2")
			}
			return "a: 1 -> 2", nil
		}
	}})
	c = e.Connect(t)
	r := c.Do(command.ReqGetBrokerConfig, nil, nil)
	require.Zero(t, r.Code)
	require.Equal(t, "a=1\nb=2\n", string(r.Body))
	require.JSONEq(t, `{"counter":3,"stateVersion":0,"timestamp":4}`, r.Ext["version"])
	require.Equal(t, "a: 1 -> 2", c.Do(command.ReqUpdateBrokerConfig, nil, []byte("a=2")).Remark)
	require.Equal(t, command.RespSystemError, c.Do(command.ReqUpdateBrokerConfig, nil, []byte("a=3")).Code)
}

// runtimeKeys are what a broker 5.3.3 told, but for those of its delay levels.
const runtimeKeys = `EndTransactionQueueSize EndTransactionThreadPoolQueueCapacity ackThreadPoolQueueCapacity
ackThreadPoolQueueHeadWaitTimeMills ackThreadPoolQueueSize bootTimestamp brokerActive brokerVersion brokerVersionDesc
commitLogDirCapacity commitLogDiskRatio commitLogMaxOffset commitLogMinOffset consumeQueueDiskRatio dispatchBehindBytes
dispatchMaxBuffer earliestMessageTimeStamp getFoundTps getMessageEntireTimeMax getMissTps getTotalTps getTransferredTps
litePullThreadPoolQueueCapacity litePullThreadPoolQueueHeadWaitTimeMills litePullThreadPoolQueueSize msgGetTotalTodayMorning
msgGetTotalTodayNow msgGetTotalYesterdayMorning msgPutTotalTodayMorning msgPutTotalTodayNow msgPutTotalYesterdayMorning
pageCacheLockTimeMills pullThreadPoolQueueCapacity pullThreadPoolQueueHeadWaitTimeMills pullThreadPoolQueueSize putLatency99
putLatency999 putMessageAverageSize putMessageDistributeTime putMessageEntireTimeMax putMessageFailedTimes putMessageSizeTotal
putMessageTimesTotal putTps queryThreadPoolQueueCapacity queryThreadPoolQueueHeadWaitTimeMills queryThreadPoolQueueSize
remainHowManyDataToFlush remainTransientStoreBufferNumbs runtime sendThreadPoolQueueCapacity
sendThreadPoolQueueHeadWaitTimeMills sendThreadPoolQueueSize startAcceptSendRequestTimeStamp timerCongestNum timerDequeueTps
timerEnqueueTps timerOffsetBehind timerReadBehind`

func TestRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := enginetest.Start(t, enginetest.Options{})
		c := e.Connect(t)
		info := func() map[string]string {
			return decode[command.KVTable](t, c.Do(command.ReqGetBrokerRuntimeInfo, nil, nil)).Table
		}
		boot := info()
		r := c.Do(command.ReqGetBrokerRuntimeInfo, nil, nil)
		require.Equal(t, map[string]string{"software": "hardpoint"}, r.Ext, "what costs more is told who asks for it")
		r = c.Do(command.ReqGetBrokerRuntimeInfo, (&command.RuntimeInfoRequest{Limits: true}).Append, nil)
		require.Equal(t, runtime.GOOS == "linux", r.Int("openFiles") > 0 && r.Int("openFilesMax") > 0 && r.Int("memoryMaps") > 0 && r.Int("memoryMapsMax") > 0, r.Ext)
		for _, key := range strings.Fields(runtimeKeys) {
			require.Contains(t, boot, key)
		}
		require.Equal(t, "V5_3_3", boot["brokerVersionDesc"])
		require.Equal(t, "0.0 0.0 0.0", boot["putTps"])
		<-time.After(time.Second)
		send(t, c, "T", 30, 0)
		require.Len(t, c.Pull(enginetest.Pull("G", "T", 0, 0)).Records(), 30)
		c.Pull(enginetest.Pull("G", "T", 0, 30))
		<-time.After(9500 * time.Millisecond)
		got := info()
		require.Equal(t, "3.0 3.0 0.0", got["putTps"])
		require.Equal(t, "3.0 3.0 0.0", got["getTransferredTps"])
		require.Equal(t, "0.2 0.2 0.0", got["getTotalTps"])
		require.Equal(t, "0.1 0.1 0.0", got["getMissTps"])
		require.Equal(t, "30", got["msgPutTotalTodayNow"])
		require.Equal(t, "30", got["msgGetTotalTodayNow"])
		require.Equal(t, "[ 0 days, 0 hours, 0 minutes, 10 seconds ]", got["runtime"])
		require.NotEqual(t, "-1", got["earliestMessageTimeStamp"])
		<-time.After(48 * time.Hour)
		got = info()
		require.Equal(t, "30", got["msgPutTotalTodayMorning"])
		require.Equal(t, "30", got["msgPutTotalYesterdayMorning"])
		require.Equal(t, "[ 2 days, 0 hours, 0 minutes, 10 seconds ]", got["runtime"])
	})
}

func TestStatsData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := enginetest.Start(t, enginetest.Options{})
		c := e.Connect(t)
		ask := func(name, key string) *enginetest.Reply {
			return c.Do(command.ReqViewBrokerStatsData, (&command.StatsDataRequest{StatsName: name, StatsKey: key}).Append, nil)
		}
		r := ask("TOPIC_PUT_NUMS", "T")
		require.Equal(t, command.RespSystemError, r.Code)
		require.Equal(t, "The stats <TOPIC_PUT_NUMS> <T> not exist", r.Remark)
		send(t, c, "T", 60, 0)
		id := c.Send(enginetest.Message{Topic: "U", Body: "x"}).Ext["msgId"]
		for at := int64(0); at < 60; at += 30 {
			p := enginetest.Pull("G", "T", 0, at)
			p.MaxMsgNums = 30
			require.Len(t, c.Pull(p).Records(), 30)
		}
		_, at, err := message.ParseOffsetID(id)
		require.NoError(t, err)
		require.Zero(t, c.Do(command.ReqConsumerSendMsgBack, (&command.SendBackRequest{Group: []byte("G"), Offset: int64(at), MaxReconsumeTimes: 16}).Append, nil).Code)
		<-time.After(61 * time.Second)
		minute := func(name, key string) command.StatsSnapshot {
			return decode[command.BrokerStatsData](t, ask(name, key)).StatsMinute
		}
		require.Equal(t, command.StatsSnapshot{Sum: 60, Tps: 1, Avgpt: 1}, minute("TOPIC_PUT_NUMS", "T"))
		require.Equal(t, command.StatsSnapshot{Sum: 60, Tps: 1, Avgpt: 30}, minute("GROUP_GET_NUMS", "T@G"))
		require.Equal(t, int64(1), minute("SNDBCK_PUT_NUMS", "U@G").Sum)
		require.Equal(t, int64(62), minute("BROKER_PUT_NUMS", "DefaultCluster").Sum)
		require.Equal(t, int64(60), minute("BROKER_GET_NUMS", "DefaultCluster").Sum)
		require.Equal(t, minute("TOPIC_PUT_SIZE", "T").Sum, minute("GROUP_GET_SIZE", "T@G").Sum)
		for _, bad := range [][2]string{{"NOPE", "T"}, {"GROUP_GET_NUMS", "T"}, {"GROUP_GET_NUMS", "T@H"}, {"BROKER_PUT_NUMS", "T"}, {"TOPIC_PUT_NUMS", message.CatalogTopic}} {
			require.Equal(t, command.RespSystemError, ask(bad[0], bad[1]).Code, bad)
		}
		require.Equal(t, command.RespInvalidParameter, c.Do(command.ReqViewBrokerStatsData, nil, nil).Code)
		<-time.After(10 * time.Minute)
		d := decode[command.BrokerStatsData](t, ask("TOPIC_PUT_NUMS", "T"))
		require.Zero(t, d.StatsMinute.Sum)
		require.Equal(t, int64(60), d.StatsHour.Sum)
		<-time.After(2 * time.Hour)
		d = decode[command.BrokerStatsData](t, ask("TOPIC_PUT_NUMS", "T"))
		require.Zero(t, d.StatsHour.Sum)
		require.Equal(t, int64(60), d.StatsDay.Sum)

		// What goes takes its counts along, and begins at 0 when it comes again.
		require.Zero(t, c.Do(command.ReqDeleteTopicInBroker, topic("T"), nil).Code)
		require.Equal(t, command.RespSystemError, ask("TOPIC_PUT_NUMS", "T").Code)
		require.Equal(t, command.RespSystemError, ask("GROUP_GET_NUMS", "T@G").Code)
		send(t, c, "T", 6, 0)
		<-time.After(10 * time.Second)
		require.Equal(t, int64(6), minute("TOPIC_PUT_NUMS", "T").Sum)
	})
}

func TestQueryConsumeQueue(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	c := e.Connect(t)
	for i, tag := range []string{"a", "b", "a"} {
		require.Zero(t, c.Send(enginetest.Message{Topic: "T", Body: "x", Properties: enginetest.Props("TAGS", tag)}).Code, i)
	}
	ask := func(h command.QueryConsumeQueueRequest) *enginetest.Reply {
		return c.Do(command.ReqQueryConsumeQueue, h.Append, nil)
	}
	got := decode[command.ConsumeQueueUnits](t, ask(command.QueryConsumeQueueRequest{Topic: "T", Index: 1, Count: 10}))
	require.Equal(t, int64(3), got.MaxQueueIndex)
	require.Len(t, got.QueueData, 2)
	require.Equal(t, int64('b'), got.QueueData[0].TagsCode)
	require.Positive(t, got.QueueData[0].PhysicOffset)
	require.Positive(t, got.QueueData[0].PhysicSize)
	require.Len(t, decode[command.ConsumeQueueUnits](t, ask(command.QueryConsumeQueueRequest{Topic: "T", Index: -5, Count: 1})).QueueData, 1)
	require.Contains(t, string(ask(command.QueryConsumeQueueRequest{Topic: "T", Index: 9, Count: 10}).Body), `"queueData":[]`)
	require.Empty(t, decode[command.ConsumeQueueUnits](t, ask(command.QueryConsumeQueueRequest{Topic: "T", Count: -1})).QueueData)
	require.Equal(t, "G@T is not online!", decode[command.ConsumeQueueUnits](t, ask(command.QueryConsumeQueueRequest{Topic: "T", Count: 1, ConsumerGroup: "G"})).FilterData)
	hb := enginetest.Heartbeat("id", "G", 1, "T")
	hb.ConsumerDataSet[0].SubscriptionDataSet[0].SubString = "a"
	require.Zero(t, c.Do(command.ReqHeartBeat, nil, c.Body(hb)).Code)
	got = decode[command.ConsumeQueueUnits](t, ask(command.QueryConsumeQueueRequest{Topic: "T", Count: 3, ConsumerGroup: "G"}))
	require.Equal(t, "a", got.SubscriptionData.SubString)
	require.Equal(t, []bool{true, false, true}, []bool{got.QueueData[0].Eval, got.QueueData[1].Eval, got.QueueData[2].Eval})
	r := ask(command.QueryConsumeQueueRequest{Topic: "T", QueueID: 7, Count: 1})
	require.Equal(t, command.RespSystemError, r.Code)
	require.Equal(t, "7@T is not exist!", r.Remark)
	require.Equal(t, command.RespTopicNotExist, ask(command.QueryConsumeQueueRequest{Topic: "nope", Count: 1}).Code)
	require.Equal(t, command.RespTopicNotExist, ask(command.QueryConsumeQueueRequest{Topic: message.CatalogTopic, Count: 1}).Code)
}

// reads is a store whose reads of T do what a test says.
type reads struct {
	storagemw.Base
	read atomic.Pointer[func(*storage.Chunk) error]
}

func (s *reads) Read(ctx context.Context, r storage.ReadRequest, c *storage.Chunk) error {
	err := s.Store.Read(ctx, r, c)
	if f := s.read.Load(); f != nil && r.Queue.Topic == "T" && err == nil {
		err = (*f)(c)
	}
	return err
}

func startReads(t *testing.T) (*enginetest.Client, *reads) {
	t.Helper()
	s := &reads{}
	e := enginetest.Start(t, enginetest.Options{Replication: solo.NewFactory(), Store: func(_ storage.Params, next storage.Store) storage.Store {
		s.Base = storagemw.Base{Store: next}
		return s
	}})
	c := e.Connect(t)
	for range 5 {
		require.Zero(t, c.Send(enginetest.Message{Topic: "T", Body: "x"}).Code)
	}
	return c, s
}

// TestQueryConsumeQueueBeside: the session, and others who share it, go on while units
// are read; only some such requests are served at a time, and one that fails is answered.
func TestQueryConsumeQueueBeside(t *testing.T) {
	c, s := startReads(t)
	const most = 4
	entered, leave := make(chan struct{}, most), make(chan struct{})
	hold := func(*storage.Chunk) error {
		entered <- struct{}{}
		<-leave
		return nil
	}
	s.read.Store(&hold)
	q := command.QueryConsumeQueueRequest{Topic: "T", Count: 10}
	asked, other := make(chan int32, most), make(chan *enginetest.Reply, 2)
	go func() {
		for range most {
			asked <- c.Begin(command.ReqQueryConsumeQueue, q.Append, nil)
		}
		other <- c.Do(command.ReqQueryConsumeQueue, q.Append, nil)
		other <- c.Do(command.ReqGetBrokerHAStatus, nil, nil)
	}()
	for _, want := range []int32{command.RespSystemBusy, command.RespSuccess} {
		select {
		case r := <-other:
			require.Equal(t, want, r.Code, r.Remark)
		case <-time.After(10 * time.Second):
			close(leave)
			t.Fatal("the session waits for the reads")
		}
	}
	for range most {
		<-entered
	}
	close(leave)
	for range most {
		require.Len(t, decode[command.ConsumeQueueUnits](t, c.Wait(<-asked)).QueueData, 5)
	}

	fails := func(*storage.Chunk) error { return plugin.ErrUnavailable }
	s.read.Store(&fails)
	require.Equal(t, command.RespServiceNotAvailable, c.Do(command.ReqQueryConsumeQueue, q.Append, nil).Code)
	panics := func(*storage.Chunk) error { panic("this store cannot read") }
	s.read.Store(&panics)
	require.Equal(t, command.RespSystemError, c.Do(command.ReqQueryConsumeQueue, q.Append, nil).Code)
	s.read.Store(nil)
	require.Zero(t, c.Do(command.ReqQueryConsumeQueue, q.Append, nil).Code)
}

// TestQueryConsumeQueueBytes: of large records one request gets fewer units, and the next
// one the others.
func TestQueryConsumeQueueBytes(t *testing.T) {
	c, s := startReads(t)
	large := func(c *storage.Chunk) error {
		c.Units = c.Units[:1]
		c.Units[0].Size, c.Next = 30<<20, c.Units[0].Offset+1
		return nil
	}
	s.read.Store(&large)
	q := command.QueryConsumeQueueRequest{Topic: "T", Count: 10}
	got := decode[command.ConsumeQueueUnits](t, c.Do(command.ReqQueryConsumeQueue, q.Append, nil))
	require.Len(t, got.QueueData, 3)
	q.Index = 3
	require.Len(t, decode[command.ConsumeQueueUnits](t, c.Do(command.ReqQueryConsumeQueue, q.Append, nil)).QueueData, 2)
}

// replicas is a replicator that tells of others.
type replicas struct {
	replication.Replicator
	status replication.Status
}

func (r *replicas) Status() replication.Status { return r.status }

func TestReplicas(t *testing.T) {
	rep := &replicas{}
	e := enginetest.Start(t, enginetest.Options{Prepare: func(e *enginetest.Engine) {
		rep.Replicator = e.Rep
		e.K.Replicator = rep
	}})
	c := e.Connect(t)
	send(t, c, "T", 3, 0)
	ask := func() *enginetest.Reply { return c.Do(command.ReqGetBrokerHAStatus, nil, nil) }
	end := int64(e.Store.State().Tail)

	rep.status = rep.Replicator.Status()
	r := ask()
	require.Contains(t, string(r.Body), `"haConnectionInfo":[]`)
	require.Equal(t, command.HAStatus{Master: true, MasterCommitLogMaxOffset: end, Connections: []command.HAConnection{}}, decode[command.HAStatus](t, r))

	rep.status.Replicas = []replication.Replica{{ID: "10.0.0.2:10912", Acked: 100, InSync: true}, {ID: "10.0.0.3:10912"}}
	got := decode[command.HAStatus](t, ask())
	require.Equal(t, int32(1), got.InSyncSlaveNums)
	require.Equal(t, []command.HAConnection{
		{Addr: "10.0.0.2:10912", InSync: true, SlaveAckOffset: 100, Diff: end - 100}, {Addr: "10.0.0.3:10912", Diff: end},
	}, got.Connections)

	rep.status = replication.Status{Role: replication.Role{Kind: replication.RoleFollower, Leader: "10.0.0.1:10911"}}
	got = decode[command.HAStatus](t, ask())
	require.False(t, got.Master)
	require.Equal(t, "10.0.0.1:10911", got.Client.MasterAddr)
	require.Equal(t, end, got.Client.MaxOffset)
}
