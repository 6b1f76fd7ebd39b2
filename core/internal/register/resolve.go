package register

import (
	"context"
	"net"
	"net/netip"
	"slices"
)

// hostName is the host of addr if it is a name, else empty.
func hostName(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return ""
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return ""
	}
	return host
}

// watch looks up the host name of a name server every resolvePeriod and tells run.
func (k *keeper) watch(ctx context.Context, host string) {
	timer := k.r.p.Clock.NewTimer(resolvePeriod)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C():
		}
		within, cancel := context.WithTimeout(ctx, k.r.p.ConnectTimeout)
		addrs, err := k.r.p.Resolve(within, host)
		cancel()
		if err == nil && len(addrs) > 0 { // else nothing is known, and the connection is as good as it was
			select {
			case k.resolved <- addrs:
			case <-ctx.Done():
				return
			}
		}
		timer.Reset(resolvePeriod)
	}
}

// follow goes over to where the name server is now, if the connection leads elsewhere: an
// old machine may answer for long after the name was given to another one. The old
// connection is kept until the broker is registered over the new one, and if there is no
// new one: then it is tried again after the next look-up.
func (k *keeper) follow(ctx context.Context, now []netip.Addr) {
	if k.link == nil || slices.ContainsFunc(now, func(a netip.Addr) bool { return plain(a) == remote(k.link.Peer()) }) {
		return
	}
	l, err := k.dial(ctx)
	if err != nil {
		return
	}
	old := k.link
	if remote(l.Peer()) == remote(old.Peer()) {
		_ = l.Close() // an error says that it is closed already
		return
	}
	k.r.p.Logger.Info("name server moved", "nameserver", k.addr, "from", remote(old.Peer()), "to", remote(l.Peer()))
	k.use(l)
	k.round(ctx)
	_ = old.Close() // an error says that it is closed already
}

func remote(p interface{ Remote() netip.AddrPort }) netip.Addr { return plain(p.Remote().Addr()) }

// plain is an address as it is compared.
func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }
