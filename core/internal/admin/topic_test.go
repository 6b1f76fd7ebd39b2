package admin_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagemw"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
)

func topic(name string) func(*command.Writer) { return (&command.TopicRequest{Topic: name}).Append }

// decode reads the body of an answer, which must be a good one.
func decode[T any](t testing.TB, r *enginetest.Reply) T {
	t.Helper()
	require.Zero(t, r.Code, r.Remark)
	var v T
	require.NoError(t, command.DecodeBody(r.Body, &v), "%s", r.Body)
	return v
}

// send stores n messages in each of some queues.
func send(t testing.TB, c *enginetest.Client, name string, n int, queues ...int32) {
	t.Helper()
	for _, q := range queues {
		for i := range n {
			r := c.Send(enginetest.Message{Topic: name, Queue: q, Body: fmt.Sprintf("message %d", i)})
			require.Zero(t, r.Code, r.Remark)
		}
	}
}

func TestCreateTopicList(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	c := e.Connect(t)
	one := command.TopicConfig{TopicName: "A", ReadQueueNums: 2, WriteQueueNums: 3, Perm: 6, TopicFilterType: "SINGLE_TAG", Attributes: command.StringMap{"message.type": "FIFO"}}
	two := one
	two.TopicName = "B"
	put := func(l ...command.TopicConfig) *enginetest.Reply {
		return c.Do(command.ReqUpdateAndCreateTopicList, nil, c.Body(command.TopicConfigList{Topics: l}))
	}
	require.Zero(t, put(one, two).Code)
	require.Equal(t, one, e.K.Topics.Named("A").Config)
	require.Equal(t, two, decode[command.TopicConfig](t, c.Do(command.ReqGetTopicConfig, topic("B"), nil)))
	one.TopicName, two.TopicName = "C", "a b"
	require.Equal(t, command.RespInvalidParameter, put(one, two).Code)
	require.Nil(t, e.K.Topics.Named("C"), "all or none")
	require.Equal(t, command.RespInvalidParameter, c.Do(command.ReqUpdateAndCreateTopicList, nil, []byte("{")).Code)
	r := c.Do(command.ReqGetTopicConfig, topic("C"), nil)
	require.Equal(t, command.RespTopicNotExist, r.Code, "tools pass over a topic with this code only")
	require.Contains(t, r.Remark, "C")
	require.Equal(t, command.RespTopicNotExist, c.Do(command.ReqGetTopicConfig, topic(message.CatalogTopic), nil).Code)
	require.Equal(t, command.RespInvalidParameter, c.Do(command.ReqGetTopicConfig, nil, nil).Code)
}

// A table is given whole, or in parts that a client can put together.
func TestAllTopics(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	c := e.Connect(t)
	for i := range 30 {
		require.NoError(t, e.K.Topics.Put(t.Context(), command.TopicConfig{TopicName: fmt.Sprintf("T%02d", i), ReadQueueNums: 1, WriteQueueNums: 1, Perm: 6}))
	}
	r := c.Do(command.ReqGetAllTopicConfig, nil, nil)
	whole := decode[command.TopicConfigSerializeWrapper](t, r)
	require.Empty(t, r.Ext["totalTopicNum"])
	require.Contains(t, whole.TopicConfigTable, "T07")
	require.NotContains(t, whole.TopicConfigTable, message.CatalogTopic)
	_, version := e.K.Topics.All()
	require.Equal(t, version, whole.DataVersion)
	got, text := map[string]command.TopicConfig{}, ""
	for parts := 0; len(got) < len(whole.TopicConfigTable); parts++ {
		require.Less(t, parts, 20)
		ask := command.TablePageRequest{DataVersion: text, Seq: int32(len(got)), Max: 7}
		r := c.Do(command.ReqGetAllTopicConfig, ask.Append, nil)
		part := decode[command.TopicConfigSerializeWrapper](t, r)
		require.Equal(t, int64(len(whole.TopicConfigTable)), r.Int("totalTopicNum"))
		require.LessOrEqual(t, len(part.TopicConfigTable), 7)
		b, err := command.EncodeBody(part.DataVersion)
		require.NoError(t, err)
		text = string(b)
		for k, v := range part.TopicConfigTable {
			got[k] = v
		}
	}
	require.Equal(t, whole.TopicConfigTable, got)
	stale := command.TablePageRequest{DataVersion: `{"counter":1}`, Seq: 20, Max: 1}
	part := decode[command.TopicConfigSerializeWrapper](t, c.Do(command.ReqGetAllTopicConfig, stale.Append, nil))
	all, _ := e.K.Topics.All()
	require.Contains(t, part.TopicConfigTable, all[0].Config.TopicName, "of a table that changed the first part comes")
	behind := command.TablePageRequest{Seq: 1 << 30, Max: 1 << 30}
	require.Empty(t, decode[command.TopicConfigSerializeWrapper](t, c.Do(command.ReqGetAllTopicConfig, behind.Append, nil)).TopicConfigTable)
}

