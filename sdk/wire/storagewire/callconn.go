package storagewire

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
)

// callConnections is how many the host wants. That many calls at a time cost no
// goroutine at either end; others go over the read connection.
const callConnections = 8

// callConn is a call connection at the host: one call at a time, and nothing else.
// The caller itself writes the request and reads the answer, and the plugin does the
// call where it reads it: no goroutine is woken between, at either end.
type callConn struct {
	conn deadliner
	send data.Sender
	in   io.Reader
	nr   int64         // in cancellations
	id   atomic.Uint64 // of the call that is not answered; 0: none
	kind atomic.Uint32 // its kind

	mu sync.Mutex
	// done is of the context whose end is watched. It stays watched when the call is
	// over, for the next call's is mostly the same one.
	done    <-chan struct{}
	unwatch func() bool
	cut     bool // it ended, and the read was broken off
}

// deadliner is a net.Conn as far as it is needed.
type deadliner interface {
	io.ReadWriteCloser
	SetReadDeadline(t time.Time) error
}

// callConns are those of a session, of which each call takes one for itself. The
// zero value has none.
type callConns struct {
	mu     sync.Mutex
	all    []*callConn
	free   []*callConn // the last one is taken next: its memory is warm
	closed bool
	tasks  *sync.WaitGroup
}

// add is called before anything else.
func (o *callConns) add(r *readConn, c deadliner, tasks *sync.WaitGroup) {
	p := &callConn{conn: c, in: r.line.Hear(c), nr: cancelCalls + int64(len(o.all))}
	p.send.Conn = c
	o.tasks, o.all, o.free = tasks, append(o.all, p), append(o.free, p)
}

// take gives one that no call has, nil when there is none.
func (o *callConns) take() *callConn {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(o.free) - 1
	if n < 0 {
		return nil
	}
	p := o.free[n]
	o.free = o.free[:n]
	return p
}

// give takes it back; false when the session is over.
func (o *callConns) give(p *callConn) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		p.forget()
		return false
	}
	o.free = append(o.free, p)
	return true
}

// close ends the calls, and then there are no connections.
func (o *callConns) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	for _, p := range o.all {
		_ = p.conn.Close()
	}
	for _, p := range o.free {
		p.forget()
	}
	o.free = nil
}

// later runs what the session waits for, unless it is over.
func (o *callConns) later(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.tasks.Go(f)
	}
}

// ask does a call: it sends a frame and reads the answer, which may be a failure.
// When ctx ends first, the plugin is told, and the connection is free when the answer
// has come to nobody.
func (p *callConn) ask(ctx context.Context, r *readConn, k data.Kind, id uint64, frame []byte) (*call, error) {
	a := calls.Get().(*call)
	a.body, a.from = data.TakeBuffer(), data.HeadSize
	p.begin(ctx, r, k, id)
	err := p.send.Send(frame)
	if err == nil {
		err = p.read(a, id)
	}
	cut := p.end()
	switch {
	case err == nil && r.own.give(p):
		return a, nil
	case err == nil:
		err = net.ErrClosed // the plugin was not asked to go on with it any more
	case cut && ctx.Err() != nil:
		r.leave(k)
		r.own.later(func() { p.drain(r, a, id) })
		return nil, ctx.Err()
	}
	a.release()
	p.forget()
	return nil, r.fault(err)
}

// read reads the answer into a; it goes on where it was broken off.
func (p *callConn) read(a *call, id uint64) error {
	h, b, err := data.ReadAlone(p.in, *a.body, kindEvent)
	*a.body, a.kind = b, h.Kind
	if err == nil && (h.ID != id || h.Kind != kindDone && h.Kind != kindFailed) {
		err = fmt.Errorf("%w: answer %d of kind %d to call %d", data.ErrFrame, h.ID, h.Kind, id)
	}
	return err
}

// drain takes the answer that nobody waits for.
func (p *callConn) drain(r *readConn, a *call, id uint64) {
	err := p.read(a, id)
	a.release()
	if err != nil {
		p.forget()
		_ = r.fault(err)
		return
	}
	_ = r.own.give(p)
}

func (p *callConn) begin(ctx context.Context, r *readConn, k data.Kind, id uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kind.Store(uint32(k))
	p.id.Store(id)
	done := ctx.Done()
	if done == p.done {
		if ctx.Err() != nil { // its watch may have ended before this call was there
			go p.ended(r, done)
		}
		return
	}
	if p.unwatch != nil {
		p.unwatch()
	}
	p.done, p.unwatch = done, nil
	if done != nil {
		p.unwatch = context.AfterFunc(ctx, func() { p.ended(r, done) })
	}
}

// ended breaks off the call under way, if it is of that context.
func (p *callConn) ended(r *readConn, done <-chan struct{}) {
	p.mu.Lock()
	id := p.id.Load()
	mine := id != 0 && p.done == done
	if mine {
		p.cut = true
		_ = p.conn.SetReadDeadline(time.Unix(1, 0))
	}
	p.mu.Unlock()
	if mine {
		r.cancel(id, p.nr)
	}
}

// end reports whether the read was broken off.
func (p *callConn) end() (cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.id.Store(0)
	if cut, p.cut = p.cut, false; cut {
		_ = p.conn.SetReadDeadline(time.Time{})
	}
	return cut
}

// forget ends the watch of a context; no call is under way.
func (p *callConn) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unwatch != nil {
		p.unwatch()
	}
	p.done, p.unwatch = nil, nil
}
