package query_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagemw"
	"github.com/hardpointmq/hardpoint/plugins/replication/solo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func send(t *testing.T, c *enginetest.Client, topic, body string, kv ...string) *enginetest.Reply {
	t.Helper()
	r := c.Send(enginetest.Message{Topic: topic, Body: body, Properties: enginetest.Props(kv...)})
	require.Zero(t, r.Code, r.Remark)
	return r
}

// BC-20: exact, per topic, each message once, bounds inclusive.
func TestByKey(t *testing.T) {
	for name, o := range map[string]enginetest.Options{"solo": {Replication: solo.NewFactory()}, "scripted": {}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := enginetest.Start(t, o)
				c := e.Connect(t)
				for i, keys := range []string{"Aa", "BB", "order1", "order10", "k1 k1", "a b c", "Aa", " x  y "} {
					<-time.After(time.Second)
					send(t, c, "T", fmt.Sprint(i, ":", keys), "KEYS", keys, "UNIQ_KEY", fmt.Sprint("U", i))
				}
				send(t, c, "other", "elsewhere", "KEYS", "Aa", "UNIQ_KEY", "U0")
				now := time.Now().UnixMilli()
				ask := func(key string, unique bool, from, to int64, most int32) (*enginetest.Reply, []string) {
					r := c.Do(command.ReqQueryMessage, (&command.QueryMessageRequest{
						Topic: []byte("T"), Key: []byte(key), MaxNum: most, BeginTimestamp: from, EndTimestamp: to, UniqueKey: unique,
					}).Append, nil)
					var out []string
					if r.Code == 0 {
						for _, v := range r.Records() {
							out = append(out, string(v.Body))
						}
					}
					return r, out
				}
				for key, want := range map[string][]string{
					"Aa": {"0:Aa", "6:Aa"}, "BB": {"1:BB"}, "order1": {"2:order1"}, "order10": {"3:order10"}, "k1": {"4:k1 k1"},
					"a": {"5:a b c"}, "b": {"5:a b c"}, "c": {"5:a b c"}, "x": {"7: x  y "}, "y": {"7: x  y "}, "U3": {"3:order10"},
				} {
					r, got := ask(key, false, 0, now, 64)
					require.Zero(t, r.Code, key)
					require.Equal(t, want, got, key)
					require.Positive(t, r.Int("indexLastUpdateTimestamp"))
				}
				for _, key := range []string{"a b c", "order", "", "none", "k1 k1"} {
					r, _ := ask(key, false, 0, now, 64)
					require.Equal(t, command.RespQueryNotFound, r.Code, key)
				}
				at := now - 5000 // order1 was the third of eight
				for _, x := range []struct {
					from, to int64
					found    bool
				}{{at, at, true}, {at + 1, now, false}, {0, at - 1, false}, {at - 1, at + 1, true}} {
					_, got := ask("order1", false, x.from, x.to, 64)
					require.Equal(t, x.found, len(got) == 1, "%+v", x)
				}
				_, got := ask("Aa", false, 0, now, 1)
				require.Equal(t, []string{"6:Aa"}, got, "the newest one")
				_, got = ask("Aa", false, 0, now, 0)
				require.Empty(t, got)
				_, got = ask("U6", true, 0, now, 1)
				require.Equal(t, []string{"6:Aa"}, got)
				r, _ := ask("Aa", true, 0, now, 1)
				require.Equal(t, command.RespQueryNotFound, r.Code, "a key is no unique key")
				r = c.Do(command.ReqQueryMessage, (&command.QueryMessageRequest{Topic: []byte(message.CatalogTopic), Key: []byte("x"), MaxNum: 1, EndTimestamp: now}).Append, nil)
				require.Equal(t, command.RespTopicNotExist, r.Code)
			})
		})
	}
}

func TestExpiredAreAbsent(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{Segment: 100 << 10, Config: func(c *kernel.Config) { c.MaxMessageSize = 32 << 10 }})
	c := e.Connect(t)
	first := send(t, c, "T", "old", "KEYS", "k", "UNIQ_KEY", "U")
	for e.Store.State().Tail < 250<<10 {
		send(t, c, "T", strings.Repeat("x", 8000))
	}
	require.NoError(t, e.Store.Capabilities().Retention.Expire(t.Context(), 100<<10))
	r := c.Do(command.ReqQueryMessage, (&command.QueryMessageRequest{Topic: []byte("T"), Key: []byte("k"), MaxNum: 1, EndTimestamp: 1 << 50}).Append, nil)
	require.Equal(t, command.RespQueryNotFound, r.Code)
	_, at, err := message.ParseOffsetID(first.Ext["msgId"])
	require.NoError(t, err)
	r = c.Do(command.ReqViewMessageByID, (&command.ViewMessageRequest{Offset: int64(at)}).Append, nil)
	require.Equal(t, command.RespSystemError, r.Code)
}

