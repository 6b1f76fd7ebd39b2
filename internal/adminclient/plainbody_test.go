package adminclient_test

import (
	"bytes"
	"compress/zlib"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/internal/adminclient"
)

// compressed is a text in each of RocketMQ's compressions, by the type in a flag.
func compressed(t testing.TB, text string) map[int32][]byte {
	t.Helper()
	out := map[int32][]byte{}
	for kind, open := range map[int32]func(io.Writer) io.WriteCloser{
		0: func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) },
		1: func(w io.Writer) io.WriteCloser { return lz4.NewWriter(w) },
		2: func(w io.Writer) io.WriteCloser {
			z, err := zstd.NewWriter(w)
			require.NoError(t, err)
			return z
		},
		3: func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) },
	} {
		var b bytes.Buffer
		z := open(&b)
		_, err := io.WriteString(z, text)
		require.NoError(t, err)
		require.NoError(t, z.Close())
		out[kind] = b.Bytes()
	}
	return out
}

func body(kind int32, b []byte) *adminclient.Message {
	return &adminclient.Message{Body: b, SysFlag: message.SysCompressed | kind<<8}
}

// TestPlainBody: each compression of RocketMQ's is undone, as far as is asked for.
func TestPlainBody(t *testing.T) {
	text := strings.Repeat("compressed ", 100_000)
	for kind, b := range compressed(t, text) {
		got, cut, err := body(kind, b).PlainBody(len(text))
		require.NoError(t, err, kind)
		require.False(t, cut, kind)
		require.Equal(t, text, string(got), kind)
		got, cut, err = body(kind, b).PlainBody(20)
		require.NoError(t, err, kind)
		require.True(t, cut, kind)
		require.Equal(t, text[:20], string(got), kind)
		for _, bad := range [][]byte{b[:len(b)/2], []byte("not compressed")} {
			_, _, err = body(kind, bad).PlainBody(len(text))
			require.ErrorContains(t, err, "cannot be decompressed", "%d: %q", kind, bad)
		}
	}
	_, _, err := body(5, []byte("x")).PlainBody(20)
	require.ErrorIs(t, err, adminclient.ErrCompression)
}

// FuzzPlainBody: whatever a producer sent costs no more than what is shown of it, and
// nobody's life.
func FuzzPlainBody(f *testing.F) {
	for kind, b := range compressed(f, strings.Repeat("x", 10_000)) {
		f.Add(kind, b)
	}
	f.Fuzz(func(t *testing.T, kind int32, b []byte) {
		got, cut, err := body(kind&7, b).PlainBody(1000)
		if len(got) > 1000 || cut && len(got) < 1000 || err != nil && got != nil {
			t.Fatalf("%d bytes, cut %t, %v", len(got), cut, err)
		}
	})
}
