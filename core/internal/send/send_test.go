package send_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
)

var encodings = []command.HeaderType{command.JSON, command.RocketMQ}

// view finds the stored record behind an answer.
func view(t *testing.T, c *enginetest.Client, r *enginetest.Reply) message.View {
	t.Helper()
	_, at, err := message.ParseOffsetID(strings.Split(r.Ext["msgId"], ",")[0])
	require.NoError(t, err)
	got := c.Do(command.ReqViewMessageByID, (&command.ViewMessageRequest{Offset: int64(at)}).Append, nil)
	require.Zero(t, got.Code, got.Remark)
	require.Len(t, got.Records(), 1)
	return got.Records()[0]
}

func TestSend(t *testing.T) {
	each(t, func(t *testing.T, o enginetest.Options) {
		e := enginetest.Start(t, o)
		for _, typ := range encodings {
			for _, code := range []int32{command.ReqSendMessage, command.ReqSendMessageV2} {
				t.Run(fmt.Sprintf("%v %d", typ, code), func(t *testing.T) {
					c := e.Connect(t)
					c.Type = typ
					topic := fmt.Sprintf("T-%d-%d", typ, code)
					props := enginetest.Props("UNIQ_KEY", "7F000001ABCD", "TAGS", "TagA", "a", "ü ✓ \\ \"q\"")
					m := enginetest.Message{Topic: topic, Queue: 2, Body: "hello", Properties: props, Flag: 9}
					for i := range 3 {
						r := c.Do(code, m.Header(false), []byte(m.Body))
						require.Zero(t, r.Code, r.Remark)
						require.Equal(t, typ, r.Type, "answered in kind")
						require.NotZero(t, r.Flag&command.FlagResponse)
						require.Equal(t, "2", r.Ext["queueId"])
						require.Equal(t, fmt.Sprint(i), r.Ext["queueOffset"])
						require.Equal(t, "7F000001ABCD", r.Ext["transactionId"])
						require.Equal(t, "DefaultRegion", r.Ext["MSG_REGION"])
						require.Equal(t, "true", r.Ext["TRACE_ON"])
						v := view(t, c, r)
						require.Equal(t, "hello", string(v.Body))
						require.Equal(t, topic, string(v.Topic))
						require.Equal(t, int32(2), v.QueueID)
						require.Equal(t, int64(i), v.QueueOffset)
						require.Equal(t, int32(9), v.Flag)
						require.Equal(t, int64(1_700_000_000_123), v.BornTime)
						require.Equal(t, c.Peer.Remote(), message.HostAddr(v.BornHost))
						require.Equal(t, props+enginetest.Props("MSG_REGION", "DefaultRegion", "TRACE_ON", "true", "CLUSTER", "DefaultCluster"), string(v.Properties))
					}
				})
			}
		}
	})
}

func batch(items ...message.BatchItem) []byte {
	var b []byte
	for _, it := range items {
		b = message.AppendBatchItem(b, it)
	}
	return b
}

func item(i int) message.BatchItem {
	return message.BatchItem{Body: []byte(fmt.Sprint("body ", i)), Properties: []byte(enginetest.Props("UNIQ_KEY", fmt.Sprint("U", i)))}
}

func TestSendBatch(t *testing.T) {
	each(t, func(t *testing.T, o enginetest.Options) {
		e := enginetest.Start(t, o)
		for _, typ := range encodings {
			c := e.Connect(t)
			c.Type = typ
			m := enginetest.Message{Topic: fmt.Sprint("B-", typ)}
			r := c.Do(command.ReqSendBatchMessage, m.Header(true), batch(item(0), item(1), item(2)))
			require.Zero(t, r.Code, r.Remark)
			require.Equal(t, "0", r.Ext["queueOffset"])
			ids := strings.Split(r.Ext["msgId"], ",")
			require.Len(t, ids, 3, "one id per message")
			pulled := c.Pull(enginetest.Pull("G", m.Topic, 0, 0)).Records()
			require.Len(t, pulled, 3)
			for i, v := range pulled {
				require.Equal(t, fmt.Sprint("body ", i), string(v.Body))
				require.Equal(t, int64(i), v.QueueOffset)
				_, at, err := message.ParseOffsetID(ids[i])
				require.NoError(t, err)
				require.Equal(t, v.Position, at)
			}
		}
	})
}

