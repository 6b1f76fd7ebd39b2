package storagewire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/process"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire/storagepb"
)

// rolesOf are those of the data connections: log, read, and call connections.
func rolesOf(calls uint32) string { return "LR" + strings.Repeat("C", int(calls)) }

// mostCallConnections bounds what a host may ask for.
const mostCallConnections = 64

// instance is one store with its connections: calls that change the log come
// over one and are done in order by its reader. All others come over call
// connections, whose readers do them one at a time, or over the read connection,
// where each gets a goroutine.
type instance struct {
	store  storage.Store
	caps   storage.Capabilities
	logger *slog.Logger
	ln     *data.Listener
	life   *process.Life

	ctx    context.Context // ends with the instance
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	ready  chan struct{} // the connections are there
	beside bool          // Expire may come over the read connection
	// attached: the stream Data is there.
	attached bool
	log      data.Sender
	read     data.Sender
	lanes    []*lane

	version struct {
		sync.Mutex
		n uint64
	}
	calls struct {
		sync.Mutex
		cancels map[uint64]context.CancelFunc
		early   uint64 // cancelled before it arrived, on the log connection
	}
	ev emitter
	// expiring: one Expire at a time, whatever the host does.
	expiring sync.Mutex
	// line, when not nil, notes what comes over the read connection, and busy counts its
	// calls that are under way.
	line *data.Line
	busy atomic.Int64
}

func newInstance() *instance {
	i := &instance{life: process.NewLife(storage.ErrNotRunning), ready: make(chan struct{})}
	i.ctx, i.cancel = context.WithCancel(context.Background())
	i.calls.cancels = map[uint64]context.CancelFunc{}
	return i
}

// accept takes the connections and serves them; calls is how many are for calls.
func (i *instance) accept(calls uint32) {
	conns, err := i.ln.Accept(i.ctx, i.logger, rolesOf(calls))
	if err != nil {
		i.cancel()
		return
	}
	for _, c := range conns[2:] {
		i.lanes = append(i.lanes, newLane(i, c))
	}
	i.connect(conns[0], conns[1])
}

// connect serves the connections until the instance ends.
func (i *instance) connect(log, read io.ReadWriteCloser) {
	i.log.Conn, i.read.Conn = log, read
	all := []io.Closer{log, read}
	for _, l := range i.lanes {
		all = append(all, l.to.Conn)
	}
	for _, c := range all { // each by itself: closing the stream's waits
		i.tasks.Go(func() {
			<-i.ctx.Done()
			_ = c.Close()
		})
	}
	close(i.ready)
	for _, l := range i.lanes {
		i.tasks.Go(func() { i.serve("call", l.serve) })
	}
	i.tasks.Go(func() { i.serve("log", i.serveLog) })
	i.tasks.Go(func() { i.serve("read", i.serveRead) })
}

// serve runs a reader. When it ends, so do all connections: the host must not
// wait for an answer that never comes.
func (i *instance) serve(what string, loop func() error) {
	defer i.cancel()
	if err := loop(); err != nil && i.ctx.Err() == nil && !errors.Is(err, io.EOF) {
		i.logger.Error("a data connection to the host broke", "connection", what, "error", err)
	}
}

func (i *instance) start(ctx context.Context) error {
	select {
	case <-i.ready:
	case <-ctx.Done():
		return fmt.Errorf("the data connections of the host did not come: %w", ctx.Err())
	case <-i.ctx.Done():
		return storage.ErrNotRunning
	}
	return i.life.Start(ctx, func(ctx context.Context) error {
		i.ev.begin(i, true)
		err := i.store.Start(ctx)
		st := i.store.State()
		i.ev.started(&st)
		return err
	})
}

// shutdown stops the store first, so that calls under way get their answers.
func (i *instance) shutdown(ctx context.Context) error {
	err := i.life.Shutdown(ctx, i.store.Shutdown)
	i.cancel()
	i.tasks.Wait()
	return err
}

// marks orders states by a number, because answers of the two connections
// overtake each other.
func (i *instance) marks() marks {
	i.version.Lock()
	defer i.version.Unlock()
	i.version.n++
	st := i.store.State()
	return marksOf(i.version.n, &st)
}

func (i *instance) state() *storagepb.LogState {
	i.version.Lock()
	defer i.version.Unlock()
	i.version.n++
	st := i.store.State()
	return toState(i.version.n, &st)
}

// context makes that of a call; done ends it. Append and Publish wait for
// nobody, so that cancelling them would change nothing.
func (i *instance) context(h *data.Head, onLog bool) (_ context.Context, done func()) {
	if h.Timeout == 0 && (h.Kind == kindAppend || h.Kind == kindPublish) {
		return i.ctx, func() {}
	}
	ctx, cancel := h.Context(i.ctx)
	id := h.ID // h itself stays off the heap
	i.calls.Lock()
	defer i.calls.Unlock()
	if onLog && i.calls.early == id {
		cancel()
	}
	i.calls.cancels[id] = cancel
	return ctx, func() {
		cancel()
		i.calls.Lock()
		delete(i.calls.cancels, id)
		i.calls.Unlock()
	}
}

// cancelCall ends the context of a call. One on another connection may not have
// arrived yet.
func (i *instance) cancelCall(h *data.Head) {
	if n := h.Timeout - cancelCalls; n >= 0 {
		if n < int64(len(i.lanes)) {
			i.lanes[n].cancelCall(h.ID)
		}
		return
	}
	i.calls.Lock()
	defer i.calls.Unlock()
	if cancel := i.calls.cancels[h.ID]; cancel != nil {
		cancel()
	} else if h.Timeout == cancelLog {
		i.calls.early = h.ID
	}
}

// lentBatch is a batch in the plugin; it returns to its pool when the store
// frees it.
type lentBatch struct {
	storage.Batch
	lent atomic.Bool
	free func(*storage.Batch)
}

var lentBatches sync.Pool

func takeBatch() *lentBatch {
	b, _ := lentBatches.Get().(*lentBatch)
	if b == nil {
		b = &lentBatch{}
		b.free = func(*storage.Batch) {
			if b.lent.CompareAndSwap(true, false) { // a store that frees twice harms nobody else
				lentBatches.Put(b)
			}
		}
	}
	b.lent.Store(true)
	b.Batch = storage.Batch{Units: b.Units[:0], Keys: b.Keys[:0], Groups: b.Groups[:0], Free: b.free}
	return b
}

// serveLog does the calls that change the log.
func (i *instance) serveLog() error {
	var topics data.TopicReader
	var out []byte
	in := data.NewReader(i.log.Conn, kindEvent)
	for {
		h, body, err := in.Next()
		if err != nil {
			return err
		}
		i.ev.begin(i, false)
		var o outcome
		if h.Kind == kindAppend {
			o.err, err = i.append(&h, body, &topics)
		} else {
			o.err, err = i.change(&h, body)
		}
		out = i.ev.end(out[:0], &o)
		if err != nil {
			return err
		}
		o.marks = i.marks()
		n := len(out)
		out = putOutcome(data.Begin(out), &o)
		data.Finish(out, n, kindDone, h.ID, 0, 0)
		if err := i.log.Send(out); err != nil {
			return err
		}
	}
}

// append gives the store's error and that of the frame.
func (i *instance) append(h *data.Head, body []byte, topics *data.TopicReader) (failed, err error) {
	b := takeBatch()
	if err := data.ReadBatch(body, topics, &b.Batch); err != nil {
		b.free(nil)
		return nil, err
	}
	ctx, done := i.context(h, true)
	defer done()
	return i.store.Append(ctx, &b.Batch), nil
}

// expire is Expire beside the calls of the log connection; the event that belongs to it
// has the number own.
func (i *instance) expire(ctx context.Context, first message.Position) (o outcome) {
	if !i.beside {
		o.err = storage.ErrUnsupported
		return o
	}
	i.expiring.Lock()
	defer i.expiring.Unlock()
	before := i.ev.lastExpired()
	o.err = i.caps.Retention.Expire(ctx, first)
	if last := i.ev.lastExpired(); last != before {
		o.own = last
	}
	return o
}

func (i *instance) change(h *data.Head, body []byte) (failed, err error) {
	ctx, done := i.context(h, true)
	defer done()
	d := data.Decoder{B: body}
	switch h.Kind {
	case kindPublish, kindTruncate, kindExpire:
		at := message.Position(d.Int())
		if err := d.Done("a position"); err != nil {
			return nil, err
		}
		switch {
		case h.Kind == kindExpire && i.caps.Retention != nil:
			i.expiring.Lock()
			defer i.expiring.Unlock()
			return i.caps.Retention.Expire(ctx, at), nil
		case h.Kind == kindPublish && i.caps.RawLog != nil:
			return i.caps.RawLog.Publish(ctx, at), nil
		case h.Kind == kindTruncate && i.caps.RawLog != nil:
			failed = i.caps.RawLog.Truncate(ctx, at)
			i.ev.cut(failed == nil, at)
			return failed, nil
		}
	case kindReset:
		first := message.Position(d.Int())
		ends := data.ReadEnds(&d)
		if err := d.Done("Reset"); err != nil {
			return nil, err
		}
		if i.caps.RawLog != nil {
			failed = i.caps.RawLog.Reset(ctx, first, ends)
			i.ev.reset(failed == nil, first)
			return failed, nil
		}
	case kindDrop:
		ends := data.ReadEnds(&d)
		if err := d.Done("Drop"); err != nil {
			return nil, err
		}
		if i.caps.Retention != nil {
			queues := make([]message.Queue, len(ends))
			for n := range ends {
				queues[n] = ends[n].Queue
			}
			return i.caps.Retention.Drop(ctx, queues), nil
		}
	default:
		return nil, fmt.Errorf("%w: kind %d on the log connection", data.ErrFrame, h.Kind)
	}
	return storage.ErrUnsupported, nil
}
