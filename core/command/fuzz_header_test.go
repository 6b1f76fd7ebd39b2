package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// respell writes the same JSON text in another way: with white space before and
// after each separator and bracket, and with each character of a string as an
// escape if it is said so. nested tells of ext fields and a remark that are objects or arrays, whose
// text is their value.
func respell(in []byte, before, after string, escape bool) (out []byte, nested bool) {
	d := json.NewDecoder(bytes.NewReader(in))
	d.UseNumber()
	type level struct {
		object bool
		n      int // tokens so far
		key    string
	}
	stack := []level{{}}
	for {
		tok, err := d.Token()
		if err != nil {
			return out, nested
		}
		top := &stack[len(stack)-1]
		closing := tok == json.Delim('}') || tok == json.Delim(']')
		switch {
		case closing:
		case top.object && top.n%2 == 1:
			out = append(append(append(out, before...), ':'), after...)
		case top.n > 0:
			out = append(append(append(out, before...), ','), after...)
		}
		if s, ok := tok.(string); ok && top.object && top.n%2 == 0 {
			top.key = s
		}
		top.n++
		switch v := tok.(type) {
		case json.Delim:
			out = append(append(append(out, before...), byte(v)), after...)
			if closing {
				stack = stack[:len(stack)-1]
				continue
			}
			nested = nested || len(stack) > 2 || top.key == "remark"
			stack = append(stack, level{object: v == '{'})
		case string:
			out = appendSpelled(out, v, escape)
		case nil:
			out = append(out, "null"...)
		default:
			out = append(out, fmt.Sprint(v)...)
		}
		if len(stack) == 1 {
			return out, nested
		}
	}
}

func appendSpelled(out []byte, s string, escape bool) []byte {
	if !escape {
		return appendQuoted(out, []byte(s))
	}
	out = append(out, '"')
	for _, u := range utf16.Encode([]rune(s)) {
		out = append(out, fmt.Sprintf(`\u%04x`, u)...)
	}
	return append(out, '"')
}

// state is all that can be seen of a decoded header, and of what is made of it.
func state(h *Header) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v %v %v %v %v %q %v\n", h.Code, h.Flag, h.Opaque, h.Version, h.Language, h.Remark(), h.Remark() == nil)
	h.Fields(func(k, v []byte) bool {
		got, ok := h.Ext(string(k))
		fmt.Fprintf(&b, "%q=%q %q %v\n", k, v, got, ok)
		return true
	})
	for _, v := range []typedHeader{&SendRequest{}, &PullRequest{}} {
		if err := v.Decode(h); err != nil {
			fmt.Fprintln(&b, err)
			continue
		}
		fmt.Fprintf(&b, "%q\n", fmt.Sprintf("%+v", v))
	}
	return b.String()
}

// FuzzHeaderSpelling: the short cuts for what official clients write read the same
// as the long way, which the same header takes when it is spelled unusually.
func FuzzHeaderSpelling(f *testing.F) {
	seen := map[int32]int{}
	for _, e := range exchanges(f) {
		if seen[e.Request.Code]++; seen[e.Request.Code] > 2 {
			continue
		}
		f.Add(e.Request.frame(f).Header)
		if e.Response != nil {
			f.Add(e.Response.frame(f).Header)
		}
	}
	// What nearly looks usual, one edge each.
	for _, in := range []string{
		`{"code":2147483647,"opaque":-1,"flag":0 ,"version":1234567890,"language":"GO","remark":"","extFields":{"a":"1", "b":"2","":"x"}}`,
		`{"flag":7,"extFields":{"a":"","b":"1","b":null,"z":"9","A":"1","{":"1","i":"\u0001\u000a\u000F\u0010\u00e4"},"extFields":{"a":"1","topic":"t"}}`,
		`{"code":2147483648}`, `{"opaque":01,"flag":0}`, `{"opaque":18446744073709551617}`, `{"version":12}x`, `{"language":"JAVA`, `{"flag":,"code":1}`,
		`{"extFields":{"a":"1",},"flag":0,"version":1}`, `{"extFields":{"a":"\",b"},"flag":0,"version":1}`, `{"extFields":{"\":":"12345678"},"flag":0}`,
		`{"extFields":{""":"12345678"},"flag":0}`, `{"extFields":{"a":"1"`, `{"extFields":{"a":"12345678`, `{"extFields":{"topic":"12345678"}`,
		`{"remark":"\u000g","flag":0,"version":1}`, `{"remark":"\ud83dXude00","flag":0,"version":1}`, `{"remark":"1234567\u0001","flag":0}`, `{"remark":"\u0001`,
	} {
		f.Add([]byte(in))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var h Header
		err := h.Decode(&Frame{Type: JSON, Header: in})
		if !json.Valid(in) {
			if err == nil && !bytes.ContainsFunc(in, func(r rune) bool { return r < ' ' }) { // control characters in strings are taken, as fastjson takes them
				t.Fatalf("%q is taken", in)
			}
			return
		}
		if !utf8.Valid(in) {
			return // it is not repaired here, but by encoding/json
		}
		var want string
		if err == nil {
			want = state(&h)
			for n := max(0, len(bytes.TrimRight(in, " \t\r\n"))-40); n < len(bytes.TrimRight(in, " \t\r\n")); n++ {
				require.ErrorIs(t, new(Header).Decode(&Frame{Type: JSON, Header: in[:n:n]}), ErrHeader, "%q", in[:n])
			}
		}
		for i := range 8 {
			other, nested := respell(in, "\r\n\t "[:i>>1&1*4], " "[:i>>2], i&1 > 0)
			var o Header
			again := o.Decode(&Frame{Type: JSON, Header: other})
			require.Equal(t, err == nil, again == nil, "%q: %v\n%q: %v", in, err, other, again)
			if err == nil && !nested {
				require.Equal(t, want, state(&o), "%q\n%q", in, other)
			}
		}
	})
}
