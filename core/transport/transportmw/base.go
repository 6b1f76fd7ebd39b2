package transportmw

import (
	"context"
	"crypto/tls"

	"github.com/hardpointmq/hardpoint/core/transport"
)

// Base forwards to a transport and offers no facet.
type Base struct{ transport.Transport }

// Capabilities implements [transport.Transport]: nothing is offered.
func (Base) Capabilities() transport.Capabilities { return transport.Capabilities{} }

// wrapped is a transport whose handlers, at both ends, are wrapped.
type wrapped struct {
	Base
	// wrap is given each handler that is to serve peers.
	wrap func(transport.Handler) *handler
	// before may refuse Serve and Dial; nil: never.
	before func(op, address string) error
}

// Serve implements [transport.Transport].
func (w *wrapped) Serve(ctx context.Context, l transport.Listen, s transport.Services) (transport.Listener, error) {
	if w.before != nil {
		if err := w.before(OpServe, l.Address); err != nil {
			return nil, err
		}
	}
	if s.Frames != nil {
		s.Frames = w.wrap(s.Frames)
	}
	return w.Transport.Serve(ctx, l, s)
}

// Capabilities implements [transport.Transport]: the Dialer is wrapped, Health and
// Reloader are passed on.
func (w *wrapped) Capabilities() transport.Capabilities {
	inner := w.Transport.Capabilities()
	c := transport.Capabilities{Health: inner.Health, Reloader: inner.Reloader}
	if inner.Dialer != nil {
		c.Dialer = &dialer{w: w, d: inner.Dialer}
	}
	return c
}

type dialer struct {
	w *wrapped
	d transport.Dialer
}

// Dial implements [transport.Dialer].
func (d *dialer) Dial(ctx context.Context, address string, lim transport.Limits, conf *tls.Config, h transport.Handler) (transport.Peer, error) {
	if d.w.before != nil {
		if err := d.w.before(OpDial, address); err != nil {
			return nil, err
		}
	}
	var peer transport.Peer // the one that the engine knows
	wh := d.w.wrap(h)
	wh.dialled = func(p transport.Peer) { peer = p }
	if _, err := d.d.Dial(ctx, address, lim, conf, wh); err != nil {
		return nil, err
	}
	return peer, nil
}

// handler passes to the engine a peer and takes from it a session that are
// wrapped. A nil function wraps nothing.
type handler struct {
	transport.Handler
	peer    func(transport.Peer) transport.Peer
	session func(transport.Session) transport.Session
	// dialled is told the peer that the engine got; nil on a server.
	dialled func(transport.Peer)
}

// Opened implements [transport.Handler].
func (h *handler) Opened(p transport.Peer) transport.Session {
	if h.peer != nil {
		p = h.peer(p)
	}
	if h.dialled != nil {
		h.dialled(p)
	}
	s := h.Handler.Opened(p)
	if h.session != nil {
		s = h.session(s)
	}
	return s
}
