package external

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func testHistory(o Options) *history {
	o = o.withDefaults()
	h := newHistory(&o)
	h.jitter = func() float64 { return 1 }
	return h
}

func TestBackoff(t *testing.T) {
	h := testHistory(Options{Breaker: Breaker{Deaths: -1}, Backoff: Backoff{First: time.Second, Most: 5 * time.Second}})
	now := time.Unix(1000, 0)
	require.Equal(t, stateIdle, h.state(now))
	for _, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second} {
		h.begin(now)
		h.die(now, "x")
		wait, refused := h.next(now)
		require.False(t, refused)
		require.Equal(t, want, wait)
		require.Equal(t, stateWaiting, h.state(now))
		now = now.Add(wait)
		wait, _ = h.next(now)
		require.Zero(t, wait)
		require.Equal(t, stateIdle, h.state(now))
	}
	h.begin(now)
	now = now.Add(time.Minute) // it lived for a window
	h.die(now, "x")
	wait, _ := h.next(now)
	require.Equal(t, time.Second, wait, "it starts over")
	require.ErrorContains(t, h.refusal("p", "/p", now), "1 times in a row")

	h.jitter = func() float64 { return 0 }
	h.begin(now)
	h.die(now, "x")
	wait, _ = h.next(now)
	require.Equal(t, time.Second, wait, "at random down to half of 2 s")
	wait, _ = h.next(now.Add(-time.Hour))
	require.LessOrEqual(t, wait, time.Hour+time.Second)
}

func TestBreaker(t *testing.T) {
	h := testHistory(Options{Breaker: Breaker{Deaths: 3, Window: time.Minute, Open: 10 * time.Second}})
	now := time.Unix(1000, 0).UTC()
	die := func(cause string) {
		h.begin(now)
		h.die(now, cause)
	}
	die("a")
	now = now.Add(2 * time.Minute) // that one is out of the window
	die("b")
	die("c")
	_, refused := h.next(now)
	require.False(t, refused)
	die("out of paper")
	opened := now
	for range 3 {
		wait, refused := h.next(now)
		require.True(t, refused)
		require.Equal(t, 10*time.Second, wait)
		require.Equal(t, stateOpen, h.state(now))
		now = now.Add(wait)
		_, refused = h.next(now)
		require.False(t, refused, "half open")
		require.Equal(t, stateHalfOpen, h.state(now))
		die("out of ink")
	}
	err := h.refusal("p", "/bin/p", now)
	for _, want := range []string{`plugin "p" (/bin/p)`, "since " + opened.Format(time.RFC3339), "died 7 times", "due in 10s, at " + now.Add(10*time.Second).Format(time.RFC3339), "the last cause: out of ink"} {
		require.ErrorContains(t, err, want)
	}
	now = now.Add(10 * time.Second)
	h.begin(now)
	now = now.Add(30 * time.Second)
	h.lived(now)
	require.Equal(t, stateHalfOpen, h.state(now), "it did not live for a window")
	h.begin(now)
	now = now.Add(time.Minute)
	h.lived(now)
	require.Equal(t, stateIdle, h.state(now))
	die("x")
	_, refused = h.next(now)
	require.False(t, refused, "the deaths before are forgotten")
}

func TestHandshakes(t *testing.T) {
	for line, want := range map[string]string{
		"1|1|unix|/x|grpc|":            "",
		"1|1|tcp|127.0.0.1:1|grpc|abc": "",
		"1|0|unix|/x|grpc|":            "version 0 of Hardpoint's plugin protocol, this host version 1",
		"1|2|unix|/x|grpc|":            "version 2 of Hardpoint's plugin protocol, this host version 1",
		"1|99|unix|/x|grpc|":           "version 99 of Hardpoint's plugin protocol, this host version 1",
		"2|1|unix|/x|grpc|":            "version 2 of go-plugin's protocol, this host version 1",
		"1|1|unix|/x|netrpc|":          "does not speak gRPC",
		"1|1|unix|/x":                  "does not speak gRPC",
		"1|1|/x|unix|grpc":             "noise",
		"a|1|unix|/x|grpc":             "noise",
		"1|1|unix":                     "noise",
		"":                             "noise",
	} {
		parts := splitHandshake(line)
		if !likeHandshake(parts) {
			require.Equal(t, "noise", want, line)
			continue
		}
		if err := understood(parts); want == "" {
			require.NoError(t, err, line)
		} else {
			require.ErrorContains(t, err, want, line)
		}
	}
}

func TestFormats(t *testing.T) {
	require.NotEmpty(t, formatHere())
	require.Equal(t, "a PE program (Windows)", formatOf([]byte("MZ......")))
	require.Equal(t, "a Mach-O program (macOS)", formatOf([]byte("\xcf\xfa\xed\xfe")))
	require.Empty(t, formatOf([]byte("\x7fELF")))
	require.Empty(t, formatOf(nil))
	for line, want := range map[string]string{"#!/bin/sh -e\nx": "/bin/sh", "#! /usr/bin/env python3": "/usr/bin/env", "#!": "", "#!\n": "", "#!/bin/sh\r\n": "/bin/sh\r"} {
		got, ok := script([]byte(line))
		require.True(t, ok, line)
		require.Equal(t, want, got, line)
	}
	_, ok := script([]byte("\x7fELF"))
	require.False(t, ok)
}
