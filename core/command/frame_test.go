package command

import (
	"encoding/hex"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	routeJSON = `{"code":105,"extFields":{"topic":"T1"},"flag":0,"language":"JAVA","opaque":7,"serializeTypeCurrentRPC":"JSON","version":479}`
	// The same request in the binary header, as a whole frame.
	routeBinary = "0000002601000022006900" + "01df" + "00000007" + "00000000" + "00000000" + "0000000d" + "0005746f706963" + "000000025431"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	require.NoError(t, err)
	return b
}

// prefix builds the eight bytes before a header.
func prefix(length, word uint32) []byte {
	return []byte{
		byte(length >> 24), byte(length >> 16), byte(length >> 8), byte(length),
		byte(word >> 24), byte(word >> 16), byte(word >> 8), byte(word),
	}
}

func frameOf(t HeaderType, header, body string) []byte {
	b := prefix(uint32(4+len(header)+len(body)), uint32(t)<<24|uint32(len(header)))
	return append(append(b, header...), body...)
}

func TestSplitCutsAtEveryByte(t *testing.T) {
	a := frameOf(JSON, routeJSON, "")
	b := unhex(t, routeBinary)
	c := frameOf(JSON, "{}", "body")
	all := append(append(append([]byte{}, a...), b...), c...)
	for n := 0; n <= len(all); n++ {
		frames, used, size, err := Split(all[:n], nil, Limits{})
		require.NoError(t, err)
		ends := []int{len(a), len(a) + len(b), len(all)}
		whole, wantUsed := 0, 0
		for _, e := range ends {
			if n >= e {
				whole, wantUsed = whole+1, e
			}
		}
		require.Len(t, frames, whole, "prefix of %d bytes", n)
		require.Equal(t, wantUsed, used)
		switch {
		case n-used < 4:
			require.Zero(t, size)
		default:
			require.Equal(t, ends[whole]-used, size, "prefix of %d bytes", n)
		}
	}
	frames, _, _, err := Split(all, nil, DefaultLimits())
	require.NoError(t, err)
	require.Equal(t, routeJSON, string(frames[0].Header))
	require.Empty(t, frames[0].Body)
	require.Equal(t, RocketMQ, frames[1].Type)
	require.Equal(t, "body", string(frames[2].Body))
	require.Equal(t, b, frames[1].Raw)
}

func TestSplitRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		in   []byte
		lim  Limits
		want error
		text string
	}{
		"TLS hello":              {in: []byte{0x16, 3, 1, 2}, want: ErrFrameTooLarge, text: "limit 16777216; it is TLS"},
		"TLS alert":              {in: []byte{0x15, 3, 3, 0}, want: ErrFrameTooLarge, text: "limit 16777216; it is TLS"},
		"HTTP":                   {in: []byte("HTTP/1.1 400 Bad Request"), want: ErrFrameTooLarge, text: `1213486164 bytes, limit 16777216; it begins with "HTTP", which is another protocol`},
		"negative length":        {in: []byte{0xff, 0xff, 0xff, 0xff}, want: ErrFrameTooLarge},
		"one byte above":         {in: prefix(MaxFrame-3, 0), want: ErrFrameTooLarge, text: "16777217"},
		"own limit":              {in: prefix(100, 0), lim: Limits{Frame: 103}, want: ErrFrameTooLarge, text: "104 bytes, limit 103"},
		"no text":                {in: []byte{0x7f, 'x', 0x1b, '['}, want: ErrFrameTooLarge, text: "limit 16777216"},
		"header limit":           {in: prefix(100, 50), lim: Limits{Header: 49}, want: ErrFrameTooLarge, text: "header of 50 bytes, limit 49"},
		"length without word":    {in: []byte{0, 0, 0, 3}, want: ErrHeader, text: "length 3"},
		"header beyond frame":    {in: prefix(10, 7), want: ErrHeader, text: "header of 7 bytes in a frame of 14"},
		"unknown header type":    {in: prefix(10, 2<<24), want: ErrHeader, text: "header type 2"},
		"second frame malformed": {in: append(frameOf(JSON, "{}", ""), prefix(10, 7)...), want: ErrHeader},
	} {
		t.Run(name, func(t *testing.T) {
			frames, used, want, err := Split(c.in, nil, c.lim)
			require.ErrorIs(t, err, c.want)
			require.ErrorContains(t, err, c.text)
			require.Zero(t, want)
			if used > 0 {
				require.Len(t, frames, 1)
			}
		})
	}
	_, _, want, err := Split(prefix(MaxFrame-4, 0), nil, Limits{})
	require.NoError(t, err)
	require.Equal(t, MaxFrame, want)
}

func TestFrameOnTheWire(t *testing.T) {
	w := Begin(nil, JSON, RespSuccess, 1, FlagResponse)
	f := Frame{Header: w.End(6), Body: []byte("ab"), Bodies: [][]byte{[]byte("cd"), nil, []byte("ef")}}
	wire := f.Append(nil)
	require.Len(t, wire, f.Len())
	require.Len(t, f.Parts(nil), 4)
	buffers := net.Buffers(f.Parts(nil))
	var sb strings.Builder
	_, err := buffers.WriteTo(&sb)
	require.NoError(t, err)
	require.Equal(t, string(wire), sb.String())

	in, used, _, err := Split(wire, nil, Limits{})
	require.NoError(t, err)
	require.Equal(t, len(wire), used)
	require.Equal(t, "abcdef", string(in[0].Body))
	// An incoming frame may go out again as it is.
	require.Equal(t, wire, in[0].Append(nil))
	require.Equal(t, len(wire), in[0].Len())
	require.Len(t, in[0].Parts(nil), 1)
}

func TestCodeNames(t *testing.T) {
	require.Equal(t, "SEND_MESSAGE_V2", RequestName(ReqSendMessageV2))
	require.Equal(t, "POP_MESSAGE", RequestName(200050))
	require.Equal(t, "4711", RequestName(4711))
	names := map[string]int32{}
	named := 0
	for code := int32(-2000); code < 201000; code++ {
		name := RequestName(code)
		_, twice := names[name]
		require.False(t, twice, name)
		names[name] = code
		if name[0] >= 'A' {
			named++
		}
	}
	require.Equal(t, 140, named)
	require.Equal(t, ReqHeartBeat, names["HEART_BEAT"])
	require.Equal(t, "FLUSH_DISK_TIMEOUT", ResponseName(RespFlushDiskTimeout))
	require.Equal(t, "-7", ResponseName(-7))
	require.Equal(t, "ROCKETMQ", RocketMQ.String())
	require.Equal(t, "GO", LanguageGo.String())
	require.Equal(t, "OTHER", LanguageUnknown.String())
}
