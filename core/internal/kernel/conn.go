package kernel

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/transport"
)

// Sender takes the sends of a connection, which go in batches. Calls for one
// connection never overlap.
type Sender interface {
	// Opened makes the sender's state of a connection, kept in Conn.Sender.
	Opened(c *Conn) any
	// Collect takes one request; what it needs of h stays valid until Flush.
	// Errors are answered by Collect itself.
	Collect(c *Conn, h *command.Header, f *command.Frame)
	// Flush hands over what was collected; the frames are lent until then. It
	// may block on the log.
	Flush(c *Conn)
	// Settle takes the turn of the log, if nobody has it.
	Settle()
}

// HandlerFunc serves one request. It runs on the reader of the connection: it
// may block on the log, never on a peer. What it needs after it returns it
// copies; a later answer goes through [Request.Ticket].
type HandlerFunc func(r *Request)

// Conn is the kernel's session of a peer.
type Conn struct {
	Peer transport.Peer
	// Born is the peer's address as it stands in records.
	Born message.Host
	// Sender is the send behaviour's state.
	Sender any

	k     *Kernel
	began time.Duration // when what is being served arrived, as Kernel.Uptime
	asks  asks
	hdr   command.Header
	out   []byte // of answers given inside a handler
	one   [1]command.Frame
	req   Request
}

// Opened implements transport.Handler.
func (k *Kernel) Opened(p transport.Peer) transport.Session {
	c := &Conn{Peer: p, Born: message.HostOf(p.Remote()), k: k}
	c.Sender = k.sender.Opened(c)
	k.conns.Store(p.ID(), c)
	return c
}

// Conns calls yield for each connection until it returns false.
func (k *Kernel) Conns(yield func(*Conn) bool) {
	k.conns.Range(func(_, v any) bool { return yield(v.(*Conn)) })
}

// Arrived implements transport.Session.
func (c *Conn) Arrived(in []command.Frame) {
	c.began = c.k.Uptime()
	sends := 0
	for i := range in {
		f := &in[i]
		var err error
		if sends == 0 {
			err = c.hdr.Decode(f)
		} else {
			err = c.hdr.DecodeMore(f) // what was collected keeps its fields
		}
		if err != nil {
			// No answer is possible: the opaque is unknown.
			c.k.malformedHeader(c, err)
			if sends > 0 {
				// What came before it is as good as any: its answers go before the end.
				c.flush(&sends)
				c.k.sender.Settle()
			}
			_ = c.Peer.Close()
			return
		}
		switch {
		case c.hdr.IsResponse():
			c.answered(f)
		case isSend(c.hdr.Code):
			c.k.sender.Collect(c, &c.hdr, f)
			sends++
		default:
			c.flush(&sends)
			c.dispatch(f)
		}
	}
	c.flush(&sends)
}

// malformedHeader says it: whoever scans the port must not fill the disk.
func (k *Kernel) malformedHeader(c *Conn, err error) {
	if n := k.malformed.Due(k.Clock.Now()); n > 0 {
		k.Log.Warn("closing a connection that sent a malformed header", "peer", c.Peer.Remote(), "error", err, "such_since_last_said", n)
	}
}

// flush hands over collected sends before anything else of the connection is
// served, so that a client's requests take effect in its order.
func (c *Conn) flush(sends *int) {
	if *sends > 0 {
		c.k.sender.Flush(c)
		*sends = 0
	}
}

func (c *Conn) dispatch(f *command.Frame) {
	r := &c.req
	*r = Request{Header: &c.hdr, Frame: f, Conn: c}
	h := c.k.handlers[c.hdr.Code]
	if h == nil {
		r.Error(command.RespRequestCodeNotSupported, fmt.Sprintf(" request type %d not supported", c.hdr.Code))
		return
	}
	defer func() {
		if p := recover(); p != nil {
			r.failed = true
			r.Error(command.RespSystemError, c.Recovered(p, c.hdr.Code).Error())
		}
	}()
	h(r)
}

// Closed implements transport.Session.
func (c *Conn) Closed(error) {
	c.k.conns.Delete(c.Peer.ID())
	c.asks.close()
	for _, f := range c.k.Hooks.disconnect {
		f(c)
	}
}

// Open reports whether the peer is there: after false, or soon after true, the
// hooks of OnDisconnect are called.
func (c *Conn) Open() bool {
	now, _ := c.k.conns.Load(c.Peer.ID())
	return now == c
}

// Notify sends a request without an answer to the peer.
func (c *Conn) Notify(code int32, ext func(w *command.Writer), body []byte) error {
	w := command.Begin(make([]byte, 0, 256), command.JSON, code, c.k.opaque.Add(1), command.FlagOneway)
	if ext != nil {
		ext(&w)
	}
	return c.Peer.Send(command.Frame{Header: w.End(len(body)), Body: body})
}

// Request is a request being served. It is the connection's and reused.
type Request struct {
	Header *command.Header
	Frame  *command.Frame
	Conn   *Conn

	code   int32 // of the answer
	failed bool  // the handler panicked
}

// Ticket is what a later answer needs.
type Ticket struct {
	Conn   *Conn
	Opaque int32
	Code   int32 // of the request
	Type   command.HeaderType
	Oneway bool
	// LongPolling: the request waited for a message.
	LongPolling bool
	// Began is when the request arrived, as Kernel.Uptime.
	Began time.Duration
}

