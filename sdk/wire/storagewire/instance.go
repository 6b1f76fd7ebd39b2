package storagewire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire/storagepb"
)

// roles are those of the data connections: log and read.
const roles = "LR"

// instance is one store with its two connections: calls that change the log come
// over one and are done in order by its reader; all others come over the other
// and each gets a goroutine.
type instance struct {
	store  storage.Store
	caps   storage.Capabilities
	logger *slog.Logger
	ln     *data.Listener

	ctx    context.Context // ends with the instance
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	ready  chan struct{} // both connections are there
	// attached: the stream Data is there.
	attached bool
	log      data.Sender
	read     data.Sender

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
	// line, when not nil, notes what comes over the read connection, and busy counts its
	// calls that are under way.
	line *data.Line
	busy atomic.Int64
}

func newInstance() *instance {
	i := &instance{ready: make(chan struct{})}
	i.ctx, i.cancel = context.WithCancel(context.Background())
	i.calls.cancels = map[uint64]context.CancelFunc{}
	return i
}

// accept takes the two connections and serves them.
func (i *instance) accept() {
	conns, err := i.ln.Accept(i.ctx, i.logger, roles)
	if err != nil {
		i.cancel()
		return
	}
	i.connect(conns[0], conns[1])
}

// connect serves the two connections until the instance ends.
func (i *instance) connect(log, read io.ReadWriteCloser) {
	i.log.Conn, i.read.Conn = log, read
	for _, c := range []io.Closer{log, read} {
		i.tasks.Go(func() {
			<-i.ctx.Done()
			_ = c.Close()
		})
	}
	close(i.ready)
	i.tasks.Go(func() { i.serve("log", i.serveLog) })
	i.tasks.Go(func() { i.serve("read", i.serveRead) })
}

// serve runs a reader. When it ends, so do both connections: the host must not
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
	i.ev.begin(i, true)
	err := i.store.Start(ctx)
	st := i.store.State()
	i.ev.started(&st)
	return err
}

// shutdown stops the store first, so that calls under way get their answers.
func (i *instance) shutdown(ctx context.Context) error {
	err := i.store.Shutdown(ctx)
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

// cancelCall ends the context of a call. One on the log connection may not have
// arrived yet.
func (i *instance) cancelCall(h *data.Head) {
	i.calls.Lock()
	defer i.calls.Unlock()
	if cancel := i.calls.cancels[h.ID]; cancel != nil {
		cancel()
	} else if h.Timeout > 0 { // marks the log connection
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

// serveRead does all other calls, several at once.
func (i *instance) serveRead() error {
	r := io.Reader(i.read.Conn)
	if i.line != nil {
		r = i.line.Hear(r)
	}
	in := data.NewReader(r, kindEvent)
	for {
		h, body, err := in.Next()
		if err != nil {
			return err
		}
		var do func(context.Context, data.Head)
		switch h.Kind {
		case kindCancel:
			i.cancelCall(&h)
			continue
		case kindRead:
			var r storage.ReadRequest
			r, err = readReadRequest(body)
			do = func(ctx context.Context, h data.Head) {
				i.chunk(h, r.Queue.Topic, func(c *storage.Chunk) error { return i.store.Read(ctx, r, c) })
			}
		case kindGet:
			var at []message.Position
			at, err = readPositions(body)
			do = func(ctx context.Context, h data.Head) {
				i.chunk(h, "", func(c *storage.Chunk) error { return i.store.Get(ctx, at, c) })
			}
		case kindReadLog:
			d := data.Decoder{B: body}
			from, most := message.Position(d.Int()), d.Int()
			err = d.Done("ReadLog")
			do = func(ctx context.Context, h data.Head) {
				i.chunk(h, "", func(c *storage.Chunk) error {
					if i.caps.RawLog == nil {
						return storage.ErrUnsupported
					}
					return i.caps.RawLog.ReadLog(ctx, from, int(min(most, data.MaxFrame/2)), c)
				})
			}
		case kindOffsets:
			var q []storage.OffsetQuery
			q, err = readQueries(body)
			do = func(ctx context.Context, h data.Head) { i.offsets(ctx, h, q) }
		case kindSync:
			d := data.Decoder{B: body}
			end := message.Position(d.Int())
			err = d.Done("Sync")
			do = func(ctx context.Context, h data.Head) { i.sync(ctx, h, end) }
		default:
			err = fmt.Errorf("%w: kind %d on the read connection", data.ErrFrame, h.Kind)
		}
		if err != nil {
			return err
		}
		ctx, done := i.context(&h, false)
		i.busy.Add(1)
		i.tasks.Go(func() {
			defer i.busy.Add(-1)
			defer done()
			do(ctx, h)
		})
	}
}

var chunks = sync.Pool{New: func() any { return new(storage.Chunk) }}

// chunk answers with records; the store's own memory is what is written.
func (i *instance) chunk(h data.Head, topic string, fill func(*storage.Chunk) error) {
	c := chunks.Get().(*storage.Chunk)
	defer func() {
		c.Reset()
		chunks.Put(c)
	}()
	if err := fill(c); err != nil {
		i.failed(h, err)
		return
	}
	total := 0
	for _, f := range c.Frags {
		total += len(f)
	}
	out := data.TakeBuffer()
	defer data.GiveBuffer(out)
	*out = putChunk(data.Begin((*out)[:0]), topic, c)
	if len(*out)+total > data.MaxFrame {
		i.failed(h, fmt.Errorf("%w: an answer of %d bytes, at most %d cross to the host; ask for less", storage.ErrUnsupported, total, data.MaxFrame))
		return
	}
	data.Finish(*out, 0, kindDone, h.ID, 0, total)
	_ = i.read.Send(*out, c.Frags...) // a broken connection ends the reader, too
}

func (i *instance) failed(h data.Head, err error) {
	out := data.PutFailure(data.Begin(nil), err)
	data.Finish(out, 0, kindFailed, h.ID, 0, 0)
	_ = i.read.Send(out)
}

func (i *instance) offsets(ctx context.Context, h data.Head, q []storage.OffsetQuery) {
	var a storage.OffsetAnswers
	if err := i.store.Offsets(ctx, q, &a); err != nil {
		i.failed(h, err)
		return
	}
	out := data.TakeBuffer()
	defer data.GiveBuffer(out)
	*out = putAnswers(data.Begin((*out)[:0]), len(q) == 0, &a)
	data.Finish(*out, 0, kindDone, h.ID, 0, 0)
	_ = i.read.Send(*out)
}

func (i *instance) sync(ctx context.Context, h data.Head, end message.Position) {
	o := outcome{err: i.store.Sync(ctx, end)}
	o.marks = i.marks()
	out := data.TakeBuffer()
	defer data.GiveBuffer(out)
	*out = putOutcome(data.Begin((*out)[:0]), &o)
	data.Finish(*out, 0, kindDone, h.ID, 0, 0)
	_ = i.read.Send(*out)
}
