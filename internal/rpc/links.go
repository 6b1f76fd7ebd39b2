package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/transport"
)

// ErrNoDialer: the transport cannot connect. Test with errors.Is.
var ErrNoDialer = errors.New("the transport cannot connect to others")

// ErrConnect: no connection could be made. Test with errors.Is.
var ErrConnect = errors.New("connecting failed")

// Links are connections to servers, made when needed, one to an address. Those that
// ended are forgotten when one to another address is made: addresses change as
// brokers come and go. They are safe for concurrent use.
type Links struct {
	dialer func() transport.Dialer
	opt    Options

	mu     sync.Mutex
	m      map[string]*link
	closed bool
}

// NewLinks makes an empty set; dialer is asked at each connection, and may return nil.
// Without o.Requests what the other ends ask is passed over.
func NewLinks(dialer func() transport.Dialer, o Options) *Links {
	if o.Requests == nil {
		o.Requests = func(transport.Peer, *command.Header, *command.Frame) {} // nothing that needs an answer
	}
	return &Links{dialer: dialer, opt: o}
}

type link struct {
	users int // calls that have it; under links.mu

	mu sync.Mutex // one dials, the others wait for it
	c  *Client
}

// ended: nobody uses the link, nor could without connecting anew. Call it with
// links.mu held.
func (k *link) ended() bool {
	if k.users > 0 {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.c == nil || k.c.Err() != nil
}

// Call asks the server at an address; ctx bounds connecting and waiting. A connection
// that was there and broke is made anew once, and the server is asked again: it may have
// heard the question before. Errors are those of [Table.Call], ErrNoDialer, and such that
// match ErrConnect when there is no connection.
func (l *Links) Call(ctx context.Context, address string, b Build) (*Response, error) {
	k, err := l.at(address)
	if err != nil {
		return nil, err
	}
	defer l.leave(k)
	for again := true; ; again = false {
		c, old, err := k.client(ctx, l, address)
		if err != nil {
			return nil, err
		}
		r, err := c.Call(ctx, b)
		if err == nil || !old || !again || !errors.Is(err, transport.ErrClosed) {
			return r, err
		}
	}
}

// at is the link to an address, for one who says when he has done with it.
func (l *Links) at(address string) (*link, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, transport.ErrClosed
	}
	if l.m == nil {
		l.m = map[string]*link{}
	}
	k := l.m[address]
	if k == nil {
		for other, o := range l.m {
			if o.ended() {
				delete(l.m, other)
			}
		}
		k = &link{}
		l.m[address] = k
	}
	k.users++
	return k, nil
}

func (l *Links) leave(k *link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k.users--
}

// connectError is what a failed dial is.
type connectError struct {
	address string
	err     error
}

// Error names the address once, whatever the layers below add to it.
func (e *connectError) Error() string {
	why := e.err
	var op *net.OpError
	if errors.As(why, &op) {
		why = op.Err
	}
	return fmt.Sprintf("connecting to %s: %v", e.address, why)
}

func (e *connectError) Unwrap() []error { return []error{ErrConnect, e.err} }

// client is the connection; old: it was there before.
func (k *link) client(ctx context.Context, l *Links, address string) (c *Client, old bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.c != nil && k.c.Err() == nil {
		return k.c, true, nil
	}
	var d transport.Dialer
	if l.dialer != nil {
		d = l.dialer()
	}
	if d == nil {
		return nil, false, ErrNoDialer
	}
	c, err = Dial(ctx, d, address, l.opt)
	if err != nil {
		return nil, false, &connectError{address, err}
	}
	l.mu.Lock()
	closed := l.closed
	l.mu.Unlock()
	if closed {
		_ = c.Close()
		return nil, false, transport.ErrClosed
	}
	k.c = c
	return c, false, nil
}

// Close closes all connections and waits until they are; calls fail from then on.
func (l *Links) Close() {
	l.mu.Lock()
	l.closed = true
	all := l.m
	l.m = nil
	l.mu.Unlock()
	for _, k := range all {
		k.mu.Lock()
		if k.c != nil {
			_ = k.c.Close() // an error says that it is closed already
			<-k.c.Done()
		}
		k.mu.Unlock()
	}
}
