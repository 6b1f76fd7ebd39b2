package transportwire

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/process"
)

// instance is one transport in the plugin, with its data socket.
type instance struct {
	t      transport.Transport
	dialer transport.Dialer
	log    *slog.Logger
	clock  plugin.Clock
	life   *process.Life

	ctx    context.Context // ends with the connection, or before there is one
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	ready  chan struct{} // the connection is there
	out    outbox
	hand   handover

	mu        sync.Mutex
	listeners map[uint64]transport.Listener
	guests    map[uint64]*guest
	last      uint64
	mark      uint64
	marked    chan struct{} // closed and renewed when mark grows
}

func newInstance() *instance {
	i := &instance{
		life:  process.NewLife(transport.ErrNotRunning),
		ready: make(chan struct{}), marked: make(chan struct{}),
		listeners: map[uint64]transport.Listener{}, guests: map[uint64]*guest{},
	}
	i.hand.given, i.hand.came = map[uint64]gift{}, make(chan struct{})
	i.ctx, i.cancel = context.WithCancel(context.Background())
	return i
}

// serve takes the connection and reads it until it ends.
func (i *instance) serve(ln *data.Listener) {
	defer i.cancel()
	conns, err := ln.Accept(i.ctx, i.log, roles)
	if err != nil {
		return
	}
	i.out.open(conns[0])
	defer context.AfterFunc(i.ctx, i.out.close)()
	i.tasks.Go(func() {
		_ = i.out.run() // a connection that breaks ends its reader, too
		i.cancel()
	})
	close(i.ready)
	if err := i.read(conns[0]); i.ctx.Err() == nil && !errors.Is(err, io.EOF) {
		i.log.Error("the data connection to the host broke", "error", err)
	}
	i.out.close()
}

func (i *instance) start(ctx context.Context) error {
	select {
	case <-i.ready:
	case <-ctx.Done():
		return fmt.Errorf("the data connection of the host did not come: %w", ctx.Err())
	case <-i.ctx.Done():
		return transport.ErrNotRunning
	}
	return i.life.Start(ctx, i.t.Start)
}

// shutdown stops the transport first, so that the host hears of its peers.
func (i *instance) shutdown(ctx context.Context) error {
	err := i.life.Shutdown(ctx, i.t.Shutdown)
	i.cancel()
	i.tasks.Wait()
	i.hand.close()
	return err
}

// reached waits for a mark; 0 is there.
func (i *instance) reached(ctx context.Context, mark uint64) error {
	for {
		i.mu.Lock()
		there, marked := i.mark >= mark, i.marked
		i.mu.Unlock()
		if there {
			return nil
		}
		select {
		case <-marked:
		case <-i.ctx.Done():
			return nil // nothing more will come
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// read does what the host says. Nothing of it blocks.
func (i *instance) read(c net.Conn) error {
	in := bufio.NewReaderSize(c, readSize)
	for {
		b, err := in.Peek(data.HeadSize)
		if err != nil {
			return err
		}
		h, err := data.ParseHead(b, lastKind)
		if err != nil {
			return err
		}
		_, _ = in.Discard(data.HeadSize)
		if h.Kind < kindTook || h.Kind != kindSend && h.Size != 0 {
			return fmt.Errorf("%w: kind %d with %d bytes from a host", data.ErrFrame, h.Kind, h.Size)
		}
		if h.Kind == kindMark {
			i.mu.Lock()
			i.mark = max(i.mark, h.ID)
			close(i.marked)
			i.marked = make(chan struct{})
			i.mu.Unlock()
			continue
		}
		i.mu.Lock()
		g := i.guests[h.ID] // nil: it has ended meanwhile
		i.mu.Unlock()
		switch h.Kind {
		case kindTook:
			if g == nil || !g.answer() {
				return fmt.Errorf("%w: an answer for peer %d, which did not ask", data.ErrFrame, h.ID)
			}
		case kindClose:
			if g != nil {
				_ = g.p.Close()
			}
		case kindSend:
			if err := g.send(in, int(h.Size)); err != nil {
				return err
			}
		}
	}
}

// handler brings the peers of a listener or dial to the host.
type handler struct {
	i      *instance
	origin uint64
	last   atomic.Uint64 // number of the last peer
}

// Opened implements [transport.Handler].
func (h *handler) Opened(p transport.Peer) transport.Session {
	i := h.i
	g := &guest{i: i, p: p, took: make(chan struct{}, 1)}
	o := opened{origin: h.origin, id: p.ID(), remote: p.Remote(), local: p.Local(), who: p.Identity()}
	body := data.TakeBuffer()
	defer data.GiveBuffer(body)
	*body = putOpened((*body)[:0], &o)
	g.asks.Store(true)
	i.mu.Lock()
	i.last++
	g.num = i.last
	i.guests[g.num] = g
	i.out.put(kindOpened, g.num, *body, true) // in the order of the numbers
	i.mu.Unlock()
	h.last.Store(g.num)
	g.wait(false)
	return g
}

// Settle implements [transport.Handler]: the host settles by itself.
func (h *handler) Settle() {}

// guest is a peer of the plugin. It implements [transport.Session].
type guest struct {
	i    *instance
	p    transport.Peer
	num  uint64
	asks atomic.Bool   // something was sent that the host answers
	took chan struct{} // the answer
}

// answer is false when nobody waits for one.
func (g *guest) answer() bool {
	if !g.asks.CompareAndSwap(true, false) {
		return false
	}
	g.took <- struct{}{}
	return true
}

// wait returns when the host has answered, or is gone. lent: nothing of what was
// put into the outbox is touched after that.
func (g *guest) wait(lent bool) {
	select {
	case <-g.took:
		return
	case <-g.i.ctx.Done():
	}
	if lent {
		<-g.i.out.done
	}
}

// Arrived implements [transport.Session].
func (g *guest) Arrived(in []command.Frame) {
	g.asks.Store(true)
	g.i.out.arrived(g.num, in)
	g.wait(true)
}

// Closed implements [transport.Session].
func (g *guest) Closed(err error) {
	g.asks.Store(true)
	g.i.out.put(kindClosed, g.num, data.PutFailure(nil, err), true)
	g.wait(false)
	g.i.mu.Lock()
	defer g.i.mu.Unlock()
	delete(g.i.guests, g.num)
}

// send gives the peer n bytes that are read from in; g may be nil.
func (g *guest) send(in *bufio.Reader, n int) error {
	if n <= in.Size() {
		b, err := in.Peek(n)
		if err != nil {
			return err
		}
		g.write(b)
		_, err = in.Discard(n)
		return err
	}
	body := data.TakeBuffer()
	defer data.GiveBuffer(body)
	var err error
	if *body, err = data.ReadBody((*body)[:0], in, n); err != nil {
		return err
	}
	g.write(*body)
	return nil
}

func (g *guest) write(b []byte) {
	if g != nil && len(b) > 0 {
		_ = g.p.Send(command.Frame{Raw: b}) // Closed tells why it failed
	}
}
