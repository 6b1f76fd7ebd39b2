package nameserver

import (
	"context"
	"crypto/tls"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/fx"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/core/wiring"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a transport that notes what happens to it.
type fake struct {
	events *[]string
	fail   string
}

func (f fake) note(e string) error {
	*f.events = append(*f.events, e)
	if e == f.fail {
		return errors.New("fails as told")
	}
	return nil
}

func (f fake) Start(context.Context) error          { return f.note("start") }
func (f fake) Shutdown(context.Context) error       { return f.note("shutdown") }
func (f fake) Address() string                      { return "10.0.0.1:9876" }
func (f fake) Drain(context.Context) error          { return f.note("drain") }
func (f fake) Close() error                         { return f.note("close") }
func (f fake) Capabilities() transport.Capabilities { return transport.Capabilities{Dialer: f} }

func (f fake) Serve(_ context.Context, l transport.Listen, s transport.Services) (transport.Listener, error) {
	if err := f.note("serve " + l.Address); err != nil {
		return nil, err
	}
	if s.Frames == nil {
		return nil, errors.New("no handler")
	}
	return f, nil
}

func (f fake) Dial(context.Context, string, transport.Limits, *tls.Config, transport.Handler) (transport.Peer, error) {
	return nil, transport.ErrClosed
}

func factory(f fake) transport.Factory {
	return transport.NewFactory("fake",
		func(struct{}) plugin.Description { return plugin.Description{Facets: []string{transport.FacetDialer}} },
		func() struct{} { return struct{}{} },
		func(context.Context, transport.Params, struct{}) (fake, error) { return f, nil })
}

func fakeConfig() Config {
	c := NewDefaultConfig()
	c.Transport, c.Listen.Address = "fake", "x"
	return c
}

func TestModule(t *testing.T) {
	var events []string
	var s *Server
	app, err := wiring.New(wiring.Options{}, wiring.Transport(factory(fake{events: &events})), fx.Supply(fakeConfig()), Module, fx.Populate(&s))
	require.NoError(t, err)
	require.Empty(t, events)
	require.Empty(t, s.Address())
	require.NoError(t, app.Start(t.Context()))
	require.Equal(t, "10.0.0.1:9876", s.Address())
	require.NoError(t, app.Stop(t.Context()))
	require.Equal(t, []string{"start", "serve x", "close", "shutdown"}, events)
	require.NoError(t, s.Shutdown(t.Context()), "twice is legal")
}

func TestUnknownTransport(t *testing.T) {
	_, err := wiring.New(wiring.Options{}, fx.Supply(NewDefaultConfig()), Module)
	require.ErrorIs(t, err, wiring.ErrUnknownPlugin)
}

func TestStartThatFails(t *testing.T) {
	for _, tc := range []struct{ fail, message string }{{"start", "transport fake: fails"}, {"serve x", "namesrvListen x: fails"}} {
		var events []string
		s, err := New(t.Context(), plugin.Settings{}, fakeConfig(), factory(fake{&events, tc.fail}))
		require.NoError(t, err)
		require.ErrorContains(t, s.Start(t.Context()), tc.message)
		require.Equal(t, "shutdown", events[len(events)-1], "what was taken is released")
	}
}

func TestConfig(t *testing.T) {
	err := Config{}.Validate()
	for _, word := range []string{"transport", "namesrvListen", "scanNotActiveBrokerInterval", "brokerChannelExpiredTime"} {
		require.ErrorContains(t, err, word)
	}
	require.NoError(t, NewDefaultConfig().Validate())
	_, err = New(t.Context(), plugin.Settings{}, Config{}, nil)
	require.ErrorContains(t, err, "name server: ")
}

func TestFromConfig(t *testing.T) {
	l, err := config.Load(config.Options{Mode: config.Namesrv, Hostname: "h", Env: []string{
		"HARDPOINT_DATA=/data", "HARDPOINT_NAMESRV_LISTEN=127.0.0.1:1", "HARDPOINT_SCAN_NOT_ACTIVE_BROKER_INTERVAL=20ms",
		"HARDPOINT_BROKER_CHANNEL_EXPIRED_TIME=300ms", "HARDPOINT_ORDER_MESSAGE_ENABLE=true",
		"HARDPOINT_ENABLE_ALL_TOPIC_LIST=false", "HARDPOINT_ENABLE_TOPIC_LIST=false",
	}})
	require.NoError(t, err)
	c, err := FromConfig(&l.Config, transport.Limits{Connections: 7})
	require.NoError(t, err)
	require.Equal(t, Config{
		Dir: filepath.Join("/data", "namesrv"), Transport: "remoting",
		Listen:       transport.Listen{Address: "127.0.0.1:1", Limits: transport.Limits{Connections: 7}},
		ScanInterval: 20 * time.Millisecond, BrokerExpiry: 300 * time.Millisecond, OrderMessageEnable: true,
	}, c)

	l, err = config.Load(config.Options{Mode: config.Namesrv, Hostname: "h"})
	require.NoError(t, err)
	c, err = FromConfig(&l.Config, transport.Limits{})
	require.NoError(t, err)
	want := NewDefaultConfig()
	want.Dir = filepath.Join("data", "namesrv")
	require.Equal(t, want, c, "the defaults of the keys are those of the name server")
}
