package admin_test

import (
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
)

func mq(topic string, id int32) command.MessageQueue {
	return command.MessageQueue{BrokerName: "broker-a", Topic: topic, QueueID: id}
}

func TestGroupConfigs(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	c := e.Connect(t)
	r := c.Do(command.ReqUpdateAndCreateSubscriptionGroupList, nil, []byte(`{"groupConfigList":[{"groupName":"G","retryMaxTimes":3},{"groupName":"H","retryQueueNums":2}]}`))
	require.Zero(t, r.Code, r.Remark)
	get := func(name string) *enginetest.Reply {
		return c.Do(command.ReqGetSubscriptionGroupConfig, (&command.GroupRequest{Group: name}).Append, nil)
	}
	require.Equal(t, int32(3), decode[command.SubscriptionGroupConfig](t, get("G")).RetryMaxTimes)
	all := decode[command.SubscriptionGroupWrapper](t, c.Do(command.ReqGetAllSubscriptionGroupConfig, nil, nil))
	require.Contains(t, all.SubscriptionGroupTable, "TOOLS_CONSUMER")
	require.Equal(t, int32(2), all.SubscriptionGroupTable["H"].RetryQueueNums)
	part := c.Do(command.ReqGetAllSubscriptionGroupConfig, (&command.TablePageRequest{Max: 2}).Append, nil)
	require.Len(t, decode[command.SubscriptionGroupWrapper](t, part).SubscriptionGroupTable, 2)
	require.Equal(t, int64(len(all.SubscriptionGroupTable)), part.Int("totalGroupNum"))
	r = c.Do(command.ReqUpdateAndCreateSubscriptionGroupList, nil, []byte(`{"groupConfigList":[{"groupName":"N"},{"groupName":"a b"}]}`))
	require.Equal(t, command.RespInvalidParameter, r.Code)
	require.Equal(t, command.RespSubscriptionGroupNotExist, get("N").Code, "all or none")
	require.Equal(t, command.RespInvalidParameter, c.Do(command.ReqGetSubscriptionGroupConfig, nil, nil).Code)

	// Deleted with or without its progress.
	send(t, c, "T", 1, 0)
	remove := func(name string, clean bool) int32 {
		return c.Do(command.ReqDeleteSubscriptionGroup, (&command.DeleteGroupRequest{GroupName: name, CleanOffset: clean}).Append, nil).Code
	}
	for _, g := range []string{"G", "H"} {
		e.K.Offsets.Commit(g, message.Queue{Topic: "T"}, 5)
	}
	require.Zero(t, remove("G", false))
	require.Zero(t, remove("H", true))
	require.Zero(t, remove("H", true), "what is not there is deleted")
	require.Equal(t, command.RespInvalidParameter, remove("", true))
	e = e.Again(nil)
	c = e.Connect(t)
	require.Equal(t, command.RespSubscriptionGroupNotExist, get("G").Code)
	require.Equal(t, []string{"G"}, e.K.Offsets.In("T"))
	require.NoError(t, e.Script.ReadOnly(t.Context(), "the disk is bad"))
	require.Equal(t, command.RespServiceNotAvailable, remove("G", true))
}

