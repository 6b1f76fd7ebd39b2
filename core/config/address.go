package config

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// ErrAddress marks every error of [ChooseAdvertise] and [Config.CheckAdvertise].
var ErrAddress = errors.New("no address to advertise")

// Interface is a network interface with its addresses.
type Interface struct {
	Name  string
	Up    bool
	Addrs []netip.Addr
}

// AddressOptions is what [ChooseAdvertise] decides by.
type AddressOptions struct {
	// Listen is the address on which the broker listens, with its real port.
	Listen string
	// Advertise is what the user asked for: host, host:port, or empty.
	Advertise string
	// Dev allows loopback.
	Dev bool
	// Interfaces lists the machine's interfaces; nil means the system's.
	Interfaces func() ([]Interface, error)
	// Lookup resolves a host name; nil means the system's resolver.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
}

// Advertised is the address that clients are told to use.
type Advertised struct {
	// Addr is host:port as it goes into routes; the host may be a name.
	Addr string
	// IP is the same as a number, for store hosts and message ids.
	IP netip.AddrPort
	// Reason says in a sentence why it was chosen, for the log at start.
	Reason string
}

// ChooseAdvertise decides what a broker advertises. A wildcard never is; a
// loopback address only in development mode or when the broker listens on
// loopback itself. Without a wish it is the listen address when that is a
// specific one, else the first global unicast address of an interface that is
// up, IPv4 before IPv6. It may block in Lookup until ctx ends. Errors match
// [ErrAddress] and say what to set.
func ChooseAdvertise(ctx context.Context, o AddressOptions) (Advertised, error) {
	host, port, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return Advertised{}, fmt.Errorf("%w: listen %q: %w", ErrAddress, o.Listen, err)
	}
	if o.Interfaces == nil {
		o.Interfaces = systemInterfaces
	}
	if o.Lookup == nil {
		o.Lookup = systemLookup
	}
	loopbackOK := o.Dev || isLoopbackHost(host)
	if o.Advertise != "" {
		return o.wished(ctx, port, loopbackOK)
	}
	if !isWildcard(host) {
		ip, err := o.resolve(ctx, host)
		if err != nil {
			return Advertised{}, fmt.Errorf("%w: listen %q: %w", ErrAddress, o.Listen, err)
		}
		return advertised(host, port, ip, "it is the address that the broker listens on")
	}
	if o.Dev {
		loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
		return advertised(loopback.String(), port, loopback, "development mode advertises loopback when nothing else is asked for")
	}
	return o.first(host, port)
}

// wished checks what the user asked for.
func (o AddressOptions) wished(ctx context.Context, port string, loopbackOK bool) (Advertised, error) {
	host := hostOf(o.Advertise)
	if p := portOf(o.Advertise); p > 0 {
		port = strconv.Itoa(p)
	}
	fail := func(format string, args ...any) (Advertised, error) {
		return Advertised{}, fmt.Errorf("%w: advertise %q: %s", ErrAddress, o.Advertise, fmt.Sprintf(format, args...))
	}
	if why := unreachable(host, loopbackOK); why != "" {
		return fail("%s", why)
	}
	ip, err := o.resolve(ctx, host)
	if err != nil {
		return fail("%v", err)
	}
	if why := unreachable(ip.String(), loopbackOK); why != "" {
		return fail("it resolves to %s: %s", ip, why)
	}
	return advertised(host, port, ip, "it was asked for (advertise, or brokerIP1)")
}

// unreachable says why clients could not connect to what the user asked for, as far as
// the host tells without a look-up; empty: nothing is known against it.
func unreachable(host string, loopbackOK bool) string {
	ip, err := netip.ParseAddr(host)
	switch {
	case isWildcard(host):
		return "a wildcard is nothing a client can connect to; name an address of this machine that clients reach"
	case err == nil && ip.Unmap().IsMulticast():
		return fmt.Sprintf("%s is a multicast address", host)
	case isLoopbackHost(host) && !loopbackOK:
		return fmt.Sprintf("%s is a loopback address and reaches this machine only; name another one, listen on loopback, or use --dev", host)
	}
	return ""
}