func TestOneway(t *testing.T) {
	each(t, func(t *testing.T, o enginetest.Options) {
		e := enginetest.Start(t, o)
		c := e.Connect(t)
		m := enginetest.Message{Topic: "T", Body: "x"}
		c.Oneway(command.ReqSendMessageV2, m.Header(false), []byte("x"))
		bad := enginetest.Message{Topic: "no such topic!", Body: "x"}
		c.Oneway(command.ReqSendMessageV2, bad.Header(false), []byte("x"))
		require.Equal(t, "1", c.Send(m).Ext["queueOffset"], "the oneway message is stored")
		require.Empty(t, c.Pushes())
		require.Equal(t, 1, c.Peer.Sends(), "and nothing was answered to it")
	})
}

// A message without a unique key gets one; it is answered and stored.
func TestUniqueKeyIsAdded(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	c := e.Connect(t)
	seen := map[string]bool{}
	for range 100 {
		r := c.Send(enginetest.Message{Topic: "T", Body: "x", Properties: "TAGS\x01A"})
		require.Zero(t, r.Code, r.Remark)
		id := r.Ext["transactionId"]
		require.Len(t, id, 32)
		require.False(t, seen[id], "ids differ")
		seen[id] = true
		key, ok := message.Property(view(t, c, r).Properties, message.PropUniqueKey)
		require.True(t, ok)
		require.Equal(t, id, string(key))
	}
}

// BC-01: ids and store hosts carry the advertised address.
func TestAdvertisedAddress(t *testing.T) {
	for _, addr := range []string{"127.0.0.2:10911", "192.168.7.1:20911", "[2001:db8::7]:10911", "[::ffff:10.1.2.3]:10911"} {
		t.Run(addr, func(t *testing.T) {
			want := netip.MustParseAddrPort(addr)
			want = netip.AddrPortFrom(want.Addr().Unmap(), want.Port())
			e := enginetest.Start(t, enginetest.Options{Config: func(c *kernel.Config) { c.Advertise = netip.MustParseAddrPort(addr) }})
			c := e.Connect(t)
			r := c.Send(enginetest.Message{Topic: "T", Body: "x"})
			require.Zero(t, r.Code, r.Remark)
			size := 32
			if want.Addr().Is6() {
				size = 56
			}
			require.Len(t, r.Ext["msgId"], size)
			host, _, err := message.ParseOffsetID(r.Ext["msgId"])
			require.NoError(t, err)
			require.Equal(t, want, host)
			v := view(t, c, r)
			require.Equal(t, want, message.HostAddr(v.StoreHost))
			require.Equal(t, want.Addr().Is6(), v.SysFlag&message.SysStoreHostV6 != 0)
		})
	}
}

