package enginetest

import (
	"net/netip"
	"sync/atomic"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/transport"
)

// NullPeer is a peer that counts what it is sent and keeps nothing, for
// benchmarks.
type NullPeer struct {
	Sends, Bytes atomic.Int64
}

// ID implements transport.Peer.
func (*NullPeer) ID() string { return "null" }

// Remote implements transport.Peer.
func (*NullPeer) Remote() netip.AddrPort { return netip.MustParseAddrPort("192.0.2.1:5555") }

// Local implements transport.Peer.
func (*NullPeer) Local() netip.AddrPort { return netip.MustParseAddrPort("192.0.2.2:10911") }

// Identity implements transport.Peer.
func (*NullPeer) Identity() transport.Identity { return transport.Identity{} }

// Send implements transport.Peer.
func (p *NullPeer) Send(out ...command.Frame) error {
	n := 0
	for i := range out {
		n += out[i].Len()
	}
	p.Sends.Add(1)
	p.Bytes.Add(int64(n))
	return nil
}

// Close implements transport.Peer.
func (*NullPeer) Close() error { return nil }
