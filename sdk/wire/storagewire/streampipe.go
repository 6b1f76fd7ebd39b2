package storagewire

import (
	"io"
	"sync"

	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
)

// mailbox is one direction of a pipe. It holds what was written and not yet read,
// without a bound of its own: both halves bound how much is under way, and a
// writer that waited for its reader could wait for itself.
type mailbox struct {
	mu    sync.Mutex
	more  sync.Cond
	buf   []byte
	start int
	why   error // why it is closed
}

// pipeEnd is one end of a connection within the process, in the place of a data
// socket.
type pipeEnd struct{ in, out *mailbox }

func newPipe() (a, b *pipeEnd) {
	x, y := &mailbox{}, &mailbox{}
	x.more.L, y.more.L = &x.mu, &y.mu
	return &pipeEnd{in: x, out: y}, &pipeEnd{in: y, out: x}
}

// Read implements io.Reader. What was written before the end closed is still read.
func (p *pipeEnd) Read(b []byte) (int, error) {
	m := p.in
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.start == len(m.buf) && m.why == nil {
		m.more.Wait()
	}
	if m.start == len(m.buf) {
		return 0, m.why
	}
	n := copy(b, m.buf[m.start:])
	if m.start += n; m.start == len(m.buf) {
		if cap(m.buf) > data.KeepSize {
			m.buf = nil
		}
		m.buf, m.start = m.buf[:0], 0
	}
	return n, nil
}

// Write implements io.Writer.
func (p *pipeEnd) Write(b []byte) (int, error) {
	m := p.out
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.why != nil {
		return 0, io.ErrClosedPipe
	}
	m.buf = append(m.buf, b...)
	m.more.Signal()
	return len(b), nil
}

// Close implements io.Closer.
func (p *pipeEnd) Close() error {
	p.closeFor(io.EOF)
	return nil
}

// closeFor closes both directions; readers get why.
func (p *pipeEnd) closeFor(why error) {
	for _, m := range []*mailbox{p.in, p.out} {
		m.mu.Lock()
		if m.why == nil {
			m.why = why
		}
		m.more.Broadcast()
		m.mu.Unlock()
	}
}