func TestRefusals(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{Config: func(c *kernel.Config) { c.MaxMessageSize = 1000 }})
	c := e.Connect(t)
	topic := func(name string, perm int32, queues int32) {
		r := c.Do(command.ReqUpdateAndCreateTopic, (&command.CreateTopicRequest{
			Topic: name, DefaultTopic: "TBW102", ReadQueueNums: queues, WriteQueueNums: queues, Perm: perm, TopicFilterType: "SINGLE_TAG",
		}).Append, nil)
		require.Zero(t, r.Code, r.Remark)
	}
	topic("readonly", 4, 4)
	topic("two", 6, 2)
	long := strings.Repeat("x", 128)
	for name, x := range map[string]struct {
		m    enginetest.Message
		code int32
		text string
	}{
		"illegal name":     {enginetest.Message{Topic: "a b", Body: "x"}, command.RespInvalidParameter, "allowed are letters"},
		"name too long":    {enginetest.Message{Topic: long, Body: "x"}, command.RespInvalidParameter, "at most 127"},
		"reserved":         {enginetest.Message{Topic: "SCHEDULE_TOPIC_XXXX", Body: "x"}, command.RespNoPermission, "reserved"},
		"half":             {enginetest.Message{Topic: "RMQ_SYS_TRANS_HALF_TOPIC", Body: "x"}, command.RespNoPermission, "reserved"},
		"internal":         {enginetest.Message{Topic: message.CatalogTopic, Body: "x"}, command.RespNoPermission, "reserved"},
		"internal, absent": {enginetest.Message{Topic: message.RaftTopic, Body: "x"}, command.RespNoPermission, "reserved"},
		"unknown":          {enginetest.Message{Topic: "new", Template: "none", Body: "x"}, command.RespTopicNotExist, "topic[new] not exist, apply first please!"},
		"not writable":     {enginetest.Message{Topic: "readonly", Body: "x"}, command.RespNoPermission, "readonly"},
		"queue":            {enginetest.Message{Topic: "two", Queue: 2, Body: "x"}, command.RespInvalidParameter, "queueId[2] is illegal"},
		"retry, no group":  {enginetest.Message{Topic: "%RETRY%nobody", Body: "x"}, command.RespSubscriptionGroupNotExist, "nobody"},
		"no body":          {enginetest.Message{Topic: "two"}, command.RespMessageIllegal, "empty"},
		"body too large":   {enginetest.Message{Topic: "two", Body: strings.Repeat("x", 1001)}, command.RespMessageIllegal, "maxMessageSize"},
		"properties":       {enginetest.Message{Topic: "two", Body: "x", Properties: "a\x01" + strings.Repeat("x", math.MaxInt16) + "\x02"}, command.RespMessageIllegal, "properties"},
		"delayed":          {enginetest.Message{Topic: "two", Body: "x", Properties: enginetest.Props("DELAY", "3")}, command.RespMessageIllegal, "DELAY"},
		"transactional":    {enginetest.Message{Topic: "two", Body: "x", Properties: enginetest.Props("TRAN_MSG", "true")}, command.RespNoPermission, "transactional"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, typ := range encodings {
				c := e.Connect(t)
				c.Type = typ
				r := c.Send(x.m)
				require.Equal(t, x.code, r.Code, r.Remark)
				require.Contains(t, r.Remark, x.text)
				require.Equal(t, "DefaultRegion", r.Ext["MSG_REGION"], "clients need it on errors, too")
				require.Equal(t, "true", r.Ext["TRACE_ON"])
			}
		})
	}
	for name, body := range map[string][]byte{
		"empty batch":      nil,
		"cut batch":        batch(item(0), item(1))[:20],
		"empty body":       batch(item(0), message.BatchItem{}),
		"delayed in batch": batch(message.BatchItem{Body: []byte("x"), Properties: []byte(enginetest.Props("DELAY", "1"))}),
		"large batch":      batch(message.BatchItem{Body: make([]byte, 600)}, message.BatchItem{Body: make([]byte, 600)}),
	} {
		m := enginetest.Message{Topic: "two"}
		r := c.Do(command.ReqSendBatchMessage, m.Header(true), body)
		require.Equal(t, command.RespMessageIllegal, r.Code, name)
	}
	m := enginetest.Message{Topic: "two"}
	f, n := c.Request(command.ReqSendMessageV2, 0, func(w *command.Writer) { m.Header(false)(w); w.Ext("e", "two") }, []byte("x"))
	require.NoError(t, c.FeedFrames(f))
	require.NotZero(t, c.Wait(n).Code, "a field that is no number")
	require.Equal(t, int64(0), c.Send(enginetest.Message{Topic: "two", Body: "x"}).Int("queueOffset"), "nothing of it was stored")
}

// The broker's own write permission counts for ordered topics only.
func TestBrokerPermission(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{Config: func(c *kernel.Config) { c.Permission = 4 }})
	c := e.Connect(t)
	for _, order := range []bool{false, true} {
		name := fmt.Sprint("order-", order)
		require.NoError(t, e.K.Topics.Put(t.Context(), command.TopicConfig{TopicName: name, ReadQueueNums: 1, WriteQueueNums: 1, Perm: 6, Order: order}))
		r := c.Send(enginetest.Message{Topic: name, Body: "x"})
		if order {
			require.Equal(t, command.RespNoPermission, r.Code)
		} else {
			require.Zero(t, r.Code, r.Remark)
		}
	}
}

