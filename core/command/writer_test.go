package command

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEncodeGolden(t *testing.T) {
	for _, typ := range []HeaderType{JSON, RocketMQ} {
		w := Begin([]byte("before"), typ, ReqGetRouteInfoByTopic, 7, 0)
		w.Language = LanguageJava
		w.Ext("topic", "T1")
		got := w.End(0)
		require.NoError(t, w.Err())
		want := frameOf(JSON, routeJSON, "")
		if typ == RocketMQ {
			want = unhex(t, routeBinary)
		}
		require.Equal(t, "before"+string(want), string(got))
	}
	w := Begin(nil, JSON, RespTopicNotExist, 7, FlagResponse)
	w.Language = LanguageJava
	w.Remark(`no "route" ...`)
	require.Equal(t, `{"code":17,"flag":1,"language":"JAVA","opaque":7,"remark":"no \"route\" ...","serializeTypeCurrentRPC":"JSON","version":479}`, string(w.End(0)[8:]))
}

func TestWriterRoundTrip(t *testing.T) {
	text := "plain \x00\x01\x02\x1f\x7f\"\\/\b\f\n\r\tÄ€😀 and a long tail of ordinary text"
	for _, typ := range []HeaderType{JSON, RocketMQ} {
		t.Run(typ.String(), func(t *testing.T) {
			w := Begin(nil, typ, 10, -1, FlagOneway)
			w.Ext("text", text)
			w.ExtBytes("bytes", []byte("b"))
			w.ExtInt("min", -1<<63)
			w.ExtBool("yes", true)
			w.ExtBool("no", false)
			w.Remark(text)
			frames, _, _, err := Split(append(w.End(3), "abc"...), nil, Limits{})
			require.NoError(t, err)
			require.Len(t, frames, 1)
			require.Equal(t, "abc", string(frames[0].Body))
			var h Header
			require.NoError(t, h.Decode(&frames[0]))
			require.Equal(t, map[string]string{"text": text, "bytes": "b", "min": "-9223372036854775808", "yes": "true", "no": "false"}, extOf(&h))
			require.Equal(t, text, string(h.Remark()))
			require.Equal(t, LanguageGo, h.Language)
			require.Equal(t, Version, h.Version)
			require.True(t, h.IsOneway())
			if typ == JSON {
				require.True(t, json.Valid(frames[0].Header))
			}
		})
	}
}

func TestWriterReplacesInvalidUTF8(t *testing.T) {
	w := Begin(nil, JSON, 1, 1, FlagResponse)
	w.Ext("k", "a\xff\xfeb\xe2\x82")
	w.Remark("\xc0ok")
	h := decodeJSON(t, string(w.End(0)[8:]))
	require.Equal(t, "a\uFFFD\uFFFDb\uFFFD\uFFFD", h.ExtString("k"))
	require.Equal(t, "\uFFFDok", string(h.Remark()))
}

// The binary header has no room for the POP codes.
func TestPopCodesAreWrittenAsJSON(t *testing.T) {
	w := Begin(nil, RocketMQ, ReqPopMessage, 1, 0)
	w.Ext("topic", "T")
	frames, _, _, err := Split(w.End(0), nil, Limits{})
	require.NoError(t, err)
	require.Equal(t, JSON, frames[0].Type)
}

func TestWriterRefusesWhatDoesNotFit(t *testing.T) {
	for _, typ := range []HeaderType{JSON, RocketMQ} {
		w := Begin([]byte("x"), typ, RespSuccess, 9, FlagResponse)
		w.ExtBytes("k", make([]byte, MaxHeader))
		b := w.End(0)
		require.ErrorIs(t, w.Err(), ErrHeaderTooLarge)
		frames, _, _, err := Split(b[1:], nil, Limits{})
		require.NoError(t, err)
		var h Header
		require.NoError(t, h.Decode(&frames[0]))
		require.Equal(t, RespSystemError, h.Code)
		require.Equal(t, int32(9), h.Opaque)
		require.Contains(t, string(h.Remark()), "too large")
	}
	w := Begin(nil, RocketMQ, 10, 9, 0)
	w.Ext(strings.Repeat("k", 40000), "v")
	b := w.End(0)
	require.ErrorIs(t, w.Err(), ErrHeaderTooLarge)
	var h Header
	require.NoError(t, h.Decode(&Frame{Type: RocketMQ, Header: b[8:]}))
	require.Equal(t, int32(10), h.Code)
	w = Begin(nil, JSON, 10, 9, 0)
	b = w.End(1<<31 - 1)
	require.ErrorIs(t, w.Err(), ErrHeaderTooLarge)
	_, used, _, err := Split(b, nil, Limits{})
	require.NoError(t, err)
	require.Equal(t, len(b), used)
}

func TestRemarkIsCutAtARune(t *testing.T) {
	w := Begin(nil, JSON, 1, 1, FlagResponse)
	w.Remark(strings.Repeat("a", maxRemark-1) + "€")
	h := decodeJSON(t, string(w.End(0)[8:]))
	require.Equal(t, strings.Repeat("a", maxRemark-1), string(h.Remark()))
}

func TestAppendResponse(t *testing.T) {
	for _, typ := range []HeaderType{JSON, RocketMQ} {
		frames, _, _, err := Split(AppendResponse(nil, typ, RespSystemBusy, 3, "busy", 0), nil, Limits{})
		require.NoError(t, err)
		var h Header
		require.NoError(t, h.Decode(&frames[0]))
		require.Equal(t, RespSystemBusy, h.Code)
		require.Equal(t, "busy", string(h.Remark()))
		require.True(t, h.IsResponse())
	}
}
