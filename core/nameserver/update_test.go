package nameserver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/transport"
)

// BC-39 for a name server that runs, here beside a broker: an update is refused or
// applied as a whole, the answer says what changed, and keys of the broker are not its
// business.
func TestUpdate(t *testing.T) {
	l, err := config.Load(config.Options{Env: []string{"HARDPOINT_LISTEN=127.0.0.1:1", "HARDPOINT_NAMESRV_LISTEN=127.0.0.1:2"}})
	require.NoError(t, err)
	cfg, err := FromConfig(&l.Config, transport.Limits{})
	require.NoError(t, err)
	cfg.Transport = "fake"
	var events []string
	var told []config.Change
	s, err := build(t.Context(), plugin.Settings{}, cfg, factory(fake{events: &events}), l, func(c config.Change) { told = append(told, c) })
	require.NoError(t, err)
	props := string(s.properties())
	require.Contains(t, props, "orderMessageEnable=false\n")
	require.Contains(t, props, "listenPort=2\n")
	require.NotContains(t, props, "flushDiskType")

	for text, want := range map[string]string{
		"orderMessageEnable=yes":                               `update request line 1: orderMessageEnable = "yes"`,
		"orderMessageEnable=true\norderMesageEnable=true":      `unknown key "orderMesageEnable"; did you mean orderMessageEnable?`,
		"orderMessageEnable=true\nnamesrvListen=127.0.0.1:9":   "change the configuration and restart",
		"orderMessageEnable=true\nautoCreateTopicEnable=false": "it is a key of the broker and this is a namesrv",
		"scanNotActiveBrokerInterval=1":                        "scanNotActiveBrokerInterval",
	} {
		_, err := s.update([]byte(text))
		require.ErrorContains(t, err, want, text)
	}
	require.Contains(t, string(s.properties()), "orderMessageEnable=false\n")
	require.Empty(t, told)

	said, err := s.update([]byte("orderMessageEnable=true \t\r\nenableTopicList=true\nbrokerChannelExpiredTime=60000"))
	require.NoError(t, err)
	require.Equal(t, "brokerChannelExpiredTime: 2m -> 1m; orderMessageEnable: false -> true (until the name server stops; write it into its configuration to keep it)", said)
	require.Len(t, told, 2)
	require.Contains(t, string(s.properties()), "orderMessageEnable=true\n")
	require.Contains(t, string(s.properties()), "listenPort=2\n")
	require.Equal(t, time.Minute, s.loaded.Config.Namesrv.BrokerExpiredTimeout)
	said, err = s.update(s.properties())
	require.NoError(t, err)
	require.Equal(t, "nothing changed", said)
}
