package nameserver

import (
	"sync"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/transport"
)

type handler struct{ s *Server }

func (h handler) Opened(p transport.Peer) transport.Session {
	return &session{server: h.s, peer: p, number: h.s.opened.Add(1)}
}

// Settle has nothing to do: requests are answered when they arrive.
func (handler) Settle() {}

// session is one peer: a broker, a client or an admin tool. It holds little,
// since most peers are idle most of the time.
type session struct {
	server *Server
	peer   transport.Peer
	number uint64 // grows with each that is opened
	broker bool   // a broker was registered through it
}

// work is what one call of Arrived needs.
type work struct {
	header command.Header
	writer command.Writer // here because the fields of a reply are written through a function
	buf    []byte
	out    []command.Frame
}

// keepBuf is the largest header buffer that is kept, in bytes.
const keepBuf = 64 << 10

var works = sync.Pool{New: func() any { return new(work) }}

// Arrived answers the requests of one read with one Send.
func (s *session) Arrived(in []command.Frame) {
	w := works.Get().(*work)
	defer w.release()
	for i := range in {
		if err := w.header.Decode(&in[i]); err != nil {
			if n := s.server.malformed.Due(s.server.clock.Now()); n > 0 {
				s.server.table.log.Warn("closing a connection that sent a malformed header", "peer", s.peer.Remote(), "error", err, "such_since_last_said", n)
			}
			s.send(w)
			_ = s.peer.Close() // an error says that it is closed already
			return
		}
		if w.header.IsResponse() {
			continue // nothing was asked
		}
		r := reply{w: w}
		s.handle(&w.header, in[i].Body, &r)
		if !w.header.IsOneway() {
			r.finish()
		}
	}
	s.send(w)
}

func (s *session) send(w *work) {
	if len(w.out) > 0 {
		_ = s.peer.Send(w.out...) // it failed because the peer is closed, and Closed is called
	}
}

// Closed forgets what this connection registered.
func (s *session) Closed(error) {
	if s.broker {
		s.server.brokers.Add(-1)
		s.server.table.closed(s)
	}
}

// isBroker notes that a broker speaks through this session.
func (s *session) isBroker() {
	if !s.broker {
		s.broker = true
		s.server.brokers.Add(1)
	}
}

func (w *work) release() {
	clear(w.out)
	w.writer = command.Writer{}
	w.out = w.out[:0]
	if w.buf = w.buf[:0]; cap(w.buf) > keepBuf {
		w.buf = nil
	}
	works.Put(w)
}

// reply is the answer to one request, in the header encoding of the request.
// The zero values are a plain success.
type reply struct {
	w      *work
	code   int32
	remark string
	fields func(*command.Writer) // nil: none
	body   []byte
}

func (r *reply) fail(code int32, remark string) {
	*r = reply{w: r.w, code: code, remark: remark}
}

// finish encodes the answer.
func (r *reply) finish() {
	h, from := &r.w.header, len(r.w.buf)
	w := &r.w.writer
	*w = command.Begin(r.w.buf, h.Type, r.code, h.Opaque, command.FlagResponse)
	if r.fields != nil {
		r.fields(w)
	}
	w.Remark(r.remark)
	r.w.buf = w.End(len(r.body)) // a header that had to be replaced keeps the body
	r.w.out = append(r.w.out, command.Frame{Type: h.Type, Header: r.w.buf[from:], Body: r.body})
}
