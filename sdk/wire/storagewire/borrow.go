package storagewire

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"

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
// concurrent use. Before Connect its calls fail with storage.ErrNotRunning, after the
// connection ended with plugin.ErrUnavailable.
type Borrower struct {
	conn   readConn
	topics data.TopicWriter

	st struct {
		sync.Mutex
		version uint64
		state   storage.State
	}
}

// NewBorrower makes a Borrower.
func NewBorrower() *Borrower {
	b := &Borrower{}
	b.conn.over, b.conn.fault, b.conn.lost = storage.ErrNotRunning, b.fault, func() error { return nil }
	return b
}

// Connect makes c the connection to the Lender; once. [Borrower.Serve] must run.
func (b *Borrower) Connect(c net.Conn) { b.conn.open(c) }

// Begin takes the whole state.
func (b *Borrower) Begin(s *storagepb.LogState) {
	b.st.Lock()
	defer b.st.Unlock()
	if v := s.GetVersion(); v > b.st.version {
		b.st.version, b.st.state = v, fromState(s)
	}
}

// Serve hands out answers until the connection ends, and gives the reason; then all
// calls fail.
func (b *Borrower) Serve() error { return b.conn.serve() }

// fault ends the connection; calls fail with what it gives.
func (b *Borrower) fault(why error) error {
	_ = b.conn.send.Conn.Close()
	return fmt.Errorf("%w: %w: %w", plugin.ErrUnavailable, errReturned, why)
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

// Read implements storage.Store.
func (b *Borrower) Read(ctx context.Context, r storage.ReadRequest, c *storage.Chunk) error {
	return b.conn.Read(ctx, r, c)
}

// Get implements storage.Store.
func (b *Borrower) Get(ctx context.Context, at []message.Position, c *storage.Chunk) error {
	return b.conn.Get(ctx, at, c)
}

// ReadLog implements storage.RawLog.
func (b *Borrower) ReadLog(ctx context.Context, from message.Position, most int, c *storage.Chunk) error {
	return b.conn.ReadLog(ctx, from, most, c)
}

// Offsets implements storage.Store.
func (b *Borrower) Offsets(ctx context.Context, q []storage.OffsetQuery, a *storage.OffsetAnswers) error {
	return b.conn.Offsets(ctx, q, a)
}

// Sync implements storage.Store.
func (b *Borrower) Sync(ctx context.Context, end message.Position) error {
	o, err := b.conn.sync(ctx, end)
	if err != nil {
		return writeError(err)
	}
	b.note(&o.marks)
	return wire.OfCall(ctx, o.err)
}