func TestAutoCreate(t *testing.T) {
	t.Run("rules", func(t *testing.T) {
		e := enginetest.Start(t, enginetest.Options{Config: func(c *kernel.Config) { c.DefaultTopicQueueNums = 8 }})
		c := e.Connect(t)
		_, before := e.K.Topics.All()
		for name, x := range map[string]struct{ ask, want int32 }{"four": {4, 4}, "many": {100, 8}, "negative": {-3, 1}} {
			require.Zero(t, c.Send(enginetest.Message{Topic: name, Body: "x", Queues: x.ask}).Code)
			got := e.K.Topics.Named(name)
			require.Equal(t, x.want, got.Config.ReadQueueNums, name)
			require.Equal(t, x.want, got.Config.WriteQueueNums, name)
			require.Equal(t, int32(6), got.Config.Perm, "without the inherit bit")
		}
		_, after := e.K.Topics.All()
		require.Equal(t, before.Counter+3, after.Counter)
		require.NoError(t, e.K.Topics.Put(t.Context(), command.TopicConfig{TopicName: "plain", ReadQueueNums: 1, WriteQueueNums: 1, Perm: 6}))
		require.Equal(t, command.RespTopicNotExist, c.Send(enginetest.Message{Topic: "x1", Template: "plain", Body: "x"}).Code, "a template must be inheritable")
		require.Zero(t, c.Send(enginetest.Message{Topic: "x2", Template: "DefaultCluster", Body: "x"}).Code, "the cluster's topic is one")
	})
	t.Run("off", func(t *testing.T) {
		d := enginetest.NewDisk()
		on := enginetest.Start(t, enginetest.Options{Disk: d})
		require.NotNil(t, on.K.Topics.Named("TBW102"))
		on.Stop()
		e := enginetest.Start(t, enginetest.Options{Disk: d, Config: func(c *kernel.Config) { c.AutoCreateTopic = false }})
		r := e.Connect(t).Send(enginetest.Message{Topic: "new", Body: "x"})
		require.Equal(t, command.RespTopicNotExist, r.Code)
		require.Zero(t, e.K.Topics.Named("TBW102").Config.Perm&command.PermInherit, "a left-over template makes no topics")
	})
	t.Run("at once", func(t *testing.T) {
		e := enginetest.Start(t, enginetest.Options{})
		var wg sync.WaitGroup
		offsets := make([]int64, 16)
		for i := range offsets {
			wg.Go(func() {
				r := e.Connect(t).Send(enginetest.Message{Topic: "new", Body: "x"})
				if r.Code != 0 {
					t.Errorf("%d %s", r.Code, r.Remark)
				}
				offsets[i] = r.Int("queueOffset")
			})
		}
		wg.Wait()
		seen := map[int64]bool{}
		for _, o := range offsets {
			seen[o] = true
		}
		require.Len(t, seen, 16)
	})
}

// A negative queue is the broker's choice.
func TestAnyQueue(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	c := e.Connect(t)
	seen := map[string]bool{}
	for range 200 {
		seen[c.Send(enginetest.Message{Topic: "T", Queue: -1, Body: "x"}).Ext["queueId"]] = true
	}
	require.Len(t, seen, 4)
}

