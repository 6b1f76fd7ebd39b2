package command

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func decodeJSON(t testing.TB, header string) *Header {
	t.Helper()
	h := &Header{}
	require.NoError(t, h.Decode(&Frame{Type: JSON, Header: []byte(header)}), header)
	return h
}

func extOf(h *Header) map[string]string {
	m := map[string]string{}
	h.Fields(func(k, v []byte) bool {
		m[string(k)] = string(v)
		return true
	})
	return m
}

func TestDecodeGolden(t *testing.T) {
	frames, _, _, err := Split(append(frameOf(JSON, routeJSON, ""), unhex(t, routeBinary)...), nil, Limits{})
	require.NoError(t, err)
	require.Len(t, frames, 2)
	for _, f := range frames {
		var h Header
		require.NoError(t, h.Decode(&f))
		require.Equal(t, f.Type, h.Type)
		require.Equal(t, ReqGetRouteInfoByTopic, h.Code)
		require.Equal(t, LanguageJava, h.Language)
		require.Equal(t, int32(479), h.Version)
		require.Equal(t, int32(7), h.Opaque)
		require.False(t, h.IsResponse())
		require.False(t, h.IsOneway())
		require.Nil(t, h.Remark())
		require.Equal(t, map[string]string{"topic": "T1"}, extOf(&h))
	}
}

func TestDecodeJSONTolerance(t *testing.T) {
	deep := strings.Repeat(`{"a":[`, 15) + "1" + strings.Repeat(`]}`, 15)
	for name, c := range map[string]struct {
		in    string
		check func(t *testing.T, h *Header)
	}{
		"empty":            {`{}`, func(t *testing.T, h *Header) { require.Equal(t, LanguageJava, h.Language) }},
		"white space":      {" {\n\t\"code\" : 1 , \"extFields\" : { \"a\" : \"b\" , \"c\" : 1 } }\r\n", func(t *testing.T, h *Header) { require.Equal(t, map[string]string{"a": "b", "c": "1"}, extOf(h)) }},
		"unknown keys":     {`{"x":{"y":[1,"]}",{"z":null}],"w":{}},"v":[],"code":5}`, func(t *testing.T, h *Header) { require.Equal(t, int32(5), h.Code) }},
		"deep unknown":     {`{"x":` + deep + `,"code":5}`, func(t *testing.T, h *Header) { require.Equal(t, int32(5), h.Code) }},
		"language name":    {`{"language":"GO"}`, func(t *testing.T, h *Header) { require.Equal(t, LanguageGo, h.Language) }},
		"language ordinal": {`{"language":9}`, func(t *testing.T, h *Header) { require.Equal(t, LanguageGo, h.Language) }},
		"language unknown": {`{"language":"GOLANG"}`, func(t *testing.T, h *Header) { require.Equal(t, LanguageUnknown, h.Language) }},
		"language far":     {`{"language":99}`, func(t *testing.T, h *Header) { require.Equal(t, LanguageUnknown, h.Language) }},
		"language null":    {`{"language":null}`, func(t *testing.T, h *Header) { require.Equal(t, LanguageJava, h.Language) }},
		"code in quotes":   {`{"code":"105"}`, func(t *testing.T, h *Header) { require.Equal(t, int32(105), h.Code) }},
		"code of POP":      {`{"code":200050}`, func(t *testing.T, h *Header) { require.Equal(t, ReqPopMessage, h.Code) }},
		"negative":         {`{"code":-1000,"opaque":-2147483648}`, func(t *testing.T, h *Header) { require.Equal(t, int32(-2147483648), h.Opaque) }},
		"null number":      {`{"flag":3,"flag":null}`, func(t *testing.T, h *Header) { require.Zero(t, h.Flag) }},
		"last key wins":    {`{"code":1,"code":2,"extFields":{"a":"1"},"extFields":{"b":"2","b":"3"}}`, func(t *testing.T, h *Header) { require.Equal(t, map[string]string{"b": "3"}, extOf(h)) }},
		"last null wins":   {`{"extFields":{"b":"3","b":null}}`, func(t *testing.T, h *Header) { _, ok := h.Ext("b"); require.False(t, ok); require.Empty(t, extOf(h)) }},
		"ext not text": {`{"extFields":{"n":-4.5e3,"t":true,"f":false,"z":null,"o":{"a":[1]}}}`, func(t *testing.T, h *Header) {
			require.Equal(t, map[string]string{"n": "-4.5e3", "t": "true", "f": "false", "o": `{"a":[1]}`}, extOf(h))
		}},
		"ext null": {`{"extFields":null}`, func(t *testing.T, h *Header) { require.Empty(t, extOf(h)) }},
		"escapes": {`{"remark":"\"\\\/\b\f\n\r\t\u0001\u00e4\u20AC\ud83d\ude00|\ud83d|\ude00x"}`, func(t *testing.T, h *Header) {
			require.Equal(t, "\"\\/\b\f\n\r\t\x01ä€😀|\uFFFD|\uFFFDx", string(h.Remark()))
		}},
		"escaped keys": {`{"c\u006fde":7,"extFields":{"\u0061":"x\ty"}}`, func(t *testing.T, h *Header) {
			require.Equal(t, int32(7), h.Code)
			require.Equal(t, map[string]string{"a": "x\ty"}, extOf(h))
		}},
		"other text": {`{"remark":"Größe","extFields":{"k":"über"}}`, func(t *testing.T, h *Header) {
			require.Equal(t, "Größe", string(h.Remark()))
			require.Equal(t, "über", h.ExtString("k"))
		}},
		"remark null":         {`{"remark":null}`, func(t *testing.T, h *Header) { require.Nil(t, h.Remark()) }},
		"empty value":         {`{"extFields":{"k":""}}`, func(t *testing.T, h *Header) { v, ok := h.Ext("k"); require.True(t, ok); require.Empty(t, v) }},
		"response and oneway": {`{"flag":3}`, func(t *testing.T, h *Header) { require.True(t, h.IsResponse()); require.True(t, h.IsOneway()) }},
	} {
		t.Run(name, func(t *testing.T) { c.check(t, decodeJSON(t, c.in)) })
	}
}

