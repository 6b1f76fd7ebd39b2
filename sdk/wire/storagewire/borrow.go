package storagewire

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire/storagepb"
)

// Borrower is half a store that runs at the other end of a connection ([Lender]):
// the calls that do not change the log. State is a copy that Note and Sync
// renew; its list of damage is as it was when the connection began. Safe for
// concurrent use. Before Connect its calls fail with storage.ErrNotRunning.
type Borrower struct {
	topics data.TopicWriter
	last   atomic.Uint64 // id of a call
	send   data.Sender

	mu   sync.Mutex
	wait map[uint64]*call
	over error // why there is no connection

	st struct {
		sync.Mutex
		version uint64
		state   storage.State
	}
}

// NewBorrower makes a Borrower.
func NewBorrower() *Borrower { return &Borrower{over: storage.ErrNotRunning} }

// Connect makes c the connection to the Lender; once. [Borrower.Serve] must run.
func (b *Borrower) Connect(c net.Conn) {
	b.send.Conn = c
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wait, b.over = map[uint64]*call{}, nil
}

// Begin takes the whole state.
func (b *Borrower) Begin(s *storagepb.LogState) {
	b.st.Lock()
	defer b.st.Unlock()
	if v := s.GetVersion(); v > b.st.version {
		b.st.version, b.st.state = v, fromState(s)
	}
}

// Serve hands out answers until the connection ends; then all calls fail.
func (b *Borrower) Serve() error {
	err := b.serve()
	over := fmt.Errorf("%w: %w: %w", plugin.ErrUnavailable, errReturned, err)
	b.mu.Lock()
	all := b.wait
	b.wait, b.over = nil, over
	b.mu.Unlock()
	for _, c := range all {
		c.err = over
		c.done <- struct{}{}
	}
	return err
}

func (b *Borrower) serve() error {
	in := bufio.NewReaderSize(b.send.Conn, 4096)
	var head [data.HeadSize]byte
	for {
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return err
		}
		h, err := data.ParseHead(head[:], kindEvent)
		if err == nil && h.Kind != kindDone && h.Kind != kindFailed {
			err = fmt.Errorf("%w: kind %d among the answers of a store", data.ErrFrame, h.Kind)
		}
		if err != nil {
			return err
		}
		b.mu.Lock()
		c := b.wait[h.ID]
		delete(b.wait, h.ID)
		b.mu.Unlock()
		if c == nil { // nobody waits any more
			_, err = in.Discard(int(h.Size))
		} else {
			c.kind, c.body = h.Kind, data.TakeBuffer()
			if *c.body, err = data.ReadBody((*c.body)[:0], in, int(h.Size)); err != nil {
				c.err = fmt.Errorf("%w: %w: %w", plugin.ErrUnavailable, errReturned, err)
			}
			c.done <- struct{}{}
		}
		if err != nil {
			return err
		}
	}
}

// ask sends the request in out, which it takes, and waits for the answer.
func (b *Borrower) ask(ctx context.Context, k data.Kind, out *[]byte) (*call, error) {
	defer data.GiveBuffer(out)
	left, err := data.Left(ctx)
	if err != nil {
		return nil, err
	}
	id, c := b.last.Add(1), calls.Get().(*call)
	data.Finish(*out, 0, k, id, left, 0)
	b.mu.Lock()
	if err := b.over; err != nil {
		b.mu.Unlock()
		c.release()
		return nil, err
	}
	b.wait[id] = c
	b.mu.Unlock()
	if err := b.send.Send(*out); err != nil {
		_ = b.send.Conn.Close() // Serve ends all calls
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		b.mu.Lock()
		_, mine := b.wait[id]
		delete(b.wait, id)
		b.mu.Unlock()
		if mine {
			c.release()
			cancel := data.Begin(nil)
			data.Finish(cancel, 0, kindCancel, id, 0, 0)
			_ = b.send.Send(cancel) // a broken connection ends the call anyway
			return nil, ctx.Err()
		}
		<-c.done // the answer is on its way into c
	}
	if err := c.err; err != nil {
		c.release()
		return nil, err
	}
	if c.kind == kindFailed {
		err, bad := readFailure(*c.body)
		c.release()
		if bad != nil || err == nil {
			return nil, b.fault(fmt.Errorf("%w: an answer that failed without an error", data.ErrFrame))
		}
		return nil, wire.OfCall(ctx, err)
	}
	return c, nil
}

