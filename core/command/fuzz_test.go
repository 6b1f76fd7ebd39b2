package command

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func FuzzSplit(f *testing.F) {
	f.Add(append(frameOf(JSON, routeJSON, "body"), unhex(f, routeBinary)...), 3)
	f.Add([]byte{0x16, 3, 1, 2, 0}, 1)
	f.Fuzz(func(t *testing.T, buf []byte, cut int) {
		lim := Limits{Frame: 1 << 20}
		frames, used, want, err := Split(buf, nil, lim)
		var wire []byte
		for i := range frames {
			wire = frames[i].Append(wire)
			require.Equal(t, len(frames[i].Raw), 8+len(frames[i].Header)+len(frames[i].Body))
		}
		require.Equal(t, string(buf[:used]), string(wire))
		if err != nil {
			require.Zero(t, want)
			return
		}
		if want == 0 {
			require.Less(t, len(buf)-used, 4)
		} else {
			require.Greater(t, want, len(buf)-used)
		}
		// Read in two pieces it gives the same frames.
		if cut < 0 || cut > len(buf) {
			return
		}
		first, n, _, err := Split(buf[:cut], nil, lim)
		require.NoError(t, err)
		both, m, _, err := Split(buf[n:], first, lim)
		require.NoError(t, err)
		require.Equal(t, used, n+m)
		require.Len(t, both, len(frames))
	})
}

// wantInt is what fastjson makes of a number member.
func wantInt(raw json.RawMessage) (int32, bool) {
	var s string
	switch {
	case raw == nil || string(raw) == "null":
		return 0, true
	case json.Unmarshal(raw, &s) != nil:
		s = string(raw)
	}
	n, err := strconv.ParseInt(s, 10, 32)
	return int32(n), err == nil
}

// oddities tells whether JSON text has duplicate keys or more depth or fields
// than a header may, where encoding/json and we differ on purpose.
func oddities(in []byte) bool {
	d := json.NewDecoder(bytes.NewReader(in))
	type level struct {
		keys map[string]bool
		key  bool // the next string is a key
	}
	var stack []level
	for {
		tok, err := d.Token()
		if err != nil {
			return false
		}
		if n := len(stack); n > 0 && stack[n-1].keys != nil {
			top := &stack[n-1]
			if s, ok := tok.(string); ok && top.key {
				if top.keys[s] || len(top.keys) >= MaxExtFields {
					return true
				}
				top.keys[s], top.key = true, false
				continue
			}
			top.key = true
		}
		switch tok {
		case json.Delim('{'):
			stack = append(stack, level{map[string]bool{}, true})
		case json.Delim('['):
			stack = append(stack, level{})
		case json.Delim('}'), json.Delim(']'):
			stack = stack[:len(stack)-1]
			if n := len(stack); n > 0 {
				stack[n-1].key = true
			}
		}
		if len(stack) > maxDepth {
			return true
		}
	}
}

func FuzzHeaderJSON(f *testing.F) {
	f.Add([]byte(routeJSON))
	f.Add([]byte(`{"code":"310","extFields":{"a":"\u0001\ud83d\ude00","b":1.5,"c":null,"d":{"x":[1]}},"x":[{}],"remark":"ä\n","language":9}`))
	f.Add([]byte(`{"c\u006fde":7,"extFields":{"\u0061":"x"}} `))
	f.Fuzz(func(t *testing.T, in []byte) {
		var h Header
		err := h.Decode(&Frame{Type: JSON, Header: in})
		if err == nil { // readers do not panic either
			got := extOf(&h)
			require.LessOrEqual(t, len(got), MaxExtFields)
			_, _, _ = h.ExtInt64("a")
			_ = new(SendRequest).Decode(&h)
			_ = new(PullRequest).Decode(&h)
		}
		var top, ext map[string]json.RawMessage
		if json.Unmarshal(in, &top) != nil || top == nil || !utf8.Valid(in) || oddities(in) {
			return
		}
		ok := true
		if raw := top["extFields"]; raw != nil {
			ok = json.Unmarshal(raw, &ext) == nil
		}
		var nums [4]int32
		for i, k := range []string{"code", "flag", "opaque", "version"} {
			n, good := wantInt(top[k])
			nums[i], ok = n, ok && good
		}
		require.Equal(t, ok, err == nil, "%s: %v", in, err)
		if !ok {
			return
		}
		got := [4]int32{h.Code, h.Flag, h.Opaque, h.Version}
		require.Equal(t, nums, got)
		want := map[string]string{}
		for k, raw := range ext {
			var s string
			switch {
			case string(raw) == "null":
				continue
			case json.Unmarshal(raw, &s) != nil:
				s = string(raw)
			}
			want[k] = s
		}
		require.Equal(t, want, extOf(&h))
		var remark string
		if raw := top["remark"]; raw != nil && json.Unmarshal(raw, &remark) == nil {
			require.Equal(t, remark, string(h.Remark()))
		}
	})
}

