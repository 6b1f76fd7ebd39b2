package admin_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func create(c *enginetest.Client, r command.CreateTopicRequest) *enginetest.Reply {
	if r.ReadQueueNums == 0 {
		r.ReadQueueNums = 4
	}
	if r.WriteQueueNums == 0 {
		r.WriteQueueNums = 4
	}
	r.DefaultTopic, r.TopicFilterType = "TBW102", "SINGLE_TAG"
	return c.Do(command.ReqUpdateAndCreateTopic, r.Append, nil)
}

func TestCreateTopic(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	c := e.Connect(t)
	require.Zero(t, create(c, command.CreateTopicRequest{Topic: "T", Perm: 6, Order: true, TopicSysFlag: 1, Attributes: "+message.type=FIFO,+reserve.time=-1"}).Code)
	got := e.K.Topics.Named("T").Config
	require.Equal(t, int32(4), got.ReadQueueNums)
	require.True(t, got.Order)
	require.Equal(t, int32(1), got.TopicSysFlag)
	require.Equal(t, map[string]string{"message.type": "FIFO", "reserve.time": "-1"}, map[string]string(got.Attributes))
	require.Zero(t, create(c, command.CreateTopicRequest{Topic: "T", Perm: 4, ReadQueueNums: 8, WriteQueueNums: 2, Attributes: "-reserve.time,+queue.type=SimpleCQ"}).Code)
	got = e.K.Topics.Named("T").Config
	require.Equal(t, int32(8), got.ReadQueueNums)
	require.Equal(t, int32(2), got.WriteQueueNums)
	require.Equal(t, int32(4), got.Perm)
	require.Equal(t, map[string]string{"message.type": "FIFO", "queue.type": "SimpleCQ"}, map[string]string(got.Attributes), "changed, not replaced")
}

func TestRefusals(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	c := e.Connect(t)
	for name, r := range map[string]command.CreateTopicRequest{
		"name": {Topic: "a b", Perm: 6}, "system": {Topic: "TBW102", Perm: 6}, "internal": {Topic: message.CatalogTopic, Perm: 6},
		"queues": {Topic: "T", Perm: 6, ReadQueueNums: -1}, "too many queues": {Topic: "T", Perm: 6, WriteQueueNums: 1 << 20}, "permission": {Topic: "T", Perm: 8},
	} {
		require.Equal(t, command.RespInvalidParameter, create(c, r).Code, name)
	}
	for _, attr := range []string{
		"-k", "k=v", "+k", "+=v", "-", "+", "+k=v", "+message.type=", "+message.type=fifo", "+message.type=MIXED",
		"+queue.type=BatchCQ", "+cleanup.policy=COMPACTION", "+reserve.time=soon", "+message.type=FIFO,+k=v",
	} {
		require.Equal(t, command.RespSystemError, create(c, command.CreateTopicRequest{Topic: "T", Perm: 6, Attributes: attr}).Code, attr)
	}
	bla := command.CreateTopicRequest{Topic: "T", Perm: 6, ReadQueueNums: 4, WriteQueueNums: 4, DefaultTopic: "TBW102", TopicFilterType: "BLA"}
	require.Equal(t, command.RespInvalidParameter, c.Do(command.ReqUpdateAndCreateTopic, bla.Append, nil).Code)
	require.Nil(t, e.K.Topics.Named("T"))
	require.NotZero(t, c.Do(command.ReqUpdateAndCreateTopic, nil, nil).Code)
	require.NoError(t, e.Script.ReadOnly(t.Context(), "the disk is bad"))
	r := create(c, command.CreateTopicRequest{Topic: "T", Perm: 6})
	require.Equal(t, command.RespServiceNotAvailable, r.Code)
	require.Contains(t, r.Remark, "the disk is bad")
}

func TestUpdateGroup(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{Prepare: func(e *enginetest.Engine) {
		e.K.Hooks.OnGroupAttribute("speed", kernel.GroupAttribute{Check: func(v string) error {
			if v != "fast" {
				return errors.New("must be fast")
			}
			return nil
		}})
		e.K.Hooks.OnGroupAttribute("colour", kernel.GroupAttribute{Check: func(string) error { return nil }})
	}})
	c := e.Connect(t)
	put := func(body string) *enginetest.Reply {
		return c.Do(command.ReqUpdateAndCreateSubscriptionGroup, nil, []byte(body))
	}
	// As mqadmin sends it.
	require.Zero(t, put(`{"attributes":{"+speed":"fast","+colour":"red"},"brokerId":0,"consumeEnable":true,"groupName":"G","retryMaxTimes":3,"retryQueueNums":2}`).Code)
	g := e.K.Groups.Named("G")
	require.Equal(t, int32(3), g.RetryMaxTimes)
	require.Equal(t, int32(2), g.RetryQueueNums)
	require.Equal(t, command.StringMap{"speed": "fast", "colour": "red"}, g.Attributes)
	// As tools send it that write back what they read.
	require.Zero(t, put(`{"attributes":{"speed":"fast","colour":"blue"},"groupName":"G","retryMaxTimes":-1}`).Code)
	require.Zero(t, put(`{"attributes":{"-speed":"","-colour":""},"groupName":"H"}`).Code, "what is not there is gone already")
	require.Equal(t, command.StringMap{"speed": "fast", "colour": "blue"}, e.K.Groups.Named("G").Attributes)
	require.Zero(t, put(`{"attributes":{"-speed":""},"groupName":"G"}`).Code)
	require.Equal(t, command.StringMap{"colour": "blue"}, e.K.Groups.Named("G").Attributes)
	for body, code := range map[string]int32{
		"": command.RespInvalidParameter, "{": command.RespInvalidParameter, `{"groupName":""}`: command.RespInvalidParameter, `{"groupName":"a b"}`: command.RespInvalidParameter,
		`{"groupName":"N","retryQueueNums":-1}`: command.RespInvalidParameter, `{"groupName":"N","retryMaxTimes":-2}`: command.RespInvalidParameter,
		`{"groupName":"N","attributes":{"+speed":"slow"}}`: command.RespSystemError, `{"groupName":"N","attributes":{"+x":"1"}}`: command.RespSystemError,
		`{"groupName":"N","attributes":{"-x":""}}`: command.RespSystemError, `{"groupName":"N","attributes":{"":""}}`: command.RespSystemError,
		`{"groupName":"N","attributes":{"+speed":"fast","-speed":""}}`: command.RespSystemError,
	} {
		r := put(body)
		require.Equal(t, code, r.Code, "%s: %s", body, r.Remark)
	}
	require.Nil(t, e.K.Groups.Named("N"))
	require.NoError(t, e.Script.ReadOnly(t.Context(), "the disk is bad"))
	require.Equal(t, command.RespServiceNotAvailable, put(`{"groupName":"N"}`).Code)
}
