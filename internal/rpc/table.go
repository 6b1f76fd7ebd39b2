package rpc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/transport"
)

// Build appends one whole encoded frame to dst that carries opaque.
type Build func(dst []byte, opaque int32) []byte

// Request builds a JSON request. fill adds the ext fields and may be nil.
func Request(code int32, fill func(*command.Writer), body []byte) Build {
	return build(code, 0, fill, body)
}

// Oneway is Request for frames that want no answer.
func Oneway(code int32, fill func(*command.Writer), body []byte) Build {
	return build(code, command.FlagOneway, fill, body)
}

func build(code, flag int32, fill func(*command.Writer), body []byte) Build {
	return func(dst []byte, opaque int32) []byte {
		w := command.Begin(dst, command.JSON, code, opaque, flag)
		if fill != nil {
			fill(&w)
		}
		return append(w.End(len(body)), body...)
	}
}

// Response is the answer to a call; it owns its memory. Header is not for
// concurrent use.
type Response struct {
	Header command.Header
	Body   []byte
}

// CodeError is a response that says something else than success.
type CodeError struct {
	Code   int32
	Remark string
}

// Error implements error.
func (e *CodeError) Error() string {
	return fmt.Sprintf("%s (code %d): %s", command.ResponseName(e.Code), e.Code, e.Remark)
}

// Err is a *CodeError unless the response says success.
func (r *Response) Err() error {
	if r.Header.Code == command.RespSuccess {
		return nil
	}
	return &CodeError{Code: r.Header.Code, Remark: string(r.Header.Remark())}
}

// Table holds the calls to one peer that wait for their response. The zero
// value is ready. Safe for concurrent use.
type Table struct {
	mu     sync.Mutex
	calls  map[int32]chan answer
	last   int32
	failed error

	sendMu sync.Mutex // guards what is reused
	buf    []byte
	frames [1]command.Frame
}

type answer struct {
	r   *Response
	err error
}

// keepBuffer is the largest encoding buffer that is kept.
const keepBuffer = 64 << 10

// Call sends a request and waits for its response. A response of any code is
// no error; see [Response.Err]. Errors match transport.ErrClosed when the peer
// is closed before the response came, transport.ErrSlow, or ctx's error.
func (t *Table) Call(ctx context.Context, p transport.Peer, b Build) (*Response, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("calling %s: %w", p.Remote(), context.Cause(ctx))
	}
	ch := make(chan answer, 1)
	opaque, err := t.enter(ch)
	if err == nil {
		if err = t.send(p, b, opaque); err != nil {
			t.leave(opaque)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("calling %s: %w", p.Remote(), err)
	}
	select {
	case a := <-ch:
		if a.err != nil {
			return nil, fmt.Errorf("calling %s: %w", p.Remote(), a.err)
		}
		return a.r, nil
	case <-ctx.Done():
		t.leave(opaque)
		return nil, fmt.Errorf("calling %s: no response yet: %w", p.Remote(), context.Cause(ctx))
	}
}

// Send sends a frame that nobody waits for: a one-way request.
func (t *Table) Send(p transport.Peer, b Build) error {
	opaque, err := t.enter(nil)
	if err == nil {
		err = t.send(p, b, opaque)
	}
	if err != nil {
		return fmt.Errorf("sending to %s: %w", p.Remote(), err)
	}
	return nil
}

// enter finds a free opaque and, unless ch is nil, registers it.
func (t *Table) enter(ch chan answer) (int32, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failed != nil {
		return 0, t.failed
	}
	if t.calls == nil {
		t.calls = map[int32]chan answer{}
	}
	for {
		t.last = (t.last + 1) & math.MaxInt32
		if _, taken := t.calls[t.last]; !taken {
			break
		}
	}
	if ch != nil {
		t.calls[t.last] = ch
	}
	return t.last, nil
}

func (t *Table) leave(opaque int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.calls, opaque)
}

func (t *Table) send(p transport.Peer, b Build, opaque int32) error {
	t.sendMu.Lock()
	defer t.sendMu.Unlock()
	t.buf = b(t.buf[:0], opaque)
	t.frames[0].Raw = t.buf
	err := p.Send(t.frames[:]...)
	t.frames[0].Raw = nil
	if cap(t.buf) > keepBuffer {
		t.buf = nil
	}
	return err
}

// Deliver gives a response, whose header h has been decoded from f, to its
// call. It copies. false: nobody waits for it, because the call gave up or never
// was.
func (t *Table) Deliver(h *command.Header, f *command.Frame) bool {
	t.mu.Lock()
	ch := t.calls[h.Opaque]
	delete(t.calls, h.Opaque)
	t.mu.Unlock()
	if ch == nil {
		return false
	}
	own := make([]byte, len(f.Header)+len(f.Body))
	n := copy(own, f.Header)
	copy(own[n:], f.Body)
	r := &Response{Body: own[n:]}
	err := r.Header.Decode(&command.Frame{Type: f.Type, Header: own[:n:n]})
	ch <- answer{r, err}
	return true
}

// Fail ends all calls, and those to come, with an error that matches
// transport.ErrClosed and cause. A session calls it from Closed.
func (t *Table) Fail(cause error) {
	err := transport.ErrClosed
	if cause != nil && !errors.Is(cause, transport.ErrClosed) {
		err = fmt.Errorf("%w: %w", transport.ErrClosed, cause)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failed == nil {
		t.failed = err
	}
	for opaque, ch := range t.calls {
		ch <- answer{err: err}
		delete(t.calls, opaque)
	}
}

// Pending is the number of calls that wait.
func (t *Table) Pending() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.calls)
}
