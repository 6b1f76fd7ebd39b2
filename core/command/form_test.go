package command

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSendFormIsWhatAWriterWrites: an answer from the form means what the general
// way of writing makes of the same fields.
func TestSendFormIsWhatAWriterWrites(t *testing.T) {
	fixed := SendResponse{Region: []byte("re\"gion"), TraceOn: true}
	form := NewSendForm(&fixed)
	for _, typ := range []HeaderType{JSON, RocketMQ} {
		for _, r := range []SendResponse{
			{MsgID: []byte("7F00000100009BE70000000000051112"), QueueID: 3, QueueOffset: 1234567, TransactionID: []byte("FD000000000000000000000000000002470A30946E09942BD8A90000")},
			{MsgID: []byte("7F00000100009BE70000000000051112,7F00000100009BE70000000000051113"), QueueOffset: 9},
			{MsgID: []byte("0"), QueueID: 1<<31 - 1, QueueOffset: 1<<63 - 1, TransactionID: []byte("\"\\\x01ä€😀\xff")},
			{MsgID: []byte("0"), QueueID: 10, QueueOffset: 10, TransactionID: []byte("x")},
		} {
			for _, opaque := range []int32{0, 7, -1, 1<<31 - 1, -1 << 31} {
				got := form.Append([]byte("before"), typ, opaque, &r)
				require.Equal(t, "before", string(got[:6]))
				all := r
				all.Region, all.TraceOn = fixed.Region, fixed.TraceOn
				w := Begin(nil, typ, RespSuccess, opaque, FlagResponse)
				all.Append(&w)
				require.Equal(t, decoded(t, w.End(0)), decoded(t, got[6:]))
				if typ == JSON {
					require.True(t, json.Valid(got[14:]))
				}
			}
		}
	}
}

// decoded is what a frame's header says.
func decoded(t *testing.T, frame []byte) map[string]any {
	t.Helper()
	frames, used, _, err := Split(frame, nil, Limits{})
	require.NoError(t, err)
	require.Equal(t, len(frame), used)
	var h Header
	require.NoError(t, h.Decode(&frames[0]))
	return map[string]any{
		"type": h.Type, "code": h.Code, "flag": h.Flag, "opaque": h.Opaque, "language": h.Language, "version": h.Version,
		"remark": string(h.Remark()), "ext": extOf(&h),
	}
}

func TestSendFormRefusesWhatDoesNotFit(t *testing.T) {
	form := NewSendForm(&SendResponse{})
	for _, typ := range []HeaderType{JSON, RocketMQ} {
		r := SendResponse{MsgID: []byte(strings.Repeat("7", MaxHeader))}
		got := decoded(t, form.Append(nil, typ, 9, &r))
		require.Equal(t, RespSystemError, got["code"])
		require.Equal(t, int32(9), got["opaque"])
		require.Contains(t, got["remark"], "too large")
	}
}
