package transportwire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
	"github.com/hardpointmq/hardpoint/sdk/wire/transportwire/transportpb"
)

// handRole is the role of the connection between two processes of a transport.
const handRole = "H"

// handover is what an instance gives to that of another process, or takes from
// one: files, each with a ticket by which the host names it.
type handover struct {
	mu    sync.Mutex
	to    *net.UnixConn // nil: nobody takes
	given map[uint64]gift
	came  chan struct{} // closed and renewed when a file came
	over  bool          // none comes any more
}

// gift is a file that came, or why it did not though its ticket did.
type gift struct {
	f   *os.File
	err error
}

// pass sends f, of which it takes possession.
func (h *handover) pass(ticket uint64, f *os.File) error {
	defer f.Close()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.to == nil {
		return fmt.Errorf("%w: no process takes over", plugin.ErrUnavailable)
	}
	return passFile(h.to, ticket, f)
}

// put keeps what came.
func (h *handover) put(ticket uint64, g gift) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.given[ticket] = g
	close(h.came)
	h.came = make(chan struct{})
}

// end says that nothing comes any more.
func (h *handover) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	close(h.came)
	h.came = make(chan struct{})
}

// take waits for a file.
func (h *handover) take(ctx context.Context, ticket uint64) (*os.File, error) {
	for {
		h.mu.Lock()
		g, here := h.given[ticket]
		over, came := h.over, h.came
		delete(h.given, ticket)
		h.mu.Unlock()
		switch {
		case here:
			return g.f, g.err
		case over:
			return nil, fmt.Errorf("%w: what the old process gave did not come", plugin.ErrUnavailable)
		}
		select {
		case <-came:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// close ends both directions; what came and nobody took is closed.
func (h *handover) close() {
	h.mu.Lock()
	if h.to != nil {
		_ = h.to.Close()
		h.to = nil
	}
	h.mu.Unlock()
	h.forget()
}

// forget closes what came and nobody took.
func (h *handover) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, g := range h.given {
		_ = g.f.Close() // nil: there is none
	}
	clear(h.given)
}

// mover is the facet of an instance.
func (s *Server) mover(id uint64) (*instance, transport.Mover, error) {
	i, err := s.open.Get(id)
	if err != nil {
		return nil, nil, err
	}
	m := i.t.Capabilities().Mover
	if m == nil {
		return nil, nil, fmt.Errorf("%w: the transport plugin does not offer the facet %s", plugin.ErrUnavailable, transport.FacetMover)
	}
	return i, m, nil
}

// Receive implements transportpb.TransportServer.
func (s *Server) Receive(_ context.Context, r *transportpb.ReceiveRequest) (*transportpb.ReceiveResponse, error) {
	i, _, err := s.mover(r.GetInstance())
	if err != nil {
		return &transportpb.ReceiveResponse{Failure: wire.ToFailure(err)}, nil
	}
	ln, err := data.Listen(r.GetSocketDir())
	if err != nil {
		return &transportpb.ReceiveResponse{Failure: wire.ToFailure(err)}, nil
	}
	i.tasks.Go(func() { i.receive(ln) })
	return &transportpb.ReceiveResponse{Socket: ln.Path, Nonce: ln.Nonce}, nil
}

// receive takes files until the other process has no more. When it died in the
// middle, or one of the two was suspended, the host may not know of all that came:
// who is connected there must not wait for an answer that nobody gives.
func (i *instance) receive(ln *data.Listener) {
	i.receiveAll(ln)
	i.hand.end()
	t := i.clock.NewTimer(peerTime) // the host takes none later than that
	defer t.Stop()
	select {
	case <-t.C():
		i.hand.forget()
	case <-i.ctx.Done():
	}
}

func (i *instance) receiveAll(ln *data.Listener) {
	conns, err := ln.Accept(i.ctx, i.log, handRole)
	if err != nil {
		return
	}
	c := conns[0].(*net.UnixConn)
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(i.ctx, func() { _ = c.Close() })()
	for {
		ticket, f, err := receiveFile(c)
		if err != nil && !errors.Is(err, errNoRoom) { // that one alone is lost
			if !errors.Is(err, io.EOF) && i.ctx.Err() == nil {
				i.log.Error("the connection to the old process of the transport broke", "error", err)
			}
			return
		}
		i.hand.put(ticket, gift{f, err})
	}
}

// errNoRoom: the process may not have more open files.
var errNoRoom = errors.New("this process cannot have more open files; raise its limit (ulimit -n, in systemd LimitNOFILE) above the number of connections")

// explained says what to do about a limit of open files.
func explained(err error) error {
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return fmt.Errorf("%w: %w", errNoRoom, err)
	}
	return err
}

// HandOver implements transportpb.TransportServer.
func (s *Server) HandOver(ctx context.Context, r *transportpb.HandOverRequest) (*transportpb.HandOverResponse, error) {
	i, _, err := s.mover(r.GetInstance())
	if err == nil {
		var conns []net.Conn
		if conns, err = data.Dial(ctx, r.GetSocket(), r.GetNonce(), handRole); err == nil {
			i.hand.mu.Lock()
			i.hand.to = conns[0].(*net.UnixConn)
			i.hand.mu.Unlock()
		}
	}
	return &transportpb.HandOverResponse{Failure: wire.ToFailure(err)}, nil
}

// GiveListener implements transportpb.TransportServer.
func (s *Server) GiveListener(_ context.Context, r *transportpb.GiveListenerRequest) (*transportpb.GiveListenerResponse, error) {
	return &transportpb.GiveListenerResponse{Failure: wire.ToFailure(s.giveListener(r))}, nil
}

func (s *Server) giveListener(r *transportpb.GiveListenerRequest) error {
	i, m, err := s.mover(r.GetInstance())
	if err != nil {
		return err
	}
	i.mu.Lock()
	ln := i.listeners[r.GetListener()]
	i.mu.Unlock()
	if ln == nil {
		return transport.ErrClosed
	}
	f, err := m.GiveListener(ln)
	if err != nil {
		return err
	}
	return i.hand.pass(r.GetTicket(), f)
}

// serveGiven serves at a listening socket that was given.
func (i *instance) serveGiven(ctx context.Context, ticket uint64, l transport.Listen, s transport.Services) (transport.Listener, error) {
	m := i.t.Capabilities().Mover
	if m == nil {
		return nil, fmt.Errorf("%w: the transport plugin does not offer the facet %s", plugin.ErrUnavailable, transport.FacetMover)
	}
	f, err := i.hand.take(ctx, ticket)
	if err != nil {
		return nil, err
	}
	return m.TakeListener(f, l, s)
}

// GivePeer implements transportpb.TransportServer.
func (s *Server) GivePeer(ctx context.Context, r *transportpb.GivePeerRequest) (*transportpb.GivePeerResponse, error) {
	read, err := s.givePeer(ctx, r)
	return &transportpb.GivePeerResponse{Read: read, Failure: wire.ToFailure(err)}, nil
}

func (s *Server) givePeer(ctx context.Context, r *transportpb.GivePeerRequest) ([]byte, error) {
	i, m, err := s.mover(r.GetInstance())
	if err != nil {
		return nil, err
	}
	if err := i.reached(ctx, r.GetMark()); err != nil {
		return nil, err
	}
	i.mu.Lock()
	g := i.guests[r.GetPeer()]
	i.mu.Unlock()
	if g == nil {
		return nil, transport.ErrClosed
	}
	moving, err := m.GivePeer(ctx, g.p)
	if err != nil {
		return nil, explained(err)
	}
	if err := i.hand.pass(r.GetTicket(), moving.File); err != nil {
		g.Closed(fmt.Errorf("%w: %w", transport.ErrClosed, err)) // nobody has the connection any more
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.guests, r.GetPeer())
	return moving.Read, nil
}

// TakePeer implements transportpb.TransportServer.
func (s *Server) TakePeer(ctx context.Context, r *transportpb.TakePeerRequest) (*transportpb.TakePeerResponse, error) {
	return &transportpb.TakePeerResponse{Failure: wire.ToFailure(s.takePeer(ctx, r))}, nil
}

func (s *Server) takePeer(ctx context.Context, r *transportpb.TakePeerRequest) error {
	i, m, err := s.mover(r.GetInstance())
	if err != nil {
		return err
	}
	f, err := i.hand.take(ctx, r.GetTicket())
	if err != nil {
		return err
	}
	i.mu.Lock()
	ln := i.listeners[r.GetListener()]
	i.mu.Unlock()
	if ln == nil && r.GetListener() != 0 {
		_ = f.Close()
		return transport.ErrClosed
	}
	_, err = m.TakePeer(ln, fromLimits(r.GetLimits()), transport.Moving{File: f, Read: r.GetRead()}, &handler{i: i, origin: r.GetTaken()})
	return explained(err)
}