func TestRetryTopic(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	c := e.Connect(t)
	require.Zero(t, c.Do(command.ReqHeartBeat, nil, c.Body(enginetest.Heartbeat("c1", "G", 1, "T"))).Code)
	retry := func(times, limit int32) string {
		t.Helper()
		f, n := c.Request(command.ReqSendMessageV2, 0, (&enginetest.Message{
			Topic: "%RETRY%G", Reconsume: times, Max: limit, Properties: enginetest.Props("DELAY", "3", "UNIQ_KEY", "U"),
		}).Header(false), []byte("x"))
		require.NoError(t, c.FeedFrames(f))
		r := c.Wait(n)
		require.Zero(t, r.Code, r.Remark)
		v := view(t, c, r)
		_, delayed := message.Property(v.Properties, message.PropDelay)
		require.False(t, delayed, "retries come at once until there are delays")
		require.Equal(t, times, v.ReconsumeTimes)
		return string(v.Topic)
	}
	require.Equal(t, "%RETRY%G", retry(1, 0))
	require.Equal(t, "%RETRY%G", retry(16, 0), "up to retryMaxTimes")
	require.Equal(t, "%DLQ%G", retry(17, 0))
	require.Equal(t, "%RETRY%G", retry(3, 3), "the header's limit")
	require.Equal(t, "%DLQ%G", retry(4, 3))
	require.NotNil(t, e.K.Topics.Named("%DLQ%G"))
	require.Equal(t, command.RespMessageIllegal, c.Do(command.ReqSendBatchMessage, (&enginetest.Message{Topic: "%RETRY%G"}).Header(true), batch(item(0))).Code)
	lock := command.LockBatchBody{ClientID: "c1", ConsumerGroup: "G", MQSet: []command.MessageQueue{{Topic: message.SelfTestTopic, BrokerName: "broker-a"}}}
	require.Zero(t, c.Do(command.ReqLockBatchMQ, nil, c.Body(lock)).Code)
	require.Equal(t, "%DLQ%G", retry(1, 0), "a group that consumes in order sends back only to give up")
}

// BC-34: property strings that are not well-formed.
func TestMalformedProperties(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	c := e.Connect(t)
	for name, props := range map[string]string{
		"no final separator": "TAGS\x01TagA", "empty": "", "doubled": "TAGS\x01TagA\x02\x02\x02k\x01v\x02",
		"separator in value": "k\x01a\x01b\x02TAGS\x01TagA\x02", "only separators": "\x02\x01\x02", "no name": "\x01v\x02TAGS\x01TagA", "half": "TAGS",
	} {
		r := c.Send(enginetest.Message{Topic: "T", Body: name, Properties: props})
		require.Zero(t, r.Code, r.Remark)
		v := view(t, c, r)
		cluster, ok := message.Property(v.Properties, message.PropCluster)
		require.True(t, ok, name)
		require.Equal(t, "DefaultCluster", string(cluster), name)
		if strings.Contains(props, "TagA") {
			tag, _ := message.Property(v.Properties, message.PropTags)
			require.Equal(t, "TagA", string(tag), name)
		}
	}
	p := enginetest.Pull("G", "T", 0, 0)
	p.Subscription = []byte("TagA")
	require.Len(t, c.Pull(p).Records(), 4, "found by their tag")
}

// BC-34: 16 producers send batches and single messages to one queue.
func TestDenseOffsets(t *testing.T) {
	each(t, func(t *testing.T, o enginetest.Options) {
		o.Segment = 200 << 10
		e := enginetest.Start(t, o)
		const producers, rounds = 16, 20
		var wg sync.WaitGroup
		for p := range producers {
			wg.Go(func() {
				c := e.Connect(t)
				for i := range rounds {
					if i%3 == 0 {
						if r := c.Send(enginetest.Message{Topic: "T", Body: fmt.Sprintf("%d/%d/0/1", p, i)}); r.Code != 0 {
							t.Errorf("%d %s", r.Code, r.Remark)
						}
						continue
					}
					var items []message.BatchItem
					for k := range 10 {
						items = append(items, message.BatchItem{Body: fmt.Appendf(nil, "%d/%d/%d/10", p, i, k)})
					}
					m := enginetest.Message{Topic: "T"}
					if r := c.Do(command.ReqSendBatchMessage, m.Header(true), batch(items...)); r.Code != 0 {
						t.Errorf("%d %s", r.Code, r.Remark)
					}
				}
			})
		}
		wg.Wait()
		singles, batches := producers*((rounds+2)/3), producers*(rounds-(rounds+2)/3)
		total := singles + 10*batches
		c := e.Connect(t)
		seen := map[string]bool{}
		var next int64
		want := "" // the next member of a batch under way
		for next < int64(total) {
			r := c.Pull(enginetest.Pull("G", "T", 0, next))
			require.Zero(t, r.Code, "at %d: %s", next, r.Remark)
			for _, v := range r.Records() {
				require.Equal(t, next, v.QueueOffset)
				body := string(v.Body)
				require.False(t, seen[body])
				seen[body] = true
				if want != "" {
					require.Equal(t, want, body, "members of a batch are adjacent")
				}
				var p, i, k, n int
				_, err := fmt.Sscanf(body, "%d/%d/%d/%d", &p, &i, &k, &n)
				require.NoError(t, err)
				want = ""
				if k+1 < n {
					want = fmt.Sprintf("%d/%d/%d/%d", p, i, k+1, n)
				}
				next++
			}
		}
		require.Len(t, seen, total)
	})
}

