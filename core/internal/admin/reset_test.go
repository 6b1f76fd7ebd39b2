package admin_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
)

func reset(c *enginetest.Client, h command.ResetOffsetRequest) *enginetest.Reply {
	return c.Do(command.ReqInvokeBrokerToResetOffset, h.Append, nil)
}

// everyQueue is a reset of all queues of T to a time.
func everyQueue(at int64, force bool) command.ResetOffsetRequest {
	return command.ResetOffsetRequest{Group: "G", Topic: "T", Timestamp: at, Force: force, QueueID: -1, Offset: -1}
}

func committed(e *enginetest.Engine, group string) int64 {
	n, ok := e.K.Offsets.Committed(group, message.Queue{Topic: "T"})
	if !ok {
		return -1
	}
	return n
}

// Where a reset by time goes (BC-04): ten messages a second apart, then a batch of
// five in one request, which have one time. The engine's matrix has it on every store.
func TestResetByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := enginetest.Start(t, enginetest.Options{})
		c := e.Connect(t)
		require.Zero(t, create(c, command.CreateTopicRequest{Topic: "T", Perm: 6, ReadQueueNums: 1, WriteQueueNums: 1}).Code)
		began := time.Now().UnixMilli()
		for range 10 {
			send(t, c, "T", 1, 0)
			<-time.After(time.Second)
		}
		batch := time.Now().UnixMilli()
		var members []byte
		for i := range 5 {
			members = message.AppendBatchItem(members, message.BatchItem{Body: fmt.Append(nil, "member ", i)})
		}
		require.Zero(t, c.Do(command.ReqSendBatchMessage, (&enginetest.Message{Topic: "T"}).Header(true), members).Code)
		stored := c.Pull(enginetest.Pull("reader", "T", 0, 10)).Records()
		require.Len(t, stored, 5)
		for _, v := range stored {
			require.Equal(t, batch, v.StoreTime)
		}
		require.Equal(t, command.RespSubscriptionGroupNotExist, reset(c, everyQueue(0, true)).Code)
		require.NoError(t, e.K.Groups.Put(t.Context(), command.DefaultSubscriptionGroup("G")))
		for at, want := range map[int64]int64{
			0: 0, began - 1: 0, began + 5000: 5, began + 5001: 6, batch - 1: 10, batch: 10, batch + 1: 15, batch + 3_600_000: 15, -1: 15,
		} {
			got := decode[command.ResetOffsetBody](t, reset(c, everyQueue(at, true)))
			require.Equal(t, map[command.MessageQueue]int64{mq("T", 0): want}, got.OffsetTable, at)
			require.Equal(t, want, committed(e, "G"))
		}
		// Who was reset to the time of a batch gets its first message, and all of it.
		require.Zero(t, reset(c, everyQueue(batch, true)).Code)
		r := c.Pull(enginetest.Pull("G", "T", 0, 15))
		require.Equal(t, command.RespPullOffsetMoved, r.Code)
		require.Equal(t, int64(10), r.Int("nextBeginOffset"))
		got := c.Pull(enginetest.Pull("G", "T", 0, 10)).Records()
		require.Len(t, got, 5)
		require.Equal(t, "member 0", string(got[0].Body))
		// Without force nobody is moved past what he has not seen.
		for from, want := range map[int64]int64{2: 2, 9: 5} {
			at := command.ResetOffsetRequest{Group: "G", Topic: "T", QueueID: 0, Offset: from, Force: true}
			require.Zero(t, reset(c, at).Code)
			dry := everyQueue(began+5000, false)
			dry.DryRun = true
			for _, h := range []command.ResetOffsetRequest{dry, everyQueue(began+5000, false)} {
				got := decode[command.ResetOffsetBody](t, reset(c, h))
				require.Equal(t, want, got.OffsetTable[mq("T", 0)])
				require.Equal(t, from, got.PreviousTable[mq("T", 0)])
			}
			require.Equal(t, want, committed(e, "G"))
		}
		for _, bad := range []int64{16, 12345} {
			r := reset(c, command.ResetOffsetRequest{Group: "G", Topic: "T", QueueID: 0, Offset: bad, Force: true})
			require.Equal(t, command.RespSystemError, r.Code)
			require.Contains(t, r.Remark, "[0-15]")
		}
		require.Equal(t, command.RespInvalidParameter, reset(c, command.ResetOffsetRequest{Group: "G", Topic: "T", QueueID: 1, Offset: 0}).Code)
		unknown := everyQueue(0, true)
		unknown.Topic = "nope"
		require.Equal(t, command.RespTopicNotExist, reset(c, unknown).Code)
		require.Equal(t, command.RespInvalidParameter, c.Do(command.ReqInvokeBrokerToResetOffset, nil, nil).Code)
		require.NoError(t, e.Script.ReadOnly(t.Context(), "the disk is bad"))
		require.Equal(t, command.RespServiceNotAvailable, reset(c, everyQueue(0, true)).Code)
	})
}

