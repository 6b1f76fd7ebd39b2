package external_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/plugins/storage/memory"
	"github.com/hardpointmq/hardpoint/sdk/external"
)

// recorded is a meter whose values a test reads, by name{label=value,…}.
type recorded struct {
	mu       sync.Mutex
	counters map[string]*count
	gauges   map[string]func() float64
}

type count struct {
	mu sync.Mutex
	n  uint64
}

func (c *count) Add(n uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += n
}

func (c *count) Observe(float64) { c.Add(1) }

func keyOf(name string, labels []plugin.Label) string {
	var parts []string
	for _, l := range labels {
		parts = append(parts, l.Name+"="+l.Value)
	}
	return name + "{" + strings.Join(parts, ",") + "}"
}

func (r *recorded) of(name string, labels []plugin.Label) *count {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := keyOf(name, labels)
	if r.counters[k] == nil {
		if r.counters == nil {
			r.counters = map[string]*count{}
		}
		r.counters[k] = &count{}
	}
	return r.counters[k]
}

func (r *recorded) Counter(name, _ string, labels ...plugin.Label) plugin.Counter {
	return r.of(name, labels)
}

func (r *recorded) Histogram(name, _ string, labels ...plugin.Label) plugin.Histogram {
	return r.of(name, labels)
}

func (r *recorded) Gauge(name, _ string, read func() float64, labels ...plugin.Label) func() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gauges == nil {
		r.gauges = map[string]func() float64{}
	}
	r.gauges[keyOf(name, labels)] = read
	return func() {}
}

func (r *recorded) gauge(key string) float64 {
	r.mu.Lock()
	read := r.gauges[key]
	r.mu.Unlock()
	if read == nil {
		return -1
	}
	return read()
}

// count is the value of a counter, or how much a histogram holds.
func (r *recorded) count(key string) uint64 {
	r.mu.Lock()
	c := r.counters[key]
	r.mu.Unlock()
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// state is the one of the process.
func (r *recorded) state(name string) string {
	r.mu.Lock()
	keys := slices.Sorted(maps.Keys(r.gauges))
	r.mu.Unlock()
	var on []string
	for _, k := range keys {
		if rest, ok := strings.CutPrefix(k, "plugin_process_state{plugin="+name+",state="); ok && r.gauge(k) == 1 {
			on = append(on, strings.TrimSuffix(rest, "}"))
		}
	}
	return strings.Join(on, "+")
}

// impatient asks often, and waits for long enough on a busy machine.
func impatient(m plugin.Meter) external.Options {
	return external.Options{Linger: -1, Health: 20 * time.Millisecond, HealthLimit: 500 * time.Millisecond, Meter: m}
}

// TestStopped: a plugin that hangs is killed, and the next one starts.
func TestStopped(t *testing.T) {
	var m recorded
	var log buffer
	var k killed
	f := external.Storage(memory.Name, command(t, "serve"), impatient(&m))
	p := params(t.TempDir(), k.events())
	p.Logger = log.logger()
	s, err := f.Build(t.Context(), p, nil)
	require.NoError(t, err)
	require.NoError(t, s.Start(t.Context()))
	require.Equal(t, "running", m.state("memory"))
	pids := children(t)
	require.Len(t, pids, 1)
	require.NoError(t, syscall.Kill(pids[0], syscall.SIGSTOP))
	err = <-k.failed
	require.ErrorIs(t, err, plugin.ErrUnavailable)
	require.ErrorContains(t, err, "did not answer for ")
	require.ErrorContains(t, err, "signal: killed, by this host")
	require.NoError(t, s.Shutdown(t.Context()))
	require.Empty(t, children(t))
	require.Contains(t, log.String(), "a plugin does not answer; it is asked once more")
	require.EqualValues(t, 1, m.count("plugin_process_deaths_total{plugin=memory}"))

	s = running(t, f, storage.Events{})
	require.NoError(t, s.Sync(t.Context(), 0))
	// Build and Start are a process each, the first time, because nothing lingers.
	require.Greater(t, m.count("plugin_process_starts_total{plugin=memory}"), uint64(1))
	require.NoError(t, s.Shutdown(t.Context()))
	require.Equal(t, "idle", m.state("memory"))
	call := "{plugin=memory,kind=storage,method=Open}"
	require.EqualValues(t, 2, m.count("plugin_calls_total"+call))
	require.EqualValues(t, 2, m.count("plugin_call_seconds"+call))
	require.Zero(t, m.count("plugin_call_errors_total"+call))
}

// TestFallsIll: a plugin that answers no health call any more is killed, although
// all else works.
func TestFallsIll(t *testing.T) {
	f := external.Storage(memory.Name, command(t, "falls_ill"), external.Options{Linger: time.Hour, Health: 20 * time.Millisecond, HealthLimit: 100 * time.Millisecond})
	var k killed
	s, err := f.Build(t.Context(), params(t.TempDir(), k.events()), nil)
	require.NoError(t, err)
	require.NoError(t, s.Start(t.Context()))
	require.ErrorContains(t, <-k.failed, "did not answer for ")
	require.NoError(t, s.Shutdown(t.Context()))
	require.Empty(t, children(t))
}

// TestEndOfOneThatHangs: it is asked to end, and does not.
func TestEndOfOneThatHangs(t *testing.T) {
	f := external.Storage(memory.Name, command(t, "serve"), impatient(nil))
	s := running(t, f, storage.Events{})
	pids := children(t)
	require.Len(t, pids, 1)
	require.NoError(t, syscall.Kill(pids[0], syscall.SIGSTOP))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		require.ErrorIs(t, err, plugin.ErrUnavailable)
	}
	require.Empty(t, children(t))
}

