package remoting

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/transport"
)

// linger is how long Close lets a backlog be written.
const linger = time.Second

// What a peer did since the last tick of the janitor.
const (
	silent uint32 = iota
	spoke
	served // its reader is in the engine
)

// peer is one connection. It implements [transport.Peer].
type peer struct {
	g *group
	h transport.Handler
	s transport.Session
	// sock is the connection when a loop reads it; conn and stream are nil then.
	sock *socket
	conn net.Conn // the TCP connection
	// stream is where bytes are read and written: conn, or TLS on it.
	stream net.Conn

	id            string
	remote, local netip.AddrPort
	who           transport.Identity

	// The reader's.
	in       inbox
	hello    hello
	discard  atomic.Bool
	activity atomic.Uint32

	giving atomic.Pointer[giving] // it is to be given away; set under wmu

	watched watched

	written atomic.Uint64  // pieces of the backlog that were written
	writers sync.WaitGroup // one while draining

	wmu       sync.Mutex
	parts     [][]byte // reused by Send
	out       backlog
	draining  bool  // a backlog is being written, so order demands it for what comes
	cause     error // why the peer is closed, nil while it is open
	lingering bool  // closed, but the backlog may still be written
	reading   bool  // run was called
}

// hello is the first byte of an accepted connection where TLS is served.
type hello struct {
	awaited bool // nobody knows yet whether it speaks TLS, and there is no session
	first   byte
	opening *opening // counts it; nil: does not, or not any more
}

// decided is called when an accepted connection is opened, or is not going to be one that
// can be given away. Calls after the first do nothing.
func (p *peer) decided() {
	o := p.hello.opening
	if o == nil {
		return
	}
	p.hello.opening = nil
	o.speaks(p)
	o.all.Done()
}

// watched is what the janitor knows of a peer.
type watched struct {
	ticks, stuck int    // without a read, and without progress of the backlog
	written      uint64 // at the last tick
}

func (t *Transport) newPeer(g *group, h transport.Handler, c net.Conn) *peer {
	p := &peer{g: g, h: h, conn: c, stream: c, id: t.nextID()}
	p.in.pools, p.in.read = &t.pools, &g.read
	p.remote, p.local = addrPort(c.RemoteAddr()), addrPort(c.LocalAddr())
	p.activity.Store(spoke)
	return p
}

func addrPort(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := tcp.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// ID implements [transport.Peer].
func (p *peer) ID() string { return p.id }

// Remote implements [transport.Peer].
func (p *peer) Remote() netip.AddrPort { return p.remote }

// Local implements [transport.Peer].
func (p *peer) Local() netip.AddrPort { return p.local }

// Identity implements [transport.Peer].
func (p *peer) Identity() transport.Identity { return p.who }

// Close implements [transport.Peer]. What Send accepted before and the socket
// did not take yet is written for up to a second more.
func (p *peer) Close() error {
	p.wmu.Lock()
	if p.cause != nil || !p.draining {
		p.wmu.Unlock()
		p.fail(transport.ErrClosed)
		return nil
	}
	p.cause, p.lingering = transport.ErrClosed, true
	if p.sock != nil {
		p.lingerSocket()
		p.wmu.Unlock()
		return nil
	}
	p.wmu.Unlock()
	_ = p.conn.SetWriteDeadline(time.Now().Add(p.g.t.linger))
	_ = p.conn.SetReadDeadline(time.Unix(1, 0)) // wakes the reader
	return nil
}

// fail closes the connection at once; the first cause is the one that counts.
func (p *peer) fail(cause error) {
	p.wmu.Lock()
	p.failLocked(cause)
	p.wmu.Unlock()
}

func (p *peer) failLocked(cause error) {
	if p.cause == nil {
		p.cause = cause
	}
	p.lingering = false
	if p.sock != nil {
		p.breakOff()
		return
	}
	_ = p.conn.Close()
}

// open makes the session. tc is nil for a plain connection.
func (p *peer) open(tc *tls.Conn) {
	if tc == nil {
		p.adopt()
	} else {
		p.stream = tc
		p.who.TLS = true
		if st := tc.ConnectionState(); len(st.VerifiedChains) > 0 {
			p.who.Name = st.PeerCertificates[0].Subject.CommonName
		}
	}
	p.s = p.h.Opened(p)
}

// run reads the opened peer: a loop does, or this goroutine until the connection
// ends.
func (p *peer) run() {
	p.wmu.Lock()
	p.reading = true
	p.wmu.Unlock()
	switch {
	case p.giving.Load() != nil: // whoever asks from now on finds it reading
		p.finish(errGiven)
	case p.sock != nil:
		p.sock.watch(p)
	default:
		p.finish(p.readAll())
	}
}

// begin is run for a peer whose reader needs no goroutine of the caller's.
func (p *peer) begin() {
	if p.sock != nil {
		p.run()
	} else {
		go p.run()
	}
}

// serve is the goroutine of an accepted connection. Where TLS is served it waits for
// the first byte, in a loop if there is one.
func (p *peer) serve() {
	if p.g.tls == nil {
		p.open(nil)
		p.decided()
		p.run()
		return
	}
	if p.adopt() {
		p.hello.awaited = true
		p.run()
		return
	}
	p.decideStream()
}

// finish is called once, when nothing is read any more, and tells the session. It
// may wait for the backlog of a peer that was closed or is given away.
func (p *peer) finish(err error) {
	switch {
	case p.hello.awaited && errors.Is(err, errFirst):
		p.decide()
		return
	case p.hello.awaited:
		p.endUnopened(err, nil, "")
		return
	case errors.Is(err, errGiven) && p.give():
		return
	}
	p.wmu.Lock()
	if !p.lingering {
		p.failLocked(err)
	}
	cause := p.cause
	p.wmu.Unlock()
	p.writers.Wait() // none starts once there is a cause
	p.wmu.Lock()
	if p.sock != nil {
		_ = p.sock.close()
	} else {
		_ = p.conn.Close()
	}
	p.wmu.Unlock()
	p.out.drop(&p.g.t.pools, &p.g.total)
	p.in.release()
	p.count(cause)
	p.s.Closed(cause)
	p.g.remove(p)
	if g := p.giving.Load(); g != nil {
		g.err = fmt.Errorf("%w: %w", transport.ErrClosed, cause)
		close(g.done)
	}
}

func (p *peer) count(cause error) {
	m := &p.g.t.metrics
	switch {
	case errors.Is(cause, transport.ErrSlow):
		m.slow.Add(1)
	case errors.Is(cause, transport.ErrIdle):
		m.idle.Add(1)
		return // not worth a line
	case errors.Is(cause, transport.ErrLimit), errors.Is(cause, command.ErrHeader):
		m.limit.Add(1)
	default:
		return
	}
	if n := p.g.ended.due(p.g.t.set.Clock.Now()); n > 0 {
		p.g.t.log.Warn("peers were closed; this is the last of them", slog.Int("peers", n),
			slog.String("remote", p.remote.String()), slog.Any("error", cause))
	}
}

func (p *peer) readAll() error {
	for {
		if p.giving.Load() != nil {
			return errGiven
		}
		n, err := p.readStream()
		if errors.Is(err, os.ErrDeadlineExceeded) && p.giving.Load() != nil {
			return errGiven
		}
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed) {
				return transport.ErrClosed // fail or Close has set the cause
			}
			return err
		}
		arrived, err := p.took(n)
		if arrived {
			// Readers that are ready to run bring their frames first: one turn of
			// the log for all of them.
			runtime.Gosched()
			p.h.Settle()
		}
		if err != nil {
			return err
		}
	}
}

