package remoting

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/transport"
)

// errGiven ends the reader of a peer that is given away.
var errGiven = errors.New("the connection is given to another process")

var errMoveTLS = errors.New("the keys of a TLS connection do not cross to another process")

// giving is a peer on its way out. m and err are written before done is closed.
type giving struct {
	done chan struct{}
	m    transport.Moving
	err  error
}

// GiveListener implements [transport.Mover].
func (t *Transport) GiveListener(l transport.Listener) (*os.File, error) {
	ln, ok := l.(*listener)
	if !ok || ln.g.t != t {
		return nil, fmt.Errorf("transport %s: the listener is another transport's", t.set.Name)
	}
	tcp, ok := ln.nl.(*net.TCPListener)
	if !ok {
		return nil, fmt.Errorf("transport %s, listener %s: it is no TCP socket", t.set.Name, l.Address())
	}
	f, err := tcp.File()
	if err != nil {
		return nil, fmt.Errorf("transport %s, listener %s: %w", t.set.Name, l.Address(), err)
	}
	_ = tcp.Close() // f keeps the socket
	ln.settle()
	return f, nil
}

// TakeListener implements [transport.Mover].
func (t *Transport) TakeListener(f *os.File, l transport.Listen, s transport.Services) (transport.Listener, error) {
	defer f.Close()
	if err := checkHandler(s.Frames); err != nil {
		return nil, fmt.Errorf("transport %s moves frames, and cannot serve %q: Services.Frames %w", t.set.Name, l.Address, err)
	}
	if err := t.check(); err != nil {
		return nil, err
	}
	nl, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("transport %s cannot listen with the socket that it was given: %w", t.set.Name, err)
	}
	return t.serve(nl, l, s)
}

// GivePeer implements [transport.Mover]. The reader does it, so that nothing is
// lost between it and who goes on.
func (t *Transport) GivePeer(ctx context.Context, other transport.Peer) (transport.Moving, error) {
	p, ok := other.(*peer)
	if !ok || p.g.t != t {
		return transport.Moving{}, fmt.Errorf("transport %s: the peer is another transport's", t.set.Name)
	}
	g := &giving{done: make(chan struct{})}
	if err := p.beginGiving(g); err != nil {
		return transport.Moving{}, err
	}
	select {
	case <-g.done:
		return g.m, g.err
	case <-ctx.Done():
	}
	p.fail(context.Cause(ctx))
	<-g.done // it was closed, or is there after all
	if g.err != nil {
		return transport.Moving{}, fmt.Errorf("giving away %s: %w", p.remote, context.Cause(ctx))
	}
	return g.m, nil
}

func (p *peer) beginGiving(g *giving) error {
	p.wmu.Lock()
	defer p.wmu.Unlock()
	switch {
	case p.cause != nil:
		return transport.ErrClosed
	case p.who.TLS:
		return fmt.Errorf("giving away %s: %w", p.remote, errMoveTLS)
	case !p.giving.CompareAndSwap(nil, g):
		return fmt.Errorf("giving away %s: %w", p.remote, errGiven)
	case !p.reading: // run sees it
	case p.sock != nil:
		p.giveSocket()
	default:
		_ = p.conn.SetReadDeadline(time.Unix(1, 0)) // wakes the reader
	}
	return nil
}

// give ends the peer here without closing the connection; false when it was closed
// meanwhile.
func (p *peer) give() bool {
	p.writers.Wait() // what was sent goes out before anything else
	g := p.giving.Load()
	p.wmu.Lock()
	if p.cause != nil {
		p.wmu.Unlock()
		return false
	}
	p.cause = errGiven
	if p.sock != nil {
		g.m.File = p.sock.detach()
	} else {
		g.m.File, g.err = p.conn.(*net.TCPConn).File()
		_ = p.conn.Close()
	}
	p.wmu.Unlock()
	if p.in.have > 0 {
		g.m.Read = append([]byte(nil), p.in.buf.b[:p.in.have]...)
	}
	p.in.release()
	if g.err != nil {
		g.err = fmt.Errorf("giving away %s: %w", p.remote, g.err)
		p.s.Closed(fmt.Errorf("%w: %w", transport.ErrClosed, g.err))
	}
	p.g.remove(p)
	close(g.done)
	return true
}

// TakePeer implements [transport.Mover].
func (t *Transport) TakePeer(l transport.Listener, lim transport.Limits, m transport.Moving, h transport.Handler) (transport.Peer, error) {
	if err := checkHandler(h); err != nil {
		_ = m.File.Close()
		return nil, fmt.Errorf("transport %s cannot go on with a connection: the handler %w", t.set.Name, err)
	}
	c, err := net.FileConn(m.File)
	_ = m.File.Close()
	if err != nil {
		return nil, fmt.Errorf("transport %s cannot go on with the connection that it was given: %w", t.set.Name, err)
	}
	var g *group
	if l == nil {
		if g = t.dialGroup(lim); g == nil {
			_ = c.Close()
			return nil, t.notRunning()
		}
	} else {
		ln, ok := l.(*listener)
		if !ok || ln.g.t != t {
			_ = c.Close()
			return nil, fmt.Errorf("transport %s: the listener is another transport's", t.set.Name)
		}
		g = ln.g
	}
	p := t.newPeer(g, h, c)
	if n := len(m.Read); n > 0 {
		if p.in.buf = p.in.pools.get(n, p.in.read); p.in.buf == nil {
			_ = c.Close()
			return nil, errReadBytes
		}
		p.in.have = copy(p.in.buf.b, m.Read)
		_, _, p.in.want, _ = command.Split(m.Read, nil, g.split) // a fault of it is found with the next read
	}
	if !g.add(p) {
		p.in.release()
		_ = c.Close()
		return nil, fmt.Errorf("transport %s: %w", t.set.Name, transport.ErrClosed)
	}
	p.open(nil)
	p.begin()
	return p, nil
}
