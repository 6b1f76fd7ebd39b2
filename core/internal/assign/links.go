package assign

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/rpc"
	"github.com/hardpointmq/hardpoint/core/transport"
)

// errNoDialer: the transport of this broker cannot connect.
var errNoDialer = errors.New("the transport cannot connect to others")

// links are connections to other brokers and to name servers, made when needed.
// Those that ended are forgotten when one to another address is made: addresses
// change as brokers come and go.
type links struct {
	dialer func() transport.Dialer

	mu     sync.Mutex
	m      map[string]*link
	closed bool
}

type link struct {
	users int // calls that have it; under links.mu

	mu sync.Mutex // one dials, the others wait for it
	c  *rpc.Client
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

// call asks the peer at an address. A connection that broke since the last call is
// made anew once.
func (l *links) call(ctx context.Context, address string, b rpc.Build) (*rpc.Response, error) {
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
func (l *links) at(address string) (*link, error) {
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

func (l *links) leave(k *link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k.users--
}

// client is the connection; old: it was there before.
func (k *link) client(ctx context.Context, l *links, address string) (c *rpc.Client, old bool, err error) {
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
		return nil, false, errNoDialer
	}
	c, err = rpc.Dial(ctx, d, address, rpc.Options{
		Requests: func(transport.Peer, *command.Header, *command.Frame) {}, // nothing that needs an answer
	})
	if err != nil {
		return nil, false, fmt.Errorf("connecting to %s: %w", address, err)
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

// close closes all connections and waits until they are.
func (l *links) close() {
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
