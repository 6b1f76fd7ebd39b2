package storagewire

import (
	"context"
	"errors"
	"log/slog"
	"net"

	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire/storagepb"
)

// Lender lets the other end of a connection read a store that runs here, for
// adapters of plugins that work on the host's store. The other end is a
// [Borrower]. It neither starts nor stops the store. Safe for concurrent use.
type Lender struct {
	i      *instance
	topics data.TopicReader
}

// NewLender makes a Lender of a store, running or not.
func NewLender(s storage.Store, log *slog.Logger) *Lender {
	i := newInstance()
	i.store, i.caps, i.logger = s, s.Capabilities(), log
	return &Lender{i: i}
}

// Serve answers what the Borrower at the other end of c asks, until c breaks or
// the Lender is closed; once.
func (l *Lender) Serve(c net.Conn) error {
	l.i.read.Conn = c
	stop := context.AfterFunc(l.i.ctx, func() { _ = c.Close() })
	defer stop()
	return l.i.serveRead()
}

// Close ends all calls, the connection too, and waits for them.
func (l *Lender) Close() {
	l.i.cancel()
	l.i.tasks.Wait()
}

// Watch has line note what the other end asks; before Serve.
func (l *Lender) Watch(line *data.Line) { l.i.line = line }

// Busy reports whether calls of the other end are under way: it waits for this one.
func (l *Lender) Busy() bool { return l.i.busy.Load() > 0 }

// AppendMarks appends what [Borrower.Note] reads: how far the log is now.
func (l *Lender) AppendMarks(b []byte) []byte {
	m := l.i.marks()
	return putMarks(b, &m)
}

// State is what [Borrower.Connect] begins with.
func (l *Lender) State() *storagepb.LogState { return l.i.state() }

// Append appends a batch that came whole ([Borrower.PutBatch]), one call at a time.
// failed is the store's error, err that of a body that is none.
func (l *Lender) Append(ctx context.Context, body []byte) (failed, err error) {
	b := takeBatch()
	if err := data.ReadBatch(body, &l.topics, &b.Batch); err != nil {
		b.free(nil)
		return nil, err
	}
	return l.i.store.Append(ctx, &b.Batch), nil
}

// errReturned: a Borrower has no connection any more.
var errReturned = errors.New("the connection to the host's store is closed")
