package transportwire

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
	"github.com/hardpointmq/hardpoint/sdk/wire/transportwire/transportpb"
)

// Kinds of frames, see doc.go.
const (
	kindOpened data.Kind = iota + 1
	kindArrived
	kindClosed
	kindTook
	kindSend
	kindClose
	kindMark
	lastKind = kindMark
)

// roles of the connections of a data socket.
const roles = "T"

const (
	// maxNote bounds the bodies of Opened and Closed.
	maxNote = 1 << 20
	// readSize is how much is read at once.
	readSize = 64 << 10
)

// opened is the body of Opened.
type opened struct {
	origin        uint64 // the host's number of the listener or dial
	id            string
	remote, local netip.AddrPort
	who           transport.Identity
}

func putOpened(b []byte, o *opened) []byte {
	b = data.PutUint(b, o.origin)
	b = data.PutString(b, o.id)
	for _, a := range []netip.AddrPort{o.remote, o.local} {
		raw, _ := a.MarshalBinary() // never fails
		b = data.PutString(b, raw)
	}
	b = data.PutString(b, o.who.Name)
	b = data.PutBool(b, o.who.TLS)
	b = data.PutUint(b, uint64(len(o.who.Attributes)))
	for k, v := range o.who.Attributes {
		b = data.PutString(data.PutString(b, k), v)
	}
	return b
}

func readOpened(body []byte) (o opened, err error) {
	d := data.Decoder{B: body}
	o.origin = d.Uint()
	o.id = string(d.Bytes())
	for _, a := range []*netip.AddrPort{&o.remote, &o.local} {
		raw := d.Bytes()
		if d.Fault || len(raw) == 0 {
			continue
		}
		if err := a.UnmarshalBinary(raw); err != nil {
			return o, fmt.Errorf("%w: an address: %w", data.ErrFrame, err)
		}
	}
	o.who.Name = string(d.Bytes())
	o.who.TLS = d.Uint() != 0
	if n := d.Count(2); n > 0 {
		o.who.Attributes = make(map[string]string, n)
		for range n {
			k := string(d.Bytes())
			o.who.Attributes[k] = string(d.Bytes())
		}
	}
	if err := d.Done("Opened"); err != nil {
		return o, err
	}
	if o.id == "" {
		return o, fmt.Errorf("%w: a peer without an ID", data.ErrFrame)
	}
	return o, nil
}

var errNoReason = errors.New("the plugin gave no reason")

// readFailure is never nil: a peer is closed for a reason.
func readFailure(b []byte) (failure, err error) {
	if failure, err = data.ReadFailure(b); failure == nil && err == nil {
		failure = errNoReason
	}
	return failure, err
}

func toLimits(l transport.Limits) *transportpb.Limits {
	return &transportpb.Limits{
		Frame: int64(l.Frame), Header: int64(l.Header), Connections: int64(l.Connections), PeerBytes: int64(l.PeerBytes),
		TotalBytes: l.TotalBytes, ReadBytes: l.ReadBytes, Idle: int64(l.Idle),
	}
}