// CheckAdvertise is what [ChooseAdvertise] will have against the advertised address that
// was asked for, with the place where that was, as far as nothing has to be looked up for
// it: names are not resolved. The error is an [*Error] that matches [ErrAddress].
func (c *Config) CheckAdvertise() error {
	n := c.Network
	host, _, err := net.SplitHostPort(n.Listen)
	if err != nil || n.Advertise == "" {
		return nil // an address without a port, or the broker chooses
	}
	_, noName := netip.ParseAddr(host)
	loopbackOK := c.Node.Dev || isLoopbackHost(host) || noName != nil && !isWildcard(host) // that a name may stand for
	why := unreachable(hostOf(n.Advertise), loopbackOK)
	if why == "" {
		return nil
	}
	key, src := "advertise", c.origin["advertise"]
	if src != (Source{}) && c.origin["brokerIP1"] == src {
		key = "brokerIP1"
	}
	return &Error{Kind: ErrAddress, Key: key, Value: n.Advertise, Source: src, Reason: why}
}

func advertised(host, port string, ip netip.Addr, reason string) (Advertised, error) {
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return Advertised{}, fmt.Errorf("%w: port %q is not one that clients can connect to", ErrAddress, port)
	}
	return Advertised{net.JoinHostPort(host, port), netip.AddrPortFrom(ip, uint16(n)), reason}, nil
}

// first picks an interface's address for a wildcard listener.
func (o AddressOptions) first(listenHost, port string) (Advertised, error) {
	ifs, err := o.Interfaces()
	if err != nil {
		return Advertised{}, fmt.Errorf("%w: the interfaces of this machine cannot be listed (%w); set advertise", ErrAddress, err)
	}
	only4 := listenHost == "0.0.0.0" // Go listens on IPv4 alone then
	type candidate struct {
		ip netip.Addr
		on string
	}
	var v4, v6 []candidate
	for _, i := range ifs {
		if !i.Up {
			continue
		}
		for _, a := range i.Addrs {
			a = a.Unmap().WithZone("")
			switch {
			case !a.IsGlobalUnicast():
			case a.Is4():
				v4 = append(v4, candidate{a, i.Name})
			case !only4:
				v6 = append(v6, candidate{a, i.Name})
			}
		}
	}
	all := append(v4, v6...)
	if len(all) == 0 {
		return Advertised{}, fmt.Errorf("%w: this machine has no address but loopback and link-local ones; set advertise, or use --dev for clients on this machine", ErrAddress)
	}
	reason := fmt.Sprintf("it is the first address of this machine that is neither loopback nor link-local (%s)", all[0].on)
	if len(all) > 1 {
		rest := make([]string, 0, len(all)-1)
		for _, c := range all[1:] {
			rest = append(rest, c.ip.String()+" ("+c.on+")")
		}
		reason += "; set advertise to use another one: " + strings.Join(rest, ", ")
	}
	return advertised(all[0].ip.String(), port, all[0].ip, reason)
}

func (o AddressOptions) resolve(ctx context.Context, host string) (netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap(), nil
	}
	ips, err := o.Lookup(ctx, host)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("host name %q: %w", host, err)
	}
	if len(ips) == 0 {
		return netip.Addr{}, fmt.Errorf("host name %q has no address", host)
	}
	for _, ip := range ips { // every client of RocketMQ speaks IPv4
		if ip.Unmap().Is4() {
			return ip.Unmap(), nil
		}
	}
	return ips[0], nil
}

func systemLookup(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

func systemInterfaces() ([]Interface, error) {
	ifs, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	out := make([]Interface, 0, len(ifs))
	for _, i := range ifs {
		addrs, err := i.Addrs()
		if err != nil {
			continue // an interface that went away meanwhile
		}
		n := Interface{Name: i.Name, Up: i.Flags&net.FlagUp != 0}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				n.Addrs = append(n.Addrs, p.Addr())
			}
		}
		out = append(out, n)
	}
	return out, nil
}

// hostOf is the host of HOST, HOST:PORT, [IPV6] or [IPV6]:PORT.
func hostOf(addr string) string {
	if hasPort(addr) {
		if h, _, err := net.SplitHostPort(addr); err == nil {
			return h
		}
	}
	return strings.TrimSuffix(strings.TrimPrefix(addr, "["), "]")
}

// portOf is the port of an address, 0 when it has none.
func portOf(addr string) int {
	if !hasPort(addr) {
		return 0
	}
	_, p, err := net.SplitHostPort(addr)
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(p)
	return n
}

// LocalOf is how a process reaches the listener of this machine at an address: on loopback
// where that is a wildcard. What has no port is returned as it is.
func LocalOf(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil || !isWildcard(host) {
		return listen
	}
	return net.JoinHostPort("127.0.0.1", port)
}

func isWildcard(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.Unmap().IsUnspecified()
}

func isLoopbackHost(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}
