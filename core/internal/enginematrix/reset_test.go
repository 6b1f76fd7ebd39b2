package enginematrix_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
)

// testResetByTime is BC-04: ten messages at times of their own and a batch of five in one
// request, to whose times a group is reset. It goes on at the first message of a batch,
// never in its middle, and of a queue whose beginning expired at what is left.
func testResetByTime(t *testing.T, w *world) {
	w.topic("T", 1)
	w.topic("Old", 1)
	w.group("G")
	// A replicator in a process of its own has the clock of the system.
	pass := func() {
		for at := time.Now().UnixMilli(); time.Now().UnixMilli() < at+2; {
			<-time.After(time.Millisecond)
		}
	}
	for i := range 10 {
		pass()
		w.send(enginetest.Message{Topic: "T", Body: fmt.Sprint("single ", i)})
	}
	pass()
	var batch []byte
	for i := range 5 {
		batch = message.AppendBatchItem(batch, message.BatchItem{Body: fmt.Append(nil, "member ", i)})
	}
	r := w.c.Do(command.ReqSendBatchMessage, (&enginetest.Message{Topic: "T"}).Header(true), batch)
	require.Zero(t, r.Code, r.Remark)
	require.Equal(t, int64(10), r.Int("queueOffset"))
	var times []int64
	for _, v := range w.c.Pull(enginetest.Pull("reader", "T", 0, 0)).Records() {
		times = append(times, v.StoreTime)
	}
	require.Len(t, times, 15)
	for i := range 9 {
		require.Greater(t, times[i+1], times[i])
	}
	require.Greater(t, times[10], times[9])
	for _, at := range times[11:] {
		require.Equal(t, times[10], at, "one request, one time")
	}

	reset := func(topic string, h command.ResetOffsetRequest) *enginetest.Reply {
		t.Helper()
		h.Group, h.Topic = "G", topic
		return w.c.Do(command.ReqInvokeBrokerToResetOffset, h.Append, nil)
	}
	// lands is a reset that is answered with an offset, from which the group goes on.
	lands := func(topic string, h command.ResetOffsetRequest, want int64, what ...any) {
		t.Helper()
		r := reset(topic, h)
		require.Zero(t, r.Code, r.Remark)
		var got command.ResetOffsetBody
		require.NoError(t, command.DecodeBody(r.Body, &got))
		require.Equal(t, map[command.MessageQueue]int64{{BrokerName: "broker-a", Topic: topic}: want}, got.OffsetTable, what...)
		require.Equal(t, want, w.progress("G", topic, 0), what...)
	}
	everywhere := func(at int64, force bool) command.ResetOffsetRequest {
		return command.ResetOffsetRequest{Timestamp: at, Force: force, QueueID: -1, Offset: -1}
	}
	check := func() {
		t.Helper()
		for _, x := range []struct {
			what     string
			at, want int64
		}{
			{"before the first", times[0] - 1, 0}, {"the first", times[0], 0}, {"message 6", times[5], 5}, {"behind message 6", times[5] + 1, 6},
			{"before the batch", times[10] - 1, 10}, {"the batch", times[10], 10}, {"behind the batch", times[10] + 1, 15},
			{"an hour ahead", time.Now().Add(time.Hour).UnixMilli(), 15}, {"now", -1, 15},
		} {
			lands("T", everywhere(x.at, true), x.want, x.what)
		}
		// What a group gets that consumed everything: the batch, and all of it.
		lands("T", everywhere(times[10], false), 10)
		r := w.c.Pull(enginetest.Pull("G", "T", 0, 15))
		require.Equal(t, command.RespPullOffsetMoved, r.Code, r.Remark)
		require.Equal(t, int64(10), r.Int("nextBeginOffset"))
		var bodies []string
		for _, v := range w.c.Pull(enginetest.Pull("G", "T", 0, 10)).Records() {
			bodies = append(bodies, string(v.Body))
		}
		require.Equal(t, []string{"member 0", "member 1", "member 2", "member 3", "member 4"}, bodies)
		// Without force nobody is moved past what he has not seen, not within a batch either.
		for _, x := range []struct{ from, at, want int64 }{{2, times[5], 2}, {9, times[5], 5}, {9, times[10], 9}, {12, times[10], 10}} {
			lands("T", command.ResetOffsetRequest{QueueID: 0, Offset: x.from, Force: true}, x.from)
			lands("T", everywhere(x.at, false), x.want, "from ", x.from)
		}
		for _, bad := range []int64{16, 12345} {
			r := reset("T", command.ResetOffsetRequest{QueueID: 0, Offset: bad, Force: true})
			require.Equal(t, command.RespSystemError, r.Code)
			require.Contains(t, r.Remark, "[0-15]")
		}
	}
	check()
	w.kill(memfs.KeepAll)
	check()

	for w.e.Store.State().Tail < 3*segment {
		w.send(enginetest.Message{Topic: "Old", Body: strings.Repeat("x", 6000)})
	}
	w.expire()
	first, end := w.status("Old")
	require.Positive(t, first)
	require.Less(t, first, end)
	for _, again := range []func(){func() {}, w.restart} {
		again()
		for _, at := range []int64{0, times[0] - 1, times[10]} {
			lands("Old", everywhere(at, true), first, "before the first that is there")
			lands("T", everywhere(at, true), 15, "nothing is there")
		}
		lands("Old", everywhere(-1, true), end)
		r := reset("Old", command.ResetOffsetRequest{QueueID: 0, Offset: first - 1, Force: true})
		require.Equal(t, command.RespSystemError, r.Code)
		require.Contains(t, r.Remark, fmt.Sprintf("[%d-%d]", first, end))
	}
}
