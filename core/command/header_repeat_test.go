package command

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// repeats checks that a header decoded behind others is what it is alone.
func repeats(t *testing.T, headers ...[]byte) {
	t.Helper()
	var h Header
	var send SendDecoder
	for i, in := range headers {
		in = bytes.Clone(in) // the one before is overwritten by a transport
		f := Frame{Type: JSON, Header: in}
		var alone Header
		var want SendRequest
		decode := h.Decode
		if i%3 == 2 {
			decode = h.DecodeMore
		}
		err, wantErr := decode(&f), alone.Decode(&f)
		require.Equal(t, fmt.Sprint(wantErr), fmt.Sprint(err), "%q", headers[:i+1])
		if err != nil {
			continue
		}
		require.Equal(t, state(&alone), state(&h), "%q", headers[:i+1])
		if i%5 == 4 {
			continue // the decoder of sends does not see every header
		}
		err, wantErr = send.Decode(&h), want.Decode(&alone)
		require.Equal(t, fmt.Sprint(wantErr), fmt.Sprint(err), "%q", headers[:i+1])
		if err == nil {
			require.Equal(t, fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", send.SendRequest), "%q", headers[:i+1])
		}
	}
}

// usualSend is a send as the Java client spells it, with what may change.
func usualSend(opaque, queue, born, props string) []byte {
	return []byte(`{"code":310,"extFields":{"a":"group","b":"topic","c":"TBW102","d":"8","e":"` + queue + `","f":"0","g":"` + born +
		`","h":"0","i":"` + props + `","j":"0","k":"false","m":"false"},"flag":0,"language":"JAVA","opaque":` + opaque +
		`,"serializeTypeCurrentRPC":"JSON","version":513}`)
}

const usualProps = `UNIQ_KEY\u0001AC110001\u0002WAIT\u0001true\u0002`

// What changes from one header to the next is read, whatever its length.
func TestHeaderRepeat(t *testing.T) {
	base := usualSend("7", "3", "1700000000000", usualProps)
	var h Header
	decode := func(in []byte) bool {
		require.NoError(t, h.Decode(&Frame{Type: JSON, Header: in}), "%q", in)
		return h.last.changed != allChanged
	}
	require.False(t, decode(base), "the first is decoded in full")
	for _, x := range []struct {
		name string
		in   []byte
		like bool
	}{
		{"the same", base, true},
		{"another opaque", usualSend("8", "3", "1700000000000", usualProps), true},
		{"a longer opaque", usualSend("1000", "3", "1700000000000", usualProps), true},
		{"a longer queue and time", usualSend("9", "12", "17000000000001", usualProps), true},
		{"a shorter queue", usualSend("9", "1", "1", usualProps), true},
		{"an empty queue", usualSend("9", "", "1", usualProps), true},
		{"longer properties", usualSend("9", "1", "1", usualProps+`KEYS\u0001a\"b\u0002`), true},
		{"properties without escapes", usualSend("9", "1", "1", "none"), true},
		{"and with them again", usualSend("9", "1", "1", usualProps), true},
		{"another topic", bytes.Replace(base, []byte(`"topic"`), []byte(`"other topic"`), 1), true},
		{"another code", bytes.Replace(base, []byte("310"), []byte("320"), 1), false},
		{"another version", bytes.Replace(base, []byte("513"), []byte("409"), 1), false},
		{"another key", bytes.Replace(base, []byte(`"k"`), []byte(`"l"`), 1), false},
		{"a field more", bytes.Replace(base, []byte(`"k"`), []byte(`"l":"16","k"`), 1), false},
		{"an opaque that is no number of the usual kind", usualSend("-7", "3", "1", usualProps), false},
		{"an escape elsewhere", bytes.Replace(base, []byte(`"topic"`), []byte(`"t\u006fpic"`), 1), false},
	} {
		decode(base)
		require.True(t, decode(base))
		require.Equal(t, x.like, decode(x.in), x.name)
		h.last.misses = 0
		repeats(t, base, x.in, x.in, base, base, x.in, base)
	}
}

// A client whose headers are never alike does not pay for each being remembered.
func TestHeaderRepeatGivesUp(t *testing.T) {
	var h Header
	kept := 0
	const n = 10 * unlikely
	for i := range n {
		key := "x" + strings.Repeat("y", i%7)
		require.NoError(t, h.Decode(&Frame{Type: JSON, Header: []byte(`{"code":310,"extFields":{"` + key + `":"1"}}`)}))
		if len(h.last.text) > 0 {
			kept++
		}
	}
	require.Equal(t, patience+n/unlikely, kept)
	for range 2 * unlikely {
		require.NoError(t, h.Decode(&Frame{Type: JSON, Header: []byte(`{"code":310,"extFields":{"a":"1"}}`)}))
	}
	require.Zero(t, h.last.misses, "once they are alike again, so it is found")
}

// FuzzHeaderRepeat: what a header is decoded to does not depend on those before it.
func FuzzHeaderRepeat(f *testing.F) {
	last := map[int32][]byte{}
	for _, e := range exchanges(f) {
		r := &e.Request
		in := r.frame(f).Header
		if r.frame(f).Type != JSON {
			continue
		}
		if before := last[r.Code]; before != nil {
			f.Add(before, in, uint16(20), uint16(1), []byte("7"))
		}
		last[r.Code] = in
	}
	base := usualSend("7", "3", "1700000000000", usualProps)
	for i := range base {
		f.Add(base, base, uint16(i), uint16(1), []byte(`"`))
		f.Add(base, base, uint16(i), uint16(0), []byte(`\u0041`))
		f.Add(base, base, uint16(i), uint16(1), []byte(""))
	}
	f.Fuzz(func(t *testing.T, a, b []byte, at, n uint16, with []byte) {
		from := min(int(at), len(b))
		to := min(from+int(n), len(b))
		c := append(append(bytes.Clone(b[:from]), with...), b[to:]...)
		repeats(t, a, c, b, a, a, c, c, b, c)
	})
}
