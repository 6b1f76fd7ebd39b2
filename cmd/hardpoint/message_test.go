package main

import (
	"bytes"
	"compress/zlib"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/internal/adminclient"
)

// TestBodies: bodies are cut, decompressed and made harmless.
func TestBodies(t *testing.T) {
	var z bytes.Buffer
	w := zlib.NewWriter(&z)
	_, err := w.Write([]byte(strings.Repeat("compressed ", 1000)))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	for name, x := range map[string]struct {
		m                        adminclient.Message
		text, base64, json, note string
		size                     int
	}{
		"text":            {m: adminclient.Message{Body: []byte("hello")}, text: "hello", base64: "aGVsbG8=", json: "hello", size: 5},
		"empty":           {m: adminclient.Message{}},
		"terminal":        {m: adminclient.Message{Body: []byte("\x1b[31mred\r\n\"é\"\u202e")}, text: `\x1b[31mred\r\n"é"\u202e`, base64: "G1szMW1yZWQNCiLDqSLigK4=", json: "\x1b[31mred\r\n\"é\"\u202e", size: 17},
		"bytes":           {m: adminclient.Message{Body: []byte{0xFF, 0, 1}}, text: "0xff0001", base64: "/wAB", json: "/wAB", size: 3},
		"long":            {m: adminclient.Message{Body: bytes.Repeat([]byte("x"), 30)}, text: strings.Repeat("x", 20) + "…", base64: "eHh4eHh4eHh4eHh4eHh4eHh4eHg=…", json: strings.Repeat("x", 20), size: 30},
		"inside a letter": {m: adminclient.Message{Body: []byte(strings.Repeat("x", 18) + "€€")}, text: strings.Repeat("x", 18) + "…", base64: "eHh4eHh4eHh4eHh4eHh4eHh44oI=…", json: strings.Repeat("x", 18), size: 24},
		"zlib":            {m: adminclient.Message{Body: z.Bytes(), SysFlag: message.SysCompressed}, text: "compressed compresse…", base64: "Y29tcHJlc3NlZCBjb21wcmVzc2U=…", json: "compressed compresse", size: 20},
		"not lz4":         {m: adminclient.Message{Body: []byte("abc"), SysFlag: message.SysCompressed | 1<<8}, text: "0x616263", base64: "YWJj", json: "YWJj", note: "cannot be decompressed", size: 3},
		"no type":         {m: adminclient.Message{Body: []byte("abc"), SysFlag: message.SysCompressed | 5<<8}, text: "0x616263", base64: "YWJj", json: "YWJj", note: "with type 5, which is not known, 3 bytes", size: 3},
		"not zlib":        {m: adminclient.Message{Body: []byte("abc"), SysFlag: message.SysCompressed}, text: "0x616263", base64: "YWJj", json: "YWJj", note: "cannot be decompressed", size: 3},
	} {
		for _, encoding := range []string{"text", "base64", "none"} {
			q := &messageQuery{limit: 20}
			q.body.word = encoding
			s := q.shown(&x.m)
			require.Contains(t, s.Note, x.note, name)
			require.Nil(t, s.Message.Body, name, "the rest of a large message is not kept")
			require.Equal(t, x.size, s.BodySize, name)
			switch encoding {
			case "text":
				require.Equal(t, x.text, s.bodyText(encoding), name)
				require.Equal(t, x.json, s.Body, name)
			case "base64":
				require.Equal(t, x.base64, s.bodyText(encoding), name)
			case "none":
				require.Empty(t, s.bodyText(encoding), name)
				require.Empty(t, s.Body, name)
			}
		}
	}
}

// TestOddJSON: what a producer wrote reaches a terminal as JSON does, too, and is the
// same JSON.
func TestOddJSON(t *testing.T) {
	for text, want := range map[string]string{
		"é€😀\n\"<&>":               `"é€😀\n\"<&>"`,
		"\x1b[31m\u009b31m\x7f":    `"\u001b[31m\u009b31m\u007f"`,
		"abc\u202edcb\u2066\u00a0": `"abc\u202edcb\u2066\u00a0"`,
		"\U000e0041":               `"\udb40\udc41"`,
	} {
		var out bytes.Buffer
		require.NoError(t, (&program{stdout: &out}).printJSON(text))
		require.Equal(t, want+"\n", out.String())
		var back string
		require.NoError(t, json.Unmarshal(out.Bytes(), &back))
		require.Equal(t, text, back)
	}
	require.Equal(t, "no \uFFFDecnecil", harmless("no \u202eecnecil"))
}

func TestClipped(t *testing.T) {
	for n, want := range map[int]string{0: "", widest: strings.Repeat("€", widest), widest + 1: strings.Repeat("€", widest) + "…", 5000: strings.Repeat("€", widest) + "…"} {
		require.Equal(t, want, clipped(strings.Repeat("€", n)))
	}
}
