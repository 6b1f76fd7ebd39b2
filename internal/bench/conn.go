package bench

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/internal/rpc"
)

const (
	readSize  = 64 << 10
	flushSize = 256 << 10
	// hopeless is how many errors without one success end a run.
	hopeless = 100
)

// work is what a connection does: it makes requests and takes answers.
type work interface {
	// next appends the request of a slot, due at a time of the run's clock;
	// false: the slot has nothing more to ask.
	next(buf []byte, slot int, opaque int32, due int64) ([]byte, bool)
	// answered takes the answer to the slot's request; f and h are lent. It tells
	// how many messages and bytes of bodies came or went, and whether the answer
	// is a success whose latency counts.
	answered(slot int, code int32, f *command.Frame, h *command.Header, now int64) (t tally, err error)
}

type tally struct {
	messages, bytes int64
	ok              bool
}

// conn is one connection with its slots.
type conn struct {
	r    *run
	nc   net.Conn
	addr string
	w    work
	due  []int64    // by slot
	free chan int32 // open loop: slots without a request

	buf    []byte
	filled int
	frames []command.Frame
	head   command.Header
	out    []byte

	hist               *hdrhistogram.Histogram
	requests, messages int64 // measured
	bytes              int64
	refused            int64
	first, last        int64 // time of the first and last measured answer

	total    atomic.Int64 // messages since the start
	inflight atomic.Int64
	lastRead atomic.Int64
}

// connect dials a broker, as TLS says.
func (o *Options) connect(ctx context.Context, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, unreachable(addr, err)
	}
	if o.TLS == nil {
		return nc, nil
	}
	conf := o.TLS.Clone()
	if conf.ServerName == "" {
		conf.ServerName, _, _ = net.SplitHostPort(addr)
	}
	tc := tls.Client(nc, conf)
	if err := tc.HandshakeContext(ctx); err != nil {
		_ = nc.Close()
		return nil, fmt.Errorf("TLS handshake with %s: %w", addr, err)
	}
	return tc, nil
}

func (r *run) dial(ctx context.Context, addr string, depth int, w work) (*conn, error) {
	nc, err := r.o.connect(ctx, addr)
	if err != nil {
		return nil, err
	}
	c := &conn{
		r: r, nc: nc, addr: addr, w: w, due: make([]int64, depth), buf: make([]byte, readSize),
		hist: newHistogram(r.o),
	}
	r.mu.Lock()
	r.conns = append(r.conns, c)
	r.mu.Unlock()
	return c, nil
}

// read returns the whole frames of one read. They are lent until the next one.
func (c *conn) read() ([]command.Frame, error) {
	for {
		n, err := c.nc.Read(c.buf[c.filled:])
		c.filled += n
		if err != nil {
			switch {
			case c.r.finished.Load():
				return nil, errFinished
			case errors.Is(err, os.ErrDeadlineExceeded):
				return nil, fmt.Errorf("%s did not answer within %v", c.addr, c.r.o.Timeout)
			default:
				return nil, fmt.Errorf("connection to %s: %w", c.addr, err)
			}
		}
		frames, used, want, err := command.Split(c.buf[:c.filled], c.frames[:0], command.DefaultLimits())
		if err != nil {
			return nil, fmt.Errorf("answer of %s: %w", c.addr, err)
		}
		c.frames = frames
		if used > 0 {
			return frames, nil
		}
		if need := max(want, c.filled+1); need > len(c.buf) {
			c.buf = append(c.buf[:c.filled], make([]byte, max(need, 2*len(c.buf))-c.filled)...)
		}
	}
}

// kept moves what is left behind the frames of the last read to the front.
func (c *conn) kept() {
	used := 0
	for i := range c.frames {
		used += len(c.frames[i].Raw)
	}
	copy(c.buf, c.buf[used:c.filled])
	c.filled -= used
	c.frames = c.frames[:0]
}

// take books an answer and returns its slot.
func (c *conn) take(f *command.Frame, now int64) (int, error) {
	code, opaque, err := glance(f, &c.head)
	if err != nil {
		return 0, fmt.Errorf("answer of %s: %w", c.addr, err)
	}
	slot := int(opaque) - opaqueBase
	if slot < 0 || slot >= len(c.due) || c.due[slot] < 0 {
		return 0, fmt.Errorf("%s answered with opaque %d, which was not asked", c.addr, opaque)
	}
	due := c.due[slot]
	c.due[slot] = -1
	t, err := c.w.answered(slot, code, f, &c.head, now)
	if err != nil {
		return 0, err
	}
	if !t.ok && t.messages == 0 && c.r.isError(code) {
		if c.head.Decode(f) == nil {
			c.r.note(code, string(c.head.Remark()))
		}
		if c.refused++; c.refused >= hopeless && c.total.Load() == 0 {
			return 0, fmt.Errorf("%s refuses everything: %w", c.addr, &rpc.CodeError{Code: code, Remark: string(c.head.Remark())})
		}
		return slot, nil
	}
	c.total.Add(t.messages)
	if c.r.measured(due, now) {
		if c.first == 0 {
			c.first = now
		}
		c.last = now
		c.requests++
		c.messages += t.messages
		c.bytes += t.bytes
		if t.ok {
			_ = c.hist.RecordValue(now - due)
		}
	}
	return slot, nil
}

func (c *conn) write() error {
	if len(c.out) == 0 {
		return nil
	}
	_, err := c.nc.Write(c.out)
	c.out = c.out[:0]
	if err != nil {
		return fmt.Errorf("connection to %s: %w", c.addr, err)
	}
	return nil
}

// ask appends the request of a slot.
func (c *conn) ask(slot int, due int64) bool {
	out, ok := c.w.next(c.out, slot, int32(opaqueBase+slot), due)
	if ok {
		c.out, c.due[slot] = out, due
	} else {
		c.due[slot] = -1
	}
	return ok
}

// closed asks with every slot as soon as its last answer came.
func (c *conn) closed() error {
	live := int64(0)
	now := c.r.now()
	c.lastRead.Store(now)
	for slot := range c.due {
		if c.ask(slot, now) {
			live++
		}
		if len(c.out) >= flushSize {
			if err := c.write(); err != nil {
				return err
			}
		}
	}
	for c.inflight.Store(live); live > 0; c.inflight.Store(live) {
		if err := c.write(); err != nil {
			return err
		}
		frames, err := c.read()
		if errors.Is(err, errFinished) {
			return nil
		}
		if err != nil {
			return err
		}
		now := c.r.now()
		c.lastRead.Store(now)
		over := now >= c.r.to.Load()
		for i := range frames {
			slot, err := c.take(&frames[i], now)
			if err != nil {
				return err
			}
			if over || !c.ask(slot, now) {
				live--
			}
		}
		c.kept()
	}
	return nil
}

// answers reads what an open loop has asked, until finished.
func (c *conn) answers() error {
	for {
		frames, err := c.read()
		if errors.Is(err, errFinished) {
			return nil
		}
		if err != nil {
			return err
		}
		now := c.r.now()
		c.lastRead.Store(now)
		c.inflight.Load() // the slots were written before it was raised
		for i := range frames {
			slot, err := c.take(&frames[i], now)
			if err != nil {
				return err
			}
			c.inflight.Add(-1)
			c.free <- int32(slot)
		}
		c.kept()
	}
}
