package external

import (
	"bytes"
	"fmt"
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/plugin"
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
		p := newPump("fuzzed", slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})), &still{})
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

// still is a clock that moves when it is told to.
type still struct {
	plugin.Clock
	now time.Time
}

func (c *still) Now() time.Time { return c.now }

// TestFlood: a process that prints without end does not fill the disk of its host
// with its log; what is left out is counted, and told at the latest when it ends.
func TestFlood(t *testing.T) {
	for _, size := range []int{1, 1000} {
		t.Run(strconv.Itoa(size), func(t *testing.T) { testFlood(t, size) })
	}
}

func testFlood(t *testing.T, size int) {
	var out bytes.Buffer
	clock := &still{now: time.Unix(1_700_000_000, 0)}
	p := newPump("chatty", slog.New(slog.NewTextHandler(&out, nil)), clock)
	line, cost := strings.Repeat("x", size), size+logExtra
	flood := func(bytes int) {
		for ; bytes > 0; bytes -= cost {
			p.line("stderr", line)
			for len(p.lines) > 0 {
				runtime.Gosched()
			}
		}
	}
	flood(3 * logBurst)
	clock.now = clock.now.Add(-time.Hour) // set by hand: it gives nothing and takes nothing
	flood(logBurst)
	clock.now = clock.now.Add(2 * time.Second)
	flood(logBurst)
	for range 100 { // each line that is logged comes after some that are dropped
		clock.now = clock.now.Add(time.Duration(cost) * time.Second / logRate)
		flood(3 * cost)
	}
	p.stop()
	most := logBurst + 2*logRate + 100*cost
	require.LessOrEqual(t, out.Len(), most)
	logged := strings.Count(out.String(), "x plugin=chatty")
	require.InDelta(t, most/cost, logged, 4)
	dropped := 0
	for _, line := range strings.Split(out.String(), "\n") {
		if _, n, ok := strings.Cut(line, "lines were dropped\" plugin=chatty lines="); ok {
			one, err := strconv.Atoi(n)
			require.NoError(t, err)
			dropped += one
		}
	}
	require.InDelta(t, (5*logBurst+300*cost)/cost, logged+dropped, 5)
}

// TestLastLines: of a long stack the error has the panic and the plugin's own frames,
// which come first, rather than what called it.
func TestLastLines(t *testing.T) {
	last := func(lines ...string) string {
		p := newPump("told", nil, plugin.Settings{}.WithDefaults().Clock)
		defer p.stop()
		for _, l := range lines {
			p.line("stderr", l)
		}
		return p.last()
	}
	numbered := func(n int, what string) (lines []string) {
		for i := range n {
			lines = append(lines, fmt.Sprint(what, " ", i))
		}
		return lines
	}
	if got := last(append(numbered(20, "before"), "panic: a", "mine.go:1")...); !strings.HasPrefix(got, "before 10\n") || !strings.HasSuffix(got, "panic: a\nmine.go:1") {
		t.Errorf("a short stack is part of the last lines: %s", got)
	}
	want := strings.Join(append(append(append([]string{"panic: a"}, numbered(7, "frame")...), "…"), "frame 36", "frame 37", "frame 38", "frame 39"), "\n")
	if got := last(append(append(numbered(20, "before"), "panic: a"), numbered(40, "frame")...)...); got != want {
		t.Errorf("kept\n%s\nof a long stack, want\n%s", got, want)
	}
	if got := last(append(append(numbered(3, "before"), "panic: a"), numbered(13, "frame")...)...); strings.Count(got, "frame 6") != 1 || strings.Count(got, "\n") > lastLines {
		t.Errorf("lines are kept once, and no more than %d: %s", lastLines, got)
	}
}
