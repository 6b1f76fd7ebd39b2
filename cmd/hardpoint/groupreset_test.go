package main

import (
	"context"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/internal/adminclient"
	"github.com/hardpointmq/hardpoint/plugins/transport/inproc"
)

// apacheBroker answers what a reset asks, as Apache's brokers do: nothing of
// Hardpoint's is known to it. It has topic T with two queues of 100 messages, the last
// one stored at 1000, and group G.
type apacheBroker struct {
	version int
	live    bool // a member is connected
	deaf    bool // resets are answered and not done

	mu      sync.Mutex
	offsets map[int32]int64
	asked   []int32
}

func (b *apacheBroker) Opened(p transport.Peer) transport.Session { return &apacheConn{b, p} }
func (b *apacheBroker) Settle()                                   {}

type apacheConn struct {
	*apacheBroker
	p transport.Peer
}

func (c *apacheConn) Closed(error) {}

func (c *apacheConn) Arrived(in []command.Frame) {
	for i := range in {
		var h command.Header
		if err := h.Decode(&in[i]); err != nil {
			panic(err)
		}
		code, fill, body := c.answer(&h)
		w := command.Begin(nil, in[i].Type, code, h.Opaque, command.FlagResponse)
		if fill != nil {
			fill(&w)
		}
		_ = c.p.Send(command.Frame{Header: w.End(len(body)), Body: body})
	}
}

func (b *apacheBroker) answer(h *command.Header) (int32, func(*command.Writer), []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = append(b.asked, h.Code)
	offset := func(n int64) (int32, func(*command.Writer), []byte) {
		return command.RespSuccess, (&command.OffsetResponse{Offset: n}).Append, nil
	}
	queue := func() int32 {
		id, _, err := h.ExtInt32("queueId")
		if err != nil {
			panic(err)
		}
		return id
	}
	switch h.Code {
	case command.ReqGetBrokerRuntimeInfo:
		return 0, nil, []byte(`{"table":{"brokerVersion":"` + strconv.Itoa(b.version) + `","brokerVersionDesc":"V"}}`)
	case command.ReqGetTopicConfig:
		if h.ExtString("topic") != "T" {
			return command.RespTopicNotExist, nil, nil
		}
		return 0, nil, []byte(`{"topicName":"T","readQueueNums":2,"writeQueueNums":2,"perm":6}`)
	case command.ReqGetTopicStatsInfo:
		s := command.TopicStatsTable{OffsetTable: map[command.MessageQueue]command.TopicOffset{}}
		for id := range int32(2) {
			s.OffsetTable[command.MessageQueue{Topic: "T", BrokerName: "a", QueueID: id}] = command.TopicOffset{MinOffset: 10, MaxOffset: 100, LastUpdateTimestamp: 1000}
		}
		return 0, nil, s.AppendJSON(nil)
	case command.ReqGetAllSubscriptionGroupConfig:
		return 0, nil, []byte(`{"subscriptionGroupTable":{"G":{"groupName":"G"}}}`)
	case command.ReqGetConsumerConnectionList:
		if !b.live {
			return command.RespConsumerNotOnline, nil, nil
		}
		return 0, nil, []byte(`{"connectionSet":[{"clientId":"c"}],"subscriptionTable":{}}`)
	case command.ReqSearchOffsetByTimestamp:
		return offset(50)
	case command.ReqQueryConsumerOffset:
		n, ok := b.offsets[queue()]
		if !ok {
			return command.RespQueryNotFound, nil, nil
		}
		return offset(n)
	case command.ReqUpdateConsumerOffset:
		var r command.UpdateConsumerOffsetRequest
		if err := r.Decode(h); err != nil {
			panic(err)
		}
		b.offsets[r.QueueID] = r.CommitOffset
	case command.ReqInvokeBrokerToResetOffset:
		var r command.ResetOffsetRequest
		if err := r.Decode(h); err != nil {
			panic(err)
		}
		if r.DryRun || r.QueueID < 0 {
			panic("Apache's brokers reset all of it then")
		}
		if !b.deaf {
			b.offsets[r.QueueID] = r.Offset
		}
		return 0, nil, (&command.ResetOffsetBody{}).AppendJSON(nil)
	default:
		return command.RespRequestCodeNotSupported, nil, nil
	}
	return 0, nil, nil
}

