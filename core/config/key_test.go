package config

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The table is complete in itself.
func TestKeyTable(t *testing.T) {
	flags := map[string]string{}
	for _, k := range Keys() {
		require.NotEmpty(t, k.Desc, k.Name)
		require.True(t, strings.HasSuffix(k.Desc, "."), "%s: %s", k.Name, k.Desc)
		require.NotContains(t, k.Desc, "\n", k.Name)
		require.NotZero(t, k.Applies, k.Name)
		require.Contains(t, groups, k.Group, k.Name)
		require.LessOrEqual(t, k.Min, k.Max, k.Name)
		require.Equal(t, k.Status != Honoured, k.Reason != "", "%s: a reason exactly where it has no effect", k.Name)
		if k.Type == Enum {
			require.NotEmpty(t, k.Words, k.Name)
		}
		if k.Type == Duration {
			require.NotEmpty(t, k.Unit, k.Name)
			unit := int64(unitDuration(k.Unit))
			require.LessOrEqual(t, k.Max, math.MaxInt64/unit, "%s: %s", k.Name, k.AllowedText())
			require.GreaterOrEqual(t, k.Min, math.MinInt64/unit, k.Name)
		}
		if k.Status == Honoured && k.Default != "" {
			_, err := k.parse(k.Default)
			require.NoError(t, err, k.Name)
		}
		for v, reason := range k.Refuses {
			p, err := k.parse(v)
			require.NoError(t, err, k.Name)
			require.Equal(t, v, k.format(p), k.Name)
			require.NotEmpty(t, reason)
		}
		for _, h := range k.Harmless {
			_, err := k.parse(h)
			require.NoError(t, err, "%s: harmless %q", k.Name, h)
		}
		if k.Flag != "" {
			require.NotContains(t, flags, k.Flag)
			flags[k.Flag] = k.Name
		}
		if k.Sets != "" {
			_, err := Explain(k.Sets)
			require.NoError(t, err)
		}
		require.NotEmpty(t, k.AllowedText())
	}
}

// Every honoured key has exactly one field of Config and the reverse.
func TestKeysMatchConfig(t *testing.T) {
	fields := map[string]bool{}
	c := reflect.TypeOf(Config{})
	for i := range c.NumField() {
		g := c.Field(i).Type
		if g.Kind() != reflect.Struct {
			continue
		}
		for j := range g.NumField() {
			fields[g.Field(j).Tag.Get("koanf")] = true
		}
	}
	for _, k := range Keys() {
		want := k.Status == Honoured && k.Sets == ""
		name := strings.ReplaceAll(k.Name, ".", "/") // as in Key.path
		require.Equal(t, want, fields[name], k.Name)
		delete(fields, name)
	}
	require.Empty(t, fields)
}

func TestExplain(t *testing.T) {
	for _, name := range []string{"flushDiskType", " flushDiskType ", "HARDPOINT_FLUSH_DISK_TYPE"} {
		k, err := Explain(name)
		require.NoError(t, err)
		require.Equal(t, "flushDiskType", k.Name)
	}
	k, err := Explain("aclEnable")
	require.NoError(t, err)
	require.Contains(t, k.Describe(), "refused: access control")
	k, err = Explain("listen")
	require.NoError(t, err)
	for _, want := range []string{"HOST:PORT", "HARDPOINT_LISTEN", "--listen", "--set listen=VALUE", "honoured", ":10911"} {
		require.Contains(t, k.Describe(), want)
	}
	k, err = Explain("mapedFileSizeCommitLog")
	require.NoError(t, err)
	require.Equal(t, "mappedFileSizeCommitLog", k.Name)
	_, err = Explain("flushDiscType")
	require.ErrorIs(t, err, ErrUnknownKey)
	require.ErrorContains(t, err, "flushDiskType")
	_, err = Explain("somethingElseEntirely")
	require.ErrorIs(t, err, ErrUnknownKey)
}

func TestEnvName(t *testing.T) {
	for key, want := range map[string]string{
		"listen": "LISTEN", "flushDiskType": "FLUSH_DISK_TYPE", "brokerIP1": "BROKER_IP1", "enableDLegerCommitLog": "ENABLE_D_LEGER_COMMIT_LOG",
		"haMaxTimeSlaveNotCatchup": "HA_MAX_TIME_SLAVE_NOT_CATCHUP", "tls.server.keyPath": "TLS__SERVER__KEY_PATH", "checkCRCOnRecover": "CHECK_CRC_ON_RECOVER",
		"scheduleAsyncDeliverMaxResendNum2Blocked": "SCHEDULE_ASYNC_DELIVER_MAX_RESEND_NUM2_BLOCKED",
	} {
		require.Equal(t, want, envName(key))
		k, err := Explain(key)
		require.NoError(t, err)
		require.Equal(t, "HARDPOINT_"+want, k.Env())
	}
	for key, want := range map[string]string{
		"plugins.storage.my_store.cacheSize":          "HARDPOINT_PLUGINS__STORAGE__MY_STORE__CACHE_SIZE",
		"plugins.storage.commitlog.checkCRCOnRecover": "HARDPOINT_PLUGINS__STORAGE__COMMITLOG__CHECK_C_R_C_ON_RECOVER",
	} {
		require.Equal(t, want, PluginEnv(key))
		require.Equal(t, key, pluginEnvKey(strings.TrimPrefix(want, envPrefix)), "and back")
	}
	require.Equal(t, "plugins.storage.my_store.cacheSize.minBytes", pluginEnvKey("PLUGINS__STORAGE__MY_STORE__CACHE_SIZE__MIN_BYTES"))
}
