package rpc

import (
	"context"
	"crypto/tls"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/transport"
)

// Options are what a Client can be told. The zero value will do.
type Options struct {
	Limits transport.Limits
	// TLS is how it connects; nil: as the transport's own configuration says.
	TLS *tls.Config
	// Requests takes what the other end asks. It runs on the reader, so it must
	// not block; h and f are lent until it returns. nil: such requests are
	// answered with RespRequestCodeNotSupported.
	Requests func(p transport.Peer, h *command.Header, f *command.Frame)
	// Closed is called once, last, on the reader. May be nil.
	Closed func(err error)
}

// Client is a connection over which requests are matched with responses. It is
// safe for concurrent use and starts no goroutine. It does not reconnect.
type Client struct {
	peer  transport.Peer
	opt   Options
	table Table
	done  chan struct{}
	cause error // valid when done is closed

	h       command.Header // the reader's
	refusal []byte
}

// Dial connects; ctx bounds connecting.
func Dial(ctx context.Context, d transport.Dialer, address string, o Options) (*Client, error) {
	c := &Client{opt: o, done: make(chan struct{})}
	if _, err := d.Dial(ctx, address, o.Limits, o.TLS, (*handler)(c)); err != nil {
		return nil, err
	}
	return c, nil
}

// Peer is the connection.
func (c *Client) Peer() transport.Peer { return c.peer }

// Call sends a request and waits for its response; see [Table.Call].
func (c *Client) Call(ctx context.Context, b Build) (*Response, error) {
	return c.table.Call(ctx, c.peer, b)
}

// Oneway sends a frame that nobody waits for.
func (c *Client) Oneway(b Build) error { return c.table.Send(c.peer, b) }

// Done is closed when the connection is; Err tells why then.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err is why the connection was closed, nil while it is open.
func (c *Client) Err() error {
	select {
	case <-c.done:
		return c.cause
	default:
		return nil
	}
}

// Close closes the connection; calls that wait fail at once.
func (c *Client) Close() error {
	err := c.peer.Close()
	c.table.Fail(transport.ErrClosed)
	return err
}

// handler is the Client as the transport sees it.
type handler Client

// Opened implements [transport.Handler].
func (h *handler) Opened(p transport.Peer) transport.Session {
	h.peer = p
	return h
}

// Settle implements [transport.Handler].
func (h *handler) Settle() {}

// Arrived implements [transport.Session].
func (h *handler) Arrived(in []command.Frame) {
	for i := range in {
		f := &in[i]
		switch err := h.h.Decode(f); {
		case err != nil:
			h.table.Fail(err)
			_ = h.peer.Close()
			return
		case h.h.IsResponse():
			h.table.Deliver(&h.h, f)
		case h.opt.Requests != nil:
			h.opt.Requests(h.peer, &h.h, f)
		case !h.h.IsOneway():
			h.refusal = command.AppendResponse(h.refusal[:0], f.Type, command.RespRequestCodeNotSupported, h.h.Opaque, "this client answers no requests", 0)
			// A peer that cannot be answered is closed, and Closed follows.
			_ = h.peer.Send(command.Frame{Header: h.refusal})
		}
	}
}

// Closed implements [transport.Session].
func (h *handler) Closed(err error) {
	h.table.Fail(err)
	h.cause = err
	close(h.done)
	if h.opt.Closed != nil {
		h.opt.Closed(err)
	}
}
