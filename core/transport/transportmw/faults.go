package transportmw

import (
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/transport"
)

// Operations that [Faults] can refuse.
const (
	OpServe = "Serve"
	OpDial  = "Dial"
	OpSend  = "Send"
)

// Faults asks fail before each Serve, Dial and Send, with the operation and the
// address (a peer's for Send). An error comes back instead of the operation;
// an error of a Send closes the peer, as the contract demands. fail must be safe
// for concurrent use and must not block.
func Faults(t transport.Transport, fail func(op, address string) error) transport.Transport {
	return &wrapped{Base: Base{t}, before: fail, wrap: func(h transport.Handler) *handler {
		return &handler{
			Handler: h,
			peer:    func(p transport.Peer) transport.Peer { return &faultyPeer{Peer: p, fail: fail} },
		}
	}}
}

type faultyPeer struct {
	transport.Peer
	fail func(op, address string) error
}

// Send implements [transport.Peer].
func (p *faultyPeer) Send(out ...command.Frame) error {
	if err := p.fail(OpSend, p.Remote().String()); err != nil {
		_ = p.Close()
		return err
	}
	return p.Peer.Send(out...)
}
