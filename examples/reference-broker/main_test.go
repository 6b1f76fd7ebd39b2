package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/fx"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/broker"
	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/wiring"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestItSendsAndStops(t *testing.T) {
	loaded, err := config.Load(config.Options{Env: []string{
		"HARDPOINT_DATA=" + t.TempDir(), "HARDPOINT_LISTEN=127.0.0.1:0", "HARDPOINT_NAMESRV_LISTEN=:0",
		"HARDPOINT_DISK_SPACE_WARNING_LEVEL_RATIO=99", // how full this machine's disk is does not matter
	}})
	require.NoError(t, err)
	var groups *broker.Groups
	app, err := wiring.New(wiring.Options{}, append(parts(&loaded.Config), fx.Populate(&groups))...)
	require.NoError(t, err)
	require.NoError(t, app.Start(t.Context()))
	sent, err := groups.All()[0].Send(t.Context(), &api.SendRequest{Topic: "T", Body: []byte("x")})
	require.NoError(t, err)
	require.Equal(t, api.SendOK, sent.Status)
	require.NoError(t, app.Stop(context.Background()))
}

func TestHelp(t *testing.T) { require.NoError(t, run(t.Context(), []string{"--help"})) }

// TestMisuse: an argument, which nobody would read, begins no broker.
func TestMisuse(t *testing.T) {
	for want, args := range map[string][]string{
		`there is "foo"`:        {"foo", "--data", t.TempDir()},
		"unknown flag: --dat\n": {"--dat", "x"},
	} {
		err := run(t.Context(), args)
		require.ErrorIs(t, err, errUsage)
		require.ErrorContains(t, err, want)
	}
	require.NotErrorIs(t, run(t.Context(), []string{"--set", "flushDiskTyp=x"}), errUsage)
}

func TestWrongConfigurationIsNamed(t *testing.T) {
	require.ErrorContains(t, run(t.Context(), []string{"--set", "flushDiskTyp=x"}), "flushDiskType")
	require.ErrorContains(t, run(t.Context(), []string{"--storage", "tape", "--data", t.TempDir()}), "known are")
	require.ErrorContains(t, run(t.Context(), []string{"--storage-process", "--data", t.TempDir()}), "flag --storage-process: not supported: ")
	require.ErrorContains(t, run(t.Context(), []string{"--set", "plugins.storage.commitlog.process=true", "--data", t.TempDir()}), "external.Storage")
}
