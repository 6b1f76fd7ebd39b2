package transportwire

import (
	"net"
	"sync"
	"sync/atomic"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
)

const (
	chunkSize = 64 << 10
	// writeSize bounds one write, so that what is written is counted off soon.
	writeSize = 1 << 20
	// lendSize is from where on bytes are lent rather than copied.
	lendSize = 8 << 10
)

var chunks = sync.Pool{New: func() any { b := make([]byte, 0, chunkSize); return &b }}

// part is a piece of the stream; chunk, when set, is free after it.
type part struct {
	b     []byte
	chunk *[]byte
}

// debt is counted off a budget when the stream is written up to end.
type debt struct {
	end  int64
	n    int
	peer *peer
}

// outbox writes frames to a data socket from one goroutine: what comes while it
// writes is its next write. Putting something in never blocks. Safe for
// concurrent use.
type outbox struct {
	conn net.Conn
	wake chan struct{}
	// done is closed when nothing is written any more, and nothing that was lent
	// is touched.
	done chan struct{}
	over atomic.Bool
	line data.Line   // of the connection
	busy atomic.Bool // with a write

	mu    sync.Mutex
	parts []part
	chunk *[]byte // being filled; from on it is in no part yet
	from  int
	end   int64 // of the stream
	debts []debt
}

func (o *outbox) open(c net.Conn) {
	o.conn = c
	o.wake, o.done = make(chan struct{}, 1), make(chan struct{})
}

// kick makes the writer look.
func (o *outbox) kick() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// copyIn appends bytes; mu is held.
func (o *outbox) copyIn(b []byte) {
	o.end += int64(len(b))
	for len(b) > 0 {
		if o.chunk != nil && len(*o.chunk) == cap(*o.chunk) {
			o.seal(true)
		}
		if o.chunk == nil {
			o.chunk, o.from = chunks.Get().(*[]byte), 0
		}
		c := *o.chunk
		n := min(len(b), cap(c)-len(c))
		*o.chunk = append(c, b[:n]...)
		b = b[n:]
	}
}

// lend appends bytes that stay as they are until done, or until the other end
// has answered; mu is held.
func (o *outbox) lend(b []byte) {
	if len(b) < lendSize {
		o.copyIn(b)
		return
	}
	o.seal(false)
	o.end += int64(len(b))
	o.parts = append(o.parts, part{b: b})
}

// seal makes a part of what was copied; mu is held. full: the chunk takes no more.
func (o *outbox) seal(full bool) {
	if o.chunk == nil {
		return
	}
	c := *o.chunk
	p := part{b: c[o.from:len(c):len(c)]}
	if full {
		p.chunk = o.chunk
	}
	if len(p.b) > 0 || full {
		o.parts = append(o.parts, p)
	}
	o.from = len(c)
	if full {
		o.chunk = nil
	}
}

func (o *outbox) head(k data.Kind, id uint64, n int) {
	var b [data.HeadSize]byte
	h := data.Head{Size: uint32(n), Kind: k, ID: id}
	h.Put(b[:])
	o.copyIn(b[:])
}

// put appends a frame; without soon it waits for the next one that does not.
func (o *outbox) put(k data.Kind, id uint64, body []byte, soon bool) {
	if o.over.Load() {
		return
	}
	o.mu.Lock()
	o.head(k, id, len(body))
	o.copyIn(body)
	o.mu.Unlock()
	if soon {
		o.kick()
	}
}

// send appends what p is sent, n bytes; false when p is not at s any more.
func (o *outbox) send(p *peer, s *seat, out []command.Frame, n int) bool {
	if o.over.Load() {
		return true
	}
	o.mu.Lock()
	if p.at.Load() != s {
		o.mu.Unlock()
		return false
	}
	o.head(kindSend, s.num, n)
	for i := range out {
		f := &out[i]
		if f.Raw != nil {
			o.copyIn(f.Raw)
			continue
		}
		o.copyIn(f.Header)
		o.copyIn(f.Body)
		for _, b := range f.Bodies {
			o.copyIn(b)
		}
	}
	o.debts = append(o.debts, debt{o.end, n, p})
	o.mu.Unlock()
	o.kick()
	return true
}

// unseat ends sending to p from this process: what is sent from now on is held. The
// mark comes after all that was sent before.
func (o *outbox) unseat(p *peer, marks *atomic.Uint64) (mark uint64) {
	o.mu.Lock()
	mark = marks.Add(1) // with the lock, or a later one could come first
	p.at.Store(nil)
	o.head(kindMark, mark, 0)
	o.mu.Unlock()
	o.kick()
	return mark
}

// seat begins sending to p at s, with what was held. p.mu is held.
func (o *outbox) seat(p *peer, s *seat) {
	o.mu.Lock()
	for _, b := range p.held {
		o.head(kindSend, s.num, len(b))
		o.copyIn(b)
		o.debts = append(o.debts, debt{o.end, len(b), p})
	}
	p.at.Store(s)
	o.mu.Unlock()
	p.held = nil
	o.kick()
}

// arrived appends the frames of a read, lent until the host took them.
func (o *outbox) arrived(id uint64, in []command.Frame) {
	if o.over.Load() {
		return
	}
	n := 0
	for i := range in {
		n += len(in[i].Raw)
	}
	o.mu.Lock()
	o.head(kindArrived, id, n)
	for i := range in {
		o.lend(in[i].Raw)
	}
	o.mu.Unlock()
	o.kick()
}

// close ends the writer and the connection.
func (o *outbox) close() {
	o.over.Store(true)
	_ = o.conn.Close()
	o.kick()
}

// run writes until the connection fails or is closed.
func (o *outbox) run() (err error) {
	defer close(o.done)
	var taken []part
	var vec net.Buffers
	wrote := int64(0)
	for !o.over.Load() {
		o.mu.Lock()
		o.seal(false)
		n, size := 0, 0
		for n < len(o.parts) && (n == 0 || size+len(o.parts[n].b) <= writeSize) {
			size += len(o.parts[n].b)
			n++
		}
		taken = append(taken[:0], o.parts[:n]...)
		rest := copy(o.parts, o.parts[n:])
		clear(o.parts[rest:])
		o.parts = o.parts[:rest]
		if n == 0 && o.chunk != nil { // all of it is written
			*o.chunk, o.from = (*o.chunk)[:0], 0
		}
		o.mu.Unlock()
		if n == 0 {
			<-o.wake
			continue
		}
		vec = vec[:0]
		for _, p := range taken {
			if len(p.b) > 0 {
				vec = append(vec, p.b)
			}
		}
		out := vec
		o.busy.Store(true)
		if _, err := out.WriteTo(o.conn); err != nil {
			return err
		}
		o.busy.Store(false)
		o.line.Moved()
		clear(vec)
		for _, p := range taken {
			if p.chunk != nil {
				*p.chunk = (*p.chunk)[:0]
				chunks.Put(p.chunk)
			}
		}
		clear(taken)
		wrote += int64(size)
		o.settle(wrote)
	}
	return net.ErrClosed
}

// settle counts off what is written.
func (o *outbox) settle(wrote int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for n < len(o.debts) && o.debts[n].end <= wrote {
		o.debts[n].peer.unsent(-o.debts[n].n)
		n++
	}
	rest := copy(o.debts, o.debts[n:])
	clear(o.debts[rest:])
	o.debts = o.debts[:rest]
}
