package admin_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
)

// reply answers the one request that the broker sent to a client.
func reply(t testing.TB, c *enginetest.Client, code int32, remark, body string) *enginetest.Reply {
	t.Helper()
	var asked *enginetest.Reply
	for _, p := range c.Pushes() {
		if p.Code != command.ReqNotifyConsumerIDsChanged {
			require.Nil(t, asked)
			asked = p
		}
	}
	require.NotNil(t, asked)
	w := command.Begin(nil, command.JSON, code, asked.Opaque, command.FlagResponse)
	w.Remark(remark)
	require.NoError(t, c.FeedFrames(command.Frame{Header: w.End(len(body)), Body: []byte(body)}))
	return asked
}

func beat(t testing.TB, c *enginetest.Client, id, group string, topics ...string) {
	t.Helper()
	require.Zero(t, c.Do(command.ReqHeartBeat, nil, c.Body(enginetest.Heartbeat(id, group, 1, topics...))).Code)
}

func TestConnections(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	c, tool := e.Connect(t), e.Connect(t)
	consumers := func(g string) *enginetest.Reply {
		return tool.Do(command.ReqGetConsumerConnectionList, (&command.ConsumerGroupRequest{ConsumerGroup: []byte(g)}).Append, nil)
	}
	producers := func(g string) *enginetest.Reply {
		return tool.Do(command.ReqGetProducerConnectionList, (&command.ProducerGroupRequest{ProducerGroup: g}).Append, nil)
	}
	r := consumers("G")
	require.Equal(t, command.RespConsumerNotOnline, r.Code)
	require.Equal(t, "the consumer group[G] not online", r.Remark)
	r = producers("PG")
	require.Equal(t, command.RespSystemError, r.Code)
	require.Equal(t, "the producer group[PG] not exist", r.Remark)
	require.JSONEq(t, `{"data":{}}`, string(tool.Do(command.ReqGetAllProducerInfo, nil, nil).Body))

	hb := enginetest.Heartbeat("id", "G", 7, "T")
	hb.ProducerDataSet = []command.ProducerData{{GroupName: "PG"}}
	require.Zero(t, c.Do(command.ReqHeartBeat, nil, c.Body(hb)).Code)
	got := decode[command.ConsumerConnection](t, consumers("G"))
	addr := c.Peer.Remote().String()
	want := []command.Connection{{ClientAddr: addr, ClientID: "id", Language: "GO", Version: command.Version}}
	require.Equal(t, want, got.ConnectionSet)
	require.Equal(t, command.ConsumePassively, got.ConsumeType)
	require.Equal(t, command.Clustering, got.MessageModel)
	require.Equal(t, command.ConsumeFromLastOffset, got.ConsumeFromWhere)
	require.Equal(t, "*", got.SubscriptionTable["T"].SubString)
	require.Equal(t, want, decode[command.ProducerConnection](t, producers("PG")).ConnectionSet)
	all := decode[command.ProducerTable](t, tool.Do(command.ReqGetAllProducerInfo, nil, nil))
	require.Len(t, all.Data["PG"], 1)
	require.Equal(t, "/"+addr, all.Data["PG"][0].RemoteIP)
	c.Close(nil)
	require.Equal(t, command.RespConsumerNotOnline, consumers("G").Code)
	for _, code := range []int32{command.ReqGetConsumerConnectionList, command.ReqGetProducerConnectionList, command.ReqGetConsumerRunningInfo, command.ReqConsumeMessageDirectly, command.ReqInvokeBrokerToGetConsumerStatus} {
		require.Equal(t, command.RespInvalidParameter, tool.Do(code, nil, nil).Code, code)
	}
}