// Members that live are told with the next answer, a parked pull at once, and what
// they report of the time before does not count. It outlives a crash.
func TestResetOfLivingConsumers(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	c, tool := e.Connect(t), e.Connect(t)
	require.Zero(t, create(c, command.CreateTopicRequest{Topic: "T", Perm: 6, ReadQueueNums: 1, WriteQueueNums: 1}).Code)
	send(t, c, "T", 10, 0)
	beat(t, c, "id", "G", "T")
	commit := func(c *enginetest.Client, n int64) *enginetest.Reply {
		return c.Do(command.ReqUpdateConsumerOffset, (&command.UpdateConsumerOffsetRequest{ConsumerGroup: []byte("G"), Topic: []byte("T"), CommitOffset: n}).Append, nil)
	}
	require.Empty(t, commit(c, 10).Remark)
	wait := enginetest.Pull("G", "T", 0, 10)
	wait.SysFlag |= command.PullSuspend
	wait.SuspendTimeoutMillis = 60_000
	n := c.Begin(command.ReqPullMessage, wait.Append, nil)
	other := wait
	other.ConsumerGroup = []byte("H")
	m := c.Begin(command.ReqPullMessage, other.Append, nil)
	require.Zero(t, reset(tool, everyQueue(0, true)).Code)
	r := c.Wait(n)
	require.Equal(t, command.RespPullOffsetMoved, r.Code)
	require.Equal(t, "OFFSET_RESET", r.Remark)
	require.Zero(t, r.Int("nextBeginOffset"))
	require.Equal(t, int64(10), r.Int("maxOffset"))
	require.False(t, c.Answered(m), "other groups go on waiting")
	require.Equal(t, "Offset has been previously reset", commit(c, 10).Remark)
	stale := enginetest.Pull("G", "T", 0, 10)
	stale.SysFlag |= command.PullCommitOffset
	stale.CommitOffset = 9
	require.Equal(t, command.RespPullOffsetMoved, c.Pull(stale).Code)
	query := func(c *enginetest.Client) int64 {
		return c.Do(command.ReqQueryConsumerOffset, (&command.QueryConsumerOffsetRequest{ConsumerGroup: []byte("G"), Topic: []byte("T")}).Append, nil).Int("offset")
	}
	require.Zero(t, query(c))

	e = e.Again(e.Kill(memfs.KeepNone))
	c = e.Connect(t)
	require.Equal(t, "Offset has been previously reset", commit(c, 10).Remark)
	require.Equal(t, command.RespPullOffsetMoved, c.Pull(stale).Code)
	require.Len(t, c.Pull(enginetest.Pull("G", "T", 0, 0)).Records(), 10, "it obeys")
	require.Empty(t, commit(c, 4).Remark)
	require.Equal(t, int64(4), query(c))
	e = e.Again(nil)
	c = e.Connect(t)
	require.Len(t, c.Pull(enginetest.Pull("G", "T", 0, 4)).Records(), 6, "that is over")

	// A Java client stores the offset that it was told before it pulls there.
	require.Zero(t, reset(c, everyQueue(0, true)).Code)
	require.NotEmpty(t, commit(c, 0).Remark, "it was not told yet")
	require.Equal(t, command.RespPullOffsetMoved, c.Pull(enginetest.Pull("G", "T", 0, 4)).Code)
	require.Empty(t, commit(c, 0).Remark)
	require.Empty(t, commit(c, 2).Remark)

	// One that never obeys gets what it wants in the end.
	require.Zero(t, reset(c, everyQueue(0, true)).Code)
	refused := 0
	for c.Pull(enginetest.Pull("G", "T", 0, 4)).Code != 0 {
		refused++
		require.Less(t, refused, 100)
	}
	require.Equal(t, 8, refused)

	// What goes takes its resets along.
	require.Zero(t, reset(c, everyQueue(0, true)).Code)
	require.NoError(t, e.K.Groups.Remove(t.Context(), "G", true))
	require.Len(t, c.Pull(enginetest.Pull("G", "T", 0, 4)).Records(), 6)
}