func TestTopicStats(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	c := e.Connect(t)
	require.Zero(t, create(c, command.CreateTopicRequest{Topic: "T", Perm: 6, ReadQueueNums: 2, WriteQueueNums: 3}).Code)
	send(t, c, "T", 4, 1)
	s := decode[command.TopicStatsTable](t, c.Do(command.ReqGetTopicStatsInfo, topic("T"), nil))
	require.Len(t, s.OffsetTable, 3, "tools look each queue up")
	require.Equal(t, command.TopicOffset{}, s.OffsetTable[command.MessageQueue{BrokerName: "broker-a", Topic: "T", QueueID: 2}])
	got := s.OffsetTable[command.MessageQueue{BrokerName: "broker-a", Topic: "T", QueueID: 1}]
	require.Equal(t, int64(4), got.MaxOffset)
	require.Equal(t, e.Store.State().LastStoreTime, got.LastUpdateTimestamp)
	require.Equal(t, command.RespTopicNotExist, c.Do(command.ReqGetTopicStatsInfo, topic("nope"), nil).Code)
	require.Equal(t, command.RespTopicNotExist, c.Do(command.ReqGetTopicStatsInfo, topic(message.CatalogTopic), nil).Code)
}

func TestWhoConsumes(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	c := e.Connect(t)
	send(t, c, "T", 1, 0)
	send(t, c, "U", 1, 0)
	require.Zero(t, c.Do(command.ReqHeartBeat, nil, c.Body(enginetest.Heartbeat("id", "live", 1, "T"))).Code)
	e.K.Offsets.Commit("past", message.Queue{Topic: "T"}, 1)
	e.K.Offsets.Commit("live", message.Queue{Topic: "T"}, 1)
	e.K.Offsets.Commit("other", message.Queue{Topic: "U"}, 1)
	require.Equal(t, []string{"live", "past"}, decode[command.GroupList](t, c.Do(command.ReqQueryTopicConsumeByWho, topic("T"), nil)).Groups)
	require.JSONEq(t, `{"groupList":[]}`, string(c.Do(command.ReqQueryTopicConsumeByWho, topic("nope"), nil).Body))
}

func TestSystemTopics(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	c := e.Connect(t)
	list := decode[command.TopicList](t, c.Do(command.ReqGetSystemTopicListFromBroker, nil, nil)).Topics
	require.Subset(t, list, []string{"TBW102", "SCHEDULE_TOPIC_XXXX", "TRANS_CHECK_MAX_TIME_TOPIC", "CHECKPOINT_TOPIC", "DefaultCluster", "broker-a", "DefaultCluster_REPLY_TOPIC"})
	require.NotContains(t, list, message.CatalogTopic)
	require.IsNonDecreasing(t, list)
}