func FuzzHeaderBinary(f *testing.F) {
	f.Add(unhex(f, routeBinary)[8:])
	w := Begin(nil, RocketMQ, ReqSendMessageV2, 5, FlagOneway)
	w.Ext("b", "T1")
	w.Ext("b", "T2")
	w.Ext("i", "KEYS\x01k\x02")
	w.Remark("r")
	f.Add(w.End(0)[8:])
	f.Fuzz(func(t *testing.T, in []byte) {
		var h Header
		if h.Decode(&Frame{Type: RocketMQ, Header: in}) != nil {
			return
		}
		var again Header
		require.NoError(t, again.Decode(&Frame{Type: RocketMQ, Header: encodeAgain(&h, RocketMQ, 0)[8:]}))
		require.Equal(t, extOf(&h), extOf(&again))
		if len(h.Remark()) <= maxRemark {
			require.Equal(t, string(h.Remark()), string(again.Remark()))
		}
		require.Equal(t, [4]int32{h.Code, h.Flag, h.Opaque, h.Version}, [4]int32{again.Code, again.Flag, again.Opaque, again.Version})
		_ = new(SendRequest).Decode(&h)
	})
}

func FuzzQuoted(f *testing.F) {
	f.Add("plain \x00\x01\x1f\"\\/\n ä€😀 \xff\xc0 and a long tail of ordinary text")
	f.Fuzz(func(t *testing.T, s string) {
		b := AppendJSONString(nil, s)
		var back string
		require.NoError(t, json.Unmarshal(b, &back))
		want := make([]rune, 0, len(s))
		for _, r := range s {
			want = append(want, r)
		}
		require.Equal(t, string(want), back)
		require.Equal(t, len(b)-1, stringEnd(b, 1))
		h := Header{raw: b}
		text, next := h.scanText(b, 1)
		require.Equal(t, len(b), next)
		require.Equal(t, back, string(h.text(text)))
	})
}

func FuzzLenientJSON(f *testing.F) {
	f.Add([]byte(`{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:5,1:[{2:'x'},],},}`))
	f.Add([]byte(`{"a":"\x41\v\0'",b:{{c:{d:1}}:2}}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		out, err := LenientJSON(in)
		if err != nil {
			require.ErrorIs(t, err, ErrBody)
			if json.Valid(in) && !oddities(in) {
				t.Fatalf("valid JSON is refused: %v", err)
			}
			return
		}
		require.True(t, json.Valid(out), "%q became %q", in, out)
		require.LessOrEqual(t, len(out), 8*len(in)+2)
		if json.Valid(in) {
			require.True(t, reflect.DeepEqual(anyJSON(t, in), anyJSON(t, out)), "%q became %q", in, out)
		}
		again, err := LenientJSON(out)
		require.NoError(t, err)
		require.Equal(t, string(out), string(again))
	})
}

// anyJSON decodes without a limit on numbers.
func anyJSON(t *testing.T, in []byte) (v any) {
	d := json.NewDecoder(bytes.NewReader(in))
	d.UseNumber()
	require.NoError(t, d.Decode(&v))
	return v
}

func FuzzRegisterBody(f *testing.F) {
	f.Add(compressedRegistration(true), true, Version)
	f.Add([]byte(`{"filterServerList":[],"topicConfigSerializeWrapper":{"topicConfigTable":{"T1":{"attributes":{},"perm":6}}}}`), false, Version)
	f.Add([]byte(`{"topicConfigTable":{}}`), false, int32(3))
	f.Fuzz(func(t *testing.T, in []byte, zip bool, version int32) {
		body := in
		if zip {
			body = compressed(t, in)
		}
		b, err := DecodeRegisterBody(&RegisterBrokerRequest{Compressed: zip, BodyCRC32: BodyCRC32(body)}, version, body)
		if err != nil {
			require.ErrorIs(t, err, ErrBody)
			return
		}
		for _, m := range b.Topics.TopicQueueMappingInfoMap {
			require.True(t, json.Valid(m))
		}
		plain, crc, err := b.Encode()
		require.NoError(t, err)
		again, err := DecodeRegisterBody(&RegisterBrokerRequest{BodyCRC32: crc}, Version, plain)
		require.NoError(t, err)
		require.Equal(t, b.Topics.DataVersion, again.Topics.DataVersion)
		if !strings.Contains(string(plain), "\uFFFD") { // names may meet when repaired
			require.Len(t, again.Topics.TopicConfigTable, len(b.Topics.TopicConfigTable))
		}
	})
}

func FuzzHeartbeat(f *testing.F) {
	f.Add([]byte(`{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":1,"messageModel":"CLUSTERING","subscriptionDataSet":[{"codeSet":["97"],"subVersion":"1"}]}]}`))
	f.Add([]byte(`{clientID:'c',producerDataSet:[{groupName:'p'},],}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		var d HeartbeatData
		if err := DecodeBody(in, &d); err != nil {
			require.ErrorIs(t, err, ErrBody)
			return
		}
		b, err := EncodeBody(d)
		require.NoError(t, err)
		var again HeartbeatData
		require.NoError(t, DecodeBody(b, &again))
		c, err := EncodeBody(again)
		require.NoError(t, err)
		require.Equal(t, string(b), string(c))
	})
}

func FuzzReceiptHandle(f *testing.F) {
	f.Add([]byte("100 1700000000000 60000 3 0 broker-a 2 101"))
	f.Fuzz(func(t *testing.T, in []byte) {
		r, err := ParseReceiptHandle(in)
		if err != nil {
			return
		}
		again, err := ParseReceiptHandle(r.Append(nil))
		require.NoError(t, err)
		require.Equal(t, r, again)
	})
}
