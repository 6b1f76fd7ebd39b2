package external_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/plugins/storage/memory"
	"github.com/hardpointmq/hardpoint/sdk/external"
)

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