// What a tool asks of a client goes to this client and its answer comes back unread.
func TestRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := enginetest.Start(t, enginetest.Options{})
		c, tool := e.Connect(t), e.Connect(t)
		beat(t, c, "id", "G", "T")
		c.Pushes()
		ask := (&command.ConsumerRunningInfoRequest{ConsumerGroup: "G", ClientID: "id", JstackEnable: true}).Append
		n := tool.Begin(command.ReqGetConsumerRunningInfo, ask, nil)
		const odd = `{"mqTable":{{"brokerName":"b","queueId":0,"topic":"T"}:{}}}`
		asked := reply(t, c, 0, "", odd)
		require.Equal(t, command.ReqGetConsumerRunningInfo, asked.Code)
		require.Equal(t, map[string]string{"consumerGroup": "G", "clientId": "id", "jstackEnable": "true"}, asked.Ext)
		require.Equal(t, odd, string(tool.Wait(n).Body))
		n = tool.Begin(command.ReqGetConsumerRunningInfo, ask, nil)
		reply(t, c, 1, "not here", "")
		r := tool.Wait(n)
		require.Equal(t, int32(1), r.Code)
		require.Equal(t, "not here", r.Remark)
		n = tool.Begin(command.ReqGetConsumerRunningInfo, ask, nil)
		r = tool.Wait(n)
		require.Equal(t, command.RespConsumeMsgTimeout, r.Code, "after ten seconds of silence")
		c.Pushes()
		n = tool.Begin(command.ReqGetConsumerRunningInfo, ask, nil)
		c.Close(nil)
		require.Equal(t, command.RespSystemError, tool.Wait(n).Code)
		r = tool.Do(command.ReqGetConsumerRunningInfo, ask, nil)
		require.Equal(t, command.RespSystemError, r.Code)
		require.Equal(t, "The Consumer <G> <id> not online", r.Remark)
	})
}

func TestConsumeDirectly(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	c, tool := e.Connect(t), e.Connect(t)
	require.Zero(t, create(tool, command.CreateTopicRequest{Topic: "T", Perm: 6, TopicSysFlag: 1}).Code)
	id := tool.Send(enginetest.Message{Topic: "T", Body: "hello"}).Ext["msgId"]
	beat(t, c, "id", "G", "T")
	c.Pushes()
	ask := command.ConsumeDirectlyRequest{ConsumerGroup: "G", ClientID: "id", MsgID: id, Topic: "T"}
	n := tool.Begin(command.ReqConsumeMessageDirectly, ask.Append, nil)
	asked := reply(t, c, 0, "", `{"consumeResult":"CR_SUCCESS"}`)
	require.Equal(t, command.ReqConsumeMessageDirectly, asked.Code)
	require.Equal(t, "broker-a", asked.Ext["brokerName"])
	require.Equal(t, "1", asked.Ext["topicSysFlag"])
	require.Equal(t, "hello", string(asked.Records()[0].Body))
	require.JSONEq(t, `{"consumeResult":"CR_SUCCESS"}`, string(tool.Wait(n).Body))
	ask.MsgID = "nonsense"
	require.Equal(t, command.RespInvalidParameter, tool.Do(command.ReqConsumeMessageDirectly, ask.Append, nil).Code)
	ask.MsgID = id[:30] + "FF"
	r := tool.Do(command.ReqConsumeMessageDirectly, ask.Append, nil)
	require.Equal(t, command.RespSystemError, r.Code)
	require.Contains(t, r.Remark, "can not find message by the offset")
	require.Empty(t, c.Pushes())
}

func TestConsumerStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := enginetest.Start(t, enginetest.Options{})
		one, two, tool := e.Connect(t), e.Connect(t), e.Connect(t)
		ask := command.ConsumerStatusRequest{Topic: "T", Group: "G"}
		require.Equal(t, command.RespSystemError, tool.Do(command.ReqInvokeBrokerToGetConsumerStatus, ask.Append, nil).Code)
		beat(t, one, "one", "G", "T")
		beat(t, two, "two", "G", "T")
		n := tool.Begin(command.ReqInvokeBrokerToGetConsumerStatus, ask.Append, nil)
		asked := reply(t, one, 0, "", `{"messageQueueTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:5}}`)
		require.Equal(t, command.ReqGetConsumerStatusFromClient, asked.Code)
		require.False(t, tool.Answered(n))
		reply(t, two, 0, "", `{"messageQueueTable":{}}`)
		got := decode[command.ConsumerStatus](t, tool.Wait(n))
		require.Equal(t, map[string]map[command.MessageQueue]int64{"one": {mq("T", 0): 5}, "two": {}}, got.ConsumerTable)
		ask.ClientAddr = "two"
		n = tool.Begin(command.ReqInvokeBrokerToGetConsumerStatus, ask.Append, nil)
		require.Empty(t, one.Pushes())
		began := time.Now()
		r := tool.Wait(n)
		require.Equal(t, command.RespSystemError, r.Code)
		require.Contains(t, r.Remark, "two")
		require.Equal(t, statusLimit, time.Since(began))
	})
}

const statusLimit = 5 * time.Second