func TestDecodeJSONRefuses(t *testing.T) {
	many := `{"extFields":{`
	for i := range MaxExtFields + 1 {
		many += `"k` + strconv.Itoa(i) + `":"",`
	}
	for name, in := range map[string]string{
		"nothing": ``, "space": `  `, "array": `[]`, "open": `{`, "no key": `{,}`, "bare key": `{code:1}`, "no colon": `{"code" 1}`,
		"no value": `{"code":}`, "cut": `{"code":1`, "trailing comma": `{"code":1,}`, "garbage": `{"code":1}x`, "two": `{}{}`,
		"string code": `{"code":"x"}`, "empty code": `{"code":""}`, "float code": `{"code":1.5}`, "true code": `{"code":true}`, "object code": `{"code":{}}`,
		"big code": `{"code":2147483648}`, "very big": `{"opaque":99999999999999999999999}`, "leading zero": `{"code":01}`, "minus": `{"code":-}`,
		"bad word": `{"x":nul}`, "bad number": `{"x":1.}`, "bad exponent": `{"x":1e+}`,
		"ext text": `{"extFields":"a"}`, "ext array": `{"extFields":[]}`, "ext open": `{"extFields":{"a":"b"`, "ext comma": `{"extFields":{"a":"b",}}`,
		"ext key": `{"extFields":{1:"b"}}`, "ext end": `{"extFields":{"a":"b";}}`, "open text": `{"extFields":{"a":"b}}`, "open key": `{"abc`,
		"bad escape": `{"remark":"\x"}`, "short escape": `{"remark":"\u12"}`, "bad hex": `{"remark":"\u12g4"}`, "last backslash": `{"remark":"\`,
		"nested open": `{"x":[[}`, "nested comma": `{"x":[1,]}`, "nested key": `{"x":{1:2}}`, "nested colon": `{"x":{"a"}}`, "nested mismatch": `{"x":[1}`,
		"deep": `{"x":` + strings.Repeat(`[`, 1<<20), "many": many + `"z":""}}`,
	} {
		t.Run(name, func(t *testing.T) {
			var h Header
			err := h.Decode(&Frame{Type: JSON, Header: []byte(in)})
			require.ErrorIs(t, err, ErrHeader)
			require.Less(t, len(err.Error()), 300)
		})
	}
	var h Header
	require.ErrorIs(t, h.Decode(&Frame{Type: 2}), ErrHeader)
	require.ErrorIs(t, h.Decode(&Frame{Type: JSON, Header: make([]byte, MaxHeader+1)}), ErrHeader)
}

func TestDecodeBinaryRefuses(t *testing.T) {
	whole := unhex(t, routeBinary)[8:]
	for n := range whole {
		var h Header
		require.ErrorIs(t, h.Decode(&Frame{Type: RocketMQ, Header: whole[:n]}), ErrHeader, "cut to %d bytes", n)
	}
	for name, change := range map[string]func(b []byte) []byte{
		"negative remark": func(b []byte) []byte { b[13] = 0x80; return b },
		"long remark":     func(b []byte) []byte { b[16] = 30; return b },
		"negative ext":    func(b []byte) []byte { b[17] = 0xff; return b },
		"short ext":       func(b []byte) []byte { b[20]--; return b },
		"negative key":    func(b []byte) []byte { b[21] = 0x80; return b },
		"long key":        func(b []byte) []byte { b[22] = 200; return b },
		"negative value":  func(b []byte) []byte { b[28] = 0x80; return b },
		"long value":      func(b []byte) []byte { b[31] = 3; return b },
		"trailing":        func(b []byte) []byte { return append(b, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			var h Header
			err := h.Decode(&Frame{Type: RocketMQ, Header: change(append([]byte{}, whole...))})
			require.ErrorIs(t, err, ErrHeader)
		})
	}
	w := Begin(nil, RocketMQ, 1, 1, 0)
	for i := range MaxExtFields + 1 {
		w.ExtInt("k"+strconv.Itoa(i), 0)
	}
	var h Header
	require.ErrorContains(t, h.Decode(&Frame{Type: RocketMQ, Header: w.End(0)[8:]}), "256")
}

// A zero-length string is null in the binary header.
func TestDecodeBinaryNulls(t *testing.T) {
	w := Begin(nil, RocketMQ, RespSystemError, -5, FlagResponse)
	w.Ext("empty", "")
	w.Ext("", "no key")
	w.Ext("twice", "1")
	w.Ext("twice", "2")
	w.Remark("why")
	w.Language = 77
	var h Header
	require.NoError(t, h.Decode(&Frame{Type: RocketMQ, Header: w.End(0)[8:]}))
	require.Equal(t, map[string]string{"twice": "2"}, extOf(&h))
	require.Equal(t, "why", string(h.Remark()))
	require.Equal(t, int32(-5), h.Opaque)
	require.Equal(t, LanguageUnknown, h.Language)
}

func TestExtNumbers(t *testing.T) {
	h := decodeJSON(t, `{"code":11,"extFields":{"a":"12","b":"-2147483648","c":"2147483648","d":"9223372036854775807","e":"9223372036854775808",
		"f":"-9223372036854775808","g":"","h":"1 ","i":"+7","j":"0x1","k":"-","l":"18446744073709551617","m":5,"n":"TRUE","o":"yes","p":"-9223372036854775809"}}`)
	for key, want := range map[string]int32{"a": 12, "b": -2147483648, "i": 7, "m": 5} {
		v, ok, err := h.ExtInt32(key)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, want, v)
	}
	for key, want := range map[string]int64{"a": 12, "c": 2147483648, "d": 1<<63 - 1, "f": -1 << 63} {
		v, ok, err := h.ExtInt64(key)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, want, v)
	}
	for _, key := range []string{"c", "e", "g", "h", "j", "k", "l", "n"} {
		_, ok, err := h.ExtInt32(key)
		require.True(t, ok)
		var fe *FieldError
		require.ErrorAs(t, err, &fe, key)
		require.Equal(t, key, fe.Field)
		require.Equal(t, int32(11), fe.Code)
	}
	for _, key := range []string{"e", "l", "p"} {
		_, _, err := h.ExtInt64(key)
		require.ErrorContains(t, err, "64 bits")
	}
	_, ok, err := h.ExtInt64("none")
	require.NoError(t, err)
	require.False(t, ok)
	b, ok := h.ExtBool("n")
	require.True(t, b && ok)
	b, ok = h.ExtBool("o")
	require.True(t, !b && ok)
	_, ok = h.ExtBool("none")
	require.False(t, ok)
	stop := 0
	h.Fields(func(_, _ []byte) bool { stop++; return false })
	require.Equal(t, 1, stop)
}

// DecodeMore keeps what earlier frames of a batch returned.
func TestDecodeMoreKeepsViews(t *testing.T) {
	var h Header
	var views [][]byte
	header := func(i int) string {
		return `{"extFields":{"i":"` + strconv.Itoa(i) + `\u0001` + strings.Repeat("x", 2000) + `"}}`
	}
	require.NoError(t, h.Decode(&Frame{Header: []byte(`{}`)}))
	for i := range 1000 {
		require.NoError(t, h.DecodeMore(&Frame{Header: []byte(header(i))}))
		v, ok := h.Ext("i")
		require.True(t, ok)
		views = append(views, v)
	}
	for i, v := range views {
		require.True(t, strings.HasPrefix(string(v), strconv.Itoa(i)+"\x01x"), "view %d", i)
	}
	require.NoError(t, h.Decode(&Frame{Header: []byte(`{}`)}))
	require.LessOrEqual(t, cap(h.scratch), keepScratch)
}

// Asking twice for an escaped field does not unescape it twice.
func TestEscapedFieldIsCached(t *testing.T) {
	h := decodeJSON(t, `{"extFields":{"p":"a\u0001b\u0002"}}`)
	for range 100 {
		v, _ := h.Ext("p")
		require.Equal(t, "a\x01b\x02", string(v))
	}
	require.Len(t, h.scratch, 4)
}