// One read brings many frames: they are answered by one write, in order.
func TestManyFramesOneWrite(t *testing.T) {
	each(t, func(t *testing.T, o enginetest.Options) {
		e := enginetest.Start(t, o)
		c := e.Connect(t)
		require.Zero(t, c.Send(enginetest.Message{Topic: "T", Body: "x"}).Code)
		before := c.Peer.Sends()
		var frames []command.Frame
		var ids []int32
		for i := range 64 {
			m := enginetest.Message{Topic: "T"}
			f, n := c.Request(command.ReqSendMessageV2, 0, m.Header(false), []byte(fmt.Sprint(i)))
			frames, ids = append(frames, f), append(ids, n)
		}
		require.NoError(t, c.FeedFrames(frames...))
		for i, n := range ids {
			r := c.Wait(n)
			require.Zero(t, r.Code, r.Remark)
			require.Equal(t, int64(i+1), r.Int("queueOffset"))
		}
		require.Equal(t, before+1, c.Peer.Sends())
	})
}

// Requests of one read take effect in their order.
func TestOrderWithinARead(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	c := e.Connect(t)
	require.Zero(t, c.Send(enginetest.Message{Topic: "T", Body: "0"}).Code)
	m := enginetest.Message{Topic: "T"}
	send, n1 := c.Request(command.ReqSendMessageV2, 0, m.Header(false), []byte("1"))
	bad, n2 := c.Request(command.ReqSendMessageV2, 0, (&enginetest.Message{Topic: "a b"}).Header(false), []byte("1"))
	unknown, n3 := c.Request(9999, 0, nil, nil)
	again, n4 := c.Request(command.ReqSendMessageV2, 0, m.Header(false), []byte("2"))
	require.NoError(t, c.FeedFrames(send, bad, unknown, again))
	require.Equal(t, int64(1), c.Wait(n1).Int("queueOffset"))
	require.Equal(t, command.RespInvalidParameter, c.Wait(n2).Code)
	require.Equal(t, command.RespRequestCodeNotSupported, c.Wait(n3).Code)
	require.Equal(t, int64(2), c.Wait(n4).Int("queueOffset"))
}

// Messages larger than a shared batch travel alone, among small ones.
// A header that cannot be read ends the connection, but what came whole before it
// in the same read is answered.
func TestAnswersBeforeAMalformedHeader(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	c := e.Connect(t)
	require.Zero(t, c.Send(enginetest.Message{Topic: "T", Body: "x"}).Code)
	m := enginetest.Message{Topic: "T", Body: "y"}
	good, opaque := c.Request(command.ReqSendMessageV2, 0, m.Header(false), []byte(m.Body))
	require.NoError(t, c.FeedFrames(good, command.Frame{Raw: []byte{0, 0, 0, 5, 0, 0, 0, 1, '{'}}))
	require.Zero(t, c.Wait(opaque).Code)
	<-c.Peer.Done()
}

func TestLargeMessages(t *testing.T) {
	each(t, func(t *testing.T, o enginetest.Options) {
		o.Segment = 4 << 20
		o.Config = func(c *kernel.Config) { c.MaxMessageSize = 4 << 20 }
		e := enginetest.Start(t, o)
		var wg sync.WaitGroup
		for p := range 4 {
			wg.Go(func() {
				c := e.Connect(t)
				for i := range 6 {
					size := 100
					if i%2 == 0 {
						size = 1500 << 10
					}
					if r := c.Send(enginetest.Message{Topic: "T", Queue: int32(p), Body: strings.Repeat(string(rune('a'+p)), size)}); r.Code != 0 {
						t.Errorf("%d %s", r.Code, r.Remark)
					}
				}
			})
		}
		wg.Wait()
		c := e.Connect(t)
		for p := range 4 {
			for at := int64(0); at < 6; at++ {
				q := enginetest.Pull("G", "T", int32(p), at)
				q.MaxMsgNums = 1
				r := c.Pull(q)
				require.Zero(t, r.Code, r.Remark)
				v := r.Records()[0]
				require.NoError(t, v.CheckBody())
				require.Equal(t, bytes.Repeat([]byte{byte('a' + p)}, len(v.Body)), v.Body)
			}
		}
		r := c.Send(enginetest.Message{Topic: "T", Body: strings.Repeat("x", 4<<20)})
		require.Equal(t, command.RespMessageIllegal, r.Code, "allowed by maxMessageSize, not by the segment")
		require.Contains(t, r.Remark, "mappedFileSizeCommitLog")
	})
}