func TestByPosition(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	c := e.Connect(t)
	_, at, err := message.ParseOffsetID(send(t, c, "T", "body").Ext["msgId"])
	require.NoError(t, err)
	for pos, ok := range map[int64]bool{int64(at): true, int64(at) + 1: false, -1: false, 1 << 40: false, 0: false} {
		r := c.Do(command.ReqViewMessageByID, (&command.ViewMessageRequest{Offset: pos}).Append, nil)
		if ok {
			require.Zero(t, r.Code)
			require.Equal(t, "body", string(r.Records()[0].Body))
			continue
		}
		require.Equal(t, command.RespSystemError, r.Code, "the catalog's records are not shown either: %d", pos)
		require.Contains(t, r.Remark, fmt.Sprint("can not find message by the offset, ", pos))
	}
}

func TestOffsets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := enginetest.Start(t, enginetest.Options{})
		c := e.Connect(t)
		var times []int64
		for i := range 10 {
			send(t, c, "T", fmt.Sprint(i))
			times = append(times, time.Now().UnixMilli())
			<-time.After(time.Second)
		}
		var items []byte
		for range 5 {
			items = message.AppendBatchItem(items, message.BatchItem{Body: []byte("x")})
		}
		require.Zero(t, c.Do(command.ReqSendBatchMessage, (&enginetest.Message{Topic: "T"}).Header(true), items).Code)
		batch := time.Now().UnixMilli()
		search := func(ms int64, upper bool) int64 {
			r := c.Do(command.ReqSearchOffsetByTimestamp, (&command.SearchOffsetRequest{Topic: []byte("T"), Timestamp: ms, Upper: upper}).Append, nil)
			require.Zero(t, r.Code, r.Remark)
			return r.Int("offset")
		}
		require.Equal(t, int64(0), search(times[0]-1000, false))
		require.Equal(t, int64(5), search(times[5], false))
		require.Equal(t, int64(6), search(times[5]+1, false))
		require.Equal(t, int64(10), search(batch, false))
		require.Equal(t, int64(15), search(batch+3600_000, false))
		require.Equal(t, int64(5), search(times[5]+1, true))
		require.Equal(t, int64(14), search(batch, true))
		require.Equal(t, int64(0), search(times[0]-1000, true))
		end := func(code int32, topic string) *enginetest.Reply {
			return c.Do(code, (&command.QueueRequest{Topic: []byte(topic)}).Append, nil)
		}
		require.Equal(t, int64(15), end(command.ReqGetMaxOffset, "T").Int("offset"))
		require.Equal(t, int64(0), end(command.ReqGetMinOffset, "T").Int("offset"))
		require.Equal(t, times[0], end(command.ReqGetEarliestMsgStoreTime, "T").Int("timestamp"))
		for _, code := range []int32{command.ReqGetMaxOffset, command.ReqGetMinOffset} {
			r := end(code, "unknown")
			require.Zero(t, r.Code)
			require.Equal(t, "0", r.Ext["offset"], "no check for existence")
			require.Equal(t, command.RespTopicNotExist, end(code, message.CatalogTopic).Code)
		}
		require.Equal(t, int64(-1), end(command.ReqGetEarliestMsgStoreTime, "unknown").Int("timestamp"))
		e.Script.FailBarrier(replication.ErrNotLeader)
		require.Equal(t, command.RespServiceNotAvailable, end(command.ReqGetMaxOffset, "T").Code)
		require.Zero(t, end(command.ReqGetMinOffset, "T").Code)
	})
}

// A store without the facet says so.
func TestNoKeyIndex(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{Replication: solo.NewFactory(), NewStore: func(storage.Params) storage.Store { return enginetest.NewNullStore() }})
	r := e.Connect(t).Do(command.ReqQueryMessage, (&command.QueryMessageRequest{Topic: []byte("T"), Key: []byte("k")}).Append, nil)
	require.Equal(t, command.RespRequestCodeNotSupported, r.Code)
	require.Contains(t, r.Remark, "KeyIndex")
}

// awayStore is one whose process is away when it is asked for positions.
type awayStore struct{ storagemw.Base }

func (s awayStore) Capabilities() storage.Capabilities { return s.Store.Capabilities() }

func (awayStore) Get(context.Context, []message.Position, *storage.Chunk) error {
	return fmt.Errorf("the process ended: %w", plugin.ErrUnavailable)
}

// A store that cannot be asked is not one that does not have the message.
func TestByPositionOfAwayStore(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{Store: func(_ storage.Params, next storage.Store) storage.Store {
		return awayStore{storagemw.Base{Store: next}}
	}})
	r := e.Connect(t).Do(command.ReqViewMessageByID, (&command.ViewMessageRequest{}).Append, nil)
	require.NotZero(t, r.Code)
	require.NotContains(t, r.Remark, "can not find message")
	require.Contains(t, r.Remark, "the process ended")
}