// fault ends the connection: the other end does not speak the protocol.
func (b *Borrower) fault(err error) error {
	_ = b.send.Conn.Close()
	return fmt.Errorf("%w: %w", plugin.ErrUnavailable, err)
}

// Note takes the marks at the beginning of a body and gives what follows them.
func (b *Borrower) Note(body []byte) ([]byte, error) {
	d := data.Decoder{B: body}
	m := readMarks(&d)
	if d.Fault {
		return nil, d.Done("the marks of a log")
	}
	b.note(&m)
	return d.B, nil
}

func (b *Borrower) note(m *marks) {
	b.st.Lock()
	defer b.st.Unlock()
	if m.version > b.st.version {
		b.st.version = m.version
		st := &b.st.state
		st.First, st.Published, st.Durable, st.Tail, st.LastStoreTime = m.first, m.published, m.durable, m.tail, m.lastStoreTime
	}
}

// PutBatch appends a batch whole, its bytes too, for [Lender.Append]; one call at a
// time, in the order of the calls there.
func (b *Borrower) PutBatch(out []byte, x *storage.Batch) []byte {
	return append(data.PutBatch(out, &b.topics, x), x.Buf...)
}

// State implements storage.Store.
func (b *Borrower) State() storage.State {
	b.st.Lock()
	defer b.st.Unlock()
	st := b.st.state
	st.Damaged = slices.Clone(st.Damaged)
	return st
}

func (b *Borrower) chunk(ctx context.Context, k data.Kind, out *[]byte, topic string, c *storage.Chunk) error {
	a, err := b.ask(ctx, k, out)
	if err != nil {
		return err
	}
	if err := readChunk(*a.body, topic, c); err != nil {
		a.release()
		c.Reset()
		return b.fault(err)
	}
	c.Lease = a
	return nil
}

// Read implements storage.Store.
func (b *Borrower) Read(ctx context.Context, r storage.ReadRequest, c *storage.Chunk) error {
	c.Reset()
	out := data.TakeBuffer()
	*out = putReadRequest(data.Begin((*out)[:0]), &r)
	return b.chunk(ctx, kindRead, out, r.Queue.Topic, c)
}

// Get implements storage.Store.
func (b *Borrower) Get(ctx context.Context, at []message.Position, c *storage.Chunk) error {
	c.Reset()
	out := data.TakeBuffer()
	*out = putPositions(data.Begin((*out)[:0]), at)
	return b.chunk(ctx, kindGet, out, "", c)
}

// ReadLog implements storage.RawLog.
func (b *Borrower) ReadLog(ctx context.Context, from message.Position, most int, c *storage.Chunk) error {
	c.Reset()
	out := data.TakeBuffer()
	*out = data.PutInt(data.PutInt(data.Begin((*out)[:0]), from), int64(most))
	return b.chunk(ctx, kindReadLog, out, "", c)
}

// Offsets implements storage.Store.
func (b *Borrower) Offsets(ctx context.Context, q []storage.OffsetQuery, a *storage.OffsetAnswers) error {
	a.Answers = a.Answers[:0]
	out := data.TakeBuffer()
	*out = putQueries(data.Begin((*out)[:0]), q)
	c, err := b.ask(ctx, kindOffsets, out)
	if err != nil {
		return err
	}
	defer c.release()
	if err := readAnswers(*c.body, q, a); err != nil {
		a.Answers = a.Answers[:0]
		return b.fault(err)
	}
	return nil
}

// Sync implements storage.Store.
func (b *Borrower) Sync(ctx context.Context, end message.Position) error {
	out := data.TakeBuffer()
	*out = data.PutInt(data.Begin((*out)[:0]), end)
	c, err := b.ask(ctx, kindSync, out)
	if err != nil {
		return writeError(err)
	}
	o, err := readOutcome(*c.body)
	c.release()
	if err != nil {
		return writeError(b.fault(err))
	}
	b.note(&o.marks)
	return wire.OfCall(ctx, o.err)
}