// faulty panics on look-up of one topic.
type faulty struct{ kernel.Topics }

func (f faulty) Lookup(name []byte) *kernel.Topic {
	if string(name) == "Faulty" {
		panic("a fault in the table of topics")
	}
	return f.Topics.Lookup(name)
}

// A fault while one message is taken is answered and costs the others of the
// same read nothing.
func TestFaultInOneSend(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	e.K.Topics = faulty{e.K.Topics}
	c := e.Connect(t)
	send := func(topic string) *enginetest.Reply {
		m := enginetest.Message{Topic: topic}
		return c.Do(command.ReqSendMessageV2, m.Header(false), []byte("x"))
	}
	require.Zero(t, send("Sound").Code)
	r := send("Faulty")
	require.Equal(t, command.RespSystemError, r.Code)
	require.Contains(t, r.Remark, "a fault in the table of topics")
	require.True(t, e.HasLog("panicked", "a fault in the table of topics"))
	require.Zero(t, send("Sound").Code)
}

// meanwhile calls f when one topic is looked up.
type meanwhile struct {
	kernel.Topics
	at string
	f  func()
}

func (m meanwhile) Lookup(name []byte) *kernel.Topic {
	if string(name) == m.at {
		m.f()
	}
	return m.Topics.Lookup(name)
}

// A message whose topic is deleted between its look-up and the log is refused; what
// came with it goes on. So it is with messages that go into batches of their own.
func TestTopicDeletedOnTheWay(t *testing.T) {
	for name, size := range map[string]int{"shared": 10, "large": 2 << 20} {
		t.Run(name, func(t *testing.T) {
			e := enginetest.Start(t, enginetest.Options{Segment: 16 << 20})
			c := e.Connect(t)
			for _, topic := range []string{"Gone", "Kept"} {
				require.Zero(t, c.Send(enginetest.Message{Topic: topic, Body: "first"}).Code)
			}
			var ended sync.WaitGroup
			e.K.Topics = meanwhile{e.K.Topics, "Kept", sync.OnceFunc(func() {
				removed := make(chan struct{})
				ended.Go(func() {
					// It is gone from the table, then the log is wanted alone.
					assert.NoError(t, e.K.Topics.(meanwhile).Topics.Remove(t.Context(), "Gone"))
					assert.NoError(t, e.K.Journal.Alone(t.Context(), func(context.Context) error { close(removed); return nil }))
				})
				<-removed
			})}
			body := bytes.Repeat([]byte("x"), size)
			var frames []command.Frame
			var ids []int32
			for _, topic := range []string{"Gone", "Kept", "Gone"} {
				m := enginetest.Message{Topic: topic, Queue: 0}
				f, n := c.Request(command.ReqSendMessageV2, 0, m.Header(false), body)
				frames, ids = append(frames, f), append(ids, n)
			}
			require.NoError(t, c.FeedFrames(frames[:2]...))
			r := c.Wait(ids[0])
			require.Equal(t, command.RespTopicNotExist, r.Code)
			require.Contains(t, r.Remark, "topic[Gone] was deleted while the message was on its way")
			r = c.Wait(ids[1])
			require.Zero(t, r.Code, r.Remark)
			require.EqualValues(t, 1, r.Int("queueOffset"))
			ended.Wait()
			require.NoError(t, c.FeedFrames(frames[2]))
			require.Zero(t, c.Wait(ids[2]).Code, "it is made again")
		})
	}
}