// A group may be kept from reading a topic; that is in the log, in RocketMQ's file and
// in what tools are told, and it ends with the topic.
func TestGroupForbidden(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	c := e.Connect(t)
	send(t, c, "T", 1, 0)
	ask := func(h command.GroupForbiddenRequest) command.GroupForbidden {
		t.Helper()
		return decode[command.GroupForbidden](t, c.Do(command.ReqUpdateAndGetGroupForbidden, h.Append, nil))
	}
	no := command.GroupForbiddenRequest{Group: "G", Topic: "T", Update: true}
	get := command.GroupForbiddenRequest{Group: "G", Topic: "T"}
	pulled := func(group string) *enginetest.Reply { return c.Pull(enginetest.Pull(group, "T", 0, 0)) }
	require.Equal(t, command.GroupForbidden{Group: "G", Topic: "T", Readable: true}, ask(get))
	require.Zero(t, pulled("G").Code)
	for range 2 {
		require.False(t, ask(no).Readable)
		r := pulled("G")
		require.Equal(t, command.RespNoPermission, r.Code)
		require.Equal(t, "5", r.Ext["forbiddenType"])
		require.Zero(t, pulled("H").Code, "another group")
	}
	table := func() map[string]map[string]int32 {
		return decode[command.SubscriptionGroupWrapper](t, c.Do(command.ReqGetAllSubscriptionGroupConfig, nil, nil)).ForbiddenTable
	}
	require.Equal(t, map[string]map[string]int32{"G": {"T": 4}}, table())

	// Over a restart, and by the file when Apache's broker wrote it.
	e = e.Again(nil)
	c = e.Connect(t)
	require.False(t, ask(get).Readable)
	e.Stop()
	b, err := vfs.ReadFile(e.Disk.FS, e.File("subscriptionGroup.json"))
	require.NoError(t, err)
	theirs := strings.Replace(string(b), `"T": 4`, `"T": 6, "U": 4, "V": 0`, 1)
	require.NotEqual(t, string(b), theirs)
	require.NoError(t, vfs.WriteFileAtomic(e.Disk.FS, e.File("subscriptionGroup.json"), []byte(theirs)))
	e = e.Again(e.Disk)
	c = e.Connect(t)
	require.Equal(t, map[string]map[string]int32{"G": {"T": 6, "U": 4}}, table())
	require.Equal(t, command.RespNoPermission, pulled("G").Code)

	yes := command.GroupForbiddenRequest{Group: "G", Topic: "T", Update: true, Readable: true}
	require.True(t, ask(yes).Readable)
	require.Zero(t, pulled("G").Code)
	require.Equal(t, map[string]map[string]int32{"G": {"T": 2, "U": 4}}, table(), "bits that this broker does not know stay")
	require.NoError(t, e.K.Topics.Remove(t.Context(), "T"))
	require.True(t, ask(command.GroupForbiddenRequest{Group: "G", Topic: "U", Update: true, Readable: true}).Readable)
	require.Empty(t, table())
	require.False(t, e.K.Values.Has(kernel.ValueForbidden))

	for name, bad := range map[string]command.GroupForbiddenRequest{
		"group": {Group: "a b", Topic: "T", Update: true}, "topic": {Group: "G", Topic: "a b", Update: true},
	} {
		r := c.Do(command.ReqUpdateAndGetGroupForbidden, bad.Append, nil)
		require.Equal(t, command.RespInvalidParameter, r.Code, name)
		require.Contains(t, r.Remark, name)
	}
	hidden := command.GroupForbiddenRequest{Group: "G", Topic: message.CatalogTopic, Update: true}
	require.Equal(t, command.RespTopicNotExist, c.Do(command.ReqUpdateAndGetGroupForbidden, hidden.Append, nil).Code)
	require.NoError(t, e.Script.ReadOnly(t.Context(), "the disk is bad"))
	require.Equal(t, command.RespServiceNotAvailable, c.Do(command.ReqUpdateAndGetGroupForbidden, no.Append, nil).Code)
}

func TestConsumeStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := enginetest.Start(t, enginetest.Options{})
		c := e.Connect(t)
		require.Zero(t, create(c, command.CreateTopicRequest{Topic: "T", Perm: 6, ReadQueueNums: 2, WriteQueueNums: 2}).Code)
		send(t, c, "T", 10, 0)
		<-time.After(time.Second)
		send(t, c, "T", 2, 1)
		send(t, c, "U", 3, 0)
		require.Len(t, c.Pull(enginetest.Pull("G", "T", 0, 0)).Records(), 10)
		for q, n := range map[message.Queue]int64{{Topic: "T"}: 4, {Topic: "U"}: 1, {Topic: "deleted"}: 1} {
			e.K.Offsets.Commit("G", q, n)
		}
		stats := func(h command.ConsumeStatsRequest) command.ConsumeStats {
			return decode[command.ConsumeStats](t, c.Do(command.ReqGetConsumeStats, h.Append, nil))
		}
		all := stats(command.ConsumeStatsRequest{ConsumerGroup: "G"})
		require.Len(t, all.OffsetTable, 2+4)
		got := all.OffsetTable[mq("T", 0)]
		first := c.Do(command.ReqGetEarliestMsgStoreTime, (&command.QueueRequest{Topic: []byte("T")}).Append, nil).Int("timestamp")
		require.Equal(t, command.OffsetWrapper{BrokerOffset: 10, ConsumerOffset: 4, PullOffset: 10, LastTimestamp: first}, got)
		require.Equal(t, command.OffsetWrapper{BrokerOffset: 2}, all.OffsetTable[mq("T", 1)])
		require.Len(t, stats(command.ConsumeStatsRequest{ConsumerGroup: "G", Topic: "T"}).OffsetTable, 2)
		require.Len(t, stats(command.ConsumeStatsRequest{ConsumerGroup: "G", TopicList: "T;U;nope"}).OffsetTable, 6)
		require.Empty(t, stats(command.ConsumeStatsRequest{ConsumerGroup: "nobody"}).OffsetTable)
		require.Empty(t, stats(command.ConsumeStatsRequest{ConsumerGroup: "G", Topic: message.CatalogTopic}).OffsetTable)
		<-time.After(10 * time.Second)
		require.InDelta(t, 10.0/11, stats(command.ConsumeStatsRequest{ConsumerGroup: "G"}).ConsumeTps, 0.2)

		// A group that is there shows what it subscribes.
		require.Zero(t, c.Do(command.ReqHeartBeat, nil, c.Body(enginetest.Heartbeat("id", "G", 1, "U"))).Code)
		require.Len(t, stats(command.ConsumeStatsRequest{ConsumerGroup: "G"}).OffsetTable, 4)

		r := c.Do(command.ReqGetBrokerConsumeStats, (&command.BrokerConsumeStatsRequest{}).Append, nil)
		var list struct {
			BrokerAddr string                              `json:"brokerAddr"`
			List       []map[string][]command.ConsumeStats `json:"consumeStatsList"`
			Diff       int64                               `json:"totalDiff"`
		}
		require.NoError(t, command.DecodeBody(r.Body, &list), "%s", r.Body)
		require.Equal(t, "127.0.0.2:10911", list.BrokerAddr)
		require.Equal(t, int64(2), list.Diff)
		groups, _ := e.K.Groups.All()
		require.Len(t, list.List, len(groups), "groups without progress as well")
		require.Equal(t, command.RespInvalidParameter, c.Do(command.ReqGetBrokerConsumeStats, nil, nil).Code)
		order := c.Do(command.ReqGetBrokerConsumeStats, (&command.BrokerConsumeStatsRequest{Order: true}).Append, nil)
		require.NotContains(t, string(order.Body), `"topic":"U"`)
	})
}

func TestTimeSpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := enginetest.Start(t, enginetest.Options{})
		c := e.Connect(t)
		require.Zero(t, create(c, command.CreateTopicRequest{Topic: "T", Perm: 6, ReadQueueNums: 2, WriteQueueNums: 2}).Code)
		began := time.Now().UnixMilli()
		for range 5 {
			send(t, c, "T", 1, 0)
			<-time.After(time.Minute)
		}
		ask := func(group string) command.ConsumeTimeSpans {
			return decode[command.ConsumeTimeSpans](t, c.Do(command.ReqQueryConsumeTimeSpan, (&command.GroupTopicRequest{Group: group, Topic: "T"}).Append, nil))
		}
		e.K.Offsets.Commit("G", message.Queue{Topic: "T"}, 3)
		minute := time.Minute.Milliseconds()
		require.Equal(t, []command.QueueTimeSpan{
			{MessageQueue: mq("T", 0), MinTimeStamp: began, MaxTimeStamp: began + 4*minute, ConsumeTimeStamp: began + 2*minute, DelayTime: 2 * minute},
			{MessageQueue: mq("T", 1)},
		}, ask("G").Spans)
		require.Equal(t, 5*minute, ask("new").Spans[0].DelayTime)
		e.K.Offsets.Commit("G", message.Queue{Topic: "T"}, 5)
		require.Zero(t, ask("G").Spans[0].DelayTime)
		require.Equal(t, command.RespTopicNotExist, c.Do(command.ReqQueryConsumeTimeSpan, (&command.GroupTopicRequest{Group: "G", Topic: "nope"}).Append, nil).Code)
	})
}

