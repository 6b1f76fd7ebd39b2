package broker_test

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
)

// TestUpdateConfig is BC-39 for a broker that runs: an update refuses what a file
// may not hold, with the same words and nothing changed, and says what it changed.
func TestUpdateConfig(t *testing.T) {
	var slow throttle
	b := startThrottled(t, &slow)
	c, err := net.Dial("tcp", b.Address())
	require.NoError(t, err)
	defer c.Close()
	call := func(frame []byte) *command.Header {
		t.Helper()
		_, err := c.Write(frame)
		require.NoError(t, err)
		f, err := readFrame(c)
		require.NoError(t, err)
		var h command.Header
		require.NoError(t, h.Decode(&f))
		return &h
	}
	update := func(text string) *command.Header {
		w := command.Begin(nil, command.JSON, command.ReqUpdateBrokerConfig, 1, 0)
		return call(append(w.End(len(text)), text...))
	}
	send := func(topic string) int32 { return call(sendFrame(topic, 0, []byte("x"))).Code }

	for text, want := range map[string]string{
		"autoCreateTopicEnable=yes":                             "update request line 1: autoCreateTopicEnable = \"yes\"",
		"traceOn=true\nautoCreateTopicEnabel=false":             "update request line 2: unknown key \"autoCreateTopicEnabel\"; did you mean autoCreateTopicEnable?",
		"brokerPermission=99999999999":                          "brokerPermission",
		"autoCreateTopicEnable=false\nflushDiskType=SYNC_FLUSH": "change the configuration and restart",
		"traceOn=true\ntraceOn=false":                           "given twice",
		"brokerPermission=\xff":                                 "UTF-8",
	} {
		h := update(text)
		require.Equal(t, command.RespSystemError, h.Code, text)
		require.Contains(t, string(h.Remark()), want, text)
	}
	require.Equal(t, command.RespSuccess, send("first"), "topics are still created by sends")

	h := update("autoCreateTopicEnable=false \t\r\ntraceOn=true")
	require.Equal(t, command.RespSuccess, h.Code, h.Remark())
	require.Contains(t, string(h.Remark()), "autoCreateTopicEnable: true -> false")
	require.NotContains(t, string(h.Remark()), "traceOn", "it was true before")
	require.Equal(t, command.RespTopicNotExist, send("second"))
	require.Equal(t, command.RespSuccess, send("first"))
	h = update("autoCreateTopicEnable=FALSE")
	require.Equal(t, command.RespSuccess, h.Code)
	require.Contains(t, string(h.Remark()), "nothing changed")
	h = update("brokerPermission=2 ")
	require.Equal(t, command.RespSuccess, h.Code, h.Remark())
	require.Contains(t, string(h.Remark()), "brokerPermission: 6 -> 2")
	pull := command.PullRequest{ConsumerGroup: []byte("g"), Topic: []byte("first"), MaxMsgNums: 1}
	w := command.Begin(nil, command.JSON, command.ReqPullMessage, 1, 0)
	pull.Append(&w)
	require.Equal(t, command.RespNoPermission, call(w.End(0)).Code)
}