// took hands over what n bytes more make whole. arrived: Settle is due.
func (p *peer) took(n int) (arrived bool, err error) {
	p.g.t.metrics.bytesIn.Add(uint64(n))
	p.activity.Store(served)
	defer p.activity.Store(spoke)
	p.in.have += n
	if p.discard.Load() {
		p.in.release()
		return false, nil
	}
	return p.cut()
}

// cut hands the whole frames in the inbox to the session.
func (p *peer) cut() (arrived bool, err error) {
	buf := p.in.buf
	frames, used, want, err := command.Split(buf.b[:p.in.have], buf.frames[:0], p.g.split)
	buf.frames = frames
	if len(frames) > 0 {
		p.g.t.metrics.framesIn.Add(uint64(len(frames)))
		p.s.Arrived(frames)
	}
	p.in.rest(used, want)
	if errors.Is(err, command.ErrFrameTooLarge) {
		err = fmt.Errorf("%w: %w", transport.ErrLimit, err)
	}
	return len(frames) > 0, err
}

var errReadBytes = fmt.Errorf("%w: the read buffers of all peers together have reached Limits.ReadBytes", transport.ErrLimit)

// stayHot is how many small reads a stream reader keeps its large buffer for.
const stayHot = 16

// readStream reads where a buffer must be held while waiting: a small one,
// until the peer sends more than that.
func (p *peer) readStream() (n int, err error) {
	var space []byte
	if p.in.hot == 0 && p.in.have == 0 {
		if p.in.buf == nil || p.in.buf.class >= 0 {
			p.in.release()
			p.in.buf = p.in.pools.get(smallBuffer, p.in.read)
		}
		space = p.in.buf.b
	} else if space = p.in.space(); space == nil {
		return 0, errReadBytes
	}
	n, err = p.stream.Read(space)
	switch {
	case n == len(space):
		p.in.hot = stayHot
	case p.in.hot > 0 && n < smallBuffer/2:
		p.in.hot--
	}
	if n > 0 {
		err = nil // it comes again
	}
	return n, err
}

// tick is called by the janitor; an error says why the peer must be closed.
func (p *peer) tick(idle time.Duration) error {
	if written := p.written.Load(); written != p.watched.written || !p.behind() {
		p.watched.written, p.watched.stuck = written, 0
	} else if p.watched.stuck++; p.watched.stuck > janitorTicks {
		return fmt.Errorf("%w: it took nothing of its backlog for %s", transport.ErrSlow, idle)
	}
	switch p.activity.Load() { // once: a session that returns now was served now
	case spoke:
		p.activity.CompareAndSwap(spoke, silent)
		p.watched.ticks = 0
	case served:
		p.watched.ticks = 0
	default:
		if p.watched.ticks++; p.watched.ticks >= janitorTicks {
			return fmt.Errorf("%w: nothing came for %s", transport.ErrIdle, idle)
		}
	}
	return nil
}

func (p *peer) behind() bool {
	p.wmu.Lock()
	defer p.wmu.Unlock()
	return p.draining
}
