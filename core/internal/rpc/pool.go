package rpc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/transport"
)

// PoolOptions are what a Pool can be told.
type PoolOptions struct {
	Options
	// DialTimeout bounds connecting, whatever the caller's context says [3 s].
	DialTimeout time.Duration
	// FirstWait and LastWait bound the pause after attempts to connect that
	// failed [100 ms, 10 s]; it doubles, with some randomness.
	FirstWait, LastWait time.Duration
	Clock               plugin.Clock // [plugin.SystemClock]
}

// Pool keeps one connection per address. It dials when a call finds none; calls
// of the same address share the attempt. While an address is in its pause after
// a failed attempt, calls fail at once, so that the caller can turn to another
// one. Safe for concurrent use.
type Pool struct {
	d   transport.Dialer
	opt PoolOptions

	mu     sync.Mutex
	closed bool
	byAddr map[string]*line
}

// line is the connection to one address.
type line struct {
	turn chan struct{} // holds a token while somebody looks after the rest
	c    *Client
	wait backoff.ExponentialBackOff
	err  error     // of the last attempt
	next time.Time // no attempt before
}

// NewPool makes a pool that dials with d.
func NewPool(d transport.Dialer, o PoolOptions) *Pool {
	if o.DialTimeout == 0 {
		o.DialTimeout = 3 * time.Second
	}
	if o.FirstWait == 0 {
		o.FirstWait = 100 * time.Millisecond
	}
	if o.LastWait == 0 {
		o.LastWait = 10 * time.Second
	}
	if o.Clock == nil {
		o.Clock = plugin.SystemClock{}
	}
	return &Pool{d: d, opt: o, byAddr: map[string]*line{}}
}

// Call calls the server at address.
func (p *Pool) Call(ctx context.Context, address string, b Build) (*Response, error) {
	c, err := p.Get(ctx, address)
	if err != nil {
		return nil, err
	}
	return c.Call(ctx, b)
}

// Oneway sends a frame to address that nobody waits for; ctx bounds connecting.
func (p *Pool) Oneway(ctx context.Context, address string, b Build) error {
	c, err := p.Get(ctx, address)
	if err != nil {
		return err
	}
	return c.Oneway(b)
}

// Get returns the connection to address and makes it when there is none. The
// client belongs to the pool; closing it makes the next Get dial again.
func (p *Pool) Get(ctx context.Context, address string) (*Client, error) {
	l, err := p.line(address)
	if err != nil {
		return nil, err
	}
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("connecting to %s: %w", address, context.Cause(ctx))
	}
	defer func() { <-l.turn }()
	if l.c != nil {
		select {
		case <-l.c.Done():
			l.c = nil
		default:
			return l.c, nil
		}
	}
	if now := p.opt.Clock.Now(); now.Before(l.next) {
		return nil, fmt.Errorf("next attempt in %s, the last one failed: %w", l.next.Sub(now).Round(time.Millisecond), l.err)
	}
	dialCtx, cancel := context.WithTimeout(ctx, p.opt.DialTimeout)
	defer cancel()
	c, err := Dial(dialCtx, p.d, address, p.opt.Options)
	if err != nil {
		if !errors.Is(ctx.Err(), context.Canceled) { // else it is not the address's fault
			l.err, l.next = err, p.opt.Clock.Now().Add(l.wait.NextBackOff())
		}
		return nil, err
	}
	l.wait.Reset()
	if !p.keep(l, c) {
		_ = c.Close()
		return nil, transport.ErrClosed
	}
	return c, nil
}

func (p *Pool) line(address string) (*line, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, fmt.Errorf("connecting to %s: %w", address, transport.ErrClosed)
	}
	l := p.byAddr[address]
	if l == nil {
		l = &line{turn: make(chan struct{}, 1), wait: backoff.ExponentialBackOff{
			InitialInterval:     p.opt.FirstWait,
			MaxInterval:         p.opt.LastWait,
			Multiplier:          2,
			RandomizationFactor: 0.2,
		}}
		p.byAddr[address] = l
	}
	return l, nil
}

// keep stores c unless the pool was closed meanwhile. The caller has the turn.
func (p *Pool) keep(l *line, c *Client) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		l.c = c
	}
	return !p.closed
}

// Close closes all connections, waits for their end, and makes all calls to
// come fail with transport.ErrClosed.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.closed = true
	lines := p.byAddr
	p.byAddr = map[string]*line{}
	p.mu.Unlock()
	for _, l := range lines {
		l.turn <- struct{}{} // an attempt ends after DialTimeout at the latest
		if l.c != nil {
			_ = l.c.Close()
			<-l.c.Done()
		}
		<-l.turn
	}
	return nil
}
