package retry_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/plugins/replication/solo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// position is where the record of an answer lies.
func position(t *testing.T, id string) int64 {
	t.Helper()
	_, at, err := message.ParseOffsetID(id)
	require.NoError(t, err)
	return int64(at)
}

func back(c *enginetest.Client, group string, at int64, level, limit int32) *enginetest.Reply {
	return c.Do(command.ReqConsumerSendMsgBack, (&command.SendBackRequest{
		Group: []byte(group), Offset: at, DelayLevel: level, OriginMsgID: []byte("the unique key"), OriginTopic: []byte("T"), MaxReconsumeTimes: limit,
	}).Append, nil)
}

func last(t *testing.T, c *enginetest.Client, topic string, at int64) message.View {
	t.Helper()
	r := c.Pull(enginetest.Pull("reader", topic, 0, at))
	require.Zero(t, r.Code, r.Remark)
	return r.Records()[0]
}

func prop(v message.View, name string) string {
	b, _ := message.Property(v.Properties, name)
	return string(b)
}

func TestSendBack(t *testing.T) {
	for name, o := range map[string]enginetest.Options{"solo": {Replication: solo.NewFactory()}, "scripted": {}} {
		t.Run(name, func(t *testing.T) {
			e := enginetest.Start(t, o)
			c := e.Connect(t)
			sent := c.Send(enginetest.Message{Topic: "T", Body: "body", Flag: 5, Properties: enginetest.Props("UNIQ_KEY", "U1", "KEYS", "k", "TAGS", "A")})
			require.Equal(t, command.RespSubscriptionGroupNotExist, back(c, "G", position(t, sent.Ext["msgId"]), 0, -1).Code)
			_, err := e.K.Groups.Ensure(t.Context(), "G")
			require.NoError(t, err)
			first := last(t, c, "T", 0)

			require.Zero(t, back(c, "G", position(t, sent.Ext["msgId"]), 3, -1).Code)
			v := last(t, c, "%RETRY%G", 0)
			require.Equal(t, "body", string(v.Body))
			require.Equal(t, int32(5), v.Flag)
			require.Equal(t, int32(1), v.ReconsumeTimes)
			require.Equal(t, first.BornTime, v.BornTime)
			require.Equal(t, first.BornHost, v.BornHost)
			require.Equal(t, "T", prop(v, "RETRY_TOPIC"))
			require.Equal(t, sent.Ext["msgId"], prop(v, "ORIGIN_MESSAGE_ID"), "the offset id of the first record, whatever the client says")
			require.Equal(t, "U1", prop(v, "UNIQ_KEY"))
			require.Equal(t, "A", prop(v, "TAGS"))
			require.Empty(t, prop(v, "DELAY"))
			require.Equal(t, 1, strings.Count(string(v.Properties), "CLUSTER\x01"), "the broker's properties once")

			// Again and again, until it is dead.
			at := int64(v.Position)
			for i := range int64(15) {
				require.Zero(t, back(c, "G", at, 0, -1).Code)
				v = last(t, c, "%RETRY%G", i+1)
				require.Equal(t, int32(i+2), v.ReconsumeTimes)
				require.Equal(t, sent.Ext["msgId"], prop(v, "ORIGIN_MESSAGE_ID"), "kept")
				require.Equal(t, "T", prop(v, "RETRY_TOPIC"), "kept")
				at = int64(v.Position)
			}
			require.Zero(t, back(c, "G", at, 0, -1).Code)
			v = last(t, c, "%DLQ%G", 0)
			require.Equal(t, int32(17), v.ReconsumeTimes)
			require.Equal(t, sent.Ext["msgId"], prop(v, "ORIGIN_MESSAGE_ID"))

			require.Zero(t, back(c, "G", position(t, sent.Ext["msgId"]), -1, -1).Code)
			require.Equal(t, int32(1), last(t, c, "%DLQ%G", 1).ReconsumeTimes, "dead at the consumer's wish")
			require.Zero(t, back(c, "G", position(t, sent.Ext["msgId"]), 0, 0).Code)
			require.Equal(t, int32(1), last(t, c, "%DLQ%G", 2).ReconsumeTimes, "dead by the header's limit")
		})
	}
}

func TestRefusals(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	c := e.Connect(t)
	at := position(t, c.Send(enginetest.Message{Topic: "T", Body: "x"}).Ext["msgId"])
	_, err := e.K.Groups.Ensure(t.Context(), "G")
	require.NoError(t, err)
	for _, pos := range []int64{-1, at + 1, 1 << 40, 0} {
		r := back(c, "G", pos, 0, -1)
		require.Equal(t, command.RespSystemError, r.Code)
		require.Contains(t, r.Remark, "look message by offset failed")
	}
	g := command.DefaultSubscriptionGroup("none")
	g.RetryQueueNums = 0
	require.NoError(t, e.K.Groups.Put(t.Context(), g))
	require.Zero(t, back(c, "none", at, 0, -1).Code, "nothing is kept, nothing is wrong")
	require.Nil(t, e.K.Topics.Named("%RETRY%none"))
	require.NoError(t, e.K.Topics.Put(t.Context(), command.TopicConfig{TopicName: "%RETRY%G", ReadQueueNums: 1, WriteQueueNums: 1, Perm: 4}))
	require.Equal(t, command.RespNoPermission, back(c, "G", at, 0, -1).Code)
	require.NoError(t, e.K.Topics.Put(t.Context(), command.TopicConfig{TopicName: "%RETRY%G", ReadQueueNums: 1, WriteQueueNums: 1, Perm: 6}))
	e.Script.Refuse(1, replication.ErrBusy)
	require.NotZero(t, back(c, "G", at, 0, -1).Code, "a failure: the client sends it as a message then")
	require.NoError(t, e.Script.Lose(t.Context(), "192.0.2.1:1", false))
	require.Equal(t, command.RespServiceNotAvailable, back(c, "G", at, 0, -1).Code)

	closed := enginetest.Start(t, enginetest.Options{Config: func(c *kernel.Config) { c.Permission = 4 }})
	_, err = closed.K.Groups.Ensure(t.Context(), "G")
	require.NoError(t, err)
	require.Equal(t, command.RespNoPermission, back(closed.Connect(t), "G", 0, 0, -1).Code)
}
