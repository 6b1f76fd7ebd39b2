package transportwire

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/proxy"
	"github.com/hardpointmq/hardpoint/sdk/wire/transportwire/transportpb"
)

// link is an instance in one process; a transport has a new one when its process
// is started again or replaced.
type link struct {
	t     *remote
	proc  wire.Process
	call  transportpb.TransportClient
	id    uint64 // of the instance
	conn  net.Conn
	out   outbox
	tasks sync.WaitGroup
	marks atomic.Uint64
	moves bool // it offers the facet Mover

	// over is closed when the process is of no use any more; why is written before.
	over    chan struct{}
	why     error
	ending  atomic.Bool // we end it ourselves
	breaker sync.Once

	mu      sync.Mutex
	gone    sync.Cond // peers became fewer
	peers   map[uint64]*peer
	origins map[uint64]*origin
	last    uint64 // highest number of a peer
	lost    bool   // no peer is added any more
}

// connect starts or finds a process and makes an instance in it.
func (t *remote) connect(ctx context.Context) (_ *link, err error) {
	l := &link{t: t, over: make(chan struct{}), peers: map[uint64]*peer{}, origins: map[uint64]*origin{}}
	l.gone.L = &l.mu
	if l.proc, err = t.h.launcher.Acquire(ctx, t.set.Logger); err != nil {
		return nil, err
	}
	l.call = transportpb.NewTransportClient(l.proc.Conn())
	defer func() {
		if err != nil {
			l.abandon(ctx)
		}
	}()
	conns, err := data.Connect(ctx, fmt.Sprintf("transport plugin %q", t.h.name), func(dir string) (data.Offer, error) {
		r, err := l.call.Open(ctx, &transportpb.OpenRequest{Plugin: t.h.name, Config: t.raw, Settings: wire.ToSettings(&t.set), SocketDir: dir})
		if err = wire.FromRPC(ctx, err, r.GetFailure()); err != nil {
			return data.Offer{}, err
		}
		l.id = r.GetInstance()
		l.moves = slices.Contains(r.GetFacets(), transport.FacetMover)
		return data.Offer{Path: r.GetSocket(), Nonce: r.GetNonce(), Roles: roles}, proxy.Agree(wire.Transport, t.h.name, t.facets, Contract().PassedOn(r.GetFacets()))
	})
	if err != nil {
		return nil, err
	}
	l.conn = conns[0]
	l.out.open(l.conn)
	l.out.line.Owes = l.owes
	l.tasks.Go(func() { l.fail(l.out.run()) })
	l.tasks.Go(func() { l.fail(l.read()) })
	r, err := l.call.Start(ctx, &transportpb.StartRequest{Instance: l.id})
	if err = wire.FromRPC(ctx, err, r.GetFailure()); err != nil {
		return nil, err
	}
	l.tasks.Go(l.watch)
	l.tasks.Go(func() {
		if why := data.Watch(t.set.Clock, data.LimitsOf(l.proc), l.over, &l.out.line); why != nil {
			l.fail(why)
		}
	})
	return l, nil
}

// abandon gives back what a connect that failed took.
func (l *link) abandon(ctx context.Context) {
	if l.id != 0 {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), proxy.LastTime(l.proc))
		defer cancel()
		_, _ = l.call.Shutdown(ctx, &transportpb.ShutdownRequest{Instance: l.id})
	}
	l.cut()
	l.join()
}

// watch breaks the link when the process ends without its connection saying so.
func (l *link) watch() {
	select {
	case <-l.proc.Gone():
		l.fail(io.EOF)
	case <-l.over:
	}
}

// fail ends all use of the process: its peers are closed, calls fail.
func (l *link) fail(why error) {
	l.breaker.Do(func() {
		l.out.close()
		l.tasks.Go(func() {
			cause := transport.ErrClosed
			l.why = transport.ErrNotRunning
			if !l.ending.Load() {
				l.why = l.explain(why)
				cause = l.why
			}
			close(l.over)
			l.mu.Lock()
			l.lost = true
			all := make([]*peer, 0, len(l.peers))
			for _, p := range l.peers {
				all = append(all, p)
			}
			l.mu.Unlock()
			for _, p := range all {
				p.lose(l, cause)
			}
		})
	})
}

// explain says why the process is gone.
func (l *link) explain(why error) error {
	if errors.Is(why, data.ErrFrame) {
		return fmt.Errorf("the process of transport plugin %q is given up: %w: %w", l.t.h.name, plugin.ErrUnavailable, why)
	}
	if errors.Is(why, data.ErrSilent) {
		l.proc.Fail(why)
	}
	return l.proc.Cause() // with exit status and last output
}

// owes is what data.Line asks. The plugin has to read what it is sent, and to say that
// a peer is closed when it was told to close it; while a session is called it is its turn
// after that.
func (l *link) owes() string {
	if l.out.busy.Load() {
		return "read what it is sent"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.peers {
		if p.closing(l) {
			return "say that it closed a peer"
		}
	}
	return ""
}

// cut ends the link and gives the process back.
func (l *link) cut() {
	l.ending.Store(true)
	if l.conn != nil {
		l.fail(net.ErrClosed)
		<-l.over
	}
	l.proc.Release(false)
}

// join waits until the peers of a link that was cut know.
func (l *link) join() {
	_ = l.wait(context.Background(), nil) // sessions take the time that they take
	l.tasks.Wait()
}

// wait returns when o, or nil for all, has no peer any more, or with ctx's error.
func (l *link) wait(ctx context.Context, o *origin) error {
	defer context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.gone.Broadcast()
	})()
	l.mu.Lock()
	defer l.mu.Unlock()
	for o == nil && len(l.peers) > 0 || o != nil && o.peers > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		l.gone.Wait()
	}
	return nil
}

