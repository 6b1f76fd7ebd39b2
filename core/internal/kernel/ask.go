package kernel

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
)

// Errors of [Conn.Ask]; test with errors.Is.
var (
	// ErrNoAnswer: the peer did not answer in time.
	ErrNoAnswer = errors.New("no answer in time")
	// ErrPeerGone: the connection of the peer ended, or could not take the request.
	ErrPeerGone = errors.New("the peer is gone")
)

// Answer is what a peer answered; all of it is lent until the function that gets it
// returns.
type Answer struct {
	Header *command.Header
	Body   []byte
}

// maxAsks bounds the requests to one peer that wait for their answers.
const maxAsks = 1024

// asks are the requests to a peer that have no answer yet.
type asks struct {
	mu   sync.Mutex
	m    map[int32]*ask // by opaque; nil: none yet
	over bool
}

type ask struct {
	done func(Answer, error)
	end  chan struct{} // closed when it has been taken out
}

// Ask sends a request to the peer and returns at once. done is called exactly once,
// by any goroutine, with the answer, whatever its code, or with ErrNoAnswer after
// limit, ErrPeerGone, or the reason why nobody is served any more. It must not
// block. The body is lent until Ask returns.
func (c *Conn) Ask(code int32, fill func(w *command.Writer), body []byte, limit time.Duration, done func(Answer, error)) {
	opaque := c.k.opaque.Add(1)
	a := &ask{done: done, end: make(chan struct{})}
	if err := c.asks.add(opaque, a); err != nil {
		done(Answer{}, err)
		return
	}
	w := command.Begin(make([]byte, 0, 256), command.JSON, code, opaque, 0)
	if fill != nil {
		fill(&w)
	}
	if err := c.Peer.Send(command.Frame{Header: w.End(len(body)), Body: body}); err != nil {
		c.asks.fail(opaque, fmt.Errorf("%w: %w", ErrPeerGone, err))
		return
	}
	go func() {
		t := c.k.Clock.NewTimer(limit)
		defer t.Stop()
		select {
		case <-a.end:
		case <-t.C():
			c.asks.fail(opaque, fmt.Errorf("%w: %v", ErrNoAnswer, limit))
		case <-c.k.Serving().Done():
			c.asks.fail(opaque, context.Cause(c.k.Serving()))
		}
	}()
}

// answered hands an answer to who waits for it; one that comes too late, or that
// nobody asked for, is dropped.
func (c *Conn) answered(f *command.Frame) {
	if a := c.asks.take(c.hdr.Opaque); a != nil {
		a.done(Answer{&c.hdr, f.Body}, nil)
	}
}

func (s *asks) add(opaque int32, a *ask) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.over:
		return ErrPeerGone
	case len(s.m) >= maxAsks:
		return fmt.Errorf("%w: %d requests wait for this peer already", ErrNoAnswer, len(s.m))
	case s.m == nil:
		s.m = map[int32]*ask{}
	}
	s.m[opaque] = a
	return nil
}

// take takes one out; nil: somebody else did.
func (s *asks) take(opaque int32) *ask {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.m[opaque]
	if a != nil {
		delete(s.m, opaque)
		close(a.end)
	}
	return a
}

func (s *asks) fail(opaque int32, err error) {
	if a := s.take(opaque); a != nil {
		a.done(Answer{}, err)
	}
}

// close ends all: the connection is gone.
func (s *asks) close() {
	s.mu.Lock()
	left := s.m
	s.m, s.over = nil, true
	for _, a := range left {
		close(a.end)
	}
	s.mu.Unlock()
	for _, a := range left {
		a.done(Answer{}, ErrPeerGone)
	}
}
