package config

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func iface(name string, up bool, addrs ...string) Interface {
	i := Interface{Name: name, Up: up}
	for _, a := range addrs {
		i.Addrs = append(i.Addrs, netip.MustParseAddr(a))
	}
	return i
}

func TestChooseAdvertise(t *testing.T) {
	lo := iface("lo", true, "127.0.0.1", "::1")
	machine := []Interface{lo, iface("down0", false, "10.9.9.9"), iface("eth0", true, "fe80::1", "2001:db8::5", "169.254.1.1", "10.0.0.5"), iface("eth1", true, "192.168.1.5")}
	rows := []struct {
		name, listen, advertise string
		dev                     bool
		ifs                     []Interface
		want, reason, fails     string
	}{
		{name: "wildcard takes the first IPv4", listen: ":10911", ifs: machine, want: "10.0.0.5:10911", reason: "eth0"},
		{name: "and names the others", listen: "[::]:10911", ifs: machine, want: "10.0.0.5:10911", reason: "192.168.1.5 (eth1), 2001:db8::5 (eth0)"},
		{name: "IPv6 when there is nothing else", listen: "[::]:10911", ifs: []Interface{lo, iface("e", true, "2001:db8::5")}, want: "[2001:db8::5]:10911", reason: "first address"},
		{name: "not IPv6 when listening on IPv4", listen: "0.0.0.0:10911", ifs: []Interface{lo, iface("e", true, "2001:db8::5")}, fails: "set advertise"},
		{name: "mapped address", listen: ":1", ifs: []Interface{iface("e", true, "::ffff:10.1.2.3")}, want: "10.1.2.3:1", reason: "first"},
		{name: "no interface", listen: ":10911", ifs: []Interface{lo, iface("e", true, "fe80::1")}, fails: "--dev"},
		{name: "no interface in dev", listen: ":10911", dev: true, ifs: []Interface{lo}, want: "127.0.0.1:10911", reason: "development mode"},
		{name: "dev prefers loopback", listen: ":10911", dev: true, ifs: machine, want: "127.0.0.1:10911", reason: "development mode"},
		{name: "specific listen address", listen: "10.0.0.7:10911", ifs: machine, want: "10.0.0.7:10911", reason: "listens on"},
		{name: "specific IPv6", listen: "[2001:db8::7]:10911", ifs: machine, want: "[2001:db8::7]:10911", reason: "listens on"},
		{name: "loopback listen", listen: "127.0.0.1:10911", ifs: machine, want: "127.0.0.1:10911", reason: "listens on"},
		{name: "IPv6 loopback listen", listen: "[::1]:10911", ifs: machine, want: "[::1]:10911", reason: "listens on"},
		{name: "listen on a name", listen: "broker.example:10911", ifs: machine, want: "broker.example:10911", reason: "listens on"},
		{name: "wish with port", listen: ":10911", advertise: "203.0.113.9:30911", ifs: machine, want: "203.0.113.9:30911", reason: "asked for"},
		{name: "wish without port", listen: ":10911", advertise: "203.0.113.9", ifs: machine, want: "203.0.113.9:10911", reason: "asked for"},
		{name: "wish IPv6 bare", listen: ":10911", advertise: "2001:db8::9", ifs: machine, want: "[2001:db8::9]:10911", reason: "asked for"},
		{name: "wish IPv6 in brackets", listen: ":10911", advertise: "[2001:db8::9]", ifs: machine, want: "[2001:db8::9]:10911", reason: "asked for"},
		{name: "wish IPv6 with port", listen: ":10911", advertise: "[2001:db8::9]:1", ifs: machine, want: "[2001:db8::9]:1", reason: "asked for"},
		{name: "wish name", listen: ":10911", advertise: "broker.example", ifs: machine, want: "broker.example:10911", reason: "asked for"},
		{name: "name without address", listen: ":10911", advertise: "nowhere.example", ifs: machine, fails: "no such host"},
		{name: "wish wildcard", listen: ":10911", advertise: "0.0.0.0", ifs: machine, fails: "wildcard"},
		{name: "wish wildcard in dev", listen: ":10911", advertise: "[::]:1", dev: true, ifs: machine, fails: "wildcard"},
		{name: "wish mapped wildcard", listen: ":10911", advertise: "[::ffff:0.0.0.0]:1", ifs: machine, fails: "wildcard"},
		{name: "name that is the wildcard", listen: ":10911", advertise: "zero.example", ifs: machine, fails: "wildcard"},
		{name: "wish loopback", listen: ":10911", advertise: "127.0.0.2:10911", ifs: machine, fails: "loopback"},
		{name: "wish localhost", listen: ":10911", advertise: "localhost", ifs: machine, fails: "loopback"},
		{name: "wish loopback in dev", listen: ":10911", advertise: "127.0.0.2:10911", dev: true, ifs: machine, want: "127.0.0.2:10911", reason: "asked for"},
		{name: "wish loopback on loopback", listen: "127.0.0.1:10911", advertise: "127.0.0.1", ifs: machine, want: "127.0.0.1:10911", reason: "asked for"},
		{name: "name that is loopback", listen: ":10911", advertise: "here.example", ifs: machine, fails: "it resolves to 127.0.1.1: 127.0.1.1 is a loopback address"},
		{name: "wish multicast", listen: ":10911", advertise: "224.0.0.1", ifs: machine, fails: "multicast"},
		{name: "port not known yet", listen: "10.0.0.7:0", ifs: machine, fails: "port"},
		{name: "listen is nonsense", listen: "x", ifs: machine, fails: "listen"},
	}
	lookup := func(_ context.Context, host string) ([]netip.Addr, error) {
		switch host {
		case "broker.example":
			return []netip.Addr{netip.MustParseAddr("2001:db8::9"), netip.MustParseAddr("203.0.113.9")}, nil
		case "zero.example":
			return []netip.Addr{netip.MustParseAddr("0.0.0.0")}, nil
		case "here.example":
			return []netip.Addr{netip.MustParseAddr("127.0.1.1")}, nil
		case "localhost":
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		default:
			return nil, errors.New("no such host")
		}
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			got, err := ChooseAdvertise(t.Context(), AddressOptions{Listen: r.listen, Advertise: r.advertise, Dev: r.dev, Lookup: lookup,
				Interfaces: func() ([]Interface, error) { return r.ifs, nil }})
			if r.fails != "" {
				require.ErrorIs(t, err, ErrAddress)
				require.ErrorContains(t, err, r.fails)
				return
			}
			require.NoError(t, err)
			require.Equal(t, r.want, got.Addr)
			require.Contains(t, got.Reason, r.reason)
			require.False(t, got.IP.Addr().IsUnspecified())
			require.NotZero(t, got.IP.Port())
		})
	}
	_, err := ChooseAdvertise(t.Context(), AddressOptions{Listen: ":1", Interfaces: func() ([]Interface, error) { return nil, errors.New("forbidden") }})
	require.ErrorContains(t, err, "forbidden")
	_, err = systemInterfaces()
	require.NoError(t, err)
}

