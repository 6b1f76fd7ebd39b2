package enginematrix_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
)

// testDeleted is BC-19: no progress outlives its topic or, when that is asked for, its
// group, over a restart, a crash and neither. A topic that is made again is consumed
// from its first message, and nobody is ahead of a queue.
func testDeleted(t *testing.T, w *world) {
	const count, retry = 20, message.RetryPrefix + "G"
	do := func(code int32, fill func(*command.Writer)) {
		t.Helper()
		r := w.c.Do(code, fill, nil)
		require.Zero(t, r.Code, r.Remark)
	}
	deleteTopic := func(name string) {
		t.Helper()
		do(command.ReqDeleteTopicInBroker, (&command.TopicRequest{Topic: name}).Append)
	}
	deleteGroup := func() {
		t.Helper()
		do(command.ReqDeleteSubscriptionGroup, (&command.DeleteGroupRequest{GroupName: "G", CleanOffset: true}).Append)
	}
	consume := func(topic string) {
		t.Helper()
		r := w.c.Pull(enginetest.Pull("G", topic, 0, 0)) // what it got is remembered as well
		require.Zero(t, r.Code, r.Remark)
		require.NotEmpty(t, r.Records())
		w.commit("G", topic, 0, int64(len(w.read(topic, 0))))
	}
	// forgotten: the group begins topics anew; what it has of others is told as it is.
	forgotten := func(topics ...string) {
		t.Helper()
		for _, name := range topics {
			q := command.QueryConsumerOffsetRequest{ConsumerGroup: []byte("G"), Topic: []byte(name)}
			require.Equal(t, command.RespQueryNotFound, w.c.Do(command.ReqQueryConsumerOffset, q.Append, nil).Code, name)
		}
		r := w.c.Do(command.ReqGetAllConsumerOffset, nil, nil)
		require.Zero(t, r.Code, r.Remark)
		var all command.ConsumerOffsetSerializeWrapper
		require.NoError(t, command.DecodeBody(r.Body, &all))
		for at := range all.OffsetTable {
			for _, name := range topics {
				require.False(t, strings.HasPrefix(at, name+"@G"), at)
			}
		}
		r = w.c.Do(command.ReqGetConsumeStats, (&command.ConsumeStatsRequest{ConsumerGroup: "G"}).Append, nil)
		require.Zero(t, r.Code, r.Remark)
		var s command.ConsumeStats
		require.NoError(t, command.DecodeBody(r.Body, &s))
		for q, o := range s.OffsetTable {
			require.NotContains(t, topics, q.Topic)
			require.GreaterOrEqual(t, o.BrokerOffset, o.ConsumerOffset, "%v is consumed beyond its end", q)
		}
	}
	// lag is what a tool shows of a queue that the group goes on with.
	lag := func(topic string) (messages, inFlight int64) {
		t.Helper()
		r := w.c.Do(command.ReqGetConsumeStats, (&command.ConsumeStatsRequest{ConsumerGroup: "G", Topic: topic}).Append, nil)
		require.Zero(t, r.Code, r.Remark)
		var s command.ConsumeStats
		require.NoError(t, command.DecodeBody(r.Body, &s))
		o := s.OffsetTable[command.MessageQueue{BrokerName: "broker-a", Topic: topic}]
		return o.BrokerOffset - o.ConsumerOffset, o.PullOffset - o.ConsumerOffset
	}

	w.topic("other", 1)
	w.group("G")
	w.send(enginetest.Message{Topic: "other", Body: "stays"})
	for name, next := range map[string]func(){"at once": func() {}, "after a restart": w.restart, "after a crash": func() { w.kill(memfs.KeepAll) }} {
		// The topic, with progress that is in the log, and with some that is not yet.
		for _, logged := range []bool{true, false} {
			w.topic("T", 1)
			for i := range count {
				w.send(enginetest.Message{Topic: "T", Body: fmt.Sprint(i)})
			}
			if logged {
				w.logged(func() { consume("T") })
			} else {
				consume("T")
			}
			deleteTopic("T")
			forgotten("T")
			next()
			w.topic("T", 1)
			forgotten("T")
			for i := range 5 {
				r := w.c.Send(enginetest.Message{Topic: "T", Body: fmt.Sprint("new ", i)})
				require.Zero(t, r.Code, r.Remark)
				require.Equal(t, int64(i), r.Int("queueOffset"), name)
			}
			require.Len(t, w.read("T", 0), 5, name)
			w.commit("G", "T", 0, 1)
			messages, inFlight := lag("T")
			require.Equal(t, []int64{4, 0}, []int64{messages, inFlight}, "%s: lag, and what is in flight", name)
			deleteTopic("T")
		}

		// Its retry topic.
		at := w.send(enginetest.Message{Topic: "other", Body: "comes back"})
		back := func() {
			t.Helper()
			do(command.ReqConsumerSendMsgBack, (&command.SendBackRequest{Group: []byte("G"), Offset: int64(at), OriginTopic: []byte("other"), MaxReconsumeTimes: 16}).Append)
		}
		back()
		w.logged(func() { consume(retry) })
		deleteTopic(retry)
		forgotten(retry)
		next()
		back()
		forgotten(retry)
		require.Equal(t, []string{"comes back"}, w.read(retry, 0), name)

		// The group, with all its progress.
		w.logged(func() { consume("other") })
		consume(retry)
		all := w.read("other", 0)
		deleteGroup()
		forgotten("other", retry)
		next()
		w.group("G")
		forgotten("other", retry)
		require.Equal(t, all, w.read("other", 0), "%s: all of it", name)
		deleteTopic(retry)
	}
}