// A topic that was deleted and is made again begins empty, at 0, and no group has
// progress in it; the same after a restart.
func TestDeleteTopic(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	c := e.Connect(t)
	send(t, c, "T", 3, 0, 1)
	send(t, c, "kept", 2, 0)
	e.K.Offsets.Commit("G", message.Queue{Topic: "T"}, 3)
	require.Zero(t, c.Do(command.ReqDeleteTopicInBroker, topic("T"), nil).Code)
	require.Nil(t, e.K.Topics.Named("T"))
	require.Zero(t, c.Do(command.ReqDeleteTopicInBroker, topic("T"), nil).Code, "what is not there is deleted")
	require.Empty(t, e.K.Offsets.In("T"))
	e = e.Again(nil)
	c = e.Connect(t)
	require.Nil(t, e.K.Topics.Named("T"))
	send(t, c, "T", 1, 0)
	q := command.QueueRequest{Topic: []byte("T")}
	require.Equal(t, int64(1), c.Do(command.ReqGetMaxOffset, q.Append, nil).Int("offset"))
	r := c.Pull(enginetest.Pull("G", "T", 0, 0))
	require.Len(t, r.Records(), 1)
	require.Len(t, c.Pull(enginetest.Pull("G", "kept", 0, 0)).Records(), 2)
	for _, name := range []string{"", "TBW102", "broker-a", "DefaultCluster", "DefaultCluster_REPLY_TOPIC", message.CatalogTopic} {
		require.Equal(t, command.RespInvalidParameter, c.Do(command.ReqDeleteTopicInBroker, topic(name), nil).Code, name)
	}
	require.Equal(t, command.RespInvalidParameter, c.Do(command.ReqDeleteTopicInBroker, nil, nil).Code)
	require.NoError(t, e.Script.ReadOnly(t.Context(), "the disk is bad"))
	require.Equal(t, command.RespServiceNotAvailable, c.Do(command.ReqDeleteTopicInBroker, topic("kept"), nil).Code)
	require.Equal(t, command.RespServiceNotAvailable, c.Do(command.ReqCleanUnusedTopic, nil, nil).Code)
}

// A broker that dies between forgetting a topic and removing its messages removes them
// when it starts again; so does one whose store could not.
func TestDeleteTopicIsEndedLater(t *testing.T) {
	var broken atomic.Bool
	e := enginetest.Start(t, enginetest.Options{Store: failingDrop(&broken)})
	c := e.Connect(t)
	send(t, c, "T", 3, 0)
	send(t, c, "kept", 2, 0)
	broken.Store(true)
	r := c.Do(command.ReqDeleteTopicInBroker, topic("T"), nil)
	require.Equal(t, command.RespSystemError, r.Code)
	require.Contains(t, r.Remark, "the disk is odd")
	require.Nil(t, e.K.Topics.Named("T"))
	broken.Store(false)
	e = e.Again(e.Kill(memfs.KeepNone))
	c = e.Connect(t)
	send(t, c, "T", 1, 0)
	require.Equal(t, int64(1), c.Do(command.ReqGetMaxOffset, (&command.QueueRequest{Topic: []byte("T")}).Append, nil).Int("offset"))
	require.Len(t, c.Pull(enginetest.Pull("G", "kept", 0, 0)).Records(), 2)
	e = e.Again(nil) // it was ended, not only begun again
	require.Len(t, e.Connect(t).Pull(enginetest.Pull("G", "T", 0, 0)).Records(), 1)
}

func TestCleanUnusedTopics(t *testing.T) {
	var broken atomic.Bool
	e := enginetest.Start(t, enginetest.Options{Store: failingDrop(&broken)})
	c := e.Connect(t)
	send(t, c, "T", 3, 0)
	send(t, c, "kept", 3, 0)
	end := func(name string) int64 {
		return c.Do(command.ReqGetMaxOffset, (&command.QueueRequest{Topic: []byte(name)}).Append, nil).Int("offset")
	}
	broken.Store(true)
	require.NotZero(t, c.Do(command.ReqDeleteTopicInBroker, topic("T"), nil).Code)
	require.Equal(t, int64(3), end("T"))
	require.Equal(t, command.RespSystemError, c.Do(command.ReqCleanUnusedTopic, nil, nil).Code)
	broken.Store(false)
	require.Zero(t, c.Do(command.ReqCleanUnusedTopic, nil, nil).Code)
	require.Zero(t, end("T"))
	require.Equal(t, int64(3), end("kept"))
}

// failingDrop makes a store whose Drop fails while broken is set.
func failingDrop(broken *atomic.Bool) storagemw.Middleware {
	return func(p storage.Params, next storage.Store) storage.Store {
		return storagemw.Faults(func(_ context.Context, c storagemw.Call) error {
			if c.Op == storagemw.OpDrop && !c.Done && broken.Load() {
				return errors.New("the disk is odd")
			}
			return nil
		})(p, next)
	}
}
