package nameserver

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
)

const zoneMode = "__ZONE_MODE"

// A query that names a zone gets the brokers of that zone, and those whose master is
// gone, as from RocketMQ's ZoneRouteRPCHook.
func TestZones(t *testing.T) {
	s := newServer(t, func(p *Params) { p.Config.OrderMessageEnable = true })
	c := open(t, s)
	east := reg{name: "e", addr: "10.0.0.1:1", zone: "East"}
	west := reg{name: "w", addr: "10.0.0.2:1", zone: "west"}
	none := reg{name: "n", addr: "10.0.0.3:1"}
	orphan := reg{name: "o", addr: "10.0.0.4:1", id: 1, zone: "west", acting: true} // a slave without master
	for _, r := range []reg{east, west, none, orphan} {
		require.Zero(t, open(t, s).register(r).code)
	}
	require.NoError(t, s.kv.set(orderNamespace, "A", "e:4", false))
	names := func(fields ext) string {
		fields["topic"] = "A"
		a := c.call(command.ReqGetRouteInfoByTopic, fields, nil)
		require.Zero(t, a.code, a.remark)
		require.Contains(t, a.body, `"orderTopicConf":"e:4"`)
		var r command.TopicRouteData
		require.NoError(t, command.DecodeBody([]byte(a.body), &r))
		require.Len(t, r.QueueDatas, len(r.BrokerDatas))
		var out []string
		for i, b := range r.BrokerDatas {
			require.Equal(t, b.BrokerName, r.QueueDatas[i].BrokerName)
			out = append(out, b.BrokerName)
		}
		return strings.Join(out, " ")
	}
	const all = "e n o w"
	for _, tc := range []struct {
		fields ext
		want   string
	}{
		{ext{}, all},
		{ext{command.ZoneName: "east"}, all},
		{ext{command.ZoneName: "east", zoneMode: "false"}, all},
		{ext{zoneMode: "true"}, all},
		{ext{command.ZoneName: " ", zoneMode: "true"}, all},
		{ext{command.ZoneName: "east", zoneMode: "true"}, "e o"},
		{ext{command.ZoneName: "WEST", zoneMode: "TRUE"}, "o w"},
		{ext{command.ZoneName: "north", zoneMode: "true"}, "o"},
	} {
		require.Equal(t, tc.want, names(tc.fields), "%v", tc.fields)
	}
	a := c.call(command.ReqGetRouteInfoByTopic, ext{"topic": "X", command.ZoneName: "east", zoneMode: "true"}, nil)
	require.Equal(t, command.RespTopicNotExist, a.code)
}

func TestConfigRequests(t *testing.T) {
	s := newServer(t, nil)
	for _, code := range []int32{command.ReqGetNamesrvConfig, command.ReqUpdateNamesrvConfig} {
		a := open(t, s).call(code, nil, []byte("a=b"))
		require.Equal(t, command.RespRequestCodeNotSupported, a.code)
		require.Contains(t, a.remark, "fixed by the program")
	}
	s = newServer(t, func(p *Params) {
		p.Properties = func() []byte { return []byte("a=b\n") }
		p.Update = func(text []byte) (string, error) {
			if string(text) != "a=c" {
				return "", errors.New("a must be c")
			}
			return "a: b -> c", nil
		}
	})
	c := open(t, s)
	a := c.call(command.ReqGetNamesrvConfig, nil, nil)
	require.Zero(t, a.code)
	require.Equal(t, "a=b\n", a.body)
	a = c.call(command.ReqUpdateNamesrvConfig, nil, []byte("a=c"))
	require.Zero(t, a.code)
	require.Equal(t, "a: b -> c", a.remark)
	a = c.call(command.ReqUpdateNamesrvConfig, nil, []byte("a=d"))
	require.Equal(t, command.RespSystemError, a.code)
	require.Equal(t, "a must be c", a.remark)
}

// A configuration that changes while brokers and clients are there has effect at once;
// the time after which a silent broker is forgotten with its next registration.
func TestSetConfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		c, b := open(t, s), open(t, s)
		b.register(masterA)
		require.NoError(t, s.kv.set(orderNamespace, "A", "a:4", false))
		require.Empty(t, c.route("A").OrderTopicConf)
		list := func(code int32) int32 { return c.call(code, ext{"cluster": "C"}, nil).code }
		require.Zero(t, list(command.ReqGetAllTopicListFromNameserver))
		require.Zero(t, list(command.ReqGetTopicsByCluster))

		next := NewDefaultConfig()
		next.OrderMessageEnable, next.EnableAllTopicList, next.EnableTopicList = true, false, false
		next.BrokerExpiry, next.ScanInterval = 10*time.Second, time.Second
		require.NoError(t, s.SetConfig(next))
		require.Equal(t, "a:4", c.route("A").OrderTopicConf, "the answer that was encoded before is stale")
		require.Equal(t, command.RespSystemError, list(command.ReqGetAllTopicListFromNameserver))
		require.Equal(t, command.RespSystemError, list(command.ReqGetTopicsByCluster))
		b.register(masterA)
		pass := func(d time.Duration) {
			<-time.After(d) // of the clock of synctest
			synctest.Wait()
		}
		pass(9 * time.Second)
		require.NotNil(t, c.route("A"))
		pass(3 * time.Second)
		require.Nil(t, c.route("A"))

		next.ScanInterval = 0
		require.ErrorContains(t, s.SetConfig(next), "scanNotActiveBrokerInterval")
	})
}
