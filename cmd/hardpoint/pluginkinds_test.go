package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/sdk/external"
)

// TestSupervision: what the configuration says of processes is what they are
// launched with.
func TestSupervision(t *testing.T) {
	load := func(text string) external.Options {
		file := filepath.Join(t.TempDir(), "c.yaml")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		l, err := config.Load(config.Options{File: file})
		require.NoError(t, err)
		return supervision(&l.Config)
	}
	require.Equal(t, external.Options{ // as the zero Options have it
		StartTimeout: 30 * time.Second, Health: 5 * time.Second, HealthLimit: 5 * time.Second, CallTimeout: time.Minute, StopTimeout: 5 * time.Second,
		Backoff: external.Backoff{First: 100 * time.Millisecond, Most: 30 * time.Second},
		Breaker: external.Breaker{Deaths: 5, Window: time.Minute, Open: 30 * time.Second},
	}, load(""))
	require.Equal(t, external.Options{
		StartTimeout: 2 * time.Second, Health: 3 * time.Second, HealthLimit: 4 * time.Second, CallTimeout: 10 * time.Second, StopTimeout: 11 * time.Second,
		Backoff: external.Backoff{First: 50 * time.Millisecond, Most: 6 * time.Second},
		Breaker: external.Breaker{Deaths: 7, Window: 8 * time.Second, Open: 9 * time.Second},
	}, load(`
pluginStartTimeout: 2s
pluginHealthInterval: 3s
pluginHealthTimeout: 4s
pluginCallTimeout: 10s
pluginStopTimeout: 11s
pluginBackoffFirst: 50
pluginBackoffMost: 6s
pluginBreakerDeaths: 7
pluginBreakerWindow: 8s
pluginBreakerOpen: 9s
`))
	off := load("pluginHealthInterval: 0\npluginCallTimeout: 0\npluginStopTimeout: 0\npluginBreakerDeaths: 0\n")
	require.Negative(t, off.Health, "0 of Options is the default")
	require.Negative(t, off.CallTimeout)
	require.Negative(t, off.StopTimeout)
	require.Negative(t, off.Breaker.Deaths)
}