// TestResetOfForeignBrokers: brokers that know neither a dry run nor --force do what
// is said of both all the same.
func TestResetOfForeignBrokers(t *testing.T) {
	const v4, v5 = 399, 479
	old := func() map[int32]int64 { return map[int32]int64{0: 20, 1: 80} }
	for name, tc := range map[string]struct {
		broker *apacheBroker
		run    resetRun
		dry    bool
		want   map[int32]int64 // then
		says   string
	}{
		"5, back only":       {broker: &apacheBroker{version: v5, live: true}, run: resetRun{to: momentFlag{ms: 500}}, want: map[int32]int64{0: 20, 1: 50}},
		"5, force":           {broker: &apacheBroker{version: v5, live: true}, run: resetRun{to: momentFlag{ms: 500}, force: true}, want: map[int32]int64{0: 50, 1: 50}},
		"5, later than all":  {broker: &apacheBroker{version: v5}, run: resetRun{to: momentFlag{ms: 1001}, force: true}, want: map[int32]int64{0: 100, 1: 100}},
		"5, dry run":         {broker: &apacheBroker{version: v5}, run: resetRun{to: momentFlag{ms: 500}, force: true}, dry: true, want: old()},
		"5, does not obey":   {broker: &apacheBroker{version: v5, deaf: true}, run: resetRun{to: momentFlag{ms: 500}, force: true}, want: old(), says: "the broker does not say so afterwards"},
		"4, nobody is there": {broker: &apacheBroker{version: v4}, run: resetRun{to: momentFlag{ms: resetLatest}, force: true}, want: map[int32]int64{0: 100, 1: 100}},
		"4, with members":    {broker: &apacheBroker{version: v4, live: true}, run: resetRun{to: momentFlag{ms: resetLatest}, force: true}, want: old(), says: "stop the members of group G"},
	} {
		t.Run(name, func(t *testing.T) {
			tr, err := inproc.New(t.Context(), transport.Params{}, inproc.Config{})
			require.NoError(t, err)
			require.NoError(t, tr.Start(t.Context()))
			t.Cleanup(func() { _ = tr.Shutdown(context.Background()) })
			tc.broker.offsets = old()
			_, err = tr.Serve(t.Context(), transport.Listen{Address: "a"}, transport.Services{Frames: tc.broker})
			require.NoError(t, err)
			c := adminclient.New(adminclient.Options{Dialer: tr})
			t.Cleanup(c.Close)
			r := tc.run
			r.group, r.topic, r.queue, r.offset = "G", "T", -1, -1
			list, err := r.at(t.Context(), c, adminclient.Broker{Name: "a", Address: "a"}, !tc.dry)
			if tc.says != "" {
				require.ErrorContains(t, err, tc.says)
			} else {
				require.NoError(t, err)
				require.Len(t, list, 2)
				require.Equal(t, int64(20), *list[0].Old)
			}
			require.Equal(t, tc.want, tc.broker.offsets)

			r.group = "Nobody"
			tc.broker.mu.Lock()
			clear(tc.broker.offsets)
			tc.broker.mu.Unlock()
			_, err = r.at(t.Context(), c, adminclient.Broker{Name: "a", Address: "a"}, false)
			code, _ := adminclient.CodeOf(err)
			require.Equal(t, command.RespSubscriptionGroupNotExist, code, err)
			r.topic = "Nowhere"
			_, err = r.at(t.Context(), c, adminclient.Broker{Name: "a", Address: "a"}, false)
			code, _ = adminclient.CodeOf(err)
			require.Equal(t, command.RespTopicNotExist, code, err)
			r.topic, r.group, r.queue, r.offset = "T", "G", 0, 9
			_, err = r.at(t.Context(), c, adminclient.Broker{Name: "a", Address: "a"}, false)
			require.ErrorContains(t, err, "offset 9 is outside of queue 0, which goes from 10 to 100")
		})
	}
}
