package send

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/combine"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// TestAnswers: an answer that the message is stored but not flushed, say, has the
// fields of a plain success.
func TestAnswers(t *testing.T) {
	k := kernel.New(kernel.Config{Identity: kernel.Identity{Region: "north", TraceOn: true, Advertise: netip.MustParseAddrPort("10.0.0.1:10911")}}, plugin.Settings{}, nil)
	st := &connState{s: &Send{k: k}}
	b := &combine.Batch{}
	b.Buf = []byte("...U\"1...")
	for i := range 3 {
		b.Units = append(b.Units, message.Unit{Queue: message.Queue{Topic: "T", ID: 2}, At: message.Position(4096 + i), Offset: int64(77 + i)})
	}
	b.Groups = []storage.Group{{Units: 1}, {Unit: 1, Units: 2}}
	const first, second, third = "0A00000100002A9F0000000000001000", "0A00000100002A9F0000000000001001", "0A00000100002A9F0000000000001002"
	for name, c := range map[string]struct {
		group  int
		ticket combine.Ticket
		want   map[string]string
	}{
		"single":            {0, combine.Ticket{TextAt: 3, TextLen: 3}, map[string]string{"msgId": first, "queueOffset": "77", "transactionId": "U\"1"}},
		"batch":             {1, combine.Ticket{Flags: flagBatch, TextAt: 3, TextLen: 3}, map[string]string{"msgId": second + "," + third, "queueOffset": "78"}},
		"batch with an id":  {1, combine.Ticket{Flags: flagBatch, Text: "B"}, map[string]string{"msgId": second + "," + third, "queueOffset": "78", "transactionId": "B"}},
		"without unique id": {0, combine.Ticket{}, map[string]string{"msgId": first, "queueOffset": "77"}},
	} {
		c.want["queueId"], c.want["MSG_REGION"], c.want["TRACE_ON"] = "2", "north", "true"
		for _, typ := range []command.HeaderType{command.JSON, command.RocketMQ} {
			for _, code := range []int32{command.RespSuccess, command.RespFlushDiskTimeout} {
				c.ticket.Kind, c.ticket.Opaque = uint8(typ), 9
				frames, _, _, err := command.Split(st.appendAnswer(nil, b, c.group, &c.ticket, code), nil, command.DefaultLimits())
				require.NoError(t, err, name)
				require.Len(t, frames, 1, name)
				var h command.Header
				require.NoError(t, h.Decode(&frames[0]), name)
				require.Equal(t, code, h.Code, name)
				require.Equal(t, int32(9), h.Opaque, name)
				require.True(t, h.IsResponse(), name)
				got := map[string]string{}
				h.Fields(func(k, v []byte) bool { got[string(k)] = string(v); return true })
				require.Equal(t, c.want, got, "%s, %v, code %d", name, typ, code)
			}
		}
	}
}