// TestBreakerOpens: after some deaths nobody waits for a plugin any more.
func TestBreakerOpens(t *testing.T) {
	var m recorded
	f := external.Storage(memory.Name, command(t, "exit"), external.Options{
		Meter: &m, Backoff: external.Backoff{First: time.Millisecond, Most: time.Millisecond},
		Breaker: external.Breaker{Deaths: 3, Window: time.Hour, Open: time.Hour},
	})
	for range 3 {
		_, err := f.Describe(t.Context(), nil)
		require.ErrorContains(t, err, "did not start: it ended before the handshake")
	}
	_, err := f.Describe(t.Context(), nil)
	require.ErrorIs(t, err, plugin.ErrUnavailable)
	for _, want := range []string{
		"the circuit breaker is open since 2", "its process died 3 times so far", "the next attempt is due in ",
		"the last cause: it ended before the handshake", "exit status 3", "there is no licence for Tuesdays", command(t, "").Path,
	} {
		require.ErrorContains(t, err, want)
	}
	require.EqualValues(t, 3, m.count("plugin_process_starts_total{plugin=memory}"))
	require.EqualValues(t, 3, m.count("plugin_process_deaths_total{plugin=memory}"))
	require.Equal(t, "open", m.state("memory"))
}

// TestBackoffRefuses: whoever cannot wait for the next start is told at once.
func TestBackoffRefuses(t *testing.T) {
	f := external.Storage(memory.Name, command(t, "exit"), external.Options{Backoff: external.Backoff{First: time.Hour, Most: time.Hour}})
	_, err := f.Describe(t.Context(), nil)
	require.ErrorIs(t, err, plugin.ErrUnavailable)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err = f.Describe(ctx, nil)
	require.ErrorContains(t, err, "is not started yet: its process died 1 times in a row; the next start is due in ")
	require.NoError(t, ctx.Err())
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = f.Describe(ended, nil)
	require.ErrorIs(t, err, context.Canceled)
}

func sumOf(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	require.NoError(t, err)
	return hex.EncodeToString(h.Sum(nil))
}

func TestChecksum(t *testing.T) {
	c := command(t, "serve")
	sum := sumOf(t, c.Path)
	for _, form := range []string{sum, strings.ToUpper(sum), "sha256:" + sum} {
		c.Checksum = form
		_, err := external.Storage(memory.Name, c, external.Options{Linger: -1}).Describe(t.Context(), nil)
		require.NoError(t, err)
	}
	c.Checksum = strings.Repeat("0", 64)
	_, err := external.Storage(memory.Name, c, external.Options{}).Describe(t.Context(), nil)
	require.ErrorIs(t, err, plugin.ErrUnavailable)
	require.ErrorContains(t, err, fmt.Sprintf("the checksum of %s is wrong: expected SHA-256 %s, found %s", c.Path, c.Checksum, sum))
	for _, bad := range []string{"abc", sum[1:], sum + "00", "x" + sum[1:]} {
		c.Checksum = bad
		_, err = external.Storage(memory.Name, c, external.Options{}).Describe(t.Context(), nil)
		require.ErrorIs(t, err, plugin.ErrConfig, bad)
		require.ErrorContains(t, err, "64 hexadecimal digits")
	}
}

// TestChecksumOfReplaced: a program that was replaced after it was pinned does not
// start again, and one that is a script is verified, too.
func TestChecksumOfReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plugin")
	text := "#!/bin/sh\nexec \"" + command(t, "").Path + "\"\n"
	require.NoError(t, os.WriteFile(path, []byte(text), 0o700))
	c := command(t, "serve")
	c.Path, c.Checksum = path, sumOf(t, path)
	f := external.Storage(memory.Name, c, external.Options{Linger: -1})
	_, err := f.Describe(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte(text+"# changed\n"), 0o700))
	_, err = f.Describe(t.Context(), nil)
	require.ErrorIs(t, err, plugin.ErrUnavailable)
	require.ErrorContains(t, err, "the checksum of "+path+" is wrong")
	require.NotErrorIs(t, err, plugin.ErrConfig)
}