// TestCheckAdvertise: what a start will refuse is known before it, with the place.
func TestCheckAdvertise(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "",
		"brokerIP1=192.0.2.1":                "",
		"advertise=somewhere.example":        "", // nothing is looked up
		"listenPort=1\nbrokerIP1=127.0.0.1":  `:2: brokerIP1 = "127.0.0.1": no address to advertise: 127.0.0.1 is a loopback address`,
		"advertise=localhost:1":              `:1: advertise = "localhost:1": no address to advertise: localhost is a loopback address`,
		"\n\nadvertise=0.0.0.0":              `:3: advertise = "0.0.0.0": no address to advertise: a wildcard`,
		"dev=true\nadvertise=[::]:7":         `:2: advertise = "[::]:7": no address to advertise: a wildcard`,
		"brokerIP1=224.0.0.1":                "multicast",
		"dev=true\nbrokerIP1=127.0.0.1":      "",
		"brokerIP1=::1\nbindAddress=::1":     "",
		"brokerIP1=127.0.0.1\nlisten=here:1": "", // the name may stand for loopback
	} {
		l, err := loadText(t, Broker, "broker.conf", text)
		require.NoError(t, err, text)
		err = l.Config.CheckAdvertise()
		if want == "" {
			require.NoError(t, err, text)
			continue
		}
		require.ErrorIs(t, err, ErrAddress, text)
		require.ErrorContains(t, err, want)
	}
	l, err := Load(Options{Mode: Broker, File: write(t, "broker.conf", "brokerIP1=192.0.2.1"), Flags: parseFlags(t, "--advertise", "127.0.0.1")})
	require.NoError(t, err)
	require.ErrorContains(t, l.Config.CheckAdvertise(), `flag --advertise: advertise = "127.0.0.1": no address`)
}

func TestAddressParts(t *testing.T) {
	for in, want := range map[string][2]any{
		"a:1": {"a", 1}, ":1": {"", 1}, "a": {"a", 0}, "[::1]:7": {"::1", 7}, "[::1]": {"::1", 0}, "::1": {"::1", 0}, "10.0.0.1": {"10.0.0.1", 0}, "": {"", 0},
	} {
		require.Equal(t, want[0], hostOf(in), in)
		require.Equal(t, want[1], portOf(in), in)
	}
}

func TestLocalOf(t *testing.T) {
	for listen, want := range map[string]string{
		"[::]:9876": "127.0.0.1:9876", "0.0.0.0:1": "127.0.0.1:1", ":2": "127.0.0.1:2", "10.0.0.1:3": "10.0.0.1:3", "[::1]:4": "[::1]:4", "a name": "a name",
	} {
		require.Equal(t, want, LocalOf(listen))
	}
}