// forget removes a peer whose session knows that it is closed, or that is in
// another process.
func (l *link) forget(s *seat) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.peers, s.num)
	s.o.peers--
	l.gone.Broadcast()
}

// add registers what may bring peers.
func (l *link) add(num uint64, o *origin) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.origins[num] = o
}

// drop makes peers of it unwelcome; those that are there stay.
func (l *link) drop(num uint64) *origin {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.origins[num]
	delete(l.origins, num)
	return o
}

// mark is a number for a call over gRPC that must not overtake what was sent to
// peers.
func (l *link) mark() uint64 {
	n := l.marks.Add(1)
	l.out.put(kindMark, n, nil, true)
	return n
}

// failed makes the error of a call. A process that is gone says why.
func (l *link) failed(ctx context.Context, err error) error {
	if err != nil && ctx.Err() == nil && errors.Is(err, plugin.ErrUnavailable) {
		select {
		case <-l.over:
			return l.why
		case <-l.proc.Gone():
			return l.proc.Cause()
		default:
		}
	}
	return err
}

// read hands what the plugin tells to the sessions of the peers, each of which
// works in a goroutine of its own.
func (l *link) read() error {
	in := bufio.NewReaderSize(l.out.line.Hear(l.conn), readSize)
	var b [data.HeadSize]byte
	for {
		if _, err := io.ReadFull(in, b[:]); err != nil {
			return err
		}
		h, err := data.ParseHead(b[:], lastKind)
		if err != nil {
			return err
		}
		if h.Kind > kindClosed || h.Kind != kindArrived && h.Size > maxNote {
			return fmt.Errorf("%w: kind %d with %d bytes from a plugin", data.ErrFrame, h.Kind, h.Size)
		}
		body := data.TakeBuffer()
		if *body, err = data.ReadBody((*body)[:0], in, int(h.Size)); err != nil {
			return err
		}
		if err := l.take(&h, body); err != nil {
			return err
		}
	}
}

// take is given a frame and its body.
func (l *link) take(h *data.Head, body *[]byte) error {
	if h.Kind == kindOpened {
		o, err := readOpened(*body)
		data.GiveBuffer(body)
		if err != nil {
			return err
		}
		return l.opened(h.ID, o)
	}
	l.mu.Lock()
	p := l.peers[h.ID]
	l.mu.Unlock()
	if p == nil {
		return fmt.Errorf("%w: there is no peer %d", data.ErrFrame, h.ID)
	}
	var why error
	if h.Kind == kindClosed {
		var err error
		why, err = readFailure(*body)
		data.GiveBuffer(body)
		if body = nil; err != nil {
			return err
		}
		p.closed(why)
	}
	if !p.begin(l, h.Kind, body) {
		return fmt.Errorf("%w: kind %d for peer %d, whose session is being called", data.ErrFrame, h.Kind, h.ID)
	}
	go p.run()
	return nil
}

func (l *link) opened(num uint64, o opened) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if num <= l.last {
		return fmt.Errorf("%w: a peer with number %d after one with %d", data.ErrFrame, num, l.last)
	}
	l.last = num
	if l.lost {
		return net.ErrClosed
	}
	from := l.origins[o.origin]
	if from != nil && from.moves != nil {
		delete(l.origins, o.origin)
		if l.moved(num, from) {
			return nil
		}
		from = nil
	}
	if from == nil {
		// Closed meanwhile, or a dial that nobody waits for: nobody will know it.
		from = &origin{h: nobody{}, unsent: new(atomic.Int64)}
	}
	s := &seat{l, num, from}
	p := newPeer(s, from, o)
	from.dialed = p
	from.peers++
	l.peers[num] = p
	_ = p.begin(l, kindOpened, nil)
	go p.run()
	return nil
}

// moved gives a peer that comes from another process its seat here; false when it
// ended meanwhile. mu is held, and the lock of the peer is taken after it.
func (l *link) moved(num uint64, from *origin) bool {
	p, s := from.moves, &seat{l, num, from.into}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost {
		return false
	}
	old := p.home
	p.home, p.tried = s, false
	from.into.peers++
	l.peers[num] = p
	l.out.seat(p, s)
	l.out.put(kindTook, num, nil, true)
	if p.cause != nil {
		l.out.put(kindClose, num, nil, true)
	}
	go old.l.forget(old)
	return true
}

// nobody closes every peer.
type nobody struct{}

// Opened implements transport.Handler.
func (nobody) Opened(p transport.Peer) transport.Session {
	_ = p.Close()
	return nobody{}
}

// Settle implements transport.Handler.
func (nobody) Settle() {}

// Arrived implements transport.Session.
func (nobody) Arrived([]command.Frame) {}

// Closed implements transport.Session.
func (nobody) Closed(error) {}
