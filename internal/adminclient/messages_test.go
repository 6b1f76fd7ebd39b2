package adminclient_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/internal/adminclient"
)

// record is a stored message.
func record(topic, body string, offset int64, kv ...string) string {
	host := message.HostOf(netip.MustParseAddrPort("127.0.0.1:1"))
	r := message.Record{Topic: topic, BornTime: 1, BornHost: host, StoreHost: host, Body: []byte(body)}
	for i := 0; i+1 < len(kv); i += 2 {
		r.Properties = message.AppendProperty(r.Properties, kv[i], kv[i+1])
	}
	buf := make([]byte, r.Size())
	var v message.View
	r.Encode(buf, &v)
	message.Stamp(buf, 1000, offset, 2)
	return string(buf)
}

// TestKeysAreCompared: Apache's brokers answer a query by a key with what has the same
// hash, and old ones with other topics (BC-20).
func TestKeysAreCompared(t *testing.T) {
	n := newNetwork(t)
	n.serve("b", scriptedServer{command.ReqQueryMessage: rawBody(record("T", "mine", 0, "KEYS", "x Aa", "UNIQ_KEY", "U0") + record("T", "same hash", 1, "KEYS", "BB") +
		record("T", "longer", 2, "KEYS", "Aab") + record("U", "elsewhere", 3, "KEYS", "Aa") + record("T", "by its unique key", 4, "UNIQ_KEY", "Aa"))})
	c := n.client()
	bodies := func(q command.QueryMessageRequest) (out []string) {
		ms, err := c.MessagesByKey(t.Context(), adminclient.Broker{Name: "b", Address: "b"}, q)
		require.NoError(t, err)
		for _, m := range ms {
			out = append(out, string(m.Body))
		}
		return out
	}
	require.Equal(t, []string{"mine", "by its unique key"}, bodies(command.QueryMessageRequest{Topic: []byte("T"), Key: []byte("Aa")}))
	require.Equal(t, []string{"by its unique key"}, bodies(command.QueryMessageRequest{Topic: []byte("T"), Key: []byte("Aa"), UniqueKey: true}))
}

// TestMessageAnswers: what is not there is no error, what cannot be read is one.
func TestMessageAnswers(t *testing.T) {
	n := newNetwork(t)
	b := adminclient.Broker{Name: "b", Address: "b"}
	n.serve("b", scriptedServer{
		command.ReqQueryMessage:            refusal{command.RespQueryNotFound, "none"},
		command.ReqViewMessageByID:         rawBody(record("T", "x", 0)[:50]),
		command.ReqPullMessage:             refusal{command.RespTopicNotExist, "topic[T] not exist"},
		command.ReqSendMessageV2:           refusal{command.RespNoPermission, "read-only"},
		command.ReqSearchOffsetByTimestamp: rawBody(""),
	})
	c := n.client()
	ms, err := c.MessagesByKey(t.Context(), b, command.QueryMessageRequest{Topic: []byte("T"), Key: []byte("k")})
	require.NoError(t, err)
	require.Empty(t, ms)
	_, err = c.MessageAt(t.Context(), b, 0)
	require.ErrorIs(t, err, message.ErrShort)
	_, _, err = c.Read(t.Context(), b, message.Queue{Topic: "T"}, 0, 1)
	code, _ := adminclient.CodeOf(err)
	require.Equal(t, command.RespTopicNotExist, code)
	_, _, err = c.Send(t.Context(), b, &command.SendRequest{Topic: []byte("T")}, nil)
	require.ErrorContains(t, err, "read-only")
	_, err = c.OffsetAt(t.Context(), b, message.Queue{Topic: "T"}, 5)
	require.ErrorContains(t, err, "offset")

	for id, says := range map[string]string{"x": "not an offset message id", "00000000000000010000000000000000": "0.0.0.0:1, which is no address", "7F000001000000000000000000000000": "has no port"} {
		_, err := c.MessageByID(t.Context(), id)
		require.ErrorContains(t, err, says)
	}
}

// TestSetConfig: what a broker really did is told, also by one that says that all is well.
func TestSetConfig(t *testing.T) {
	n := newNetwork(t)
	b := adminclient.Broker{Name: "b", Address: "b"}
	const before = "# comment\nbrokerName=b\nfileReservedTime=72\ntraceOn=true\n"
	n.serve("b", scriptedServer{
		command.ReqGetBrokerConfig:    &sequence{[]any{rawBody(before), rawBody(before), rawBody("brokerName=b\nfileReservedTime=48\ntraceOn=true\n"), rawBody(before), rawBody(before)}},
		command.ReqUpdateBrokerConfig: rawBody(""),
	})
	c := n.client()
	_, err := c.SetConfig(t.Context(), b, map[string]string{"fileReservedTim": "48"})
	var unknown *adminclient.UnknownKeyError
	require.ErrorAs(t, err, &unknown)
	require.EqualError(t, err, `it has no key "fileReservedTim"; did you mean fileReservedTime?`)
	u, err := c.SetConfig(t.Context(), b, map[string]string{"fileReservedTime": " 48 "})
	require.NoError(t, err)
	require.Equal(t, []adminclient.ConfigChange{{Key: "fileReservedTime", Old: "72", New: "48"}}, u.Changes)
	_, err = c.SetConfig(t.Context(), b, map[string]string{"fileReservedTime": "99999999999", "traceOn": "TRUE"})
	require.ErrorIs(t, err, adminclient.ErrIgnored)
	require.EqualError(t, err, "it says that it took fileReservedTime=99999999999, and goes on with 72")
}