// Ticket copies what a later answer needs.
func (r *Request) Ticket() Ticket {
	return Ticket{
		Conn: r.Conn, Opaque: r.Header.Opaque, Code: r.Header.Code, Type: r.Header.Type, Oneway: r.Header.IsOneway(), Began: r.Conn.began,
	}
}

// Answered counts how long the request took; err is what the peer said to the answer.
// Reply calls it; who sends an answer otherwise does.
func (t *Ticket) Answered(response int32, err error) {
	t.Conn.k.tookOne(Outcome{t.Code, response, t.LongPolling, resultOf(err, t.Oneway, false)}, t.Began)
}

// Began is when what is being served arrived, as Kernel.Uptime; only while it is.
func (c *Conn) Began() time.Duration { return c.began }

// Begin starts the answer, in the encoding of the request, in the connection's
// buffer. Only inside the handler.
func (r *Request) Begin(code int32) command.Writer {
	r.code = code
	return command.Begin(r.Conn.out[:0], r.Header.Type, code, r.Header.Opaque, command.FlagResponse)
}

// Reply ends an answer begun with Begin and sends it. Nothing is sent to a
// oneway request. A peer that is gone or too slow is not the handler's matter.
func (r *Request) Reply(w command.Writer, body ...[]byte) {
	n := 0
	for _, b := range body {
		n += len(b)
	}
	c := r.Conn
	c.out = w.End(n)
	var err error
	if !r.Header.IsOneway() {
		c.one[0] = command.Frame{Header: c.out, Bodies: body}
		err = c.Peer.Send(c.one[:]...)
		c.one[0] = command.Frame{}
		if cap(c.out) > 64<<10 {
			c.out = nil
		}
	}
	c.k.tookOne(Outcome{r.Header.Code, r.code, false, resultOf(err, r.Header.IsOneway(), r.failed)}, c.began)
}

// Code is the response code of the answer, once it was begun.
func (r *Request) Code() int32 { return r.code }

// OK answers success without fields.
func (r *Request) OK() { r.Reply(r.Begin(command.RespSuccess)) }

// Error answers a code and a remark.
func (r *Request) Error(code int32, remark string) {
	w := r.Begin(code)
	w.Remark(remark)
	r.Reply(w)
}

// Fail answers an error: its code and its text.
func (r *Request) Fail(err error) { r.Error(CodeOf(err), err.Error()) }

// JSON answers success with a JSON body.
func (r *Request) JSON(body []byte) { r.Reply(r.Begin(command.RespSuccess), body) }

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

// Reply builds and sends an answer outside of a handler; it may be called by
// any goroutine, once per ticket.
func (t *Ticket) Reply(code int32, fill func(w *command.Writer), body ...[]byte) {
	if t.Oneway {
		t.Answered(code, nil)
		return
	}
	n := 0
	for _, b := range body {
		n += len(b)
	}
	buf := buffers.Get().(*[]byte)
	w := command.Begin((*buf)[:0], t.Type, code, t.Opaque, command.FlagResponse)
	if fill != nil {
		fill(&w)
	}
	*buf = w.End(n)
	err := t.Conn.Peer.Send(command.Frame{Header: *buf, Bodies: body})
	buffers.Put(buf)
	t.Answered(code, err)
}

// codes maps identities of errors to RocketMQ's response codes.
var codes = map[api.ErrorID]int32{
	api.SystemError:             command.RespSystemError,
	api.SystemBusy:              command.RespSystemBusy,
	api.NotSupported:            command.RespRequestCodeNotSupported,
	api.MessageIllegal:          command.RespMessageIllegal,
	api.ServiceNotAvailable:     command.RespServiceNotAvailable,
	api.NoPermission:            command.RespNoPermission,
	api.TopicNotExist:           command.RespTopicNotExist,
	api.NotFound:                command.RespQueryNotFound,
	api.SubscriptionParseFailed: command.RespSubscriptionParseFailed,
	api.SubscriptionNotExist:    command.RespSubscriptionNotExist,
	api.SubscriptionNotLatest:   command.RespSubscriptionNotLatest,
	api.GroupNotExist:           command.RespSubscriptionGroupNotExist,
	api.InvalidParameter:        command.RespInvalidParameter,
}

// CodeOf is the response code of an error.
func CodeOf(err error) int32 {
	if fe := (*command.FieldError)(nil); errors.As(err, &fe) {
		return command.RespInvalidParameter
	}
	id := api.IDOf(err)
	if id == api.SystemError && (errors.Is(err, plugin.ErrUnavailable) || errors.Is(err, storage.ErrNotRunning)) {
		// A store that is away, and comes back, or one that is stopped with its broker:
		// clients go elsewhere or try again.
		return command.RespServiceNotAvailable
	}
	if c, ok := codes[id]; ok {
		return c
	}
	return command.RespSystemError
}

// Version is the MQVersion ordinal that the request being served carries.
func (c *Conn) Version() int32 { return c.hdr.Version }

// Kernel returns the kernel of the connection.
func (c *Conn) Kernel() *Kernel { return c.k }

// Recovered reports what a request's handler panicked with and is the error to
// answer: a fault in one handler must not take the broker down, and the reference
// answers an exception with code 1, too. An [InvariantError] panics on.
func (c *Conn) Recovered(p any, code int32) error {
	if broken, ok := p.(InvariantError); ok {
		panic(broken)
	}
	c.k.Log.Error("a request handler panicked", "code", code, "peer", c.Peer.Remote(), "panic", p, "stack", string(debug.Stack()))
	return fmt.Errorf("internal error while serving request %d: %v", code, p)
}