func TestCorrectionTopicsSubscription(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	c := e.Connect(t)
	send(t, c, "T", 9, 0, 1)
	for group, n := range map[string]int64{"A": 3, "B": 5, "C": 8} {
		e.K.Offsets.Commit(group, message.Queue{Topic: "T"}, n)
	}
	correct := func(h command.CorrectionOffsetRequest) map[int32]int64 {
		h.Topic = "T"
		return decode[command.CorrectionOffsets](t, c.Do(command.ReqQueryCorrectionOffset, h.Append, nil)).Offsets
	}
	require.Equal(t, map[int32]int64{0: 3}, correct(command.CorrectionOffsetRequest{CompareGroup: "B"}))
	require.Equal(t, map[int32]int64{0: 5}, correct(command.CorrectionOffsetRequest{CompareGroup: "C", FilterGroups: "A,X"}))
	require.Equal(t, map[int32]int64{0: math.MaxInt64}, correct(command.CorrectionOffsetRequest{CompareGroup: "A", FilterGroups: "A"}))
	list := decode[command.TopicList](t, c.Do(command.ReqQueryTopicsByConsumer, (&command.GroupRequest{Group: "A"}).Append, nil))
	require.Equal(t, command.TopicList{Topics: []string{"T"}, BrokerAddr: "127.0.0.2:10911"}, list)
	sub := func() command.ConsumerSubscription {
		return decode[command.ConsumerSubscription](t, c.Do(command.ReqQuerySubscriptionByConsumer, (&command.GroupTopicRequest{Group: "A", Topic: "T"}).Append, nil))
	}
	require.Nil(t, sub().SubscriptionData)
	require.Zero(t, c.Do(command.ReqHeartBeat, nil, c.Body(enginetest.Heartbeat("id", "A", 1, "T"))).Code)
	require.Equal(t, "*", sub().SubscriptionData.SubString)
}

func TestCloneOffsets(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	c := e.Connect(t)
	send(t, c, "T", 9, 0, 1)
	send(t, c, "U", 9, 0)
	require.NoError(t, e.K.Groups.Put(t.Context(), command.DefaultSubscriptionGroup("A")))
	for q, n := range map[message.Queue]int64{{Topic: "T"}: 3, {Topic: "T", ID: 1}: 4, {Topic: "U"}: 5} {
		e.K.Offsets.Commit("A", q, n)
	}
	clone := func(h command.CloneGroupOffsetRequest) *enginetest.Reply {
		return c.Do(command.ReqCloneGroupOffset, h.Append, nil)
	}
	require.Zero(t, clone(command.CloneGroupOffsetRequest{SrcGroup: "A", DestGroup: "B", Topic: "T"}).Code)
	require.Equal(t, []string{"T"}, e.K.Offsets.Of("B"))
	require.Zero(t, clone(command.CloneGroupOffsetRequest{SrcGroup: "A", DestGroup: "B"}).Code)
	require.Equal(t, command.RespSubscriptionGroupNotExist, clone(command.CloneGroupOffsetRequest{SrcGroup: "nobody", DestGroup: "B"}).Code)
	require.Equal(t, command.RespInvalidParameter, clone(command.CloneGroupOffsetRequest{SrcGroup: "A", DestGroup: "a b"}).Code)
	e = e.Again(e.Kill(memfs.KeepNone)) // it was answered, so it survives
	n, ok := e.K.Offsets.Committed("B", message.Queue{Topic: "T", ID: 1})
	require.True(t, ok)
	require.Equal(t, int64(4), n)
	n, _ = e.K.Offsets.Committed("B", message.Queue{Topic: "U"})
	require.Equal(t, int64(5), n)
}
