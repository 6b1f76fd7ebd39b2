package external

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/iotest"
)

// FuzzOutput: whatever a process prints, in lines or in pieces, becomes lines of the
// host's log and never more than a bounded part of it.
func FuzzOutput(f *testing.F) {
	f.Add([]byte("{\"@message\":\"told\",\"@level\":\"warn\",\"size\":12}\nplain\n"))
	f.Add([]byte(`{"@message": 1}`))
	f.Add([]byte("1|1|unix|/tmp/x|grpc|\n1|2|not|a handshake\npanic: at start"))
	f.Add(bytes.Repeat([]byte("x"), 3*lineSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		var out bytes.Buffer
		p := newPump("fuzzed", slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
		hands := 0
		p.read("stdout", iotest.HalfReader(bytes.NewReader(b)), func(line string) bool {
			hands++
			return strings.Count(line, "|") > 3
		})
		w := p.writer("stderr")
		for half := b; len(half) > 0; half = half[len(half)/2:] {
			n := max(len(half)/2, 1)
			if _, err := w.Write(half[:n]); err != nil {
				t.Fatal(err)
			}
			if n == len(half) {
				break
			}
		}
		p.stop()
		if last := p.last(); len(last) > (lastLines+1)*(4*lastSize+8) {
			t.Errorf("%d bytes are kept of the last lines", len(last))
		}
		if lines := bytes.Count(b, []byte("\n")) + 1; hands > lines {
			t.Errorf("%d lines were made of %d", hands, lines)
		}
	})
}
